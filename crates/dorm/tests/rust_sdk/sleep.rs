//! Suspend and resume.

use anyhow::Result;
use dorm_client::Dormouse;
use dorm_client::Sandbox;
use std::time::Duration;

use dorm_client::types::{self, Kept, Residence, Restored, State, Wake};
use dorm_client::{CommandEvent, Position};

use crate::cases::{Cases, becomes, code_of, error_of, kinds, read_until};

const COUNT: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; sleep 0.02; done";

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    sandbox: Sandbox,
}

crate::cases::area! {
    a_sandbox_sleeps_and_wakes_with_its_memory,
    suspending_and_resuming_twice_are_the_same_as_once,
    output_continues_at_its_position_after_a_sleep,
    output_and_exit_code_of_what_ended_before_a_sleep_are_there_after_it,
    what_is_inside_of_a_suspended_sandbox_is_not_available,
    a_command_wakes_the_sandbox_if_that_is_asked_for,
    a_command_wakes_the_sandbox_if_its_policy_says_so,
    an_evicted_sandbox_is_resumed_from_disk,
    only_files_can_be_kept,
    a_sandbox_without_a_name_cannot_be_suspended,
    an_operation_can_be_left_to_itself,
    the_state_is_explained,
    a_hold_keeps_it_awake_until_it_is_released,
    a_deadline_suspends_it_and_is_postponed,
    the_events_tell_all_of_it,
}

#[tokio::test]
async fn sleep() {
    let mut cases = Cases::new("sleep");
    let dormouse = cases.dormouse();
    let sandbox = dormouse.create("base").name("sleeper").await.unwrap();
    let on = On { dormouse, sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_sandbox_sleeps_and_wakes_with_its_memory(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    sandbox.exec("echo $$ > /root/pid; exec 3>&1; true").check().await?;
    assert_eq!(sandbox.suspend().await?.state, State::Suspended);
    let woken = sandbox.resume().await?;
    assert_eq!((woken.state, woken.restored, woken.generation), (State::Running, Restored::Memory, 2));
    Ok(())
}

async fn suspending_and_resuming_twice_are_the_same_as_once(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    sandbox.suspend().await?;
    let generation = sandbox.suspend().await?.generation;
    sandbox.resume().await?;
    assert_eq!(sandbox.resume().await?.generation, generation + 1);
    Ok(())
}

async fn output_continues_at_its_position_after_a_sleep(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let process = sandbox.start(COUNT).await?;
    let mut stream = process.output(Position::default()).await?;
    let mut text = read_until(&mut stream, "\n").await?;
    sandbox.suspend().await?;
    let ended = loop {
        match stream.next().await {
            Ok(Some(CommandEvent::Stdout(chunk))) => text.push_str(&String::from_utf8(chunk.bytes)?),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(ended.code(), "conflict");
    sandbox.resume().await?;
    let mut again = process.output(stream.position()).await?;
    for _ in 0..5 {
        text.push_str(&read_until(&mut again, "\n").await?);
    }
    process.kill().await?;
    for (number, line) in (1..).zip(text.lines()) {
        assert_eq!(line, number.to_string());
    }
    Ok(())
}

async fn output_and_exit_code_of_what_ended_before_a_sleep_are_there_after_it(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let process = sandbox.start("echo done; exit 6").await?;
    process.wait().await?;
    sandbox.suspend().await?;
    sandbox.resume().await?;
    let output = process.result().await?;
    assert_eq!((output.stdout.as_slice(), output.exit_code()), (&b"done\n"[..], Some(6)));
    Ok(())
}

async fn what_is_inside_of_a_suspended_sandbox_is_not_available(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    sandbox.suspend().await?;
    let error = error_of(sandbox.exec("true").await);
    assert_eq!(error.code(), "conflict");
    assert!(!error.next_step().is_empty(), "{error}");
    assert_eq!(code_of(sandbox.files().read("/etc/hostname").await), "conflict");
    assert_eq!(code_of(sandbox.terminal().open().await), "conflict");
    sandbox.resume().await?;
    Ok(())
}

async fn a_command_wakes_the_sandbox_if_that_is_asked_for(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    sandbox.suspend().await?;
    assert_eq!(sandbox.waking().exec("echo awake").await?.stdout_text(), "awake\n");
    sandbox.suspend().await?;
    assert!(sandbox.waking().files().exists("/etc").await?);
    sandbox.suspend().await?;
    sandbox.waking().terminal().command("true").open().await?;
    assert_eq!(sandbox.state().await?, State::Running);
    Ok(())
}

async fn a_command_wakes_the_sandbox_if_its_policy_says_so(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let policy = types::UpdateSandbox { wake: Some(Wake::Any), ..types::UpdateSandbox::default() };
    sandbox.update(&policy).await?;
    sandbox.suspend().await?;
    assert_eq!(sandbox.exec("echo awake").await?.stdout_text(), "awake\n");
    Ok(())
}

async fn an_evicted_sandbox_is_resumed_from_disk(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    sandbox.suspend().await?;
    assert_eq!(sandbox.evict().await?.residence, Residence::Evicted);
    assert_eq!(sandbox.resume().await?.restored, Restored::Memory);
    Ok(())
}

async fn only_files_can_be_kept(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let other = dormouse.create("base").name("files-only").await?;
    other.files().write("/root/kept", "yes").await?;
    let process = other.start("sleep 600").await?;
    let asked = types::SuspendRequest { keep: Some(Kept::Files), ..types::SuspendRequest::default() };
    other.suspend_with(asked).await?;
    assert_eq!(other.resume().await?.restored, Restored::Files);
    assert_eq!(other.files().read_text("/root/kept").await?, "yes");
    assert_eq!(code_of(process.info().await), "not_found");
    other.terminate().await?;
    Ok(())
}

async fn a_sandbox_without_a_name_cannot_be_suspended(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let other = dormouse.create("base").await?;
    let error = error_of(other.suspend().await);
    assert_eq!(error.code(), "conflict");
    assert!(!error.next_step().is_empty(), "{error}");
    other.terminate().await?;
    Ok(())
}

async fn an_operation_can_be_left_to_itself(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let asked = types::SuspendRequest { wait: Some(false), ..types::SuspendRequest::default() };
    let operation = sandbox.suspend_with(asked).await?.operation.map(|operation| operation.id);
    if let Some(operation) = operation {
        let ended = dormouse.client().operation_within(&operation, 60).await?;
        assert_eq!(ended.kind, "suspend");
    }
    becomes(sandbox, State::Suspended).await?;
    sandbox.resume().await?;
    Ok(())
}

async fn the_state_is_explained(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let why = sandbox.why().await?;
    assert_eq!(why.sandbox, sandbox.id());
    assert!(!why.summary.is_empty() && !why.because.is_empty());
    Ok(())
}

async fn a_hold_keeps_it_awake_until_it_is_released(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let hold = sandbox.hold(Duration::from_secs(600), "a long test").await?;
    assert_eq!(sandbox.info().await?.holds, std::slice::from_ref(&hold));
    assert!(sandbox.release(&hold.id).await?.holds.is_empty());
    Ok(())
}

async fn a_deadline_suspends_it_and_is_postponed(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let other = dormouse.create("base").name("deadline").timeout(Duration::from_secs(3600)).await?;
    let before = other.info().await?.expires_at.unwrap();
    assert!(other.extend(Duration::from_secs(7200)).await?.expires_at.unwrap() > before);
    let soon = types::SetTimeouts { timeout_secs: Some(0.2), ..types::SetTimeouts::default() };
    other.client().set_timeouts(other.id(), &soon).await?;
    becomes(&other, State::Suspended).await?;
    other.terminate().await?;
    Ok(())
}

async fn the_events_tell_all_of_it(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let events = sandbox.events().await?;
    let kinds = kinds(&events);
    assert_eq!(&kinds[..4], ["created", "started", "suspending", "suspended"]);
    assert!(events.windows(2).all(|pair| pair[0].number < pair[1].number));
    Ok(())
}
