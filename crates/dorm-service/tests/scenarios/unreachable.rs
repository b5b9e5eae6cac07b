//! A run that does not answer is not given up: it continues, is shown as unreachable, is asked
//! again, and is saved at its deadline like any other.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, RunId, SandboxId, SnapshotKind, State, StateName, Timeouts};
use dorm_service::{Code, CreateSpec, Service, ServiceError, Use};
use dorm_store::{EventFilter, Store};

use crate::world::{Counter, World, counting, create, eventually, named, state};

const FOR_EVER: Duration = Duration::MAX;

async fn run_of(service: &Service, id: &SandboxId) -> RunId {
    service.describe(id).await.unwrap().sandbox.run_id()
}

async fn is_unreachable(service: &Service, id: &SandboxId) -> bool {
    let sandbox = service.describe(id).await.unwrap().sandbox;
    assert_eq!(sandbox.state.name(), StateName::Running);
    sandbox.unreachable.is_some()
}

async fn details(world: &World, id: &SandboxId, kind: EventKind) -> Vec<String> {
    let filter = EventFilter { sandbox: Some(id.clone()), ..EventFilter::default() };
    let events = world.store.events(&filter).await.unwrap();
    let events = events.into_iter().filter(|record| record.event.kind == kind);
    events.map(|record| record.event.detail.unwrap_or_default()).collect()
}

/// Lets the agent answer again, and checks that the run kept its memory and can be suspended and
/// resumed.
async fn is_back(world: &World, service: &Service, id: &SandboxId, counter: &mut Counter, next: u64) {
    world.host.let_all_answer();
    eventually("it answers", || async { !is_unreachable(service, id).await }).await;
    assert_eq!(counter.ask(service, id).await.unwrap(), format!("x {next}"));
    assert_eq!(details(world, id, EventKind::Reachable).await.len(), 1);
    world.is_sound().await;
    service.suspend(id).await.unwrap();
    service.resume(id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(service, id).await.unwrap(), format!("x {}", next + 1));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_agent_is_silent_is_suspended_all_the_same_and_the_event_says_so() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.silence(&run_of(&service, &id).await, FOR_EVER);
    let asleep = service.suspend(&id).await.unwrap();
    assert_eq!((state(&asleep), asleep.sandbox.unreachable), (StateName::Suspended, None));
    let [detail] = &details(&world, &id, EventKind::Suspended).await[..] else { panic!("one sleep") };
    assert!(detail.contains("saved without being quiesced") && detail.contains("10 s"), "{detail}");
    service.evict(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_met_although_the_agent_is_silent() {
    for timeouts in [
        Timeouts { total: Some(Duration::from_secs(60)), ..Timeouts::default() },
        Timeouts { idle: Some(Duration::from_secs(60)), ..Timeouts::default() },
    ] {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, CreateSpec { timeouts, ..named("web") }).await;
        world.host.silence(&run_of(&service, &id).await, FOR_EVER);
        tokio::time::sleep(Duration::from_secs(90)).await;
        eventually("it sleeps", || async { state(&service.describe(&id).await.unwrap()) == StateName::Suspended })
            .await;
        assert!(!world.events(&id).await.contains(&EventKind::RunLost));
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspend_that_fails_while_the_agent_is_silent_leaves_the_run_unreachable_and_alive() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    let run = run_of(&service, &id).await;
    world.host.silence(&run, FOR_EVER);
    world.host.faults().next(Operation::Save, Moment::After, Fault::Fail);
    let failed = service.suspend(&id).await.unwrap_err();
    assert!(failed.message().contains("its agent did not answer within 10 s"), "{}", failed.message());
    assert!(is_unreachable(&service, &id).await);
    assert_eq!(run_of(&service, &id).await, run, "it is the same run");
    let events = world.events(&id).await;
    assert!(events.contains(&EventKind::SuspendFailed) && events.contains(&EventKind::Unreachable), "{events:?}");
    let why = service.why(&id).await.unwrap();
    assert_eq!(why.because[0].signal, "run", "{why:?}");
    assert_eq!(service.figures().await.unwrap().unreachable, 1);
    is_back(&world, &service, &id, &mut counter, 2).await;
    assert_eq!(service.figures().await.unwrap().unreachable, 0);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_a_silent_agent_is_taken_and_says_so() {
    for kind in [SnapshotKind::Memory, SnapshotKind::Filesystem] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, mut counter) = counting(&service).await;
        world.host.silence(&run_of(&service, &id).await, FOR_EVER);
        service.checkpoint(&id, kind).await.unwrap();
        let [detail] = &details(&world, &id, EventKind::SnapshotTaken).await[..] else { panic!("one snapshot") };
        assert!(detail.contains("taken without being quiesced"), "{detail}");
        assert!(is_unreachable(&service, &id).await);
        is_back(&world, &service, &id, &mut counter, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_falls_silent_after_it_was_held_still_costs_no_run() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().next(Operation::Resume, Moment::Before, Fault::Silence(Duration::from_secs(300)));
    service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    assert!(is_unreachable(&service, &id).await);
    let [detail] = &details(&world, &id, EventKind::SnapshotTaken).await[..] else { panic!("one snapshot") };
    assert!(!detail.contains("quiesced"), "{detail}");
    is_back(&world, &service, &id, &mut counter, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_daemon_keeps_a_run_whose_agent_is_silent() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    let run = run_of(&service, &id).await;
    service.stop().await;
    world.host.silence(&run, FOR_EVER);
    let service = world.daemon().await;
    eventually("it is shown as unreachable", || async { is_unreachable(&service, &id).await }).await;
    let since = service.describe(&id).await.unwrap().sandbox.unreachable.unwrap().since;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    service.stop().await;
    let service = world.daemon().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let sandbox = service.describe(&id).await.unwrap().sandbox;
    assert_eq!((sandbox.run_id(), sandbox.unreachable.map(|silent| silent.since)), (run, Some(since)));
    assert_eq!(details(&world, &id, EventKind::Unreachable).await.len(), 1, "it is told of once");
    is_back(&world, &service, &id, &mut counter, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_died_in_a_suspend_of_a_silent_run_keeps_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let suspending = tokio::spawn({
        let (service, id) = (service.clone(), id.clone());
        async move { drop(service.suspend(&id).await) }
    });
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    suspending.abort();
    world.host.silence(&run_of(&service, &id).await, FOR_EVER);
    world.host.open();
    drop(service);
    let service = world.daemon().await;
    eventually("it runs", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running }).await;
    eventually("it is shown as unreachable", || async { is_unreachable(&service, &id).await }).await;
    is_back(&world, &service, &id, &mut counter, 2).await;
}

#[tokio::test(start_paused = true)]
async fn where_nothing_was_held_still_the_engine_is_not_asked_to_undo_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    let before = world.host.faults().calls(Operation::Resume);
    world.host.faults().next(Operation::Usage, Moment::Before, Fault::Fail);
    service.suspend(&id).await.unwrap_err();
    assert_eq!(world.host.faults().calls(Operation::Resume), before);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "its callers keep their session");
    assert!(!is_unreachable(&service, &id).await);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_its_engine_does_not_let_continue_is_kept_until_it_does() {
    for fault in [Fault::Hang, Fault::Fail] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, mut counter) = counting(&service).await;
        world.host.faults().next(Operation::Save, Moment::After, Fault::Fail);
        world.host.faults().always(Operation::Resume, Moment::Before, fault);
        service.suspend(&id).await.unwrap_err();
        eventually("it is shown as unreachable", || async { is_unreachable(&service, &id).await }).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(is_unreachable(&service, &id).await);
        world.host.faults().clear();
        world.host.faults().release();
        is_back(&world, &service, &id, &mut counter, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_an_unreachable_sandbox_is_told_that_it_runs_and_since_when_it_does_not_answer() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.silence(&run_of(&service, &id).await, FOR_EVER);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = tokio::time::Instant::now();
    let told = service.agent(&id, Use::Exec).await.map(drop).unwrap_err();
    assert!(matches!(&told, ServiceError::Unreachable { .. }), "{told}");
    assert_eq!((told.code(), began.elapsed().as_secs()), (Code::Unavailable, 30));
    assert!(is_unreachable(&service, &id).await);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let began = tokio::time::Instant::now();
    let told = service.agent(&id, Use::Exec).await.map(drop).unwrap_err();
    assert!(told.message().contains("is running but has not answered for 100 s"), "{}", told.message());
    assert_eq!(began.elapsed(), Duration::ZERO, "what is known is told at once");
    is_back(&world, &service, &id, &mut counter, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_run_is_asked_seldom_and_answers_at_once() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _) = counting(&service).await;
    world.host.silence(&run_of(&service, &id).await, FOR_EVER);
    tokio::time::sleep(Duration::from_secs(60)).await;
    service.agent(&id, Use::Exec).await.map(drop).unwrap_err();
    let before = world.host.faults().calls(Operation::Agent);
    tokio::time::sleep(Duration::from_secs(6 * 3600)).await;
    let asked = world.host.faults().calls(Operation::Agent) - before;
    assert!((20..60).contains(&asked), "{asked} times in six hours");
    world.host.let_all_answer();
    let began = tokio::time::Instant::now();
    eventually("it answers", || async { !is_unreachable(&service, &id).await }).await;
    assert!(began.elapsed() <= Duration::from_secs(61));
    let before = world.host.faults().calls(Operation::Agent);
    tokio::time::sleep(Duration::from_secs(6 * 3600)).await;
    assert_eq!(world.host.faults().calls(Operation::Agent), before, "who answers is not asked");
    tokio::time::timeout(Duration::from_secs(5), service.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_daemon_stops_at_once_while_a_run_is_unreachable() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _) = counting(&service).await;
    world.host.silence(&run_of(&service, &id).await, FOR_EVER);
    tokio::time::sleep(Duration::from_secs(60)).await;
    service.agent(&id, Use::Exec).await.map(drop).unwrap_err();
    tokio::time::sleep(Duration::from_secs(1000)).await;
    tokio::time::timeout(Duration::from_secs(5), service.stop()).await.unwrap();
    assert_eq!(world.host.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_run_is_ended_after_the_time_that_the_daemon_was_given_and_not_before() {
    let mut world = World::new().await;
    world.settings.max_unreachable = Some(Duration::from_secs(3600));
    let service = world.daemon().await;
    let (id, _) = counting(&service).await;
    world.host.silence(&run_of(&service, &id).await, FOR_EVER);
    tokio::time::sleep(Duration::from_secs(60)).await;
    service.agent(&id, Use::Exec).await.map(drop).unwrap_err();
    tokio::time::sleep(Duration::from_secs(3590)).await;
    assert!(is_unreachable(&service, &id).await);
    tokio::time::sleep(Duration::from_secs(30)).await;
    eventually("it is over", || async { state(&service.describe(&id).await.unwrap()) == StateName::Terminated }).await;
    let [detail] = &details(&world, &id, EventKind::RunLost).await[..] else { panic!("one loss") };
    assert!(detail.contains("--max-unreachable"), "{detail}");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_run_whose_process_dies_is_lost_and_one_that_is_terminated_is_over() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    service.suspend(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    let run = run_of(&service, &id).await;
    world.host.silence(&run, FOR_EVER);
    tokio::time::sleep(Duration::from_secs(60)).await;
    service.agent(&id, Use::Exec).await.map(drop).unwrap_err();
    world.host.kill(&run, "killed by a test");
    eventually("it is back at its image", || async {
        state(&service.describe(&id).await.unwrap()) == StateName::Suspended
    })
    .await;
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.host.silence(&run_of(&service, &id).await, FOR_EVER);
    let over = service.terminate(&id).await.unwrap();
    assert!(matches!(over.sandbox.state, State::Terminated { .. }));
    assert!(world.host.runs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_late_notice_of_an_earlier_process_ends_no_run_that_was_begun_again() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.give_notice(&run_of(&service, &id).await, "an earlier process has ended");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    service.suspend(&id).await.unwrap();
    let parked = run_of(&service, &id).await;
    world.host.give_notice(&parked, "an earlier process has ended");
    tokio::time::sleep(Duration::from_secs(1)).await;
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!((run_of(&service, &id).await, counter.ask(&service, &id).await.unwrap()), (parked, "x 3".to_owned()));
    assert!(!world.events(&id).await.contains(&EventKind::RunLost));
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_said_to_have_ended_is_asked_itself_where_its_engine_does_not_answer() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().plan(Operation::Condition, 1, Moment::Before, Fault::Hang);
    world.host.give_notice(&run_of(&service, &id).await, "it is not known which process has ended");
    eventually("nobody knows whether it is over", || is_unreachable(&service, &id)).await;
    is_back(&world, &service, &id, &mut counter, 2).await;
    world.host.faults().plan(Operation::Condition, 2, Moment::Before, Fault::Fail);
    assert!(world.host.kill(&run_of(&service, &id).await, "killed by a test"));
    eventually("it is back at its image", || async {
        state(&service.describe(&id).await.unwrap()) == StateName::Suspended
    })
    .await;
}
