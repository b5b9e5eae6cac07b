//! Processes in the background.

use anyhow::Result;
use dorm_client::Sandbox;
use std::time::Duration;

use dorm_client::types::{ExitStatus, SignalTarget};
use dorm_client::{CommandEvent, Position};

use crate::cases::{Cases, code_of, read_until};

const EXITED: ExitStatus = ExitStatus { exit_code: Some(0), signal: None, timed_out: false };

/// The daemon of the cases, and what they share.
struct On {
    sandbox: Sandbox,
}

crate::cases::area! {
    a_process_runs_in_the_background_and_is_waited_for,
    output_is_read_from_the_beginning_as_often_as_needed,
    output_is_read_from_any_position,
    a_stream_continues_where_another_one_was_left,
    what_exists_now_is_read_without_waiting,
    input_is_written_and_closed,
    a_process_without_input_cannot_be_written_to,
    a_signal_reaches_the_process,
    kill_ends_all_descendants,
    processes_are_found_by_their_label,
    a_process_in_a_terminal_is_resized,
    a_time_limit_is_reported,
    the_kept_output_is_limited_and_the_rest_is_counted,
    a_process_that_does_not_exist_is_an_error,
}

#[tokio::test]
async fn processes() {
    let mut cases = Cases::new("processes");
    let sandbox = cases.dormouse().create("base").await.unwrap();
    let on = On { sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_process_runs_in_the_background_and_is_waited_for(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("echo started; exit 4").await?;
    assert_eq!(process.wait().await?.exit_code, Some(4));
    assert_eq!(process.result().await?.stdout, b"started\n");
    Ok(())
}

async fn output_is_read_from_the_beginning_as_often_as_needed(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("echo out; echo err >&2").await?;
    for _ in 0..2 {
        let output = process.result().await?;
        assert_eq!((output.stdout_text().as_str(), output.stderr_text().as_str()), ("out\n", "err\n"));
    }
    Ok(())
}

async fn output_is_read_from_any_position(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("printf 0123456789").await?;
    process.wait().await?;
    let output = process.output(Position { stdout: 7, stderr: 0 }).await?.collect().await?;
    assert_eq!((output.stdout.as_slice(), output.status), (&b"789"[..], EXITED));
    let after = process.output(Position { stdout: 1000, stderr: 9 }).await?.collect().await?;
    assert_eq!(after.stdout, b"");
    Ok(())
}

async fn a_stream_continues_where_another_one_was_left(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("echo one; read line; echo $line").stdin().await?;
    let mut stream = process.output(Position::default()).await?;
    assert_eq!(read_until(&mut stream, "one\n").await?, "one\n");
    let position = stream.position();
    drop(stream);
    process.write("two\n").await?;
    assert_eq!(process.output(position).await?.collect().await?.stdout, b"two\n");
    Ok(())
}

async fn what_exists_now_is_read_without_waiting(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("echo one; sleep 600").await?;
    let mut stream = process.output(Position::default()).await?;
    read_until(&mut stream, "one\n").await?;
    let events = process.output_so_far(Position::default()).await?;
    assert!(matches!(&events[..], [CommandEvent::Stdout(chunk)] if chunk.bytes == b"one\n"), "{events:?}");
    process.kill().await?;
    Ok(())
}

async fn input_is_written_and_closed(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start(["cat"]).stdin().await?;
    assert_eq!(process.write("a").await?, 1);
    assert_eq!(process.write(vec![0xff; 1000]).await?, 1000);
    process.close_stdin().await?;
    assert_eq!(process.result().await?.stdout.len(), 1001);
    Ok(())
}

async fn a_process_without_input_cannot_be_written_to(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("sleep 600").await?;
    assert_eq!(code_of(process.write("x").await), "conflict");
    process.kill().await?;
    Ok(())
}

async fn a_signal_reaches_the_process(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done").await?;
    let mut stream = process.output(Position::default()).await?;
    read_until(&mut stream, "ready\n").await?;
    process.signal(15, SignalTarget::Process).await?;
    assert_eq!(process.wait().await?.exit_code, Some(5));
    assert_eq!(code_of(process.signal(15, SignalTarget::Process).await), "not_found");
    Ok(())
}

async fn kill_ends_all_descendants(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("setsid sleep 600 & sleep 600 & echo started; wait").await?;
    let mut stream = process.output(Position::default()).await?;
    read_until(&mut stream, "started\n").await?;
    assert_eq!(process.kill().await?, 3);
    assert_eq!(process.wait().await?.signal, Some(9));
    Ok(())
}

async fn processes_are_found_by_their_label(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("sleep 600").label("found").env("A", "1").cwd("/usr").await?;
    let found = sandbox.processes(Some("found")).await?;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].process, found[0].cwd.to_string().as_str()), (process.handle(), "/usr"));
    assert_eq!(sandbox.process(process.handle()).info().await?, found[0]);
    assert!(sandbox.processes(None).await?.len() > 1);
    process.kill().await?;
    Ok(())
}

async fn a_process_in_a_terminal_is_resized(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("read line; stty size").terminal(10, 20).await?;
    process.resize(30, 40).await?;
    process.write("go\n").await?;
    assert!(process.result().await?.stdout_text().ends_with("30 40\r\n"));
    Ok(())
}

async fn a_time_limit_is_reported(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("sleep 600").timeout(Duration::from_millis(300)).await?;
    assert!(process.wait().await?.timed_out);
    Ok(())
}

async fn the_kept_output_is_limited_and_the_rest_is_counted(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.start("head -c 100000 /dev/zero; echo end").keep_output(4096).await?;
    process.wait().await?;
    let output = process.result().await?;
    assert_eq!(output.stdout.len() as u64 + output.lost_bytes, 100_004);
    assert!(output.lost_bytes > 0 && output.stdout.ends_with(b"end\n"));
    Ok(())
}

async fn a_process_that_does_not_exist_is_an_error(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let process = sandbox.process(1_000_000);
    assert_eq!(code_of(process.info().await), "not_found");
    assert_eq!(code_of(process.wait().await), "not_found");
    assert_eq!(code_of(process.kill().await), "not_found");
    assert_eq!(code_of(process.output(Position::default()).await), "not_found");
    Ok(())
}
