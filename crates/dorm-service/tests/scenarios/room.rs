//! Work that the host has no room for is refused with figures; an operation that frees resources is
//! never refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, Resources, SnapshotKind, StateName, Wake};
use dorm_ports::HostFacts;
use dorm_service::{Budgets, Code, CollectorItemKind, CreateSpec, Residence, Service, Use, Verdict};
use dorm_store::{Change, Store as _};

use crate::world::{World, base, create, eventually, named, state};

#[derive(Debug)]
struct SomeHost(AtomicU64);

impl HostFacts for SomeHost {
    fn available_memory(&self) -> Option<u64> {
        Some(self.0.load(Ordering::SeqCst))
    }
}

const MIB: u64 = 1 << 20;

fn sized(name: &str, mib: u64) -> CreateSpec {
    CreateSpec { resources: Some(Resources { memory_bytes: mib * MIB, ..Resources::default() }), ..named(name) }
}

#[tokio::test]
async fn no_more_memory_is_given_out_than_there_is_to_give() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { memory_bytes: Some(1000 * MIB), ..Budgets::default() };
    let service = world.daemon().await;
    let first = create(&service, sized("first", 600)).await;
    let refused = service.create(sized("second", 600)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    assert!(refused.message().contains("600 MiB"), "{}", refused.message());
    assert!(world.store.sandboxes(&dorm_store::SandboxFilter::default()).await.unwrap().len() == 1);
    // A suspended sandbox uses none of the memory budget; a resume needs its share again.
    service.suspend(&first).await.unwrap();
    let second = create(&service, sized("second", 600)).await;
    let refused = service.resume(&first, Initiator::User).await.unwrap_err();
    assert_eq!((refused.code(), state(&service.describe(&first).await.unwrap())), (Code::NoRoom, StateName::Suspended));
    service.terminate(&second).await.unwrap();
    service.resume(&first, Initiator::User).await.unwrap();
    // The next daemon counts the running sandboxes that it finds.
    service.stop().await;
    let service = world.daemon().await;
    assert_eq!(service.create(sized("third", 600)).await.unwrap_err().code(), Code::NoRoom);
    create(&service, sized("fourth", 400)).await;
}

#[tokio::test]
async fn what_is_parked_is_given_back_before_anything_is_refused() {
    let mut world = World::new().await;
    let host = Arc::new(SomeHost(AtomicU64::new(900 * MIB)));
    world.settings.host = host.clone();
    world.settings.budgets = Budgets { memory_reserve_bytes: 500 * MIB, ..Budgets::default() };
    let service = world.daemon().await;
    let parked = create(&service, named("parked")).await;
    service.suspend(&parked).await.unwrap();
    assert_eq!(service.describe(&parked).await.unwrap().residence, Residence::Parked);
    host.0.store(400 * MIB, Ordering::SeqCst);
    let refused = service.create(base()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    assert_eq!(service.describe(&parked).await.unwrap().residence, Residence::Evicted);
    host.0.store(500 * MIB, Ordering::SeqCst);
    create(&service, base()).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_full_disk_refuses_what_writes_and_never_a_suspend() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { disk_reserve_bytes: u64::MAX / 2, ..Budgets::default() };
    let service = world.daemon().await;
    let refused = service.create(base()).await.unwrap_err();
    assert!(refused.message().contains("must stay"), "{}", refused.message());
    service.stop().await;
    world.settings.budgets = Budgets { disk_bytes: Some(1), ..Budgets::default() };
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.suspend(&id).await.unwrap();
    assert_eq!(service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err().code(), Code::NoRoom);
    assert_eq!(service.create(base()).await.unwrap_err().code(), Code::NoRoom);
    service.resume(&id, Initiator::User).await.unwrap();
    service.suspend(&id).await.unwrap();
    service.terminate(&id).await.unwrap();
    create(&service, base()).await;
    world.is_sound().await;
}

#[tokio::test]
async fn deleted_images_on_which_sandboxes_run_count_as_used() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { disk_bytes: Some(64 << 20), ..Budgets::default() };
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.hold_deleted_images((64 << 20) + 1);
    let refused = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    assert!(
        refused.message().contains("deleted ones that running sandboxes still use 64 MiB"),
        "{}",
        refused.message()
    );
    assert_eq!(service.figures().await.unwrap().deleted_image_bytes, (64 << 20) + 1);
    world.host.hold_deleted_images(0);
    service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn everything_on_the_disk_is_told_with_its_reason_and_only_what_a_record_says_is_deleted() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    service.suspend(&id).await.unwrap();
    let stray = world.directory.path().join("data/saved_states").join("strayaaaaaaaaaaaaaaa");
    std::fs::create_dir(&stray).unwrap();
    let told = service.items().await.unwrap();
    let verdicts: Vec<_> = told.iter().map(|item| (item.kind, item.verdict)).collect();
    let mut expected = vec![
        (CollectorItemKind::Image, Verdict::Kept),
        (CollectorItemKind::SavedState, Verdict::Kept),
        (CollectorItemKind::SavedState, Verdict::Kept),
        (CollectorItemKind::SavedState, Verdict::Unknown),
    ];
    expected.sort();
    let mut found = verdicts.clone();
    found.sort();
    assert_eq!(found, expected, "{told:#?}");
    let why = |part: &str| told.iter().any(|item| item.why.iter().any(|why| why.contains(part)));
    assert!(why("its sleep image of generation 1") && why(snapshot.id.as_str()) && why("tagged 'base'"), "{told:#?}");
    // The record marks a saved state whose deletion has not succeeded yet.
    let change = Change {
        discard: vec![snapshot.saved_state.clone()],
        forgotten: vec![snapshot.id.clone()],
        ..Change::default()
    };
    world.store.commit(change).await.unwrap();
    let told = service.items().await.unwrap();
    let doomed: Vec<_> = told.iter().filter(|item| item.verdict == Verdict::Freed).collect();
    assert!(matches!(doomed.as_slice(), [item] if item.id == snapshot.saved_state.as_str() && item.bytes > 0));
    let freed = service.collect().await.unwrap();
    assert_eq!(freed.iter().collect::<Vec<_>>(), doomed);
    assert!(stray.exists(), "nothing is deleted because no record knows it");
    assert_eq!(service.collect().await.unwrap(), []);
    service.resume(&id, Initiator::User).await.unwrap();
}

#[tokio::test]
async fn no_more_cpus_are_given_out_than_there_are_to_give() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { cpu_millis: Some(1500), ..Budgets::default() };
    let service = world.daemon().await;
    let first = create(&service, named("first")).await;
    let refused = service.create(named("second")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    assert!(refused.message().contains("it may use 1 CPU"), "{}", refused.message());
    service.suspend(&first).await.unwrap();
    let second = create(&service, named("second")).await;
    assert_eq!(service.resume(&first, Initiator::User).await.unwrap_err().code(), Code::NoRoom);
    service.terminate(&second).await.unwrap();
    service.resume(&first, Initiator::User).await.unwrap();
}

#[tokio::test]
async fn no_more_sandboxes_live_than_may_and_those_that_sleep_count() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { sandboxes: Some(2), ..Budgets::default() };
    let service = world.daemon().await;
    let first = create(&service, named("first")).await;
    service.suspend(&first).await.unwrap();
    let (second, third) = tokio::join!(service.create(named("second")), service.create(named("third")));
    let refused = second.and(third).unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    assert!(refused.message().contains("at most 2 may exist"), "{}", refused.message());
    service.resume(&first, Initiator::User).await.unwrap();
    service.terminate(&first).await.unwrap();
    create(&service, named("fourth")).await;
    world.is_sound().await;
}

#[tokio::test]
async fn the_refusal_of_a_full_host_says_nothing_about_other_projects() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { memory_bytes: Some(1000 * MIB), ..Budgets::default() };
    let service = world.daemon().await;
    create(&service, sized("first", 600)).await;
    let alone = service.create(sized("second", 600)).await.unwrap_err().message();
    assert!(alone.contains("1000 MiB"), "{alone}");
    let team: dorm_lifecycle::ProjectId = "team".parse().unwrap();
    service.create_project(team.clone(), dorm_store::ProjectBudgets::default()).await.unwrap();
    let refused = service.for_project(&team).unwrap().create(sized("second", 600)).await.unwrap_err();
    let message = refused.message();
    assert!(message.contains("the host is full") && message.contains("project 'team' may use 0 B"), "{message}");
    assert!(!message.contains("1000 MiB"), "{message}");
    let used = service.projects().await.unwrap();
    let used: Vec<_> =
        used.iter().map(|view| (view.project.id.as_str(), view.used.running, view.used.memory_bytes)).collect();
    assert_eq!(used, [("local", 1, 600 * MIB), ("team", 0, 0)]);
}

#[tokio::test]
async fn a_larger_limit_needs_room_and_a_smaller_one_gives_it() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { memory_bytes: Some(1000 * MIB), ..Budgets::default() };
    let service = world.daemon().await;
    let first = create(&service, sized("first", 600)).await;
    let to = |mib: u64| dorm_lifecycle::Resize { memory_bytes: Some(mib * MIB), ..Default::default() };
    assert_eq!(service.resize(&first, to(1001)).await.unwrap_err().code(), Code::NoRoom);
    assert_eq!(service.describe(&first).await.unwrap().sandbox.spec.resources.memory_bytes, 600 * MIB);
    service.resize(&first, to(1000)).await.unwrap();
    assert_eq!(service.create(sized("second", 400)).await.unwrap_err().code(), Code::NoRoom);
    service.resize(&first, to(600)).await.unwrap();
    create(&service, sized("second", 400)).await;
}

#[tokio::test]
async fn a_project_that_has_used_up_its_budget_keeps_no_other_waiting() {
    let world = World::new().await;
    let service = world.daemon().await;
    let team: dorm_lifecycle::ProjectId = "team".parse().unwrap();
    let budgets = dorm_store::ProjectBudgets { running: Some(1), ..dorm_store::ProjectBudgets::default() };
    service.create_project(team.clone(), budgets).await.unwrap();
    let of_team = service.for_project(&team).unwrap();
    let first = create(&of_team, named("first")).await;
    let patient = CreateSpec { max_wait: Duration::from_secs(3600), ..named("second") };
    let waiting = tokio::spawn({
        let of_team = of_team.clone();
        async move { of_team.create(patient).await }
    });
    // Another project gets room at once, though it waits for it, too.
    let asleep = create(&service, CreateSpec { wake: Wake::Any, ..named("asleep") }).await;
    service.suspend(&asleep).await.unwrap();
    drop(service.agent(&asleep, Use::Exec).await.unwrap());
    create(&service, CreateSpec { max_wait: Duration::from_secs(1), ..named("other") }).await;
    assert!(!waiting.is_finished());
    of_team.suspend(&first).await.unwrap();
    assert_eq!(state(&waiting.await.unwrap().unwrap()), StateName::Running);
}

/// Checks that a create is refused for good, although it would wait for an hour.
async fn is_refused_at_once(service: &Service, asked: CreateSpec) {
    let patient = CreateSpec { max_wait: Duration::from_secs(3600), ..asked };
    let began = tokio::time::Instant::now();
    assert_eq!(service.create(patient).await.unwrap_err().code(), Code::NoRoom);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_request_that_exceeds_a_budget_alone_does_not_wait() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { memory_bytes: Some(1000 * MIB), ..Budgets::default() };
    let service = world.daemon().await;
    is_refused_at_once(&service, sized("large", 1001)).await;
}

#[tokio::test]
async fn a_disk_that_can_never_be_promised_is_refused_at_once() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { disks_bytes: Some(1 << 40), ..Budgets::default() };
    let service = world.daemon().await;
    let resources = Resources { disk_bytes: 2 << 40, ..Resources::default() };
    is_refused_at_once(&service, CreateSpec { resources: Some(resources), ..named("large") }).await;
}

#[tokio::test]
async fn a_create_that_waits_for_what_no_resume_needs_keeps_none_waiting() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { sandboxes: Some(2), ..Budgets::default() };
    let service = world.daemon().await;
    let first = create(&service, named("first")).await;
    let asleep = create(&service, CreateSpec { wake: Wake::Any, ..named("asleep") }).await;
    service.suspend(&asleep).await.unwrap();
    let patient = CreateSpec { max_wait: Duration::from_secs(3600), ..named("third") };
    let waiting = tokio::spawn({
        let service = service.clone();
        async move { service.create(patient).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(service.agent(&asleep, Use::Exec).await.unwrap());
    assert!(!waiting.is_finished());
    service.terminate(&first).await.unwrap();
    assert_eq!(state(&waiting.await.unwrap().unwrap()), StateName::Running);
}

/// Stops commits while it is closed.
#[derive(Debug, Default)]
struct Gate {
    is_closed: std::sync::Mutex<bool>,
    changed: std::sync::Condvar,
    waiting: AtomicU64,
}

impl Gate {
    fn close(&self, closed: bool) {
        *self.is_closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }
}

impl dorm_steps::Steps for Gate {
    fn reach(&self, step: &'static str) -> Result<(), dorm_steps::Stopped> {
        if step == "store: about to commit" {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            drop(self.changed.wait_while(self.is_closed.lock().unwrap(), |closed| *closed));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_create_whose_caller_leaves_keeps_its_room_until_it_is_recorded() {
    let world = World::new().await;
    let gate = Arc::new(Gate::default());
    let store = dorm_store::SteppedStore::new(Arc::new(world.store.clone()), gate.clone());
    let parts = dorm_service::Parts { store: Arc::new(store), ..world.parts() };
    let (service, _) = dorm_service::Service::open(parts).await.unwrap();
    let team: dorm_lifecycle::ProjectId = "team".parse().unwrap();
    let budgets = dorm_store::ProjectBudgets { running: Some(1), ..dorm_store::ProjectBudgets::default() };
    service.create_project(team.clone(), budgets).await.unwrap();
    let of_team = service.for_project(&team).unwrap();
    let create_of_team = |name| {
        let of_team = of_team.clone();
        tokio::spawn(async move { of_team.create(named(name)).await })
    };
    gate.close(true);
    let first = create_of_team("first");
    eventually("its commit is held", || async { gate.waiting.load(Ordering::SeqCst) > 0 }).await;
    first.abort();
    let _ = first.await;
    let second = create_of_team("second");
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.close(false);
    assert_eq!(second.await.unwrap().unwrap_err().code(), Code::NoRoom);
    let used = service.describe_project(&team).await.unwrap().used;
    assert_eq!((used.running, used.sandboxes), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_parked_sandbox_that_is_not_given_back_keeps_no_other_waiting() {
    let mut world = World::new().await;
    let host = Arc::new(SomeHost(AtomicU64::new(900 * MIB)));
    world.settings.host = host.clone();
    world.settings.budgets = Budgets { memory_reserve_bytes: 500 * MIB, ..Budgets::default() };
    let service = world.daemon().await;
    for name in ["stuck", "willing"] {
        let parked = create(&service, named(name)).await;
        service.suspend(&parked).await.unwrap();
    }
    let (stuck, willing) = (service.find("stuck").await.unwrap(), service.find("willing").await.unwrap());
    world.host.faults().next(Operation::Stop, Moment::Before, Fault::Hang);
    let ending = tokio::spawn({
        let (service, stuck) = (service.clone(), stuck.clone());
        async move { service.terminate(&stuck).await }
    });
    eventually("the stop hangs", || async { world.host.faults().struck(Operation::Stop) == 1 }).await;
    host.0.store(400 * MIB, Ordering::SeqCst);
    let refused = service.create(base()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    assert_eq!(service.describe(&willing).await.unwrap().residence, Residence::Evicted);
    host.0.store(500 * MIB, Ordering::SeqCst);
    create(&service, base()).await;
    world.host.faults().release();
    ending.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_resume_that_comes_during_a_suspend_needs_room_like_any_other() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { memory_bytes: Some(1000 * MIB), ..Budgets::default() };
    let service = world.daemon().await;
    let first = create(&service, sized("first", 600)).await;
    let patient = CreateSpec { max_wait: Duration::from_secs(3600), ..sized("second", 600) };
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let [suspending, resuming, waiting] = [0, 1, 2].map(|which| {
        let (service, first, patient) = (service.clone(), first.clone(), patient.clone());
        tokio::spawn(async move {
            match which {
                0 => service.suspend(&first).await,
                1 => {
                    let is_suspending =
                        async || state(&service.describe(&first).await.unwrap()) == StateName::Suspending;
                    eventually("it is being suspended", is_suspending).await;
                    service.resume(&first, Initiator::User).await
                }
                _ => service.create(patient).await,
            }
        })
    });
    eventually("the save hangs", || async { world.host.faults().struck(Operation::Save) == 1 }).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.host.faults().release();
    suspending.await.unwrap().unwrap();
    // Whichever is first gets the room, and never both.
    let resumed = resuming.await.unwrap();
    if resumed.is_ok() {
        assert!(!waiting.is_finished());
        service.suspend(&first).await.unwrap();
    }
    assert_eq!(state(&waiting.await.unwrap().unwrap()), StateName::Running);
    assert_eq!(state(&service.describe(&first).await.unwrap()), StateName::Suspended);
}
