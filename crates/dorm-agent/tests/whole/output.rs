use dorm_agent_client::{AgentError, ExitStatus, FirstReader, Offsets, Output, Signal, Target};
use futures_util::StreamExt;

use crate::support::{Sandbox, read_all, shell, within};

const KEPT: usize = 1024 * 1024;

#[tokio::test]
async fn a_hundred_megabytes_that_nobody_reads_neither_block_the_process_nor_fill_memory() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("head -c 100000000 /dev/zero; echo end")).await;
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(0));
    assert!(sandbox.memory() < 64 << 20, "the agent uses {} bytes", sandbox.memory());
    let ended = within(read_all(sandbox.agent.output(process, Offsets::BEGINNING).await.unwrap())).await;
    assert_eq!(ended.stdout.len(), KEPT);
    assert_eq!(ended.lost, 100_000_004 - KEPT as u64);
    assert!(ended.stdout.ends_with(b"\0end\n"));
    assert_eq!(ended.status, Some(ExitStatus::Code(0)));
}

#[tokio::test]
async fn a_reader_can_continue_where_it_left_off() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("printf 0123456789; printf abc >&2")).await;
    within(sandbox.agent.wait(process)).await.unwrap();
    let from = Offsets { stdout: 4, stderr: 1 };
    let mut output = within(sandbox.agent.output(process, from)).await.unwrap();
    let mut seen = Vec::new();
    while let Some(piece) = within(output.next()).await {
        seen.push(piece.unwrap());
    }
    assert_eq!(
        seen,
        [
            Output::Stdout { offset: 4, bytes: "456789".into() },
            Output::Stderr { offset: 1, bytes: "bc".into() },
            Output::Exited(ExitStatus::Code(0)),
        ]
    );
    let ended = within(read_all(sandbox.agent.output(process, Offsets::NOW).await.unwrap())).await;
    assert_eq!((ended.stdout.len(), ended.lost, ended.status), (0, 0, Some(ExitStatus::Code(0))));
}

#[tokio::test]
async fn a_reader_that_is_expected_loses_nothing_however_much_comes_before_it() {
    let sandbox = Sandbox::new().await;
    let mut spec = shell("head -c 5000000 /dev/zero");
    spec.first_reader = FirstReader::Expected;
    let process = sandbox.start(&spec).await;
    let ended = within(read_all(sandbox.agent.output(process, Offsets::BEGINNING).await.unwrap())).await;
    assert_eq!((ended.stdout.len(), ended.lost), (5_000_000, 0));
}

#[tokio::test]
async fn a_reader_that_reads_loses_nothing_and_others_are_answered_meanwhile() {
    let sandbox = Sandbox::new().await;
    let mut spec = shell("head -c 20000000 /dev/zero");
    spec.first_reader = FirstReader::Expected;
    spec.output_kept = 100_000;
    let process = sandbox.start(&spec).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    let mut length = 0;
    let mut pieces = 0;
    while let Some(piece) = within(output.next()).await {
        match piece.unwrap() {
            Output::Stdout { offset, bytes } => {
                assert_eq!(offset, length);
                length += bytes.len() as u64;
            }
            Output::Exited(status) => assert_eq!(status, ExitStatus::Code(0)),
            other => panic!("{other:?}"),
        }
        pieces += 1;
        if pieces % 50 == 0 {
            within(sandbox.agent.ping()).await.unwrap();
        }
    }
    assert_eq!(length, 20_000_000);
}

#[tokio::test]
async fn a_reader_that_stands_still_blocks_nobody_else() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("cat /dev/zero")).await;
    let stuck = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    for number in 0..20 {
        assert_eq!(sandbox.shell(&format!("echo {number}")).await.stdout(), format!("{number}\n"));
    }
    // The process waits for its reader only as long as the reader exists.
    drop(stuck);
    let mut second = within(sandbox.agent.output(process, Offsets::NOW)).await.unwrap();
    let mut length = 0;
    while length < 4 * KEPT {
        match within(second.next()).await.unwrap().unwrap() {
            Output::Stdout { bytes, .. } => length += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    within(sandbox.agent.signal(process, Signal::KILL, Target::Process)).await.unwrap();
    drop(second);
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Signal(9));
}

#[tokio::test]
async fn the_output_of_an_unknown_process_is_an_error() {
    let sandbox = Sandbox::new().await;
    let unknown = within(sandbox.agent.output(99, Offsets::BEGINNING)).await;
    assert!(matches!(unknown, Err(AgentError::NoProcess(99))));
}
