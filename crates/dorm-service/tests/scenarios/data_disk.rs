//! A host's disk that becomes full: sandboxes are paused before a write is lost, and continue
//! automatically; operations that free space work.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, Resources, RunCondition, SandboxId, SnapshotKind, StateName, Writers};
use dorm_ports::{DataDisk, HeldBack};
use dorm_service::{Budgets, Code, CreateSpec, KeepFuture, Service, Use};
use dorm_store::SnapshotStatus;

use crate::world::{Counter, World, create, eventually, named, state};

const MIB: u64 = 1 << 20;

/// A disk with as much free space as the test sets.
#[derive(Debug)]
struct SomeDisk {
    free: AtomicU64,
    bound: AtomicU64,
    reserve: AtomicU64,
    released: AtomicU64,
    accepted: AtomicU64,
}

impl SomeDisk {
    fn with(free: u64) -> Arc<Self> {
        Arc::new(Self {
            free: free.into(),
            bound: 0.into(),
            reserve: 64.into(),
            released: 0.into(),
            accepted: 0.into(),
        })
    }

    fn set(&self, free: u64) {
        self.free.store(free, Ordering::SeqCst);
    }
}

impl DataDisk for SomeDisk {
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.free.load(Ordering::SeqCst))
    }

    fn bound_unwritten(&self, bytes: Option<u64>) {
        self.bound.store(bytes.unwrap_or(0), Ordering::SeqCst);
    }

    fn unwritten_max(&self) -> u64 {
        10 * MIB
    }

    fn part_bytes(&self) -> u64 {
        8 * MIB
    }

    fn release(&self, what: HeldBack) -> io::Result<()> {
        match what {
            HeldBack::Accepted => _ = self.accepted.fetch_add(1, Ordering::SeqCst),
            HeldBack::Freeing => {
                self.released.fetch_add(1, Ordering::SeqCst);
                self.reserve.store(0, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    fn replenish(&self, keep_free: u64) -> io::Result<()> {
        if self.free_bytes()? >= keep_free + 64 * MIB {
            self.reserve.store(64, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Returns a world with a disk that has 1 GiB free and a floor of 100 MiB.
async fn tight() -> (World, Arc<SomeDisk>) {
    let mut world = World::new().await;
    let disk = SomeDisk::with(1024 * MIB);
    world.settings.budgets = Budgets { disk_floor_bytes: 100 * MIB, ..Budgets::default() };
    world.settings.data_disk = Some(disk.clone());
    (world, disk)
}

async fn is_paused(service: &Service, id: &SandboxId) -> bool {
    service.describe(id).await.unwrap().paused_for_disk
}

fn condition(world: &World, id: &SandboxId) -> Option<RunCondition> {
    world.host.runs().into_iter().find(|(run, _)| run.sandbox == *id).map(|(_, condition)| condition)
}

#[tokio::test(start_paused = true)]
async fn sandboxes_are_paused_below_the_floor_and_continue_automatically_with_room_again() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "kept").await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "kept 1");
    disk.set(99 * MIB);
    eventually("it is paused", || async { condition(&world, &id) == Some(RunCondition::Paused) }).await;
    eventually("and says so", || async { world.events(&id).await.contains(&EventKind::DiskPaused) }).await;
    assert!(is_paused(&service, &id).await);
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    assert_eq!(service.figures().await.unwrap().paused_for_disk, 1);
    let why = service.why(&id).await.unwrap();
    let reason = &why.because.iter().find(|reason| reason.signal == "disk").unwrap().says;
    assert!(reason.contains("99 MiB"), "{reason}");
    assert!(why.next[0].says.contains("200 MiB"), "{why:?}");
    let refused = service.agent(&id, Use::Exec).await.err().unwrap();
    assert_eq!(refused.code(), Code::NoRoom);
    assert!(refused.message().contains("200 MiB"), "{}", refused.message());
    // Between the floor and twice the floor, nothing changes.
    disk.set(150 * MIB);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_paused(&service, &id).await);
    disk.set(200 * MIB);
    eventually("it continues", || async { !is_paused(&service, &id).await }).await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "kept 2");
    eventually("and says so", || async { world.events(&id).await.contains(&EventKind::DiskResumed) }).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_rewound_sandbox_is_paused_although_the_state_that_it_left_cannot_be_saved() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "kept").await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
    let done = service.rewind(&id, &snapshot.id, KeepFuture::default()).await.unwrap();
    let own = done.sandbox.sandbox.run_id();
    eventually("saving it has failed", || async { world.host.faults().struck(Operation::Save) > 1 }).await;
    disk.set(99 * MIB);
    let condition = || world.host.runs().into_iter().find(|(run, _)| *run == own).map(|(_, condition)| condition);
    eventually("it is paused", || async { condition() == Some(RunCondition::Paused) }).await;
    assert!(is_paused(&service, &id).await);
    world.host.faults().clear();
    disk.set(200 * MIB);
    eventually("it continues", || async { !is_paused(&service, &id).await }).await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "kept 1");
    world.is_sound().await;
    assert_eq!(service.snapshot(&done.future.unwrap()).await.unwrap().status, SnapshotStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_paused_for_the_disk_can_be_suspended_and_terminated() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    let (first, second) = (create(&service, named("first")).await, create(&service, named("second")).await);
    let mut counter = Counter::start(&service, &first, "kept").await;
    assert_eq!(counter.ask(&service, &first).await.unwrap(), "kept 1");
    disk.set(50 * MIB);
    eventually("both are paused", || async { is_paused(&service, &first).await && is_paused(&service, &second).await })
        .await;
    service.suspend(&first).await.unwrap();
    assert!(!is_paused(&service, &first).await);
    service.terminate(&second).await.unwrap();
    assert_eq!(service.figures().await.unwrap().paused_for_disk, 0);
    disk.set(1024 * MIB);
    service.resume(&first, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &first).await.unwrap(), "kept 2");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_could_not_be_saved_on_a_full_disk_is_paused_again() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    disk.set(MIB);
    eventually("it is paused", || async { is_paused(&service, &id).await }).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::NoRoom);
    service.suspend(&id).await.unwrap_err();
    eventually("it is paused again", || async {
        is_paused(&service, &id).await && condition(&world, &id) == Some(RunCondition::Paused)
    })
    .await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::NoRoom);
    service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err();
    eventually("and again", || async { condition(&world, &id) == Some(RunCondition::Paused) }).await;
    disk.set(1024 * MIB);
    eventually("it continues", || async { condition(&world, &id) == Some(RunCondition::Running) }).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_daemon_pauses_and_continues_what_an_earlier_one_has_paused() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    disk.set(MIB);
    eventually("it is paused", || async { is_paused(&service, &id).await }).await;
    service.stop().await;
    let service = world.daemon().await;
    eventually("it is paused by the next", || async { is_paused(&service, &id).await }).await;
    service.stop().await;
    disk.set(1024 * MIB);
    let service = world.daemon().await;
    eventually("it continues", || async { condition(&world, &id) == Some(RunCondition::Running) }).await;
    assert!(!is_paused(&service, &id).await);
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_unwritten_is_bounded_as_long_as_it_could_fill_the_disk() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(disk.bound.load(Ordering::SeqCst), 0);
    // Less is free than the floor and twice the amount that the host may have accepted.
    disk.set(119 * MIB);
    eventually("it is bounded", || async { disk.bound.load(Ordering::SeqCst) == 50 * MIB }).await;
    disk.set(1024 * MIB);
    eventually("it is not", || async { disk.bound.load(Ordering::SeqCst) == 0 }).await;
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn accepted_writes_get_the_room_that_is_held_back_for_them_when_something_else_fills_the_disk() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    for times in 1..=2 {
        disk.set(60 * MIB);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(disk.accepted.load(Ordering::SeqCst), times - 1, "half of the floor is enough for them");
        disk.set(0);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(disk.accepted.load(Ordering::SeqCst), times, "once");
        disk.set(1024 * MIB);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(disk.released.load(Ordering::SeqCst), 0, "the rest is for what frees room");
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_released_for_what_frees_and_for_nothing_else_and_taken_again() {
    let (world, disk) = tight().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    disk.set(0);
    service.suspend(&id).await.unwrap();
    assert_eq!(disk.released.load(Ordering::SeqCst), 0);
    service.delete_snapshot(&snapshot.id).await.unwrap();
    assert!(disk.released.load(Ordering::SeqCst) > 0);
    let before = disk.released.load(Ordering::SeqCst);
    service.terminate(&id).await.unwrap();
    assert!(disk.released.load(Ordering::SeqCst) > before);
    service.collect().await.unwrap();
    disk.set(1024 * MIB);
    eventually("it is whole again", || async { disk.reserve.load(Ordering::SeqCst) == 64 }).await;
    let whole = disk.released.load(Ordering::SeqCst);
    let another = create(&service, named("another")).await;
    service.terminate(&another).await.unwrap();
    assert_eq!(disk.released.load(Ordering::SeqCst), whole, "with room nobody needs it");
}

#[tokio::test]
async fn no_more_disks_are_promised_than_the_budget_allows() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { disks_bytes: Some(1000 * MIB), ..Budgets::default() };
    let service = world.daemon().await;
    let sized = |name: &str, mib: u64| CreateSpec {
        resources: Some(Resources { disk_bytes: mib * MIB, ..Resources::default() }),
        ..named(name)
    };
    let first = create(&service, sized("first", 600)).await;
    let refused = service.create(sized("second", 600)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    assert!(refused.message().contains("1000 MiB"), "{}", refused.message());
    assert!(refused.message().contains("--disk-overcommit"), "{}", refused.message());
    service.create_volume("data".parse().unwrap(), 300 * MIB, Writers::One).await.unwrap();
    let refused = service.create(sized("third", 200)).await.unwrap_err();
    assert!(refused.message().contains("300 MiB"), "volumes count: {}", refused.message());
    let refused = service.create_volume("more".parse().unwrap(), 200 * MIB, Writers::One).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom);
    // A suspended sandbox uses none of the disk budget; a resume needs its share again.
    service.suspend(&first).await.unwrap();
    let second = create(&service, sized("second", 600)).await;
    assert_eq!(service.resume(&first, Initiator::User).await.unwrap_err().code(), Code::NoRoom);
    service.terminate(&second).await.unwrap();
    service.resume(&first, Initiator::User).await.unwrap();
}
