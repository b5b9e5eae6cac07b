//! Commands that are waited for.

use anyhow::Result;
use dorm_client::Dormouse;
use dorm_client::Sandbox;
use std::time::Duration;

use dorm_client::types::{ExitStatus, SnapshotKind};
use dorm_client::{ClientError, CommandEvent, Position};
use futures_util::future::try_join_all;

use crate::cases::{Cases, code_of, error_of, read_until};

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    sandbox: Sandbox,
}

crate::cases::area! {
    output_and_exit_code_are_returned,
    a_program_gets_its_arguments_as_they_are,
    a_program_that_does_not_exist_is_an_error,
    an_exit_code_is_an_error_only_if_that_is_asked_for,
    a_signal_is_reported,
    a_time_limit_is_reported,
    environment_directory_and_user_are_set,
    standard_input_is_delivered,
    a_long_input_is_delivered,
    a_command_may_end_before_it_has_read_a_long_input,
    output_may_be_any_bytes,
    long_output_is_complete,
    events_come_as_they_happen,
    a_stream_may_be_left_and_its_command_continues,
    a_snapshot_is_taken_first,
    many_commands_run_at_the_same_time,
    a_command_needs_a_line,
}

#[tokio::test]
async fn commands() {
    let mut cases = Cases::new("commands");
    let dormouse = cases.dormouse();
    let sandbox = dormouse.create("base").await.unwrap();
    let on = On { dormouse, sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn output_and_exit_code_are_returned(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let output = sandbox.exec("echo out; echo err >&2; exit 3").await?;
    assert_eq!((output.stdout_text(), output.stderr_text()), ("out\n".to_owned(), "err\n".to_owned()));
    assert_eq!((output.exit_code(), output.is_success(), output.lost_bytes), (Some(3), false, 0));
    assert!(output.process > 0);
    Ok(())
}

async fn a_program_gets_its_arguments_as_they_are(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let output = sandbox.exec(["printf", "%s|", "$HOME", "a b", "*", ""]).await?;
    assert_eq!(output.stdout_text(), "$HOME|a b|*||");
    let words = ["echo", "one"].map(str::to_owned).to_vec();
    assert_eq!(sandbox.exec(words).await?.stdout_text(), "one\n");
    Ok(())
}

async fn a_program_that_does_not_exist_is_an_error(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let error = error_of(sandbox.exec(["/no/such/program"]).await);
    assert!(error.to_string().contains("/no/such/program"), "{error}");
    Ok(())
}

async fn an_exit_code_is_an_error_only_if_that_is_asked_for(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let error = error_of(sandbox.exec("echo why >&2; exit 7").check().await);
    let ClientError::Command { status, stderr, .. } = &error else { panic!("{error:?}") };
    assert_eq!((status.exit_code, stderr.as_str()), (Some(7), "why\n"));
    assert_eq!((error.code(), error.to_string().as_str()), ("command_failed", "the command exited with code 7"));
    assert_eq!(sandbox.exec("echo fine").check().await?.stdout, b"fine\n");
    Ok(())
}

async fn a_signal_is_reported(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let output = sandbox.exec("kill -9 $$").await?;
    assert_eq!(output.status, ExitStatus { exit_code: None, signal: Some(9), timed_out: false });
    assert_eq!(error_of(output.check()).to_string(), "the command was ended by signal 9");
    Ok(())
}

async fn a_time_limit_is_reported(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let output = sandbox.exec("echo begun; sleep 600").timeout(Duration::from_millis(500)).await?;
    assert!(output.status.timed_out && !output.is_success());
    assert_eq!(output.stdout, b"begun\n");
    Ok(())
}

async fn environment_directory_and_user_are_set(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let exec = sandbox.exec("echo $A; pwd; id -u").env("A", "1 2").cwd("/usr").user("1000");
    assert_eq!(exec.await?.stdout_text(), "1 2\n/usr\n1000\n");
    Ok(())
}

async fn standard_input_is_delivered(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    assert_eq!(sandbox.exec(["sort"]).stdin("pear\napple\n").await?.stdout_text(), "apple\npear\n");
    assert_eq!(sandbox.exec(["cat"]).await?.stdout, b"");
    assert_eq!(sandbox.exec(["od", "-An", "-tx1"]).stdin(&b"\xff\x00"[..]).await?.stdout_text(), " ff 00\n");
    Ok(())
}

async fn a_long_input_is_delivered(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let output = sandbox.exec("wc -c; echo done >&2").stdin(vec![b'x'; 3 << 20]).await?;
    assert_eq!((output.stdout_text().trim(), output.stderr_text().as_str()), ("3145728", "done\n"));
    Ok(())
}

async fn a_command_may_end_before_it_has_read_a_long_input(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    assert_eq!(sandbox.exec("head -c 3").stdin(vec![b'x'; 3 << 20]).await?.stdout, b"xxx");
    Ok(())
}

async fn output_may_be_any_bytes(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    assert_eq!(sandbox.exec("printf '\\377\\000\\303'").await?.stdout, b"\xff\x00\xc3");
    Ok(())
}

async fn long_output_is_complete(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let output = sandbox.exec("seq 1 400000").await?;
    assert_eq!((output.stdout.len(), output.lost_bytes), (2_688_895, 0));
    assert!(output.stdout.ends_with(b"400000\n"));
    Ok(())
}

async fn events_come_as_they_happen(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let mut stream = sandbox.exec("echo one; read line; echo $line").stdin("two").stream().await?;
    let Some(CommandEvent::Started(handle)) = stream.next().await? else { panic!("not started") };
    assert_eq!(stream.process().map(|process| process.handle()), Some(handle));
    assert_eq!(read_until(&mut stream, "two\n").await?, "one\ntwo\n");
    assert_eq!(stream.position(), Position { stdout: 8, stderr: 0 });
    assert!(matches!(stream.next().await?, Some(CommandEvent::Exited(status)) if status.exit_code == Some(0)));
    assert_eq!(stream.next().await?, None);
    Ok(())
}

async fn a_stream_may_be_left_and_its_command_continues(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let mut stream = sandbox.exec("echo one; sleep 600").stream().await?;
    read_until(&mut stream, "one\n").await?;
    let process = stream.process().unwrap();
    drop(stream);
    assert_eq!(process.info().await?.exit, None);
    assert_eq!(process.kill().await?, 2);
    Ok(())
}

async fn a_snapshot_is_taken_first(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let output = sandbox.exec("rm -r /etc/hostname").checkpoint(SnapshotKind::Filesystem).await?;
    let snapshot = output.checkpoint.unwrap();
    assert_eq!(dormouse.client().snapshot(&snapshot).await?.source, sandbox.id());
    dormouse.client().delete_snapshot(&snapshot, false).await?;
    Ok(())
}

async fn many_commands_run_at_the_same_time(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let all = (0..20).map(|number| sandbox.exec(format!("echo {number}")).check());
    for (number, output) in try_join_all(all).await?.into_iter().enumerate() {
        assert_eq!(output.stdout_text(), format!("{number}\n"));
    }
    Ok(())
}

async fn a_command_needs_a_line(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    assert_eq!(code_of(sandbox.exec(Vec::<String>::new()).await), "invalid_argument");
    Ok(())
}
