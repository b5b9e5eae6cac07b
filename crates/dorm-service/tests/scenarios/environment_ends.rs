//! The end of a run acts on the sandbox that the run used, and an attempt that fails leaves the
//! settings of before.

use std::time::Duration;

use dorm_lifecycle::environment::{OnDrift, OnLeave, SnapshotWhen};
use dorm_lifecycle::{EnvironmentId, RequestId, SnapshotKind, StateName};
use dorm_service::{Code, EnsureSpec, EnsuredBy, Retention, RunOutcome};
use dorm_store::{SetupState, Store as _};

use crate::environments::{HOUR, asked, ensure, ensured, living, record, said, with};
use crate::world::{World, eventually, state};

/// One whose sandbox does not outlive its runs.
fn fleeting(line: &str) -> EnsureSpec {
    with(asked("one", &[line]), |policy| {
        policy.snapshot = SnapshotWhen::AfterRun;
        policy.snapshot_kind = SnapshotKind::Filesystem;
        policy.destroy_on_complete = true;
        policy.on_drift = OnDrift::Rebuild;
    })
}

async fn setup_runs(world: &World, id: &EnvironmentId) {
    eventually("the setup runs", || async {
        let attempt = record(world, id).await.attempt;
        attempt.is_some_and(|one| one.steps.first().is_some_and(|step| step.state == SetupState::Running))
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_run_leaves_a_sandbox_that_came_later() {
    let world = World::new().await;
    let service = world.daemon().await;
    let first = ensured(&service, EnsureSpec { lease: Some(HOUR), ..fleeting("true") }).await;
    let second = ensured(&service, fleeting("echo other")).await;
    let (before, after) = (&first.sandbox.sandbox.id, &second.sandbox.sandbox.id);
    assert_ne!(before, after);
    let lease = first.lease.unwrap().id;
    let released = service.release_lease("one", Some(&lease), RunOutcome::Completed).await.unwrap();
    assert_eq!(released.sandbox.as_ref(), Some(after));
    assert_eq!(said(&service, after, "echo here").await, "here\n");
    let renewed = service.renew_lease("one", &lease, HOUR).await.unwrap_err();
    assert!(renewed.message().contains(lease.as_str()), "{}", renewed.message());
    eventually("the earlier one is kept, suspended", || async {
        state(&service.describe(before).await.unwrap()) == StateName::Suspended
    })
    .await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_run_that_ends_while_another_sandbox_is_made_does_not_end_that() {
    let world = World::new().await;
    let service = world.daemon().await;
    let first = ensured(&service, EnsureSpec { lease: Some(HOUR), ..fleeting("true") }).await;
    let making = tokio::spawn({
        let own = service.clone();
        async move { ensured(&own, fleeting("sleep 3")).await }
    });
    setup_runs(&world, &first.environment.id).await;
    let lease = first.lease.unwrap().id;
    service.release_lease("one", Some(&lease), RunOutcome::Completed).await.unwrap();
    let second = making.await.unwrap();
    let now = record(&world, &first.environment.id).await;
    assert_eq!(now.sandbox.as_ref(), Some(&second.sandbox.sandbox.id));
    assert!(now.ending.is_none());
    assert_eq!(said(&service, &second.sandbox.sandbox.id, "echo here").await, "here\n");
    eventually("the earlier one is kept, suspended", || async {
        state(&service.describe(&first.sandbox.sandbox.id).await.unwrap()) == StateName::Suspended
    })
    .await;
    world.is_sound().await;
}

#[tokio::test]
async fn an_attempt_that_fails_leaves_the_policy_of_before() {
    let world = World::new().await;
    let service = world.daemon().await;
    let first = ensured(&service, EnsureSpec { lease: Some(HOUR), ..asked("one", &["true"]) }).await;
    let id = first.sandbox.sandbox.id.clone();
    let before = record(&world, &first.environment.id).await;
    let labels = [("team".to_owned(), "a".to_owned())].into();
    ensure(&service, EnsureSpec { labels, ..fleeting("false") }).await.unwrap_err();
    let after = record(&world, &first.environment.id).await;
    assert_eq!((after.settings(), &after.sandbox), (before.settings(), &before.sandbox));
    service.release_lease("one", Some(&first.lease.unwrap().id), RunOutcome::Completed).await.unwrap();
    assert_eq!(said(&service, &id, "echo here").await, "here\n");
    world.is_sound().await;
}

#[tokio::test]
async fn a_run_that_ends_during_an_attempt_ends_by_the_policy_it_had() {
    let world = World::new().await;
    let service = world.daemon().await;
    let first = ensured(&service, EnsureSpec { lease: Some(HOUR), ..asked("one", &["true"]) }).await;
    let making = tokio::spawn({
        let own = service.clone();
        async move { ensure(&own, EnsureSpec { on_leave: OnLeave::Cancel, ..fleeting("sleep 1000000") }).await }
    });
    setup_runs(&world, &first.environment.id).await;
    let lease = first.lease.unwrap().id;
    let released = service.release_lease("one", Some(&lease), RunOutcome::Completed).await.unwrap();
    assert!(released.ending.is_none());
    making.abort();
    eventually("it is cancelled", || async { record(&world, &first.environment.id).await.attempt.is_none() }).await;
    assert_eq!(said(&service, &first.sandbox.sandbox.id, "echo here").await, "here\n");
    world.is_sound().await;
}

#[tokio::test]
async fn an_attempt_that_is_to_continue_does_so_whoever_joins_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let waits = |on_leave| {
        let own = service.clone();
        tokio::spawn(async move { ensure(&own, EnsureSpec { on_leave, ..asked("one", &["sleep 2"]) }).await })
    };
    let attempt = || async { service.environment("one").await.ok().and_then(|record| record.attempt) };
    let first = waits(OnLeave::Continue);
    eventually("the setup runs", || async {
        attempt().await.is_some_and(|one| one.steps.first().is_some_and(|step| step.state == SetupState::Running))
    })
    .await;
    first.abort();
    let _ = first.await;
    let second = waits(OnLeave::Cancel);
    tokio::time::sleep(Duration::from_millis(200)).await;
    second.abort();
    let _ = second.await;
    let made = ensured(&service, asked("one", &["sleep 2"])).await;
    assert!(made.joined && made.by == EnsuredBy::Created, "{made:?}");
    world.is_sound().await;
}

#[tokio::test]
async fn a_retry_does_not_make_a_removed_environment_again() {
    let world = World::new().await;
    let service = world.daemon().await;
    let once = || EnsureSpec { key: None, ..asked("", &["true"]) };
    let id = RequestId::from_random([1; 20]);
    let first = ensured(&service.for_request(&id, [1; 32]).await.unwrap(), once()).await;
    service.remove_environment(first.environment.id.as_str()).await.unwrap();
    let again = ensure(&service.for_request(&id, [1; 32]).await.unwrap(), once()).await.unwrap_err();
    assert_eq!(again.code(), Code::Gone, "{}", again.message());
    assert_eq!(living(&world).await, []);
}

#[tokio::test]
async fn an_environment_that_no_request_finds_is_forgotten_and_its_snapshots_are_not() {
    let mut world = World::new().await;
    world.settings.retention = Retention { terminated: Some(HOUR), ..world.settings.retention };
    let service = world.daemon().await;
    let once = |line| EnsureSpec { key: None, ..fleeting(line) };
    let ended = ensured(&service, EnsureSpec { lease: Some(HOUR), ..once("true") }).await;
    let lease = ended.lease.unwrap().id;
    let released = service.release_lease(ended.environment.id.as_str(), Some(&lease), RunOutcome::Completed);
    let of_run = released.await.unwrap().snapshot.unwrap();
    let plain = || EnsureSpec { key: None, ..asked("", &["echo plain"]) };
    service.terminate(&ensured(&service, plain()).await.sandbox.sandbox.id).await.unwrap();
    let asleep = ensured(&service, once("echo other")).await;
    service.suspend(&asleep.sandbox.sandbox.id).await.unwrap();
    let with_key = ensured(&service, asked("kept", &["true"])).await;
    service.terminate(&with_key.sandbox.sandbox.id).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(26 * HOUR).await;
    eventually("it is forgotten", || async { world.store.environment(&ended.environment.id).await.unwrap().is_none() })
        .await;
    tokio::time::resume();
    assert_eq!(service.snapshot(&of_run).await.unwrap().id, of_run);
    for kept in [&asleep, &with_key] {
        record(&world, &kept.environment.id).await;
    }
    let again = ensured(&service, plain()).await;
    assert_eq!(again.by, EnsuredBy::Restored, "the snapshot of the setup is used again");
    world.is_sound().await;
}
