use std::fs;
use std::os::unix::fs::PermissionsExt;

use dorm_agent_client::{Applied, HookOutcome, Identity, Variable};

use crate::support::{Sandbox, within};

fn identity(generation: u64) -> Identity {
    Identity {
        generation,
        hostname: "dreamer".to_owned(),
        unix_time_us: 0,
        entropy: [9; 32],
        variables: vec![Variable::new("COLOUR", "red").unwrap()],
    }
}

fn hook(sandbox: &Sandbox, name: &str, script: &str) {
    let directory = sandbox.host_path("etc/dormouse/on-resume.d");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_new_identity_is_written_told_to_hooks_and_given_to_processes() {
    let sandbox = Sandbox::new().await;
    let seen = sandbox.path("seen");
    hook(&sandbox, "20-second", &format!("echo second >>{seen}; exit 4"));
    hook(&sandbox, "10-first", &format!("echo first $DORMOUSE_GENERATION $COLOUR >>{seen}"));
    fs::write(sandbox.host_path("etc/dormouse/on-resume.d/README"), "not a program").unwrap();
    let resumed = within(sandbox.agent.resumed(&identity(42))).await.unwrap();
    let outcomes: Vec<_> = resumed.hooks.iter().map(|hook| hook.outcome.clone()).collect();
    assert_eq!(outcomes, [HookOutcome::Done, HookOutcome::Failed(4)]);
    // The agent of a test leaves the machine's own name and clock alone.
    assert_eq!((resumed.hostname, resumed.clock), (Applied::NotNeeded, Applied::NotNeeded));
    assert_eq!(fs::read_to_string(sandbox.host_path("seen")).unwrap(), "first 42 red\nsecond\n");
    assert_eq!(fs::read_to_string(sandbox.host_path("run/dormouse/generation")).unwrap(), "42\n");
    assert_eq!(sandbox.shell("echo $COLOUR").await.stdout(), "red\n");

    let mut next = identity(43);
    next.variables.clear();
    within(sandbox.agent.resumed(&next)).await.unwrap();
    assert_eq!(sandbox.shell("echo $COLOUR").await.stdout(), "\n");
    let sandbox = sandbox.reconnect().await;
    assert_eq!(sandbox.agent.generation_at_connect(), 43);
}

#[tokio::test]
async fn a_hook_that_does_not_end_is_killed_and_reported() {
    let sandbox = Sandbox::new().await;
    hook(&sandbox, "10-endless", "sleep 1000");
    hook(&sandbox, "20-late", "true");
    let resumed = within(sandbox.agent.resumed(&identity(1))).await.unwrap();
    let outcomes: Vec<_> = resumed.hooks.iter().map(|hook| hook.outcome.clone()).collect();
    assert_eq!(outcomes, [HookOutcome::TimedOut, HookOutcome::TimedOut]);
}
