use std::io::Write;

use dorm_agent_client::{Agent, AgentError, ExitStatus, Offsets, Scope};
use dorm_agent_client::{Identity, WriteOptions};
use futures_util::{StreamExt, stream};
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Sandbox, connect, read_all, read_until, shell, within};

#[tokio::test]
async fn processes_outlive_a_host_that_died_in_the_middle_of_a_frame() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("echo before; sleep 1000")).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    read_until(&mut output, "before").await;
    drop(output);
    // A data frame that announces 20000 bytes and contains three.
    let mut cut = vec![0xd0, 0x9d, 0x4d, 0xa1, 5, 0, 0, 0, 9, 0, 0, 0];
    cut.extend_from_slice(&20_000_u32.to_le_bytes());
    cut.extend_from_slice(b"abc");
    (&sandbox.host).write_all(&cut).unwrap();
    let sandbox = sandbox.reconnect().await;
    let list = within(sandbox.agent.processes()).await.unwrap();
    assert_eq!((list[0].process, list[0].exit), (process, None));
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    read_until(&mut output, "before").await;
}

#[tokio::test]
async fn garbage_is_passed_over() {
    let sandbox = Sandbox::new().await;
    (&sandbox.host).write_all(&[0xd0; 100]).unwrap();
    (&sandbox.host).write_all(b"this is no frame").unwrap();
    let sandbox = sandbox.reconnect().await;
    within(sandbox.agent.ping()).await.unwrap();
}

#[tokio::test]
async fn a_new_host_ends_the_calls_of_the_one_before() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("cat /dev/zero")).await;
    let path = sandbox.path("file");
    let calls = {
        let agent = sandbox.agent.clone();
        let stuck = within(agent.output(process, Offsets::BEGINNING)).await.unwrap();
        let watch = within(agent.watch(&sandbox.path(""), Scope::Below)).await.unwrap();
        let waiting = tokio::spawn({
            let agent = agent.clone();
            async move { agent.wait(process).await }
        });
        let writing = tokio::spawn({
            let path = path.clone();
            async move { agent.write_file(&path, WriteOptions::default(), stream::pending::<Result<_, String>>()).await }
        });
        within(sandbox.agent.ping()).await.unwrap();
        (stuck, watch, waiting, writing)
    };
    let sandbox = sandbox.reconnect().await;
    drop(calls);
    within(sandbox.agent.ping()).await.unwrap();
    within(async {
        while std::fs::read_dir(sandbox.host_path("")).unwrap().count() > 0 {
            sandbox.agent.ping().await.unwrap();
        }
    })
    .await;
    assert_eq!(sandbox.shell("echo fine").await.stdout(), "fine\n");
}

#[tokio::test]
async fn the_end_of_the_stream_ends_every_call() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("sleep 1000")).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    sandbox.host.shutdown(std::net::Shutdown::Both).unwrap();
    within(sandbox.agent.closed()).await;
    assert!(matches!(within(output.next()).await, Some(Err(AgentError::Closed { .. }))));
    assert!(within(output.next()).await.is_none());
    assert!(matches!(within(sandbox.agent.ping()).await, Err(AgentError::Closed { .. })));
}

#[tokio::test]
async fn nobody_at_the_other_end_is_an_error() {
    let (host, other) = tokio::io::duplex(1 << 20);
    drop(other);
    assert!(matches!(within(Agent::connect(host, 1)).await, Err(AgentError::Closed { .. })));
}

#[tokio::test]
async fn a_quiet_stream_carries_nothing_until_it_is_unquiesced_and_then_everything() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("while :; do echo tick; sleep 0.001; done")).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    read_until(&mut output, "tick").await;
    within(sandbox.agent.quiesce()).await.unwrap();
    let agent = sandbox.agent.clone();
    let asked = tokio::spawn(async move { agent.ping().await });
    // All data from before the quiet period is read; then another reader of the same socket finds
    // it empty.
    tokio::task::yield_now().await;
    let mut byte = [0; 1];
    let peeked = rustix::net::recv(&sandbox.host, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    assert_eq!(peeked.map(|(_, length)| length), Err(rustix::io::Errno::AGAIN));
    assert!(!asked.is_finished());
    within(sandbox.agent.unquiesce()).await.unwrap();
    within(asked).await.unwrap().unwrap();
    read_until(&mut output, "tick").await;

    within(sandbox.agent.quiesce()).await.unwrap();
    let identity =
        Identity { generation: 2, hostname: String::new(), unix_time_us: 0, entropy: [1; 32], variables: Vec::new() };
    within(sandbox.agent.resumed(&identity)).await.unwrap();
    within(sandbox.agent.quiesce()).await.unwrap();
    drop(output);
    let sandbox = sandbox.reconnect().await;
    within(sandbox.agent.ping()).await.unwrap();
}

#[tokio::test]
async fn a_port_inside_is_reached_through_the_agent() {
    let sandbox = Sandbox::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        socket.read_to_end(&mut received).await.unwrap();
        socket.write_all(&received).await.unwrap();
        received.len()
    });
    let stream = within(sandbox.agent.dial(port)).await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let write = async {
        writing.write_all(&sent).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    within(async { tokio::join!(write, reading.read_to_end(&mut back)) }).await.1.unwrap();
    assert!(back == sent);
    assert_eq!(within(server).await.unwrap(), sent.len());
    // The listener has ended with its task, so the port is free again.
    assert!(matches!(within(sandbox.agent.dial(port)).await, Err(AgentError::Refused(refused)) if refused == port));
}

#[tokio::test]
async fn a_dropped_connection_is_closed_inside() {
    let sandbox = Sandbox::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = within(sandbox.agent.dial(listener.local_addr().unwrap().port())).await.unwrap();
    let (mut socket, _) = within(listener.accept()).await.unwrap();
    drop(stream);
    let mut byte = [0; 1];
    assert!(matches!(within(socket.read(&mut byte)).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn two_agents_do_not_know_each_other() {
    let (one, two) = tokio::join!(Sandbox::new(), Sandbox::new());
    let process = one.start(&shell("exit 1")).await;
    assert_eq!(within(one.agent.wait(process)).await.unwrap(), ExitStatus::Code(1));
    assert!(within(two.agent.processes()).await.unwrap().is_empty());
    let again = within(connect(&two.host)).await;
    drop(two);
    drop(again);
    let ended = within(read_all(one.agent.output(process, Offsets::BEGINNING).await.unwrap())).await;
    assert_eq!(ended.status, Some(ExitStatus::Code(1)));
}
