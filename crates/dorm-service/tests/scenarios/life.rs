//! The life of a sandbox without faults, and the requests that are refused.

use std::time::Duration;

use dorm_agent_client::{GuestString, ProcessSpec};
use dorm_lifecycle::{Denied, EventKind, Initiator, StateName, Wake};
use dorm_service::{Code, CreateFrom, CreateSpec, ParkLimits, Residence, ServiceError, Use};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{Counter, World, base, create, eventually, named, read, state, write};

#[tokio::test]
async fn memory_files_and_id_survive_parked_and_evicted_sleep() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "secret").await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "secret 1");
    write(&service.agent(&id, Use::Exec).await.unwrap().0, "/root/file", "kept").await;
    let asleep = service.suspend(&id).await.unwrap();
    assert_eq!((state(&asleep), asleep.residence), (StateName::Suspended, Residence::Parked));
    let awake = service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!((awake.sandbox.id.clone(), awake.sandbox.generation), (id.clone(), 2));
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "secret 2");
    service.suspend(&id).await.unwrap();
    let evicted = service.evict(&id).await.unwrap();
    assert_eq!(evicted.residence, Residence::Evicted);
    assert!(world.host.runs().is_empty());
    assert_eq!(service.usage(&id).await.unwrap(), dorm_engine::Usage::default());
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "secret 3");
    assert_eq!(read(&service.agent(&id, Use::Exec).await.unwrap().0, "/root/file").await, "kept");
    world.is_sound().await;
    service.terminate(&id).await.unwrap();
    world.is_sound().await;
    assert!(world.host.runs().is_empty());
}

#[tokio::test]
async fn every_change_is_an_event_in_order() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    service.terminate(&id).await.unwrap();
    let expected = [
        EventKind::Created,
        EventKind::Started,
        EventKind::Suspending,
        EventKind::Suspended,
        EventKind::Evicted,
        EventKind::Resuming,
        EventKind::Resumed,
        EventKind::Terminating,
        EventKind::Terminated,
    ];
    assert_eq!(world.events(&id).await, expected);
}

#[tokio::test]
async fn asking_for_what_holds_already_is_a_success() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    assert_eq!(service.resume(&id, Initiator::User).await.unwrap().sandbox.generation, 1);
    service.suspend(&id).await.unwrap();
    assert_eq!(state(&service.suspend(&id).await.unwrap()), StateName::Suspended);
    service.terminate(&id).await.unwrap();
    assert_eq!(state(&service.terminate(&id).await.unwrap()), StateName::Terminated);
}

#[tokio::test]
async fn what_is_refused_is_refused_by_name_and_changes_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    let ephemeral = create(&service, base()).await;
    let refused = service.suspend(&ephemeral).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Denied { denied: Denied::NotSuspendable, .. }), "{refused}");
    let first = create(&service, named("web")).await;
    let taken = service.create(named("web")).await.unwrap_err();
    assert_eq!(taken.code(), Code::Conflict);
    assert!(taken.message().contains(first.as_str()), "{}", taken.message());
    let unknown = CreateSpec::new(CreateFrom::Image("nothing".into()));
    assert_eq!(service.create(unknown).await.unwrap_err().code(), Code::NotFound);
    let mut impossible = named("other");
    impossible.resources = Some(dorm_lifecycle::Resources { memory_bytes: 1, ..Default::default() });
    assert_eq!(service.create(impossible).await.unwrap_err().code(), Code::InvalidArgument);
    service.terminate(&first).await.unwrap();
    let over = service.resume(&first, Initiator::User).await.unwrap_err();
    assert_eq!(over.code(), Code::Gone);
    assert_eq!(service.agent(&first, Use::Exec).await.err().unwrap().code(), Code::Gone);
    assert_eq!(service.find("nobody").await.unwrap_err().code(), Code::NotFound);
    create(&service, named("web")).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_suspended_sandbox_cannot_be_used_until_it_is_resumed() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.suspend(&id).await.unwrap();
    let refused = service.agent(&id, Use::Exec).await.err().unwrap();
    assert!(matches!(refused, ServiceError::NotRunning { state: StateName::Suspended, .. }), "{refused}");
    assert!(refused.next_step().starts_with("resume it first, or let the call wake it"));
}

#[tokio::test]
async fn many_callers_at_once_cause_one_resume() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.suspend(&id).await.unwrap();
    let callers = (0..20).map(|_| service.resume(&id, Initiator::User));
    for view in futures_util::future::join_all(callers).await {
        assert_eq!(view.unwrap().sandbox.generation, 2);
    }
}

#[tokio::test]
async fn a_resume_during_a_suspend_waits_and_then_resumes() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let (asleep, awake) = tokio::join!(service.suspend(&id), service.resume(&id, Initiator::User));
    asleep.unwrap();
    assert_eq!(state(&awake.unwrap()), StateName::Running);
    world.is_sound().await;
}

#[tokio::test]
async fn what_is_parked_too_long_is_evicted_for_what_comes_after_it() {
    let world = World::new().await.park(ParkLimits { memory_bytes: u64::MAX, count: 2 });
    let service = world.daemon().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(create(&service, named(name)).await);
    }
    for id in &ids {
        service.suspend(id).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    eventually("the first is evicted", || async {
        service.describe(&ids[0]).await.unwrap().residence == Residence::Evicted
    })
    .await;
    assert_eq!(service.describe(&ids[1]).await.unwrap().residence, Residence::Parked);
    assert_eq!(service.describe(&ids[2]).await.unwrap().residence, Residence::Parked);
    world.is_sound().await;
    for id in &ids {
        service.resume(id, Initiator::User).await.unwrap();
    }
}

#[tokio::test]
async fn twenty_suspend_and_resume_at_the_same_time() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut lives = Vec::new();
    for number in 0..20 {
        let service = service.clone();
        lives.push(tokio::spawn(async move {
            let id = create(&service, named(&format!("s{number}"))).await;
            let token = format!("t{number}");
            let mut counter = Counter::start(&service, &id, &token).await;
            for round in 1..=5 {
                assert_eq!(counter.ask(&service, &id).await.unwrap(), format!("{token} {round}"));
                service.suspend(&id).await.unwrap();
                if round % 2 == 0 {
                    service.evict(&id).await.unwrap();
                }
                service.resume(&id, Initiator::User).await.unwrap();
            }
        }));
    }
    for life in lives {
        life.await.unwrap();
    }
    world.is_sound().await;
}

#[tokio::test]
async fn a_connection_to_a_port_ends_when_its_sandbox_is_suspended() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let (agent, _in_use) = service.agent(&id, Use::Process).await.unwrap();
    let words = ["serve", "8080"].map(|word| GuestString::new(word).unwrap()).to_vec();
    agent.start(&ProcessSpec::new(words)).await.unwrap();
    eventually("the port is served", || async { service.connect(&id, 8080).await.is_ok() }).await;
    // The client has sent half of its request, and waits.
    let (mut stream, _in_use) = service.connect(&id, 8080).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let asleep = service.suspend(&id).await.unwrap();
    assert_eq!(asleep.residence, Residence::Parked);
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 16])).await.expect("an end");
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    service.resume(&id, Initiator::User).await.unwrap();
    let (mut stream, _in_use) = service.connect(&id, 8080).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn traffic_wakes_only_whoever_wants_to_be_woken() {
    let world = World::new().await;
    let service = world.daemon().await;
    let willing = create(&service, named("willing")).await;
    let unwilling = create(&service, CreateSpec { wake: Wake::Never, ..named("unwilling") }).await;
    for id in [&willing, &unwilling] {
        service.suspend(id).await.unwrap();
    }
    // Nothing listens on the port, but the sandbox was resumed to find that out.
    let refused = service.connect(&willing, 80).await.err().unwrap();
    assert_eq!(refused.code(), Code::PortClosed, "{refused}");
    assert_eq!(state(&service.describe(&willing).await.unwrap()), StateName::Running);
    assert_eq!(service.connect(&unwilling, 80).await.err().unwrap().code(), Code::Conflict);
    assert_eq!(state(&service.describe(&unwilling).await.unwrap()), StateName::Suspended);
}
