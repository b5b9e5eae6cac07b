use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

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
    // The agent of a test does not change the host's own name and clock.
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

fn listener(sandbox: &Sandbox, name: &str) -> UnixListener {
    UnixListener::bind(sandbox.host_path("run/dormouse/on-resume.d").join(name)).unwrap()
}

#[tokio::test]
async fn a_running_program_that_listens_is_told_and_waited_for() {
    let sandbox = Sandbox::new().await;
    within(sandbox.agent.resumed(&identity(1))).await.unwrap();
    assert_eq!(fs::read_to_string(sandbox.host_path("run/dormouse/sandbox")).unwrap(), "dreamer\n");
    let (answers, hangs_up) = (listener(&sandbox, "10-answers"), listener(&sandbox, "20-hangs-up"));
    drop(listener(&sandbox, "30-dead"));
    let heard = std::thread::spawn(move || {
        let mut line = [0; 64];
        let (mut stream, _) = answers.accept().unwrap();
        let length = stream.read(&mut line).unwrap();
        stream.write_all(b"done\n").unwrap();
        drop(hangs_up.accept().unwrap());
        String::from_utf8(line[..length].to_vec()).unwrap()
    });
    let mut next = identity(7);
    next.variables.push(Variable::new("DORMOUSE_SANDBOX", "abc").unwrap());
    let hooks = within(sandbox.agent.resumed(&next)).await.unwrap().hooks;
    assert_eq!(heard.join().unwrap(), "7 abc\n");
    let paths: Vec<_> = hooks.iter().map(|hook| format!("{:?}", hook.path)).collect();
    assert_eq!(hooks.len(), 2, "nobody listens on the third: {paths:?}");
    assert_eq!(hooks[0].outcome, HookOutcome::Done);
    assert!(matches!(hooks[1].outcome, HookOutcome::NotStarted(_) | HookOutcome::Failed(_)), "{hooks:?}");
    assert!(!sandbox.host_path("run/dormouse/on-resume.d/30-dead").exists());
    assert_eq!(fs::read_to_string(sandbox.host_path("run/dormouse/sandbox")).unwrap(), "abc\n");
}

#[tokio::test]
async fn a_program_that_does_not_answer_is_reported_and_keeps_nobody_waiting_for_ever() {
    let sandbox = Sandbox::new().await;
    within(sandbox.agent.resumed(&identity(1))).await.unwrap();
    let _silent = listener(&sandbox, "silent");
    let hooks = within(sandbox.agent.resumed(&identity(2))).await.unwrap().hooks;
    assert_eq!(hooks.into_iter().map(|hook| hook.outcome).collect::<Vec<_>>(), [HookOutcome::TimedOut]);
}
