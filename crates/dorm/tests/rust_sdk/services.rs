//! Services.

use anyhow::Result;
use dorm_client::CommandEvent;
use dorm_client::Dormouse;
use dorm_client::Sandbox;
use dorm_client::types::{
    HealthCheck, Restart, ServiceEventKind, ServiceHealth, ServiceState, StartService, StopService,
};

use crate::cases::{Cases, code_of, eventually};

fn asked(name: &str, line: &str) -> StartService {
    StartService { name: name.to_owned(), shell: Some(line.to_owned()), ..StartService::default() }
}

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    sandbox: Sandbox,
}

crate::cases::area! {
    a_service_runs_and_is_listed,
    a_service_that_dies_is_started_again,
    its_output_is_kept_over_restarts,
    a_service_survives_a_sleep,
    health_is_checked,
    a_service_that_is_not_restarted_finishes,
    a_service_is_stopped_and_removed,
}

#[tokio::test]
async fn services() {
    let mut cases = Cases::new("services");
    let dormouse = cases.dormouse();
    let sandbox = dormouse.create("base").name("services").await.unwrap();
    let on = On { dormouse, sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_service_runs_and_is_listed(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let id = on.sandbox.id();
    let service = client.start_service(id, &asked("worker", "echo working; exec sleep 600")).await?;
    assert_eq!((service.name.as_str(), service.state), ("worker", ServiceState::Running));
    assert_eq!(client.services(id).await?.services.len(), 1);
    Ok(())
}

async fn a_service_that_dies_is_started_again(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let id = on.sandbox.id();
    let before = client.service(id, "worker").await?;
    sandbox.process(before.process).kill().await?;
    eventually("another process runs", || async {
        let now = client.service(id, "worker").await?;
        Ok(now.restarts == 1 && now.state == ServiceState::Running && now.process != before.process)
    })
    .await?;
    let events = client.service_events(id, "worker").await?;
    assert!(events.iter().any(|event| event.kind == ServiceEventKind::Restarting));
    Ok(())
}

async fn its_output_is_kept_over_restarts(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let id = on.sandbox.id();
    // The second process may run before its line is read.
    eventually("both processes have written", || async {
        let mut text = Vec::new();
        let mut log = client.service_log(id, "worker", false).await?;
        while let Some(event) = log.next_if_any().await? {
            if let CommandEvent::Stdout(chunk) = event {
                text.extend(chunk.bytes);
            }
        }
        Ok(text == b"working\nworking\n")
    })
    .await
}

async fn a_service_survives_a_sleep(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let id = on.sandbox.id();
    let before = client.service(id, "worker").await?.process;
    sandbox.suspend().await?;
    sandbox.resume().await?;
    assert_eq!(client.service(id, "worker").await?.process, before);
    Ok(())
}

async fn health_is_checked(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let id = on.sandbox.id();
    let mut web = asked("web", "cd /srv && exec python3 -m http.server 8000");
    let (path, interval_secs) = (Some("/".to_owned()), Some(0.1));
    web.health =
        Some(HealthCheck { port: 8000, path, interval_secs, timeout_secs: None, failures: None, grace_secs: None });
    client.start_service(id, &web).await?;
    eventually("it is healthy", || async { Ok(client.service(id, "web").await?.health == ServiceHealth::Healthy) })
        .await
}

async fn a_service_that_is_not_restarted_finishes(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let id = on.sandbox.id();
    let once = StartService { restart: Restart::Never, ..asked("once", "exit 3") };
    client.start_service(id, &once).await?;
    eventually("it has ended", || async {
        Ok(client.service(id, "once").await?.last_exit.is_some_and(|exit| exit.exit_code == Some(3)))
    })
    .await
}

async fn a_service_is_stopped_and_removed(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let id = on.sandbox.id();
    let stopped = client.stop_service(id, "worker", &StopService::default()).await?;
    assert_eq!(stopped.state, ServiceState::Stopped);
    client.remove_service(id, "worker").await?;
    assert_eq!(code_of(client.service(id, "worker").await), "not_found");
    Ok(())
}
