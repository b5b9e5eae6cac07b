//! Environments.

use anyhow::Result;
use dorm_client::Dormouse;
use std::time::Duration;

use dorm_client::EnsureEvent;
use dorm_client::types::{
    EnsureRequest, EnsuredBy, EnvironmentLifecycle, EnvironmentState, OnDrift, ReleaseEnvironment, RenewLease,
    SetupStep, Verdict, Way,
};
use futures_util::future::try_join_all;

use crate::cases::{Cases, code_of, error_of, eventually};

fn asked(key: &str) -> EnsureRequest {
    EnsureRequest {
        key: Some(key.to_owned()),
        image: Some("base".to_owned()),
        setup: vec![SetupStep::Command("echo setting up; echo ready > /root/state".to_owned())],
        ..EnsureRequest::default()
    }
}

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
}

crate::cases::area! {
    what_would_happen_is_explained_before,
    an_environment_is_created_and_set_up_with_its_progress,
    the_same_key_gets_the_same_sandbox,
    a_suspended_sandbox_is_resumed,
    another_key_with_the_same_definition_needs_no_setup,
    many_callers_get_one_sandbox,
    a_setup_that_fails_is_an_error,
    a_changed_definition_is_refused_if_that_is_asked_for,
    a_lease_is_renewed_and_its_end_ends_the_sandbox,
    a_request_that_is_dropped_leaves_the_work_to_the_daemon,
    environments_are_listed_cancelled_and_removed,
}

#[tokio::test]
async fn environments() {
    let mut cases = Cases::new("environments");
    let dormouse = cases.dormouse();
    let on = On { dormouse };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn what_would_happen_is_explained_before(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let explanation = dormouse.explain(&asked("one")).await?;
    let last = explanation.considered.last().unwrap();
    assert_eq!((last.way, last.verdict, explanation.environment), (Way::Create, Verdict::Taken, None));
    Ok(())
}

async fn an_environment_is_created_and_set_up_with_its_progress(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let mut events = dormouse.ensure(asked("one")).events().await?;
    let (mut lines, mut attempts, mut considered) = (Vec::new(), 0, 0);
    let ensured = loop {
        match events.next().await?.expect("the stream continues") {
            EnsureEvent::Considered(_) => considered += 1,
            EnsureEvent::Attempt(_) => attempts += 1,
            EnsureEvent::Line(line) => lines.push(line.text),
            EnsureEvent::Ensured(ensured) => break ensured,
        }
    };
    assert!(events.next().await?.is_none());
    assert!(lines.contains(&"setting up".to_owned()), "{lines:?}");
    assert!(attempts > 0 && considered > 0);
    assert_eq!(ensured.info.by, EnsuredBy::Created);
    assert_eq!(ensured.sandbox.files().read_text("/root/state").await?, "ready\n");
    Ok(())
}

async fn the_same_key_gets_the_same_sandbox(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let (one, two) = (dormouse.ensure(asked("one")).await?, dormouse.ensure(asked("one")).await?);
    assert_eq!((one.sandbox.id(), one.info.by), (two.sandbox.id(), EnsuredBy::Live));
    Ok(())
}

async fn a_suspended_sandbox_is_resumed(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.ensure(asked("one")).await?.sandbox;
    sandbox.suspend().await?;
    let ensured = dormouse.ensure(asked("one")).await?;
    assert_eq!((ensured.sandbox.id(), ensured.info.by), (sandbox.id(), EnsuredBy::Resumed));
    Ok(())
}

async fn another_key_with_the_same_definition_needs_no_setup(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let ensured = dormouse.ensure(asked("two")).await?;
    assert_eq!(ensured.info.by, EnsuredBy::Restored);
    assert_eq!(ensured.sandbox.files().read_text("/root/state").await?, "ready\n");
    Ok(())
}

async fn many_callers_get_one_sandbox(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let all = (0..6).map(|_| async { dormouse.ensure(asked("many")).await });
    let all = try_join_all(all).await?;
    assert!(all.iter().all(|one| one.sandbox.id() == all[0].sandbox.id()));
    Ok(())
}

async fn a_setup_that_fails_is_an_error(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let setup = vec![SetupStep::Command("echo broken; exit 4".to_owned())];
    let error = error_of(dormouse.ensure(EnsureRequest { setup, ..asked("broken") }).await);
    assert!(error.to_string().contains("exit 4"), "{error}");
    let failure = client.environment("broken").await?.attempt.and_then(|attempt| attempt.failure).unwrap();
    assert_eq!((failure.step, failure.exit_code), (Some(0), Some(4)));
    let log = client.environment_log("broken", 0).await?;
    assert!(log.lines.iter().any(|line| line.text == "broken"), "{log:?}");
    Ok(())
}

async fn a_changed_definition_is_refused_if_that_is_asked_for(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let lifecycle = Some(EnvironmentLifecycle { on_drift: Some(OnDrift::Refuse), ..EnvironmentLifecycle::default() });
    let setup = vec![SetupStep::Command("true".to_owned())];
    let changed = EnsureRequest { setup, lifecycle, ..asked("one") };
    assert_eq!(code_of(dormouse.ensure(changed).await), "conflict");
    Ok(())
}

async fn a_lease_is_renewed_and_its_end_ends_the_sandbox(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let lifecycle = Some(EnvironmentLifecycle { destroy_on_complete: true, ..EnvironmentLifecycle::default() });
    let asked = EnsureRequest { lifecycle, ..asked("leased") };
    let ensured = dormouse.ensure(asked).lease(Duration::from_secs(600)).await?;
    let lease = ensured.info.lease.clone().unwrap();
    let renewed = client.renew_environment_lease("leased", &lease.id, &RenewLease { lease_secs: 1200.0 }).await?;
    assert!(renewed.expires_at > lease.expires_at);
    let released = ReleaseEnvironment { lease: Some(lease.id), outcome: None };
    client.release_environment("leased", &released).await?;
    eventually("the sandbox has ended", || async {
        Ok(client.environment("leased").await?.state == EnvironmentState::Idle)
    })
    .await
}

async fn a_request_that_is_dropped_leaves_the_work_to_the_daemon(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let slow = || EnsureRequest {
        setup: vec![SetupStep::Command("echo begun; sleep 1; echo slept > /root/state".to_owned())],
        ..asked("dropped")
    };
    let mut events = dormouse.ensure(slow()).events().await?;
    while !matches!(events.next().await?, Some(EnsureEvent::Line(line)) if line.text == "begun") {}
    drop(events);
    let ensured = dormouse.ensure(slow()).await?;
    assert_eq!(ensured.sandbox.files().read_text("/root/state").await?, "slept\n");
    Ok(())
}

async fn environments_are_listed_cancelled_and_removed(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let all = client.environments().await?;
    assert!(all.len() >= 5, "{}", all.len());
    client.cancel_environment("one").await?;
    for environment in all {
        client.remove_environment(&environment.id).await?;
    }
    assert!(client.environments().await?.is_empty());
    Ok(())
}
