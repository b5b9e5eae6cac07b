//! Killing a process with all that descend from it.

use dorm_agent_client::{AgentError, ExitStatus, Offsets};

use crate::support::{Sandbox, read_until, shell, within};

/// A script of children that leave in every way, and of their children.
const SCRIPT: &str = r#"
setsid sh -c 'echo up; sleep 1001 & sleep 1001' &
(setsid sh -c 'setsid sh -c "echo up; exec sleep 1001 >/dev/null 2>&1" &' &)
(env -u DORMOUSE_PROCESS sh -c 'echo up; exec sleep 1001' &)
sh -c 'echo up; while :; do sleep 0.01 & wait; done' &
wait"#;

#[tokio::test]
async fn a_process_is_killed_with_all_that_descend_from_it() {
    let sandbox = Sandbox::new().await;
    let other = sandbox.start(&shell("echo ready; exec sleep 1002")).await;
    let mut output = within(sandbox.agent.output(other, Offsets::BEGINNING)).await.unwrap();
    read_until(&mut output, "ready").await;
    let process = sandbox.start(&shell(SCRIPT)).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    let mut up = String::new();
    while up.matches("up").count() < 4 {
        up += &read_until(&mut output, "up").await;
    }
    let killed = within(sandbox.agent.kill_tree(process)).await.unwrap();
    assert!(killed >= 5, "{killed}");
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Signal(9));
    assert_eq!(within(sandbox.agent.kill_tree(process)).await.unwrap(), 0);
    let alive = within(sandbox.agent.process(other)).await.unwrap();
    assert_eq!(alive.exit, None);
    assert_eq!(within(sandbox.agent.kill_tree(other)).await.unwrap(), 1);
}

#[tokio::test]
async fn descendants_of_an_ended_process_are_killed_too() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("setsid sleep 1003 >/dev/null 2>&1 & sleep 1003 & echo done")).await;
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(0));
    let killed = within(sandbox.agent.kill_tree(process)).await.unwrap();
    assert_eq!(killed, 2);
    let unknown = within(sandbox.agent.kill_tree(77)).await;
    assert!(matches!(unknown, Err(AgentError::NoProcess(77))), "{unknown:?}");
}
