//! Commits whose result the store cannot tell, and records that are older than the runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dorm_lifecycle::{EventKind, Initiator, SandboxId, StateName};
use dorm_service::{Code, Parts, Service};
use dorm_steps::{Steps, Stopped};
use dorm_store::memory::MemoryStore;
use dorm_store::{OperationKind, SandboxFilter, SteppedStore, Store};
use futures_util::FutureExt as _;

use crate::world::{Counter, World, counting, create, eventually, named, state, suspending};

/// Fails at a step of the store while a suspend is on record, and sometimes when the store is asked
/// for the result.
#[derive(Debug)]
struct Hiding {
    store: StoreProbe,
    at: &'static str,
    hidden: AtomicUsize,
    unreadable: AtomicUsize,
    /// How often the store was asked for the result of a commit.
    asked: AtomicUsize,
    saved_states: PathBuf,
    /// The largest number of saved states at the beginning of a commit after the hidden one.
    kept: AtomicUsize,
}

struct StoreProbe(MemoryStore);

impl std::fmt::Debug for StoreProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a store")
    }
}

impl StoreProbe {
    /// Returns whether a suspend is in progress whose saved state is committed to the disk.
    fn is_saved(&self, saved_states: &PathBuf) -> bool {
        let open = self.0.open_operations().now_or_never().unwrap().unwrap();
        open.iter().any(|open| open.kind == OperationKind::Suspend) && count(saved_states) > 0
    }
}

fn count(saved_states: &PathBuf) -> usize {
    let names = std::fs::read_dir(saved_states).into_iter().flatten().flatten();
    names.filter(|entry| !entry.file_name().to_string_lossy().contains('.')).count()
}

fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Steps for Hiding {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        let stopped = Err(Stopped { step, full: false });
        match step {
            "store: about to settle" => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                if take(&self.unreadable) { stopped } else { Ok(()) }
            }
            "store: about to commit" if self.hidden.load(Ordering::SeqCst) == 0 => {
                self.kept.fetch_max(count(&self.saved_states), Ordering::SeqCst);
                Ok(())
            }
            // After the commit, no suspend is in progress any more.
            "store: committed" if step == self.at && count(&self.saved_states) > 0 && take(&self.hidden) => stopped,
            _ if step == self.at && self.store.is_saved(&self.saved_states) && take(&self.hidden) => stopped,
            _ => Ok(()),
        }
    }
}

const MADE: &str = "store: committed";
const NOT_MADE: &str = "store: committing";

fn hiding(world: &World, at: &'static str, unreadable: usize) -> Arc<Hiding> {
    Arc::new(Hiding {
        store: StoreProbe(world.store.clone()),
        at,
        hidden: AtomicUsize::new(1),
        unreadable: AtomicUsize::new(unreadable),
        asked: AtomicUsize::new(0),
        saved_states: world.directory.path().join("data/saved_states"),
        kept: AtomicUsize::new(0),
    })
}

async fn daemon(world: &World, steps: &Arc<Hiding>) -> Service {
    let store = SteppedStore::new(Arc::new(world.store.clone()), steps.clone());
    Service::open(Parts { store: Arc::new(store), ..world.parts() }).await.unwrap().0
}

async fn counted(world: &World, steps: &Arc<Hiding>) -> (Service, SandboxId, Counter) {
    let service = daemon(world, steps).await;
    let (id, counter) = counting(&service).await;
    (service, id, counter)
}

#[tokio::test(start_paused = true)]
async fn a_suspend_that_was_recorded_is_done_although_its_commit_reported_a_failure() {
    for unreadable in [0, 7] {
        let world = World::new().await;
        let steps = hiding(&world, MADE, unreadable);
        let (service, id, mut counter) = counted(&world, &steps).await;
        let asleep = service.suspend(&id).await.unwrap();
        assert_eq!((state(&asleep), steps.hidden.load(Ordering::SeqCst)), (StateName::Suspended, 0));
        assert_eq!(steps.asked.load(Ordering::SeqCst), unreadable + 1);
        service.evict(&id).await.unwrap();
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspend_that_was_not_recorded_fails_and_its_files_go_after_that_is_recorded() {
    for unreadable in [0, 7] {
        let world = World::new().await;
        let steps = hiding(&world, NOT_MADE, unreadable);
        let (service, id, mut counter) = counted(&world, &steps).await;
        let failed = service.suspend(&id).await.unwrap_err();
        assert_eq!((failed.code(), steps.hidden.load(Ordering::SeqCst)), (Code::StoreFailed, 0));
        assert_eq!(steps.kept.load(Ordering::SeqCst), 1, "the saved state was there until the failure was recorded");
        assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        assert!(world.events(&id).await.contains(&EventKind::SuspendFailed));
        world.is_sound().await;
        service.suspend(&id).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn while_it_is_not_known_what_was_recorded_nothing_is_removed_and_the_next_daemon_finds_everything() {
    for (at, expected) in [(MADE, StateName::Suspended), (NOT_MADE, StateName::Running)] {
        for killed in [false, true] {
            let world = World::new().await;
            let steps = hiding(&world, at, usize::MAX);
            let (service, id, mut counter) = counted(&world, &steps).await;
            let caller = suspending(&service, &id);
            eventually("it is asked again and again", || async { steps.asked.load(Ordering::SeqCst) > 8 }).await;
            assert_eq!(count(&steps.saved_states), 1);
            assert!(!caller.is_finished());
            if killed {
                world.host.open();
                caller.abort();
            } else {
                service.stop().await;
                assert_eq!(caller.await.unwrap().unwrap_err().code(), Code::Unavailable);
            }
            drop(service);
            let service = world.daemon().await;
            eventually("it is settled", || async { state(&service.describe(&id).await.unwrap()) == expected }).await;
            service.resume(&id, Initiator::User).await.unwrap();
            assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "{at} killed: {killed}");
            world.is_sound().await;
        }
    }
}

#[tokio::test]
async fn a_run_that_no_record_names_is_left_alone_until_a_user_ends_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    counter.ask(&service, &id).await.unwrap();
    service.stop().await;
    let lost = || Parts { store: Arc::new(MemoryStore::new()), ..world.parts() };
    let (service, report) = Service::open(lost()).await.unwrap();
    assert!(report.lines.iter().any(|line| line.contains("no record names it")), "{:?}", report.lines);
    assert_eq!(world.host.runs().len(), 1);
    let listed = service.items().await.unwrap();
    assert!(listed.iter().any(|one| one.kind.as_str() == "run" && one.verdict.as_str() == "unknown"), "{listed:?}");
    assert_eq!(service.figures().await.unwrap().unrecorded_runs, 1);
    service.stop().await;
    // The original database is used again.
    let service = world.daemon().await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    service.stop().await;
    let (service, _) = Service::open(lost()).await.unwrap();
    assert_eq!(service.end_unrecorded_runs().await.unwrap().len(), 1);
    assert!(world.host.runs().is_empty());
    assert_eq!(service.figures().await.unwrap().unrecorded_runs, 0);
}

#[tokio::test]
async fn a_run_of_a_sandbox_that_is_over_is_cleared_away() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.stop().await;
    // Another writer records that the sandbox is terminated.
    let mut record = world.store.sandbox(&id).await.unwrap().unwrap();
    let cause = dorm_lifecycle::Cause::Requested;
    record.sandbox.state = dorm_lifecycle::State::Terminated { cause, at: record.sandbox.created };
    world.store.commit(dorm_store::Change { sandboxes: vec![record], ..Default::default() }).await.unwrap();
    let service = world.daemon().await;
    assert!(world.host.runs().is_empty());
    assert_eq!(service.figures().await.unwrap().unrecorded_runs, 0);
}

#[tokio::test]
async fn a_parked_run_is_preferred_to_a_sleep_image_whose_files_are_gone() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    counter.ask(&service, &id).await.unwrap();
    service.suspend(&id).await.unwrap();
    service.stop().await;
    std::fs::remove_dir_all(world.directory.path().join("data/saved_states")).unwrap();
    std::fs::create_dir(world.directory.path().join("data/saved_states")).unwrap();
    let service = world.daemon().await;
    eventually("it runs", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running }).await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    assert!(world.events(&id).await.contains(&EventKind::Recovered));
    world.is_sound().await;
    let all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
    assert_eq!(all.len(), 1);
}
