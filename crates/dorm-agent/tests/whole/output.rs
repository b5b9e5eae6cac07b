use dorm_agent_client::{
    AgentError, ExitStatus, FirstReader, Offsets, Output, OutputEnd, OutputStream, ProcessKey, ProcessSpec, Signal,
    Target,
};
use futures_util::StreamExt;

use crate::support::{Sandbox, read_all, read_until, shell, within};

const KEPT: usize = 1024 * 1024;

/// The piece without its time, which it must have.
fn untimed(piece: Output) -> Output {
    match piece {
        Output::Stdout { offset, read_unix_ms, bytes } => {
            assert!(read_unix_ms > Some(1_700_000_000_000), "{read_unix_ms:?}");
            Output::Stdout { offset, read_unix_ms: None, bytes }
        }
        Output::Stderr { offset, read_unix_ms, bytes } => {
            assert!(read_unix_ms > Some(1_700_000_000_000), "{read_unix_ms:?}");
            Output::Stderr { offset, read_unix_ms: None, bytes }
        }
        other => other,
    }
}

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

/// Reads until the stream ends with its connection. Returns the offset behind the last byte.
async fn end_of(mut output: OutputStream) -> Option<u64> {
    let mut end = None;
    while let Some(Ok(piece)) = within(output.next()).await {
        if let Output::Stdout { offset, bytes, .. } = piece {
            end = Some(offset + bytes.len() as u64);
        }
    }
    end
}

#[tokio::test]
async fn a_reader_that_continues_after_quiet_periods_and_new_hosts_misses_nothing() {
    let mut sandbox = Sandbox::new().await;
    let count = sandbox.host_path("count");
    let script = format!("while :; do i=$((i + 1)); echo $i; echo $i > {}; sleep 0.001; done", count.display());
    let process = sandbox.start(&shell(&script)).await;
    let counted = || std::fs::read_to_string(&count).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let mut end = None;
    for _ in 0..8 {
        let from = if end.is_none() { Offsets::BEGINNING } else { Offsets::CONTINUED };
        let mut output = within(sandbox.agent.output(process, from)).await.unwrap();
        let Some(Ok(Output::Stdout { offset, bytes, .. })) = within(output.next()).await else { panic!("output") };
        assert_eq!(offset, end.unwrap_or(0), "nothing is missing, and nothing comes twice");
        let first = offset + bytes.len() as u64;
        within(sandbox.agent.quiesce()).await.unwrap();
        // The process continues, so that the agent has output that it must not send.
        let before = within(until(counted)).await;
        within(until(|| counted().filter(|now| *now > before + 5))).await;
        let agent = sandbox.agent.clone();
        agent.close();
        end = Some(end_of(output).await.unwrap_or(first));
        sandbox = sandbox.reconnect().await;
    }
}

/// Waits until there is an answer.
async fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    loop {
        match ask() {
            Some(answer) => return answer,
            None => tokio::task::yield_now().await,
        }
    }
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
        seen.push(untimed(piece.unwrap()));
    }
    let stdout = Output::Stdout { offset: 4, read_unix_ms: None, bytes: "456789".into() };
    let stderr = Output::Stderr { offset: 1, read_unix_ms: None, bytes: "bc".into() };
    assert_eq!(seen.pop(), Some(Output::Exited(ExitStatus::Code(0))));
    // The agent may read either pipe first.
    assert!(seen == [stdout.clone(), stderr.clone()] || seen == [stderr, stdout], "{seen:?}");
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
            Output::Stdout { offset, bytes, .. } => {
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

/// The pieces that a reader from these offsets gets: stream, time, text.
async fn pieces(sandbox: &Sandbox, process: u64, from: Offsets) -> Vec<(char, u64, String)> {
    let mut output = within(sandbox.agent.output(process, from)).await.unwrap();
    let mut seen = Vec::new();
    while let Some(piece) = within(output.next()).await {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match piece.unwrap() {
            Output::Stdout { read_unix_ms, bytes, .. } => seen.push(('o', read_unix_ms.unwrap(), text(&bytes))),
            Output::Stderr { read_unix_ms, bytes, .. } => seen.push(('e', read_unix_ms.unwrap(), text(&bytes))),
            Output::Lost { .. } => panic!("something is lost"),
            Output::Exited(_) => {}
        }
    }
    seen
}

#[tokio::test]
async fn both_outputs_come_in_their_order_with_their_times_also_later_and_from_any_offset() {
    let sandbox = Sandbox::new().await;
    let script = "for i in 1 2 3 4; do echo out$i; sleep 0.05; echo err$i >&2; sleep 0.05; done";
    let process = sandbox.start(&shell(script)).await;
    let live = pieces(&sandbox, process, Offsets::BEGINNING).await;
    let texts: Vec<_> = live.iter().map(|(kind, _, text)| (*kind, text.as_str())).collect();
    let expected = [
        ('o', "out1\n"),
        ('e', "err1\n"),
        ('o', "out2\n"),
        ('e', "err2\n"),
        ('o', "out3\n"),
        ('e', "err3\n"),
        ('o', "out4\n"),
        ('e', "err4\n"),
    ];
    assert_eq!(texts, expected);
    assert!(live.windows(2).all(|pair| pair[1].1 >= pair[0].1 + 40), "{live:?}");
    assert_eq!(pieces(&sandbox, process, Offsets::BEGINNING).await, live, "a later reader gets the same");
    let rest = pieces(&sandbox, process, Offsets { stdout: 12, stderr: 10 }).await;
    let texts: Vec<_> = rest.iter().map(|(kind, time, text)| (*kind, *time, text.as_str())).collect();
    assert_eq!(texts[0], ('o', live[4].1, "t3\n"));
    assert_eq!(texts[1], ('e', live[5].1, "err3\n"));
    assert_eq!(rest[2..], live[6..]);
}

/// A process whose output ends when no other process has it open.
fn until_closed(script: &str) -> ProcessSpec {
    ProcessSpec { output_end: OutputEnd::WithPipes, first_reader: FirstReader::Expected, ..shell(script) }
}

/// A child that writes one line when a file has appeared. It ends with the directory of the test.
fn child(sandbox: &Sandbox) -> String {
    let (go, directory) = (sandbox.path("go"), sandbox.path(""));
    format!("(until [ -e {go} ] || [ ! -d {directory} ]; do sleep 0.01; done; echo late) & echo first")
}

#[tokio::test]
async fn output_can_last_until_children_have_closed_it() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&until_closed(&child(&sandbox))).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(0));
    assert_eq!(read_until(&mut output, "first\n").await, "first\n");
    std::fs::write(sandbox.host_path("go"), "").unwrap();
    let ended = within(read_all(output)).await;
    assert_eq!((ended.stdout(), ended.status), ("late\n", Some(ExitStatus::Code(0))));
}

#[tokio::test]
async fn a_signal_ends_output_that_children_hold_open() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&until_closed(&child(&sandbox))).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    within(sandbox.agent.wait(process)).await.unwrap();
    read_until(&mut output, "first\n").await;
    let hangup = within(sandbox.agent.signal(process, Signal::HANGUP, Target::Process)).await;
    assert!(matches!(hangup, Err(AgentError::NoProcess(_))), "{hangup:?}");
    within(sandbox.agent.signal(process, Signal::TERMINATE, Target::Process)).await.unwrap();
    let ended = within(read_all(output)).await;
    assert_eq!((ended.stdout(), ended.status), ("", Some(ExitStatus::Code(0))));
    let again = within(sandbox.agent.signal(process, Signal::TERMINATE, Target::Process)).await;
    assert!(matches!(again, Err(AgentError::NoProcess(_))), "{again:?}");
}

#[tokio::test]
async fn a_time_limit_ends_output_that_children_hold_open() {
    let sandbox = Sandbox::new().await;
    let limit = std::time::Duration::from_millis(300);
    let started = within(sandbox.agent.start_within(&until_closed(&child(&sandbox)), limit)).await.unwrap();
    let mut output = within(sandbox.agent.output(started.process, Offsets::BEGINNING)).await.unwrap();
    while within(output.next()).await.is_some() {}
    assert!(output.timed_out());
}

#[tokio::test]
async fn processes_are_found_by_pid_and_by_label() {
    let sandbox = Sandbox::new().await;
    let labelled = ProcessSpec { label: Some("server".to_owned()), ..shell("exit 3") };
    let first = within(sandbox.agent.start(&labelled)).await.unwrap();
    let second = within(sandbox.agent.start(&shell("exit 0"))).await.unwrap();
    for (key, process) in
        [(ProcessKey::Pid(second.pid), second.process), (ProcessKey::Label("server".to_owned()), first.process)]
    {
        let found = within(sandbox.agent.find_processes(key)).await.unwrap();
        assert_eq!(found.iter().map(|status| status.process).collect::<Vec<_>>(), [process]);
    }
    assert_eq!(within(sandbox.agent.find_processes(ProcessKey::Pid(u32::MAX))).await.unwrap(), []);
}
