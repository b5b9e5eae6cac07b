//! Services: processes that are started again, and whose health is checked.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dorm_agent_client::{
    AgentError, ExitStatus, Health, HealthCheck, Identity, Offsets, Probe, ProcessSpec, Restart, RestartRules,
    ServiceChange, ServiceName, ServiceSpec, ServiceState, ServiceStatus, Stdin, Variable,
};

use crate::support::{Sandbox, read_all, shell, within};

/// The pauses of tests are short.
const RULES: RestartRules =
    RestartRules { restart: Restart::Always, delay_ms: 1, delay_max_ms: 2, most: 3, window_ms: 600_000 };

fn name(text: &str) -> ServiceName {
    ServiceName::try_from(text.to_owned()).unwrap()
}

fn service(script: &str, restart: Restart) -> ServiceSpec {
    let restart = RestartRules { restart, ..RULES };
    ServiceSpec { name: name("it"), process: shell(script), restart, health: None }
}

async fn until(sandbox: &Sandbox, is_there: impl Fn(&ServiceStatus) -> bool) -> ServiceStatus {
    within(async {
        loop {
            let status = sandbox.agent.service(&name("it")).await.unwrap();
            if is_there(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

async fn changes(sandbox: &Sandbox) -> Vec<ServiceChange> {
    let page = within(sandbox.agent.service_events(&name("it"), 0, 1000)).await.unwrap();
    assert!(page.items.iter().zip(1..).all(|(event, number)| event.number == number));
    page.items.into_iter().map(|event| event.event).collect()
}

#[tokio::test]
async fn a_process_is_started_again_until_its_budget_is_used_up() {
    let sandbox = Sandbox::new().await;
    let spec = service("echo run; exit 3", Restart::OnFailure);
    within(sandbox.agent.start_service(spec)).await.unwrap();
    let status = until(&sandbox, |status| status.state.is_over()).await;
    assert_eq!((status.state, status.restarts), (ServiceState::Failed, 3));
    assert_eq!(status.last_exit, Some(ExitStatus::Code(3)));
    // The log has the output of all of them, and ends.
    let log = within(sandbox.agent.service_log(&name("it"), Offsets::BEGINNING)).await.unwrap();
    let log = within(read_all(log)).await;
    assert_eq!((log.stdout(), log.status), ("run\nrun\nrun\nrun\n", Some(ExitStatus::Code(3))));
    let changes = changes(&sandbox).await;
    assert_eq!(changes.iter().filter(|change| matches!(change, ServiceChange::Started { .. })).count(), 4);
    assert_eq!(changes.last(), Some(&ServiceChange::GaveUp));
    // Each run is a process like others.
    let own = within(sandbox.agent.output(status.process, Offsets::BEGINNING)).await.unwrap();
    assert_eq!(within(read_all(own)).await.stdout(), "run\n");
}

#[tokio::test]
async fn an_end_without_need_for_a_restart_is_the_end() {
    let sandbox = Sandbox::new().await;
    for (script, restart, state) in [
        ("exit 0", Restart::OnFailure, ServiceState::Finished),
        ("exit 0", Restart::Never, ServiceState::Finished),
        ("kill -9 $$", Restart::Never, ServiceState::Failed),
    ] {
        // One that is over is replaced.
        within(sandbox.agent.start_service(service(script, restart))).await.unwrap();
        let status = until(&sandbox, |status| status.state.is_over()).await;
        assert_eq!((status.state, status.restarts), (state, 0), "{script} {restart:?}");
    }
    within(sandbox.agent.remove_service(&name("it"))).await.unwrap();
    assert!(matches!(within(sandbox.agent.service(&name("it"))).await, Err(AgentError::NoService(_))));
}

#[tokio::test]
async fn a_stop_ends_the_whole_tree_and_all_restarts() {
    let sandbox = Sandbox::new().await;
    let script = "trap '' TERM; (setsid sleep 1234 &); echo up; while :; do sleep 1; done";
    within(sandbox.agent.start_service(service(script, Restart::Always))).await.unwrap();
    let active = within(sandbox.agent.start_service(service("true", Restart::Never))).await;
    assert!(matches!(active, Err(AgentError::ServiceActive(_))), "{active:?}");
    let refused = within(sandbox.agent.remove_service(&name("it"))).await;
    assert!(matches!(refused, Err(AgentError::ServiceActive(_))), "{refused:?}");
    let first = until(&sandbox, |status| status.written.stdout > 0).await.process;
    // It continues without a host.
    let sandbox = sandbox.reconnect().await;
    within(sandbox.agent.kill_tree(first)).await.unwrap();
    let second = until(&sandbox, |status| status.written.stdout > 3).await;
    assert!(second.process > first && second.restarts == 1);
    within(sandbox.agent.stop_service(&name("it"), Duration::from_millis(50))).await.unwrap();
    let status = until(&sandbox, |_| true).await;
    assert_eq!((status.state, status.restarts), (ServiceState::Stopped, 1));
    assert_eq!(within(sandbox.agent.kill_tree(second.process)).await.unwrap(), 0);
    within(sandbox.agent.stop_service(&name("it"), Duration::ZERO)).await.unwrap();
    assert_eq!(changes(&sandbox).await.last(), Some(&ServiceChange::Stopped));
}

#[tokio::test]
async fn a_service_that_waits_for_its_restart_can_be_stopped() {
    let sandbox = Sandbox::new().await;
    let mut spec = service("exit 1", Restart::Always);
    (spec.restart.delay_ms, spec.restart.delay_max_ms) = (600_000, 600_000);
    within(sandbox.agent.start_service(spec)).await.unwrap();
    until(&sandbox, |status| status.state == ServiceState::Waiting).await;
    within(sandbox.agent.stop_service(&name("it"), Duration::from_secs(60))).await.unwrap();
    assert_eq!(until(&sandbox, |_| true).await.state, ServiceState::Stopped);
}

/// Answers HTTP requests on a port of its own.
fn serve(is_well: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 1024]);
            let status = if is_well.load(Ordering::SeqCst) { "204 No Content" } else { "503 Service Unavailable" };
            let _ = write!(stream, "HTTP/1.1 {status}\r\n\r\n");
        }
    });
    port
}

fn check(port: u16) -> HealthCheck {
    let probe = Probe::Http { port, path: "/health".to_owned() };
    HealthCheck { probe, interval_ms: 5, timeout_ms: 30_000, failures: 3, grace_ms: 0 }
}

#[tokio::test]
async fn an_unhealthy_process_is_started_again() {
    let sandbox = Sandbox::new().await;
    let is_well = Arc::new(AtomicBool::new(true));
    let port = serve(Arc::clone(&is_well));
    let health = Some(check(port));
    within(sandbox.agent.start_service(ServiceSpec { health, ..service("sleep 1000", Restart::OnFailure) }))
        .await
        .unwrap();
    until(&sandbox, |status| status.health == Health::Healthy).await;
    is_well.store(false, Ordering::SeqCst);
    until(&sandbox, |status| status.restarts > 0).await;
    is_well.store(true, Ordering::SeqCst);
    until(&sandbox, |status| status.health == Health::Healthy).await;
    let changes = changes(&sandbox).await;
    let reason = changes.iter().find_map(|change| match change {
        ServiceChange::Unhealthy { reason } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(reason, Some("it answered with status 503"), "{changes:?}");
    within(sandbox.agent.stop_service(&name("it"), Duration::from_secs(60))).await.unwrap();
}

#[tokio::test]
async fn health_is_not_checked_while_the_host_has_the_agent_quiet() {
    let sandbox = Sandbox::new().await;
    let is_well = Arc::new(AtomicBool::new(true));
    let port = serve(Arc::clone(&is_well));
    let health = Some(HealthCheck { failures: 1, ..check(port) });
    let spec = ServiceSpec { health, ..service("sleep 1000", Restart::OnFailure) };
    within(sandbox.agent.start_service(spec)).await.unwrap();
    until(&sandbox, |status| status.health == Health::Healthy).await;
    within(sandbox.agent.quiesce()).await.unwrap();
    is_well.store(false, Ordering::SeqCst);
    // Much longer than the check takes to notice.
    tokio::time::sleep(Duration::from_millis(300)).await;
    is_well.store(true, Ordering::SeqCst);
    within(sandbox.agent.unquiesce()).await.unwrap();
    let status = until(&sandbox, |status| status.health == Health::Healthy).await;
    assert_eq!(status.restarts, 0);
    within(sandbox.agent.stop_service(&name("it"), Duration::from_secs(60))).await.unwrap();
}

fn identity(generation: u64, sandbox: &str) -> Identity {
    Identity {
        generation,
        hostname: "dreamer".to_owned(),
        unix_time_us: 0,
        entropy: [9; 32],
        variables: vec![Variable::new("DORMOUSE_SANDBOX", sandbox).unwrap()],
    }
}

#[tokio::test]
async fn a_service_starts_again_in_a_fork_only_with_the_identity_of_the_fork() {
    // A fork in its first generation has that of its source.
    for generation in [1, 2] {
        let sandbox = Sandbox::new().await;
        within(sandbox.agent.resumed(&identity(1, "source"))).await.unwrap();
        // Each process tells whose it is, and ends when it may.
        let (told, gate) = (sandbox.path("told"), sandbox.path("gate"));
        let script = format!("until [ -e {gate} ]; do sleep 0.01; done; rm {gate}; echo $DORMOUSE_SANDBOX >>{told}");
        let mut spec = service(&script, Restart::Always);
        (spec.restart.delay_ms, spec.restart.most) = (0, 1000);
        within(sandbox.agent.start_service(spec)).await.unwrap();
        within(sandbox.agent.quiesce()).await.unwrap();
        let sandbox = sandbox.reconnect_as(generation).await;
        let first = until(&sandbox, |_| true).await.process;
        // The process ends while the host introduces the fork, and the service waits.
        std::fs::write(sandbox.host_path("gate"), "").unwrap();
        until(&sandbox, |status| status.state == ServiceState::Waiting).await;
        // Each of these takes longer than its pause, and the start of its next process.
        for _ in 0..20 {
            sandbox.shell("true").await;
        }
        let status = until(&sandbox, |_| true).await;
        assert_eq!((status.state, status.process), (ServiceState::Waiting, first), "generation {generation}");
        within(sandbox.agent.resumed(&identity(2, "fork"))).await.unwrap();
        until(&sandbox, |status| status.process > first).await;
        std::fs::write(sandbox.host_path("gate"), "").unwrap();
        until(&sandbox, |status| status.restarts > 1).await;
        assert_eq!(std::fs::read_to_string(sandbox.host_path("told")).unwrap(), "source\nfork\n");
        within(sandbox.agent.stop_service(&name("it"), Duration::ZERO)).await.unwrap();
    }
}

#[tokio::test]
async fn a_service_starts_again_at_once_when_the_run_continues() {
    let sandbox = Sandbox::new().await;
    within(sandbox.agent.start_service(service("sleep 1000", Restart::Always))).await.unwrap();
    let first = until(&sandbox, |_| true).await.process;
    within(sandbox.agent.quiesce()).await.unwrap();
    within(sandbox.agent.unquiesce()).await.unwrap();
    within(sandbox.agent.kill_tree(first)).await.unwrap();
    until(&sandbox, |status| status.process > first).await;
    within(sandbox.agent.stop_service(&name("it"), Duration::ZERO)).await.unwrap();
}

#[tokio::test]
async fn without_restarts_an_unhealthy_process_continues() {
    let sandbox = Sandbox::new().await;
    let is_well = Arc::new(AtomicBool::new(false));
    let health = Some(check(serve(Arc::clone(&is_well))));
    within(sandbox.agent.start_service(ServiceSpec { health, ..service("sleep 1000", Restart::Never) })).await.unwrap();
    until(&sandbox, |status| status.health == Health::Unhealthy).await;
    is_well.store(true, Ordering::SeqCst);
    let status = until(&sandbox, |status| status.health == Health::Healthy).await;
    assert_eq!((status.state, status.restarts), (ServiceState::Running, 0));
    within(sandbox.agent.stop_service(&name("it"), Duration::from_secs(60))).await.unwrap();
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_and_start_nothing() {
    let sandbox = Sandbox::new().await;
    let refused = async |change: fn(&mut ServiceSpec)| {
        let mut spec = ServiceSpec { health: Some(check(80)), ..service("true", Restart::Always) };
        change(&mut spec);
        let refused = within(sandbox.agent.start_service(spec)).await;
        assert!(matches!(refused, Err(AgentError::Invalid(_))), "{refused:?}");
    };
    refused(|spec| spec.process.stdin = Stdin::Pipe).await;
    refused(|spec| spec.restart.delay_ms = 3).await;
    refused(|spec| spec.restart.window_ms = u64::MAX).await;
    refused(|spec| spec.restart.most = u32::MAX).await;
    refused(|spec| spec.health.as_mut().unwrap().interval_ms = 0).await;
    refused(|spec| spec.health.as_mut().unwrap().failures = 0).await;
    refused(|spec| spec.health.as_mut().unwrap().timeout_ms = 60_001).await;
    for path in ["", "health", "/a b", "/a\r\nX: y"] {
        let mut spec = ServiceSpec { health: Some(check(80)), ..service("true", Restart::Always) };
        spec.health.as_mut().unwrap().probe = Probe::Http { port: 80, path: path.to_owned() };
        within(sandbox.agent.start_service(spec)).await.unwrap_err();
    }
    let missing =
        ServiceSpec { process: ProcessSpec::new(vec!["no-such".try_into().unwrap()]), ..service("", Restart::Always) };
    let missing = within(sandbox.agent.start_service(missing)).await;
    assert!(matches!(missing, Err(AgentError::CommandNotFound(_))), "{missing:?}");
    assert_eq!(within(sandbox.agent.services()).await.unwrap(), []);
    assert_eq!(within(sandbox.agent.processes()).await.unwrap().len(), 0);
    for number in 0..64 {
        let spec = ServiceSpec { name: name(&format!("s{number}")), ..service("true", Restart::Never) };
        within(sandbox.agent.start_service(spec)).await.unwrap();
    }
    refused(|_| ()).await;
    assert_eq!(within(sandbox.agent.services()).await.unwrap().len(), 64);
}
