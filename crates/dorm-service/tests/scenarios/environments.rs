//! Environments: one sandbox for one key, one setup for one workspace, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::{ExitStatus, GuestString, Output, ProcessSpec};
use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::environment::{
    Key, OnBroken, OnDrift, OnLeave, Policy, SetupStep, SnapshotWhen, Thread, Verdict, Way,
};
use dorm_lifecycle::{ProjectId, RequestId, SandboxId, SnapshotKind, StateName, Variables};
use dorm_ports::SecretValue;
use dorm_service::{
    Code, CommandInput, CreateFrom, EnsureSpec, Ensured, EnsuredBy, EnvironmentProblem, LostSecrets, RunOutcome,
    SecretsKey, Service, ServiceError, WorkspaceSpec,
};
use dorm_store::{
    EnvironmentRecord, ProjectBudgets, Removal, SandboxFilter, SetupState, SetupStepRecord, Store as _, codec,
};
use futures_util::StreamExt as _;
use futures_util::future::join_all;

use crate::damage::{Damage, damage};
use crate::world::{World, eventually};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn asked(key: &str, setup: &[&str]) -> EnsureSpec {
    EnsureSpec {
        key: Some(Key::Own(key.to_owned())),
        client_key: None,
        workspace: WorkspaceSpec {
            from: CreateFrom::Image("base".to_owned()),
            resources: None,
            egress: None,
            variables: BTreeMap::new(),
            directory: "/workspace".to_owned(),
            user: None,
            code: None,
            setup: setup.iter().map(|line| SetupStep::Serial((*line).to_owned())).collect(),
            start: None,
            ready: None,
            step_limit: Duration::from_secs(600),
        },
        secrets: BTreeMap::new(),
        values: Variables::default(),
        token: None,
        policy: Policy::default(),
        labels: BTreeMap::new(),
        on_leave: OnLeave::Continue,
        lease: None,
    }
}

pub(crate) fn with(asked: EnsureSpec, change: impl FnOnce(&mut Policy)) -> EnsureSpec {
    let mut policy = asked.policy.clone();
    change(&mut policy);
    EnsureSpec { policy, ..asked }
}

pub(crate) async fn ensure(service: &Service, spec: EnsureSpec) -> Result<Ensured, ServiceError> {
    service.ensure(spec, &|_| {}).await
}

pub(crate) async fn ensured(service: &Service, spec: EnsureSpec) -> Ensured {
    ensure(service, spec).await.unwrap()
}

fn problem(result: Result<Ensured, ServiceError>) -> EnvironmentProblem {
    match result {
        Err(ServiceError::Environment(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn said(service: &Service, id: &SandboxId, line: &str) -> String {
    let words = ["/bin/sh", "-c", line].map(|word| GuestString::new(word.as_bytes().to_vec()).unwrap());
    let spec = ProcessSpec::new(words.to_vec());
    let mut execution = service.exec(id, spec, CommandInput::Empty, None).await.unwrap();
    let mut said = Vec::new();
    while let Some(output) = execution.next().await {
        match output.unwrap() {
            Output::Stdout { bytes, .. } => said.extend_from_slice(&bytes),
            Output::Exited(status) => assert_eq!(status, ExitStatus::Code(0), "{line}"),
            _ => {}
        }
    }
    String::from_utf8(said).unwrap()
}

pub(crate) async fn living(world: &World) -> Vec<SandboxId> {
    let all = world.store.sandboxes(&SandboxFilter::living()).await.unwrap();
    all.into_iter().map(|record| record.sandbox.id).collect()
}

/// How many sandboxes were ever created.
async fn created(world: &World) -> usize {
    world.store.sandboxes(&SandboxFilter::default()).await.unwrap().len()
}

pub(crate) async fn record(world: &World, id: &dorm_lifecycle::EnvironmentId) -> EnvironmentRecord {
    world.store.environment(id).await.unwrap().unwrap()
}

fn verdicts(ensured: &Ensured) -> Vec<(Way, &Verdict)> {
    ensured.considered.iter().map(|considered| (considered.way, &considered.verdict)).collect()
}

#[tokio::test]
async fn an_environment_is_created_then_live_then_resumed_then_restored() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || asked("one", &["echo x >> /counter"]);
    let first = ensured(&service, spec()).await;
    assert_eq!(first.by, EnsuredBy::Created);
    assert_eq!(first.steps.iter().map(|step| step.state).collect::<Vec<_>>(), [SetupState::Done]);
    assert!(first.restored.as_ref().unwrap().of.is_none() && first.lost.is_empty() && !first.joined);
    let id = first.sandbox.sandbox.id.clone();
    assert_eq!(said(&service, &id, "cat /counter").await, "x\n");
    let second = ensured(&service, spec()).await;
    assert_eq!((second.by, &second.sandbox.sandbox.id), (EnsuredBy::Live, &id));
    assert_eq!(verdicts(&second), [(Way::Live, &Verdict::Taken)]);
    service.suspend(&id).await.unwrap();
    let third = ensured(&service, spec()).await;
    assert_eq!((third.by, &third.sandbox.sandbox.id), (EnsuredBy::Resumed, &id));
    assert_eq!(third.phases.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>(), ["resume"]);
    service.terminate(&id).await.unwrap();
    let fourth = ensured(&service, spec()).await;
    assert_eq!(fourth.by, EnsuredBy::Restored);
    let other = fourth.sandbox.sandbox.id.clone();
    assert_ne!(other, id);
    assert!(fourth.lost[0].contains(id.as_str()), "{:?}", fourth.lost);
    let reasons = verdicts(&fourth);
    assert!(
        matches!(reasons[0], (Way::Live, Verdict::Unavailable(why)) if why.contains("was terminated")),
        "{reasons:?}"
    );
    assert_eq!(reasons.last(), Some(&(Way::OwnSnapshot, &Verdict::Taken)));
    assert_eq!(said(&service, &other, "cat /counter").await, "x\n");
    // The sandbox of the setup, and the two that were handed out.
    assert_eq!((created(&world).await, living(&world).await), (3, vec![other]));
    world.is_sound().await;
}

#[tokio::test]
async fn any_number_of_callers_of_one_key_get_one_sandbox() {
    let world = World::new().await;
    let service = world.daemon().await;
    let all = join_all((0..100).map(|_| ensured(&service, asked("one", &["sleep 5", "echo x >> /counter"])))).await;
    let first = &all[0].sandbox.sandbox.id;
    assert!(all.iter().all(|one| one.sandbox.sandbox.id == *first));
    assert_eq!(all.iter().filter(|one| !one.joined && one.by == EnsuredBy::Created).count(), 1);
    assert_eq!((created(&world).await, living(&world).await), (2, vec![first.clone()]));
    world.is_sound().await;
}

#[tokio::test]
async fn threads_with_one_workspace_share_one_setup() {
    let world = World::new().await;
    let service = world.daemon().await;
    let key = |number: u32| {
        let (thread, definition) = (format!("t{number}"), "agent".to_owned());
        Some(Key::Thread(Thread { thread, definition, user: None, organization: None }))
    };
    let spec = |number| EnsureSpec { key: key(number), ..asked("", &["sleep 5", "echo x >> /counter"]) };
    let all = join_all((0..20).map(|number| ensured(&service, spec(number)))).await;
    assert_eq!(all.iter().filter(|one| one.by == EnsuredBy::Created).count(), 1);
    let restored = all.iter().filter(|one| one.by == EnsuredBy::Restored);
    let restored: Vec<_> = restored.map(|one| one.restored.as_ref().unwrap().snapshot.clone()).collect();
    assert!(restored.len() == 19 && restored.iter().all(|one| *one == restored[0]));
    for one in &all {
        assert_eq!(said(&service, &one.sandbox.sandbox.id, "cat /counter").await, "x\n");
    }
    assert_eq!((created(&world).await, living(&world).await.len()), (21, 20));
    assert_eq!(service.snapshots().await.unwrap().len(), 1);
    // Another definition has a setup of its own.
    let other = EnsureSpec { key: key(99), ..asked("", &["echo y >> /counter"]) };
    assert_eq!(ensured(&service, other).await.by, EnsuredBy::Created);
    world.is_sound().await;
}

#[tokio::test]
async fn a_step_that_fails_is_named_and_its_sandbox_is_kept_if_that_is_wanted() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = asked("one", &["true", "echo about to fail && exit 3", "true"]);
    let failed = ensure(&service, spec.clone()).await;
    let message = failed.as_ref().unwrap_err().message();
    let EnvironmentProblem::Failed { environment, failure } = problem(failed) else { panic!("{message}") };
    assert_eq!((failure.step, failure.exit_code, &failure.kept), (Some(1), Some(3), &None));
    assert!(message.contains("step 2") && message.contains("code 3") && message.contains("about to fail"), "{message}");
    assert_eq!(living(&world).await, []);
    let states = |record: EnvironmentRecord| -> Vec<SetupState> {
        record.last.unwrap().attempt.steps.iter().map(|step| step.state).collect()
    };
    let wanted = [SetupState::Done, SetupState::Failed, SetupState::Waiting];
    assert_eq!(states(record(&world, &environment).await), wanted);
    let (log, _) = service.environment_log("one", 0, 1000, Duration::ZERO).await.unwrap();
    assert!(log.lines.iter().any(|line| line.text == "about to fail" && line.step == Some(1)), "{log:?}");
    let inspected = with(spec, |policy| policy.keep_failed = true);
    let EnvironmentProblem::Failed { failure, .. } = problem(ensure(&service, inspected).await) else { panic!() };
    let kept = failure.kept.unwrap();
    assert_eq!(living(&world).await, std::slice::from_ref(&kept));
    let view = service.describe(&kept).await.unwrap().sandbox;
    assert_eq!(view.spec.timeouts.total, Some(HOUR));
    // It is not the environment's.
    assert_eq!(record(&world, &environment).await.sandbox, None);
    assert_eq!(ensured(&service, asked("one", &["true"])).await.by, EnsuredBy::Created);
    assert!(!living(&world).await.contains(&kept), "the environment was asked for again");
    // A definition that fails does not replace the one that is there.
    assert!(ensure(&service, asked("one", &["false"])).await.is_err());
    assert_eq!(ensured(&service, asked("one", &["true"])).await.by, EnsuredBy::Live);
    world.is_sound().await;
}

#[tokio::test]
async fn a_step_has_a_time_limit_and_a_ready_command_that_never_succeeds_is_named() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut spec = asked("one", &["sleep 1000"]);
    spec.workspace.step_limit = Duration::from_secs(2);
    let EnvironmentProblem::Failed { failure, .. } = problem(ensure(&service, spec).await) else { panic!() };
    assert_eq!((failure.step, failure.failure.code), (Some(0), Code::TimedOut));
    let mut spec = asked("one", &["true"]);
    spec.workspace.step_limit = Duration::from_secs(2);
    spec.workspace.ready = Some("echo not yet && false".to_owned());
    let EnvironmentProblem::Failed { failure, .. } = problem(ensure(&service, spec).await) else { panic!() };
    assert_eq!((failure.step, failure.failure.code), (Some(1), Code::TimedOut));
    let reason = &failure.failure.reason;
    assert!(reason.contains("never succeeded") && reason.contains("not yet"), "{reason}");
    assert_eq!(living(&world).await, []);
    world.is_sound().await;
}

#[tokio::test]
async fn parallel_commands_run_at_once_and_the_first_failure_ends_them() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut spec = asked("one", &[]);
    let lines = |lines: &[&str]| SetupStep::Parallel(lines.iter().map(|line| (*line).to_owned()).collect());
    spec.workspace.setup = vec![lines(&["echo a > /a", "echo b > /b"]), lines(&["echo c > /c"])];
    let made = ensured(&service, spec).await;
    assert_eq!(said(&service, &made.sandbox.sandbox.id, "cat /a /b /c").await, "a\nb\nc\n");
    let mut spec = asked("two", &[]);
    spec.workspace.setup = vec![lines(&["sleep 100000", "false"])];
    spec.workspace.step_limit = Duration::from_secs(80_000);
    let EnvironmentProblem::Failed { failure, .. } = problem(ensure(&service, spec).await) else { panic!() };
    assert_eq!(failure.step, Some(1));
    world.is_sound().await;
}

#[tokio::test]
async fn the_next_daemon_continues_and_no_command_runs_twice() {
    let world = World::new().await;
    let (service, life) = world.mortal().await;
    let spec = || asked("one", &["echo x >> /counter", "sleep 30", "echo x >> /counter"]);
    let own = service.clone();
    let asking = tokio::spawn(async move { ensure(&own, spec()).await });
    let running = || async {
        let Ok(all) = world.store.environments().await else { return false };
        let attempt = all.first().and_then(|one| one.attempt.clone());
        attempt.is_some_and(|one| one.steps.get(1).is_some_and(|step| step.state == SetupState::Running))
    };
    eventually("the second command runs", running).await;
    world.kill(&life);
    asking.abort();
    drop(service);
    let service = world.daemon().await;
    let made = ensured(&service, spec()).await;
    assert!(made.joined && made.by == EnsuredBy::Created);
    let id = made.sandbox.sandbox.id;
    assert_eq!(said(&service, &id, "cat /counter").await, "x\nx\n");
    let (log, _) = service.environment_log("one", 0, 1000, Duration::ZERO).await.unwrap();
    assert!(log.lines.iter().any(|line| line.text.contains("the attempt continues")), "{log:?}");
    assert_eq!((created(&world).await, living(&world).await), (2, vec![id]));
    world.is_sound().await;
}

#[tokio::test]
async fn work_whose_callers_have_left_is_cancelled_if_all_of_them_wanted_that() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = |on_leave| EnsureSpec { on_leave, ..asked("one", &["sleep 1000000"]) };
    let waits = |on_leave| {
        let own = service.clone();
        tokio::spawn(async move { ensure(&own, spec(on_leave)).await })
    };
    let running = || async {
        let record = service.environment("one").await.ok();
        let attempt = record.and_then(|record| record.attempt);
        attempt.is_some_and(|one| one.steps.first().is_some_and(|step| step.state == SetupState::Running))
    };
    let (first, second) = (waits(OnLeave::Cancel), waits(OnLeave::Cancel));
    eventually("the setup runs", running).await;
    first.abort();
    let _ = first.await;
    assert!(running().await, "one still waits");
    second.abort();
    let _ = second.await;
    eventually("it is cancelled", || async { service.environment("one").await.unwrap().attempt.is_none() }).await;
    assert_eq!(living(&world).await, []);
    // One that wants it to continue is enough.
    let (first, second) = (waits(OnLeave::Cancel), waits(OnLeave::Continue));
    eventually("the setup runs", running).await;
    eventually("the second has joined", || async {
        service.environment("one").await.unwrap().attempt.is_some_and(|one| one.on_leave == OnLeave::Continue)
    })
    .await;
    second.abort();
    first.abort();
    assert!(running().await);
    let cancelled = service.cancel_environment("one").await.unwrap();
    assert!(cancelled.attempt.is_none() && living(&world).await.is_empty());
    world.is_sound().await;
}

#[tokio::test]
async fn a_caller_who_comes_while_work_is_cancelled_gets_a_sandbox() {
    let world = World::new().await;
    let service = world.daemon().await;
    let asks = |on_leave, line: &'static str| {
        let (own, spec) = (service.clone(), EnsureSpec { on_leave, ..asked("one", &[line]) });
        tokio::spawn(async move { ensure(&own, spec).await })
    };
    let attempt = || async { service.environment("one").await.ok().and_then(|record| record.attempt) };
    let running = || async {
        let is_running = |one: &SetupStepRecord| one.state == SetupState::Running;
        attempt().await.is_some_and(|one| one.steps.first().is_some_and(is_running))
    };
    let slowly = || world.host.faults().next(Operation::Stop, Moment::Before, Fault::Hang);
    // Its only caller leaves, and repeats the request.
    let first = asks(OnLeave::Cancel, "sleep 3");
    eventually("the setup runs", running).await;
    slowly();
    first.abort();
    let _ = first.await;
    world.host.faults().wait_until_struck(Operation::Stop, 1).await;
    let left = attempt().await.unwrap();
    let again = [asks(OnLeave::Cancel, "sleep 3"), asks(OnLeave::Continue, "sleep 3")];
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(attempt().await.unwrap().id, left.id, "it is being undone");
    world.host.faults().release();
    let made: Vec<_> = join_all(again).await.into_iter().map(|made| made.unwrap().unwrap()).collect();
    assert!(made.iter().all(|one| one.by == EnsuredBy::Created), "{made:?}");
    service.terminate(&made[0].sandbox.sandbox.id).await.unwrap();
    // A request to cancel it is for everyone who waits, and for no one who comes later.
    let waiting = [asks(OnLeave::Continue, "sleep 4"), asks(OnLeave::Continue, "sleep 4")];
    eventually("the setup runs", running).await;
    slowly();
    let own = service.clone();
    let cancelling = tokio::spawn(async move { own.cancel_environment("one").await.unwrap() });
    world.host.faults().wait_until_struck(Operation::Stop, 2).await;
    let later = asks(OnLeave::Continue, "sleep 4");
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.host.faults().release();
    for waiting in waiting {
        assert!(matches!(problem(waiting.await.unwrap()), EnvironmentProblem::Cancelled(_)));
    }
    assert_eq!(later.await.unwrap().unwrap().by, EnsuredBy::Created);
    cancelling.await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn drift_is_refused_kept_or_leads_to_another_sandbox() {
    let world = World::new().await;
    let service = world.daemon().await;
    let first = ensured(&service, asked("one", &["echo a > /a"])).await.sandbox.sandbox.id;
    let changed = asked("one", &["echo b > /b"]);
    let refused = with(changed.clone(), |policy| policy.on_drift = OnDrift::Refuse);
    let EnvironmentProblem::Drift { differences, .. } = problem(ensure(&service, refused).await) else { panic!() };
    assert_eq!(differences, ["setup"]);
    let kept = ensured(&service, with(changed.clone(), |policy| policy.on_drift = OnDrift::Keep)).await;
    assert_eq!((kept.by, &kept.sandbox.sandbox.id, kept.drift), (EnsuredBy::Live, &first, vec!["setup".to_owned()]));
    let rebuilt = ensured(&service, changed.clone()).await;
    assert_eq!(rebuilt.by, EnsuredBy::Created);
    assert!(rebuilt.lost[0].contains("is kept"), "{:?}", rebuilt.lost);
    assert_eq!(rebuilt.environment.retired[0].sandbox, first);
    eventually("the earlier one is suspended", || async {
        service.describe(&first).await.unwrap().sandbox.state.name() == StateName::Suspended
    })
    .await;
    // Back again: the snapshot of the first definition is still there.
    let back = ensured(&service, asked("one", &["echo a > /a"])).await;
    assert_eq!(back.by, EnsuredBy::Restored);
    eventually("both are suspended", || async {
        let retired = &service.environment("one").await.unwrap().retired;
        let mut suspended = 0;
        for one in retired {
            let state = service.describe(&one.sandbox).await.unwrap().sandbox.state.name();
            suspended += usize::from(state == StateName::Suspended);
        }
        suspended == 2
    })
    .await;
    // When that sandbox is gone, the snapshot of the definition in between is not taken for it.
    service.terminate(&back.sandbox.sandbox.id).await.unwrap();
    let again = ensured(&service, asked("one", &["echo a > /a"])).await;
    assert_eq!(again.by, EnsuredBy::Restored);
    assert_eq!(said(&service, &again.sandbox.sandbox.id, "cat /a").await, "a\n");
    world.is_sound().await;
}

#[tokio::test]
async fn callers_of_two_definitions_at_once_never_get_the_sandbox_of_the_other() {
    let world = World::new().await;
    let service = world.daemon().await;
    let words = ["echo a > /word", "echo b > /word"];
    let mut found: BTreeMap<SandboxId, usize> = BTreeMap::new();
    for _ in 0..4 {
        let calls = (0..6).map(|caller| ensured(&service, asked("one", &[words[caller % 2]])));
        for (caller, ensured) in join_all(calls).await.into_iter().enumerate() {
            let id = ensured.sandbox.sandbox.id;
            assert_eq!(*found.entry(id.clone()).or_insert(caller % 2), caller % 2, "{id}");
        }
    }
}

#[tokio::test]
async fn a_broken_sandbox_is_reported_and_passed_over_only_if_that_is_allowed() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || asked("one", &["echo x >> /counter"]);
    let id = ensured(&service, spec()).await.sandbox.sandbox.id;
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    world.host.faults().always(Operation::Restore, Moment::Before, Fault::Fail);
    // One failure to restore says nothing about the image: it is not lost.
    let failed = ensure(&service, spec()).await.unwrap_err();
    assert_eq!(failed.code(), Code::Failed, "{failed:?}");
    world.host.faults().clear();
    let view = service.describe(&id).await.unwrap().sandbox;
    let image = view.state.image().unwrap_or_else(|| panic!("{:?}", view.state)).saved_state.clone();
    damage(&world, &image, Damage::Flipped);
    let EnvironmentProblem::Broken { way, .. } = problem(ensure(&service, spec()).await) else { panic!() };
    assert_eq!(way, Way::Resume);
    let allowed = with(spec(), |policy| policy.on_broken = OnBroken::Next);
    let passed = ensured(&service, allowed).await;
    assert_eq!(passed.by, EnsuredBy::Restored);
    assert!(passed.considered.iter().any(|one| matches!(&one.verdict, Verdict::Broken(_))), "{:?}", passed.considered);
    assert_ne!(passed.sandbox.sandbox.id, id);
    // The broken one is kept.
    assert_eq!(service.describe(&id).await.unwrap().sandbox.state.name(), StateName::Suspended);
}

#[tokio::test]
async fn a_snapshot_that_was_deleted_or_is_too_old_is_not_restored() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || asked("one", &["echo x >> /counter"]);
    let first = ensured(&service, spec()).await;
    let snapshot = first.environment.snapshot.clone().unwrap();
    service.terminate(&first.sandbox.sandbox.id).await.unwrap();
    service.delete_snapshot(&snapshot).await.unwrap();
    let second = ensured(&service, spec()).await;
    assert_eq!(second.by, EnsuredBy::Created);
    let why = format!("{:?}", second.considered);
    assert!(why.contains("was deleted"), "{why}");
    service.terminate(&second.sandbox.sandbox.id).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(2 * HOUR).await;
    tokio::time::resume();
    let strict = with(spec(), |policy| policy.snapshot_max_age = Some(HOUR));
    let third = ensured(&service, strict).await;
    assert_eq!(third.by, EnsuredBy::Created);
    // The newer one has replaced it.
    let newest = third.environment.snapshot.clone().unwrap();
    eventually("the older one is deleted", || async {
        let left: Vec<_> = service.snapshots().await.unwrap().into_iter().map(|one| one.id).collect();
        left == [newest.clone()]
    })
    .await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_setup_whose_snapshot_fails_is_handed_out_and_says_so() {
    let world = World::new().await;
    let service = world.daemon().await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
    let made = ensured(&service, asked("one", &["echo x >> /counter"])).await;
    assert_eq!((made.by, made.restored.is_none()), (EnsuredBy::Created, true));
    assert!(made.snapshot_failure.is_some() && made.environment.snapshot.is_none());
    assert_eq!(living(&world).await, std::slice::from_ref(&made.sandbox.sandbox.id));
    assert_eq!(said(&service, &made.sandbox.sandbox.id, "cat /counter").await, "x\n");
    world.is_sound().await;
}

#[tokio::test]
async fn a_lease_that_ends_or_expires_takes_the_snapshot_and_ends_the_sandbox() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || {
        let spec = with(asked("one", &["true"]), |policy| {
            policy.snapshot = SnapshotWhen::AfterRun;
            policy.snapshot_kind = SnapshotKind::Filesystem;
            policy.destroy_on_complete = true;
        });
        EnsureSpec { lease: Some(HOUR), ..spec }
    };
    let first = ensured(&service, spec()).await;
    let second = ensured(&service, spec()).await;
    assert_eq!(first.sandbox.sandbox.id, second.sandbox.sandbox.id);
    let id = first.sandbox.sandbox.id.clone();
    said(&service, &id, "echo work > /work").await;
    let lease = |ensured: &Ensured| ensured.lease.as_ref().unwrap().id.clone();
    service.release_lease("one", Some(&lease(&first)), RunOutcome::Completed).await.unwrap();
    assert_eq!(living(&world).await, std::slice::from_ref(&id), "another run uses it");
    let released = service.release_lease("one", Some(&lease(&second)), RunOutcome::Completed).await.unwrap();
    assert!(released.sandbox.is_none() && released.snapshot.is_some());
    assert_eq!(living(&world).await, []);
    let third = ensured(&service, spec()).await;
    assert_eq!(third.by, EnsuredBy::Restored);
    assert_eq!(said(&service, &third.sandbox.sandbox.id, "cat /work").await, "work\n");
    assert!(third.lost.iter().any(|lost| lost.contains("files only")), "{:?}", third.lost);
    // Its client dies: the lease expires.
    tokio::time::pause();
    tokio::time::advance(HOUR + Duration::from_secs(1)).await;
    eventually("the run is ended", || async { living(&world).await.is_empty() }).await;
    tokio::time::resume();
    let ended = || async { record(&world, &third.environment.id).await.ending.is_none() };
    eventually("the end is recorded", ended).await;
    // The older one goes as soon as the newer one is not based on its files.
    let older = released.snapshot.unwrap();
    let left = service.snapshot(&older).await;
    assert!(left.is_err() || left.is_ok_and(|older| older.removal == Removal::WhenFree));
    world.is_sound().await;
}

#[tokio::test]
async fn no_lease_is_given_for_a_sandbox_that_the_end_of_a_run_terminates() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || {
        let spec = with(asked("one", &["true"]), |policy| {
            policy.snapshot = SnapshotWhen::AfterRun;
            policy.destroy_on_complete = true;
        });
        EnsureSpec { lease: Some(HOUR), ..spec }
    };
    let first = ensured(&service, spec()).await;
    let id = first.sandbox.sandbox.id.clone();
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    world.host.faults().next(Operation::Restore, Moment::Before, Fault::Hang);
    let own = service.clone();
    let asking = tokio::spawn(async move { ensured(&own, spec()).await });
    world.host.faults().wait_until_struck(Operation::Restore, 1).await;
    // The first run ends while the second resumes the sandbox, and its end takes a snapshot.
    let (own, lease) = (service.clone(), first.lease.unwrap().id);
    let releasing =
        tokio::spawn(async move { own.release_lease("one", Some(&lease), RunOutcome::Completed).await.unwrap() });
    eventually("the run is ending", || async { record(&world, &first.environment.id).await.ending.is_some() }).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Delay(Duration::from_secs(1)));
    world.host.faults().release();
    releasing.await.unwrap();
    let second = asking.await.unwrap();
    assert_ne!(second.sandbox.sandbox.id, id);
    assert_eq!(said(&service, &second.sandbox.sandbox.id, "echo here").await, "here\n");
    let leases: Vec<_> = record(&world, &first.environment.id).await.leases.into_iter().map(|one| one.id).collect();
    assert_eq!(leases, [second.lease.unwrap().id]);
    world.is_sound().await;
}

#[tokio::test]
async fn a_sandbox_that_is_too_old_is_retired() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || {
        with(asked("one", &["true"]), |policy| {
            (policy.sandbox_max_age, policy.snapshot) = (Some(HOUR), SnapshotWhen::Never);
        })
    };
    let first = ensured(&service, spec()).await.sandbox.sandbox.id;
    assert_eq!(ensured(&service, spec()).await.by, EnsuredBy::Live);
    tokio::time::pause();
    tokio::time::advance(HOUR + Duration::from_secs(1)).await;
    tokio::time::resume();
    let fresh = ensured(&service, spec()).await;
    assert_eq!((fresh.by, &fresh.environment.retired[0].sandbox), (EnsuredBy::Created, &first));
    eventually("the earlier one is suspended", || async {
        service.describe(&first).await.unwrap().sandbox.state.name() == StateName::Suspended
    })
    .await;
    world.is_sound().await;
}

fn key(byte: u8) -> SecretsKey {
    SecretsKey::new([byte; 32], LostSecrets::Refuse)
}

#[tokio::test]
async fn secrets_reach_the_setup_and_every_process_and_no_record() {
    let mut world = World::new().await;
    world.settings.secrets_key = Some(key(1));
    let service = world.daemon().await;
    let name = "TOKEN".parse().unwrap();
    service.set_secret(&name, &SecretValue::new("hunter2-and-more".to_owned())).await.unwrap();
    let spec = || EnsureSpec {
        secrets: [("NPM_TOKEN".to_owned(), name.clone())].into(),
        ..asked("one", &["echo token $NPM_TOKEN", "echo $NPM_TOKEN > /seen"])
    };
    let made = ensured(&service, spec()).await;
    let id = made.sandbox.sandbox.id.clone();
    assert_eq!(said(&service, &id, "echo $NPM_TOKEN && cat /seen").await, "hunter2-and-more\nhunter2-and-more\n");
    let (log, _) = service.environment_log("one", 0, 1000, Duration::ZERO).await.unwrap();
    assert!(log.lines.iter().any(|line| line.text == "token ***"), "{log:?}");
    let text = codec::encode_environment(&record(&world, &made.environment.id).await).unwrap();
    assert!(!text.contains("hunter2") && !format!("{log:?}").contains("hunter2"));
    // A secret that changes reaches the sandbox when it is resumed.
    service.set_secret(&name, &SecretValue::new("another".to_owned())).await.unwrap();
    service.suspend(&id).await.unwrap();
    assert_eq!(ensured(&service, spec()).await.by, EnsuredBy::Resumed);
    assert_eq!(said(&service, &id, "echo $NPM_TOKEN").await, "another\n");
    // Also if its sandbox is that of the setup.
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
    let other = ensured(&service, EnsureSpec { key: Some(Key::Own("two".to_owned())), ..changed(spec()) }).await;
    assert!(other.snapshot_failure.is_some());
    assert_eq!(said(&service, &other.sandbox.sandbox.id, "echo $NPM_TOKEN").await, "another\n");
    let values = Variables([("GIVEN".to_owned(), "given-as-value".to_owned())].into());
    let given = EnsureSpec { values, secrets: BTreeMap::new(), ..asked("three", &["echo $GIVEN > /seen"]) };
    let made = ensured(&service, given.clone()).await;
    assert_eq!(
        said(&service, &made.sandbox.sandbox.id, "cat /seen && echo $GIVEN").await,
        "given-as-value\ngiven-as-value\n"
    );
    let text = codec::encode_environment(&record(&world, &made.environment.id).await).unwrap();
    assert!(!text.contains("given-as-value"));
    assert_eq!(ensured(&service, given).await.by, EnsuredBy::Live);
    let missing = EnsureSpec { secrets: [("A".to_owned(), "NONE".parse().unwrap())].into(), ..asked("x", &[]) };
    assert!(matches!(problem(ensure(&service, missing).await), EnvironmentProblem::Secret { .. }));
}

/// Returns the same with another workspace.
fn changed(mut spec: EnsureSpec) -> EnsureSpec {
    spec.workspace.setup.push(SetupStep::Serial("true".to_owned()));
    spec
}

#[tokio::test]
async fn explaining_changes_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || asked("one", &["true"]);
    let explained = service.explain_ensure(spec()).await.unwrap();
    assert!(explained.environment.is_none());
    assert_eq!(explained.decision.considered.last().map(|last| last.way), Some(Way::Create));
    assert_eq!((created(&world).await, world.store.environments().await.unwrap().len()), (0, 0));
    let made = ensured(&service, spec()).await;
    let before = record(&world, &made.environment.id).await;
    service.suspend(&made.sandbox.sandbox.id).await.unwrap();
    let explained = service.explain_ensure(spec()).await.unwrap();
    assert_eq!(explained.decision.considered.last().map(|last| last.way), Some(Way::Resume));
    assert_eq!(explained.environment.map(|one| one.id), Some(made.environment.id.clone()));
    assert_eq!(record(&world, &made.environment.id).await, before);
    let view = service.describe(&made.sandbox.sandbox.id).await.unwrap();
    assert_eq!(view.sandbox.state.name(), StateName::Suspended);
}

#[tokio::test]
async fn an_environment_for_one_request_is_found_again_only_by_a_retry() {
    let world = World::new().await;
    let service = world.daemon().await;
    let once = || EnsureSpec { key: None, lease: Some(HOUR), ..asked("", &["echo x >> /counter"]) };
    let id = RequestId::from_random([1; 20]);
    let first = ensured(&service.for_request(&id, [1; 32]).await.unwrap(), once()).await;
    let again = ensured(&service.for_request(&id, [1; 32]).await.unwrap(), once()).await;
    assert_eq!(first.sandbox.sandbox.id, again.sandbox.sandbox.id);
    assert_eq!(again.environment.leases.len(), 1, "a retry has the lease of the first request");
    let other = ensured(&service, once()).await;
    assert_eq!(other.by, EnsuredBy::Restored);
    assert_ne!(first.sandbox.sandbox.id, other.sandbox.sandbox.id);
    world.is_sound().await;
}

#[tokio::test]
async fn a_removed_environment_leaves_nothing_that_others_do_not_share() {
    let world = World::new().await;
    let service = world.daemon().await;
    let one = ensured(&service, asked("one", &["true"])).await;
    let two = ensured(&service, asked("two", &["true"])).await;
    assert_eq!(two.by, EnsuredBy::Restored);
    service.remove_environment("one").await.unwrap();
    assert_eq!(living(&world).await, std::slice::from_ref(&two.sandbox.sandbox.id));
    assert_eq!(service.snapshots().await.unwrap().len(), 1, "the other one uses it");
    assert!(service.environment("one").await.is_err());
    // Its key is free.
    let anew = ensured(&service, asked("one", &["true"])).await;
    assert_ne!(anew.environment.id, one.environment.id);
    service.remove_environment("one").await.unwrap();
    service.remove_environment(two.environment.id.as_str()).await.unwrap();
    eventually("nothing is left", || async { service.snapshots().await.unwrap().is_empty() }).await;
    assert_eq!(living(&world).await, []);
    world.is_sound().await;
}

#[tokio::test]
async fn the_key_of_a_client_library_leads_to_what_it_made() {
    let world = World::new().await;
    let service = world.daemon().await;
    let made = ensured(&service, asked("0ad2b56eb7ad29f7", &["true"])).await;
    let thread = |thread: &str| {
        let thread = Thread { thread: thread.to_owned(), definition: "a".to_owned(), user: None, organization: None };
        let client_key = Some("0ad2b56eb7ad29f7".to_owned());
        EnsureSpec { key: Some(Key::Thread(thread)), client_key, ..asked("", &["true"]) }
    };
    assert_eq!(ensured(&service, thread("t1")).await.sandbox.sandbox.id, made.sandbox.sandbox.id);
    let bad = EnsureSpec { client_key: Some("XYZ".to_owned()), ..thread("t1") };
    assert!(matches!(problem(ensure(&service, bad).await), EnvironmentProblem::Bad(_)));
}

#[tokio::test]
async fn projects_see_nothing_of_each_other() {
    let world = World::new().await;
    let service = world.daemon().await;
    let made = ensured(&service, asked("one", &["true"])).await;
    let other: ProjectId = "other".parse().unwrap();
    service.create_project(other.clone(), ProjectBudgets::default()).await.unwrap();
    let theirs = service.for_project(&other).unwrap();
    assert!(
        theirs.environment("one").await.is_err() && theirs.environment(made.environment.id.as_str()).await.is_err()
    );
    assert!(theirs.environments().await.unwrap().is_empty());
    let own = ensured(&theirs, asked("one", &["true"])).await;
    // Not even the snapshot of the same workspace.
    assert_eq!(own.by, EnsuredBy::Created);
    assert!(service.remove_project(&other).await.is_err(), "it has an environment");
    world.is_sound().await;
}

#[tokio::test]
async fn bad_requests_change_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    type Change = Box<dyn Fn(&mut EnsureSpec)>;
    let bad: Vec<(&str, Change)> = vec![
        ("a long key", Box::new(|spec| spec.key = Some(Key::Own("k".repeat(10_000))))),
        ("an empty key", Box::new(|spec| spec.key = Some(Key::Own(String::new())))),
        ("a relative directory", Box::new(|spec| spec.workspace.directory = "code".to_owned())),
        ("an empty command", Box::new(|spec| spec.workspace.setup = vec![SetupStep::Serial("  ".to_owned())])),
        ("a missing image", Box::new(|spec| spec.workspace.from = CreateFrom::Image("nowhere".to_owned()))),
        ("a lease of a week", Box::new(|spec| spec.lease = Some(168 * HOUR))),
        (
            "a token without a repository",
            Box::new(|spec| {
                spec.token = Some(dorm_service::TokenSpec::Value(SecretValue::new("x".to_owned())));
            }),
        ),
        (
            "credentials in the URL",
            Box::new(|spec| {
                let url = "https://me:hunter2@example.com/app".to_owned();
                spec.workspace.code =
                    Some(dorm_lifecycle::environment::Code::Git { url, reference: None, depth: Some(1) });
            }),
        ),
    ];
    for (what, change) in bad {
        let mut spec = asked("one", &["true"]);
        change(&mut spec);
        let refused = ensure(&service, spec).await.unwrap_err();
        assert!(matches!(refused.code(), Code::InvalidArgument | Code::NotFound), "{what}: {refused:?}");
        assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{what}");
    }
    assert_eq!((created(&world).await, world.store.environments().await.unwrap().len()), (0, 0));
}

#[tokio::test]
async fn a_sandbox_that_is_lost_under_its_setup_is_made_again() {
    let world = World::new().await;
    let service = Arc::new(world.daemon().await);
    let own = service.clone();
    let asking = tokio::spawn(async move { ensure(&own, asked("one", &["sleep 20", "echo x >> /counter"])).await });
    eventually("the setup runs", || async { !living(&world).await.is_empty() }).await;
    let setup = living(&world).await.remove(0);
    service.terminate(&setup).await.unwrap();
    let made = asking.await.unwrap().unwrap();
    assert_eq!(said(&service, &made.sandbox.sandbox.id, "cat /counter").await, "x\n");
    world.is_sound().await;
}
