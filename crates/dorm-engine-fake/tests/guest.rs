//! The behaviour of the fake guest, as the real client sees it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dorm_agent_client::{
    Agent, AgentError, ExitStatus, FirstReader, GuestPath, Identity, Offsets, Output, Parents, ProcessSpec,
    RemoveScope, Scope, Stdin, TerminalSize, Variable, WatchEventKind, WriteOptions,
};
use dorm_engine::{Engine, RunSpec};
use dorm_engine_fake::{FakeEngine, FakeHost};
use dorm_lifecycle::{Egress, Resources, RunId, SandboxId};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn spec() -> RunSpec {
    RunSpec {
        run: RunId { sandbox: SandboxId::from_random([1; 20]), generation: 1 },
        image: "0".repeat(64).parse().unwrap(),
        rootfs: PathBuf::from("/nowhere"),
        layers: Vec::new(),
        resources: Resources::default(),
        egress: Egress::Public,
        mounts: Vec::new(),
        build: None,
    }
}

async fn guest() -> (Arc<FakeEngine>, Agent) {
    let engine = FakeHost::new().open();
    engine.start(&spec()).await.unwrap();
    let agent = Agent::connect(engine.agent(&spec().run).await.unwrap(), 1).await.unwrap();
    (engine, agent)
}

fn command(words: &[&str]) -> ProcessSpec {
    let mut spec = ProcessSpec::new(words.iter().map(|word| (*word).try_into().unwrap()).collect());
    spec.stdin = Stdin::Pipe;
    spec.first_reader = FirstReader::Expected;
    spec
}

fn path(text: &str) -> GuestPath {
    text.try_into().unwrap()
}

/// Runs a command to its end; returns both outputs and the exit code.
async fn run(agent: &Agent, words: &[&str]) -> (String, String, i32) {
    let started = agent.start(&command(words)).await.unwrap();
    agent.close_stdin(started.process).await.unwrap();
    follow(agent, started.process).await
}

async fn follow(agent: &Agent, process: u64) -> (String, String, i32) {
    let mut output = agent.output(process, Offsets::BEGINNING).await.unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match output.next().await.unwrap().unwrap() {
            Output::Stdout { bytes, .. } => out.extend(bytes),
            Output::Stderr { bytes, .. } => err.extend(bytes),
            Output::Lost { .. } => panic!("output was lost"),
            Output::Exited(status) => {
                return (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), status.shell_code());
            }
        }
    }
}

#[tokio::test]
async fn programs_print_and_exit_as_they_say() {
    let (_engine, agent) = guest().await;
    let rows: &[(&[&str], &str, &str, i32)] = &[
        (&["true"], "", "", 0),
        (&["false"], "", "", 1),
        (&["echo", "a", "b"], "a b\n", "", 0),
        (&["sh", "-c", "echo one; echo two && false || echo three"], "one\ntwo\nthree\n", "", 0),
        (&["bash", "-l", "-c", "exit 7"], "", "", 7),
        (&["sh", "-c", "cd /tmp; X='a b'; echo \"$X\" > f; cat f; pwd"], "a b\n/tmp\n", "", 0),
        (&["sh", "-c", "nothing"], "", "sh: 1: nothing: not found\n", 127),
        (&["sh", "-c", "if"], "", "sh: 1: if: not found\n", 127),
        (&["sh", "-c", "a | b"], "", "", 2),
        (&["seq", "3"], "1\n2\n3\n", "", 0),
        (&["/bin/cat", "/etc/hostname"], "sandbox\n", "", 0),
        (&["cat", "/missing"], "", "there is no '/missing' in the sandbox\n", 1),
    ];
    for (words, out, err, code) in rows {
        assert_eq!(run(&agent, words).await, (out.to_string(), err.to_string(), *code), "{words:?}");
    }
    assert!(matches!(agent.start(&command(&["nothing"])).await, Err(AgentError::CommandNotFound(_))));
}

#[tokio::test]
async fn input_reaches_a_process_and_more_output_than_is_kept_reaches_a_reader() {
    let (_engine, agent) = guest().await;
    let mut cat = command(&["cat"]);
    cat.output_kept = 1000;
    let started = agent.start(&cat).await.unwrap();
    let sent = Bytes::from("0123456789".repeat(300_000));
    let writer = async {
        agent.write_stdin(started.process, sent.clone()).await.unwrap();
        agent.close_stdin(started.process).await.unwrap();
    };
    let ((), (out, ..)) = tokio::join!(writer, follow(&agent, started.process));
    assert_eq!(out.len(), sent.len());
}

#[tokio::test]
async fn output_that_nobody_reads_is_dropped_from_its_beginning() {
    let (_engine, agent) = guest().await;
    let mut seq = command(&["seq", "1000"]);
    (seq.output_kept, seq.first_reader) = (4, FirstReader::NotExpected);
    let started = agent.start(&seq).await.unwrap();
    assert_eq!(agent.wait(started.process).await.unwrap(), ExitStatus::Code(0));
    let mut output = agent.output(started.process, Offsets::BEGINNING).await.unwrap();
    assert!(matches!(output.next().await, Some(Ok(Output::Lost { offset: 0, bytes: 3889, .. }))));
    assert!(matches!(output.next().await, Some(Ok(Output::Stdout { offset: 3889, .. }))));
}

#[tokio::test(start_paused = true)]
async fn sleeping_takes_as_long_as_it_says_of_paused_time() {
    let (_engine, agent) = guest().await;
    let before = tokio::time::Instant::now();
    assert_eq!(run(&agent, &["sleep", "3600"]).await.2, 0);
    let took = before.elapsed();
    assert!(took >= Duration::from_secs(3600) && took < Duration::from_secs(3601), "{took:?}");
}

#[tokio::test]
async fn signals_end_processes() {
    let (_engine, agent) = guest().await;
    let started = agent.start(&command(&["sleep", "infinity"])).await.unwrap();
    agent
        .signal(started.process, dorm_agent_client::Signal::TERMINATE, dorm_agent_client::Target::Group)
        .await
        .unwrap();
    assert_eq!(agent.wait(started.process).await.unwrap(), ExitStatus::Signal(15));
    assert!(matches!(agent.wait(99).await, Err(AgentError::NoProcess(99))));
}

#[tokio::test]
async fn a_terminal_echoes_and_runs_a_shell() {
    let (_engine, agent) = guest().await;
    let mut shell = command(&["bash"]);
    shell.terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let started = agent.start(&shell).await.unwrap();
    agent.resize(started.process, 30, 90).await.unwrap();
    agent.write_stdin(started.process, Bytes::from("x=5\r")).await.unwrap();
    agent.write_stdin(started.process, Bytes::from("echo $x\rexit 3\r")).await.unwrap();
    let (out, _, code) = follow(&agent, started.process).await;
    assert_eq!((out.as_str(), code), ("x=5\r\necho $x\r\nexit 3\r\n5\r\n", 3));
}

#[tokio::test]
async fn files_are_written_read_listed_renamed_watched_and_removed() {
    let (_engine, agent) = guest().await;
    let mut changes = agent.watch(&path("/"), Scope::Below).await.unwrap();
    let body = Bytes::from(vec![7; 1 << 20]);
    let pieces = futures_util::stream::iter([Ok::<_, AgentError>(body.clone())]);
    let options = WriteOptions { parents: Parents::Create, mode: Some(0o600), ..WriteOptions::default() };
    let stat = agent.write_file(&path("/work/deep/file"), options, pieces).await.unwrap();
    assert_eq!((stat.size, stat.mode), (1 << 20, 0o600));
    let (_, read) = agent.read_file(&path("/work/deep/file"), 10, Some(5)).await.unwrap();
    assert_eq!(read.map(|piece| piece.unwrap().len()).collect::<Vec<_>>().await, [5]);
    agent.rename(&path("/work/deep/file"), &path("/work/file")).await.unwrap();
    let listed = agent.list(&path("/work"), 9, None, 100).await.unwrap().items;
    let names: Vec<_> = listed.into_iter().map(|entry| entry.path.to_text()).collect();
    assert_eq!(names, ["/work/deep", "/work/file"]);
    assert!(matches!(agent.remove(&path("/work"), RemoveScope::Single).await, Err(AgentError::NotEmpty(_))));
    agent.remove(&path("/work"), RemoveScope::Tree).await.unwrap();
    assert!(matches!(agent.stat(&path("/work/file")).await, Err(AgentError::NotFound(_))));
    let first = changes.next().await.unwrap().unwrap();
    assert_eq!((first.kind, first.path.to_text().as_str()), (WatchEventKind::Created, "/work"));
}

#[tokio::test]
async fn a_new_identity_is_written_down_and_hooks_run() {
    let (_engine, agent) = guest().await;
    let script =
        futures_util::stream::iter([Ok::<_, AgentError>(Bytes::from("echo $DORMOUSE_GENERATION > /tmp/woken"))]);
    let options = WriteOptions { parents: Parents::Create, mode: Some(0o755), ..WriteOptions::default() };
    agent.write_file(&path("/etc/dormouse/on-resume.d/10-note"), options, script).await.unwrap();
    let identity = Identity {
        generation: 4,
        hostname: "box".into(),
        unix_time_us: 1,
        entropy: [0; 32],
        variables: vec![Variable::new("GREETING", "hello").unwrap()],
    };
    let resumed = agent.resumed(&identity).await.unwrap();
    assert_eq!(resumed.hooks.len(), 1);
    let script = "cat /run/dormouse/generation /tmp/woken; hostname; echo $GREETING";
    assert_eq!(run(&agent, &["sh", "-c", script]).await.0, "4\n4\nbox\nhello\n");
}

#[tokio::test]
async fn ports_answer_from_outside_and_through_the_agent() {
    let (engine, agent) = guest().await;
    agent.start(&command(&["serve", "8080"])).await.unwrap();
    let dialed = agent.dial(8080).await.unwrap();
    let connected = engine.connect(&spec().run, 8080).await.unwrap();
    for mut stream in [Box::new(dialed) as dorm_engine::BoxStream, connected] {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(dorm_engine_fake::SERVED), "{answer}");
    }
    assert!(matches!(agent.dial(8081).await, Err(AgentError::Refused(8081))));
}

#[tokio::test]
async fn a_quiet_agent_speaks_again_when_spoken_to() {
    let (_engine, agent) = guest().await;
    agent.start(&command(&["yes"])).await.unwrap();
    agent.quiesce().await.unwrap();
    agent.unquiesce().await.unwrap();
    agent.ping().await.unwrap();
}
