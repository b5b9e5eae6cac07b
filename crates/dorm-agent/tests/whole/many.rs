//! Very many calls at the same time.

use std::time::{Duration, Instant};

use dorm_agent_client::{Agent, AgentError, ExitStatus, FirstReader, Offsets, Output, Signal, Target, WriteOptions};
use futures_util::future::{join_all, try_join_all};
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Sandbox, command, read_all, shell, within};

const STREAMS: usize = 2000;
const CONNECTIONS: usize = 600;
/// The memory that an open call may cost the agent.
const CALL_BYTES: u64 = 8 << 10;

/// The number of threads of the agent.
fn threads(sandbox: &Sandbox) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", sandbox.pid())).unwrap().count()
}

#[tokio::test]
async fn two_thousand_readers_of_one_process_get_every_byte_and_take_no_thread() {
    let sandbox = Sandbox::new().await;
    let mut spec = shell("read go; seq 1 20000; echo end");
    spec.stdin = dorm_agent_client::Stdin::Pipe;
    spec.first_reader = FirstReader::Expected;
    spec.output_kept = 16_000;
    let process = sandbox.start(&spec).await;
    let (before, threads_before) = (sandbox.memory(), threads(&sandbox));
    let open = (0..STREAMS).map(|_| sandbox.agent.output(process, Offsets::BEGINNING));
    let streams = within(try_join_all(open)).await.unwrap();
    let cost = (sandbox.memory().saturating_sub(before)) / STREAMS as u64;
    assert!(cost < CALL_BYTES, "{cost} bytes for each");
    assert!(threads(&sandbox) <= threads_before + 8, "{} threads", threads(&sandbox));
    // Other calls work meanwhile.
    assert_eq!(sandbox.shell("echo fine").await.stdout(), "fine\n");
    within(sandbox.agent.write_stdin(process, "go\n".into())).await.unwrap();
    let all = within(join_all(streams.into_iter().map(|output| tokio::spawn(read_all(output))))).await;
    let mut expected: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    expected.push_str("end\n");
    for ended in all {
        let ended = ended.unwrap();
        assert_eq!((ended.lost, ended.status), (0, Some(ExitStatus::Code(0))));
        assert!(ended.stdout == expected.as_bytes());
    }
}

#[tokio::test]
async fn a_reader_that_stands_still_does_not_stop_two_thousand_of_other_processes() {
    let sandbox = Sandbox::new().await;
    let flood = sandbox.start(&shell("cat /dev/zero")).await;
    let stuck = join_all((0..50).map(|_| sandbox.agent.output(flood, Offsets::BEGINNING))).await;
    let mut processes = Vec::new();
    for number in 0..20 {
        processes.push(sandbox.start(&shell(&format!("sleep 0.5; seq {number} 2000"))).await);
    }
    let open = (0..STREAMS).map(|number| sandbox.agent.output(processes[number % 20], Offsets::BEGINNING));
    let streams = within(try_join_all(open)).await.unwrap();
    let all = within(join_all(streams.into_iter().map(|output| tokio::spawn(read_all(output))))).await;
    for (number, ended) in all.into_iter().enumerate() {
        let expected: String = (number % 20..=2000).map(|number| format!("{number}\n")).collect();
        let ended = ended.unwrap();
        assert!(ended.stdout == expected.as_bytes() && ended.lost == 0);
    }
    drop(stuck);
    within(sandbox.agent.signal(flood, Signal::KILL, Target::Group)).await.unwrap();
}

#[tokio::test]
async fn thousands_of_readers_that_come_and_go_leave_nothing() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("while :; do echo line; sleep 0.01; done")).await;
    let open_and_close = async |rounds: usize| {
        for _ in 0..rounds {
            let open = (0..500).map(|_| sandbox.agent.output(process, Offsets::BEGINNING));
            let streams = within(try_join_all(open)).await.unwrap();
            drop(streams);
            let waits = (0..500).map(|_| sandbox.agent.wait(process));
            assert!(tokio::time::timeout(Duration::from_millis(50), join_all(waits)).await.is_err());
            within(sandbox.agent.ping()).await.unwrap();
        }
    };
    open_and_close(4).await;
    let before = sandbox.memory();
    open_and_close(20).await;
    let grown = sandbox.memory().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes more");
    within(sandbox.agent.signal(process, Signal::KILL, Target::Group)).await.unwrap();
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Signal(9));
}

#[tokio::test]
async fn what_is_beyond_a_limit_is_refused_by_name_and_only_that() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("sleep 1000")).await;
    let open = (0..4096).map(|_| sandbox.agent.output(process, Offsets::BEGINNING));
    let streams = within(try_join_all(open)).await.unwrap();
    let refused = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap_err();
    assert!(matches!(&refused, AgentError::TooManyOpen { of, most: 4096 } if of == "output streams"), "{refused}");
    drop(streams);
    within(async {
        while let Err(error) = sandbox.agent.output(process, Offsets::BEGINNING).await {
            assert!(matches!(error, AgentError::TooManyOpen { .. }), "{error}");
        }
    })
    .await;
    // Uploads that stand still take all threads that may wait, but no other.
    let paths: Vec<_> = (0..513).map(|number| sandbox.path(&format!("file-{number}"))).collect();
    let upload = |path| {
        let agent: Agent = sandbox.agent.clone();
        tokio::spawn(async move {
            agent.write_file(&path, WriteOptions::default(), stream::pending::<Result<_, String>>()).await.map(drop)
        })
    };
    let mut uploads: Vec<_> = paths.into_iter().map(upload).collect();
    let (first, at, _) = within(futures_util::future::select_all(&mut uploads)).await;
    let refused = first.unwrap().unwrap_err();
    assert!(matches!(refused, AgentError::TooManyOpen { most: 512, .. }), "{refused}");
    uploads.remove(at);
    assert_eq!(sandbox.shell("echo fine").await.stdout(), "fine\n");
    let cat = within(sandbox.agent.start_with_input(&command(&["cat"]), b"fine\n", None)).await.unwrap();
    let output = within(sandbox.agent.output(cat.process, Offsets::BEGINNING)).await.unwrap();
    assert_eq!(within(read_all(output)).await.stdout(), "fine\n");
    uploads.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn hundreds_of_connections_are_open_at_once_and_take_no_thread() {
    let sandbox = Sandbox::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Echoes everything, after all are connected.
    let server = tokio::spawn(async move {
        let mut sockets = Vec::new();
        for _ in 0..CONNECTIONS {
            sockets.push(listener.accept().await.unwrap().0);
        }
        let echo = |mut socket: tokio::net::TcpStream| async move {
            let (mut read, mut write) = socket.split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
            write.shutdown().await.unwrap();
        };
        join_all(sockets.into_iter().map(|socket| tokio::spawn(echo(socket)))).await;
    });
    let (before, threads_before) = (sandbox.memory(), threads(&sandbox));
    let streams = within(try_join_all((0..CONNECTIONS).map(|_| sandbox.agent.dial(port)))).await.unwrap();
    let cost = (sandbox.memory().saturating_sub(before)) / CONNECTIONS as u64;
    assert!(cost < 2 * CALL_BYTES, "{cost} bytes for each");
    within(async {
        while threads(&sandbox) > threads_before + 8 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let talk = |number: usize, stream: dorm_agent_client::DialedStream| async move {
        // More than the window, in both directions at once.
        let text = format!("{number:07}\n").repeat(50_000);
        let (mut read, mut write) = tokio::io::split(stream);
        let mut back = String::new();
        let send = async {
            write.write_all(text.as_bytes()).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let ((), read) = tokio::join!(send, read.read_to_string(&mut back));
        read.unwrap();
        assert!(back == text);
    };
    let talks = streams.into_iter().enumerate().map(|(number, stream)| tokio::spawn(talk(number, stream)));
    for talk in within(join_all(talks)).await {
        talk.unwrap();
    }
    within(server).await.unwrap();
}

#[tokio::test]
async fn a_time_limit_ends_a_process_whose_input_is_open_and_that_gets_input_meanwhile() {
    let sandbox = Sandbox::new().await;
    let mut spec = shell("while read line; do echo got $line; done; echo closed");
    spec.stdin = dorm_agent_client::Stdin::Pipe;
    let begun = Instant::now();
    let limit = Duration::from_millis(1500);
    let process = within(sandbox.agent.start_within(&spec, limit)).await.unwrap().process;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    for number in 0..3 {
        within(sandbox.agent.write_stdin(process, format!("{number}\n").into())).await.unwrap();
        let seen = crate::support::read_until(&mut output, &format!("got {number}")).await;
        assert!(!seen.contains("closed"));
    }
    let mut last = None;
    while let Some(piece) = within(output.next()).await {
        last = Some(piece.unwrap());
    }
    assert_eq!(last, Some(Output::Exited(ExitStatus::Signal(9))));
    assert!(output.timed_out() && begun.elapsed() >= limit);
    assert!(within(sandbox.agent.process(process)).await.unwrap().timed_out);
    // One that ends by itself, or is killed by another, has not exceeded its limit.
    let quick = within(sandbox.agent.start_within(&shell("exit 3"), limit)).await.unwrap().process;
    assert_eq!(within(sandbox.agent.wait(quick)).await.unwrap(), ExitStatus::Code(3));
    let killed = within(sandbox.agent.start_within(&shell("sleep 1000"), Duration::from_secs(60))).await.unwrap();
    within(sandbox.agent.signal(killed.process, Signal::KILL, Target::Group)).await.unwrap();
    assert_eq!(within(sandbox.agent.wait(killed.process)).await.unwrap(), ExitStatus::Signal(9));
    for process in [quick, killed.process] {
        assert!(!within(sandbox.agent.process(process)).await.unwrap().timed_out);
    }
}

#[tokio::test]
async fn time_while_the_sandbox_is_saved_does_not_count_towards_a_limit() {
    let sandbox = Sandbox::new().await;
    let limit = Duration::from_secs(3);
    let process = within(sandbox.agent.start_within(&shell("sleep 4"), limit)).await.unwrap().process;
    within(sandbox.agent.quiesce()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    within(sandbox.agent.unquiesce()).await.unwrap();
    // This test cannot stop the process, which ends before its limit.
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(0));
}
