//! Filesystem snapshots: files without memory, and the sandboxes and snapshots based on them.

use dorm_agent_client::{GuestPath, Parents, RemoveScope};
use dorm_lifecycle::{Initiator, Resources, Restored, SandboxId, SnapshotKind, StateName};
use dorm_service::{Code, CreateFrom, CreateSpec, KeepFuture, Moment, Service, ServiceError, Use};
use dorm_storage::{Difference, Differing};
use dorm_store::{Change, FailureRecord, SnapshotRecord, SnapshotStatus, Store as _};

use crate::world::{Counter, World, create, eventually, named, read, state, write};

async fn files(service: &Service, id: &SandboxId) -> SnapshotRecord {
    let snapshot = service.checkpoint(id, SnapshotKind::Filesystem).await.unwrap();
    assert_eq!((snapshot.kind, snapshot.status.clone()), (SnapshotKind::Filesystem, SnapshotStatus::Completed));
    snapshot
}

fn from(snapshot: &SnapshotRecord, name: &str) -> CreateSpec {
    let name = Some(name.parse().unwrap());
    CreateSpec { name, ..CreateSpec::new(CreateFrom::Snapshot(snapshot.id.clone())) }
}

fn path(text: &str) -> GuestPath {
    GuestPath::try_from(text).unwrap()
}

async fn content(service: &Service, id: &SandboxId, path: &str) -> String {
    let (agent, _in_use) = service.agent(id, Use::Process).await.unwrap();
    read(&agent, path).await
}

async fn put(service: &Service, id: &SandboxId, path: &str, content: &'static str) {
    let (agent, _in_use) = service.agent(id, Use::Process).await.unwrap();
    write(&agent, path, content).await;
}

#[tokio::test]
async fn files_go_along_and_memory_does_not() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    put(&service, &id, "/note", "one").await;
    put(&service, &id, "/etc/hostname", "changed").await;
    {
        let (agent, _in_use) = service.agent(&id, Use::Process).await.unwrap();
        agent.remove(&path("/etc/os-release"), RemoveScope::Single).await.unwrap();
        agent.remove(&path("/home"), RemoveScope::Tree).await.unwrap();
        agent.make_directory(&path("/home/new/deep"), Parents::Create, None).await.unwrap();
    }
    let snapshot = files(&service, &id).await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1", "its processes continue");
    put(&service, &id, "/note", "two").await;
    service.terminate(&id).await.unwrap();
    let child = create(&service, from(&snapshot, "child")).await;
    let view = service.describe(&child).await.unwrap();
    assert_eq!((view.sandbox.restored, view.sandbox.generation), (Restored::Filesystem, 1));
    assert_eq!(view.sandbox.origin.snapshot(), Some(&snapshot.id));
    assert_eq!(content(&service, &child, "/note").await, "one");
    assert_eq!(content(&service, &child, "/etc/hostname").await, "changed");
    let (agent, _in_use) = service.agent(&child, Use::Process).await.unwrap();
    for (gone, there) in [("/etc/os-release", "/etc/passwd"), ("/home/user", "/home/new/deep")] {
        assert!(agent.stat(&path(gone)).await.is_err(), "{gone} is there again");
        assert!(agent.stat(&path(there)).await.is_ok(), "{there} is missing");
    }
    assert!(agent.processes().await.unwrap().is_empty());
    world.is_sound().await;
}

#[tokio::test]
async fn layers_lie_on_each_other_and_each_keeps_what_it_was() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut id = create(&service, named("web-0")).await;
    let mut all = Vec::new();
    for depth in 1..=4 {
        put(&service, &id, "/depth", ["", "1", "2", "3", "4"][depth]).await;
        put(&service, &id, ["", "/one", "/two", "/three", "/four"][depth], "here").await;
        if depth == 3 {
            let (agent, _in_use) = service.agent(&id, Use::Process).await.unwrap();
            agent.remove(&path("/one"), RemoveScope::Single).await.unwrap();
        }
        let snapshot = files(&service, &id).await;
        id = create(&service, from(&snapshot, &format!("web-{depth}"))).await;
        all.push(snapshot);
    }
    for (at, snapshot) in all.iter().enumerate() {
        let child = create(&service, from(snapshot, &format!("child-{at}"))).await;
        assert_eq!(content(&service, &child, "/depth").await, (at + 1).to_string());
        let (agent, _in_use) = service.agent(&child, Use::Process).await.unwrap();
        for (number, name) in ["/one", "/two", "/three", "/four"].iter().enumerate() {
            let is_there = number <= at && !(number == 0 && at >= 2);
            assert_eq!(agent.stat(&path(name)).await.is_ok(), is_there, "{name} in snapshot {at}");
        }
    }
    assert_eq!(all[3].layer.as_ref(), Some(&all[2].saved_state));
    assert_eq!(all[3].parent.as_ref(), Some(&all[2].id));
    world.is_sound().await;
}

#[tokio::test]
async fn a_sandbox_of_a_layer_sleeps_wakes_and_is_cloned_like_any_other() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    put(&service, &id, "/note", "one").await;
    let snapshot = files(&service, &id).await;
    let child = create(&service, from(&snapshot, "child")).await;
    let mut counter = Counter::start(&service, &child, "x").await;
    counter.ask(&service, &child).await.unwrap();
    put(&service, &child, "/own", "mine").await;
    service.suspend(&child).await.unwrap();
    service.evict(&child).await.unwrap();
    let asleep = files(&service, &child).await;
    assert_eq!(state(&service.describe(&child).await.unwrap()), StateName::Suspended, "nothing wakes");
    service.resume(&child, Initiator::User).await.unwrap();
    let clone = service.clone_sandbox(&child, Some("copy".parse().unwrap())).await.unwrap();
    let mut of_clone = counter;
    for (of, id) in [(&mut counter, &child), (&mut of_clone, &clone.clone.sandbox.id)] {
        assert_eq!(of.ask(&service, id).await.unwrap(), "x 2");
        assert_eq!(content(&service, id, "/own").await + &content(&service, id, "/note").await, "mineone");
    }
    assert_eq!(clone.snapshot.layer.as_ref(), Some(&snapshot.saved_state));
    let last = create(&service, from(&asleep, "last")).await;
    assert_eq!(content(&service, &last, "/own").await + &content(&service, &last, "/note").await, "mineone");
    world.is_sound().await;
}

#[tokio::test]
async fn what_stands_on_a_snapshot_keeps_it_there() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    put(&service, &id, "/note", "one").await;
    let snapshot = files(&service, &id).await;
    let child = create(&service, from(&snapshot, "child")).await;
    let second = service.checkpoint(&child, SnapshotKind::Memory).await.unwrap();
    let refused = service.delete_snapshot(&snapshot.id).await.unwrap_err();
    assert!(matches!(&refused, ServiceError::SnapshotInUse { held_by, .. } if held_by.len() == 2), "{refused}");
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.message().contains(child.as_str()) && refused.message().contains(second.id.as_str()), "{refused}");
    service.delete_snapshot_when_free(&snapshot.id).await.unwrap();
    let again = service.create(from(&snapshot, "late")).await.unwrap_err();
    assert_eq!(again.code(), Code::Conflict);
    service.terminate(&child).await.unwrap();
    assert_eq!(service.snapshot(&snapshot.id).await.unwrap().status, SnapshotStatus::Completed, "one holder is left");
    let clone = create(&service, from(&second, "clone")).await;
    assert_eq!(content(&service, &clone, "/note").await, "one");
    service.delete_snapshot(&second.id).await.unwrap();
    assert_eq!(
        service.snapshot(&snapshot.id).await.unwrap().status,
        SnapshotStatus::Completed,
        "the clone stands on it"
    );
    service.terminate(&clone).await.unwrap();
    eventually("the snapshot goes", async || service.snapshot(&snapshot.id).await.is_err()).await;
    world.is_sound().await;
}

#[tokio::test]
async fn limits_may_change_and_a_disk_only_grows() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let snapshot = files(&service, &id).await;
    let least = snapshot.resources.disk_bytes;
    let smaller = Resources { disk_bytes: least - 1, ..snapshot.resources };
    let asked = CreateSpec { resources: Some(smaller), ..from(&snapshot, "small") };
    let refused = service.create(asked).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("a disk can only grow"), "{refused}");
    let other = Resources { cpu_millis: 500, memory_bytes: 1 << 30, disk_bytes: least * 2, processes: 64 };
    let asked = CreateSpec { resources: Some(other), ..from(&snapshot, "large") };
    let large = create(&service, asked).await;
    assert_eq!(service.describe(&large).await.unwrap().sandbox.spec.resources, other);
    let memory = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let asked = CreateSpec { resources: Some(other), ..from(&memory, "fixed") };
    let refused = service.create(asked).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.next_step().contains("filesystem snapshot"), "{refused}");
}

#[tokio::test]
async fn a_damaged_layer_is_refused_after_a_restart_of_the_daemon() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    put(&service, &id, "/note", "one").await;
    let snapshot = files(&service, &id).await;
    let saved_state = world.storage().saved_state(&snapshot.saved_state).await.unwrap();
    std::fs::write(saved_state.root().join("note"), "two").unwrap();
    let later = world.daemon().await;
    let refused = later.create(from(&snapshot, "child")).await.unwrap_err().message();
    assert!(refused.contains("damaged") && refused.contains("root/note"), "{refused}");
    world.is_sound().await;
}

#[tokio::test]
async fn a_snapshot_can_be_asked_for_without_waiting() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let begun = service.begin_checkpoint(&id, Default::default()).await.unwrap();
    assert_eq!(begun.status, SnapshotStatus::InProgress);
    let early = service.create(from(&begun, "early")).await;
    assert!(early.is_err() || service.snapshot(&begun.id).await.unwrap().status == SnapshotStatus::Completed);
    let is_over = async || service.snapshot(&begun.id).await.unwrap().status != SnapshotStatus::InProgress;
    eventually("the snapshot is complete", is_over).await;
    assert_eq!(service.snapshot(&begun.id).await.unwrap().status, SnapshotStatus::Completed);
    service.terminate(&id).await.unwrap();
    let refused = service.begin_checkpoint(&id, Default::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Gone);
    world.is_sound().await;
}

#[tokio::test]
async fn many_layers_are_merged_where_nobody_stands_on_them() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut id = create(&service, named("web-0")).await;
    let mut all = Vec::new();
    for depth in 1..=9 {
        put(&service, &id, "/depth", ["", "1", "2", "3", "4", "5", "6", "7", "8", "9"][depth]).await;
        {
            let (agent, _in_use) = service.agent(&id, Use::Process).await.unwrap();
            agent.make_directory(&path(&format!("/of/{depth}")), Parents::Create, None).await.unwrap();
            if depth > 2 {
                agent.remove(&path(&format!("/of/{}", depth - 2)), RemoveScope::Tree).await.unwrap();
            }
        }
        let snapshot = files(&service, &id).await;
        if depth < 9 {
            id = create(&service, from(&snapshot, &format!("web-{depth}"))).await;
        }
        all.push(snapshot);
    }
    let last = all.last().unwrap();
    let is_flat = async || service.snapshot(&last.id).await.unwrap().layer.is_none();
    eventually("the layers of the last are merged", is_flat).await;
    let merged = service.snapshot(&last.id).await.unwrap();
    assert_ne!(merged.saved_state, last.saved_state);
    assert_eq!(world.storage().depth(&merged.saved_state).await.unwrap(), 1);
    assert_eq!(service.snapshot(&all[7].id).await.unwrap().layer, all[7].layer, "somebody stands on the one before");
    let child = create(&service, from(&merged, "child")).await;
    assert_eq!(content(&service, &child, "/depth").await, "9");
    let (agent, _in_use) = service.agent(&child, Use::Process).await.unwrap();
    let left: Vec<bool> = agents_see(&agent, 9).await;
    assert_eq!(left, [false, false, false, false, false, false, false, true, true]);
    world.is_sound().await;
    // The layers below the merged one can be deleted.
    service.terminate(&id).await.unwrap();
    service.delete_snapshot(&all[7].id).await.unwrap();
    let later = world.daemon().await;
    assert_eq!(content(&later, &child, "/depth").await, "9");
    world.is_sound().await;
}

async fn agents_see(agent: &dorm_agent_client::Agent, most: usize) -> Vec<bool> {
    let mut seen = Vec::new();
    for number in 1..=most {
        seen.push(agent.stat(&path(&format!("/of/{number}"))).await.is_ok());
    }
    seen
}

#[tokio::test]
async fn layers_that_no_host_could_mount_are_merged_before_anybody_is_answered() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut id = create(&service, named("web-0")).await;
    for depth in 1..=20 {
        put(&service, &id, "/depth", "there").await;
        let snapshot = files(&service, &id).await;
        id = create(&service, from(&snapshot, &format!("web-{depth}"))).await;
        let layer = service.describe(&id).await.unwrap().sandbox.spec.layer.unwrap();
        assert!(world.storage().depth(&layer).await.unwrap() <= 17, "at {depth}");
    }
    assert_eq!(content(&service, &id, "/depth").await, "there");
    world.is_sound().await;
}

#[tokio::test]
async fn a_rewind_to_files_boots_with_them_and_keeps_the_future() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    put(&service, &id, "/note", "one").await;
    let snapshot = files(&service, &id).await;
    for suspended in [false, true] {
        let mut counter = Counter::start(&service, &id, "x").await;
        counter.ask(&service, &id).await.unwrap();
        put(&service, &id, "/note", "two").await;
        if suspended {
            service.suspend(&id).await.unwrap();
        }
        let done = service.rewind(&id, &snapshot.id, KeepFuture::default()).await.unwrap();
        let sandbox = &done.sandbox.sandbox;
        assert_eq!((state(&done.sandbox), sandbox.restored), (StateName::Running, Restored::Filesystem));
        assert_eq!((&sandbox.id, sandbox.spec.layer.as_ref()), (&id, Some(&snapshot.saved_state)));
        assert_eq!(content(&service, &id, "/note").await, "one");
        let (agent, _in_use) = service.agent(&id, Use::Process).await.unwrap();
        assert!(agent.processes().await.unwrap().is_empty(), "it has booted");
        let refused = service.delete_snapshot(&snapshot.id).await.unwrap_err();
        assert!(refused.message().contains(id.as_str()), "{refused}");
        let future = service.snapshot(&done.future.unwrap()).await.unwrap();
        let child = create(&service, CreateSpec::new(CreateFrom::Snapshot(future.id.clone()))).await;
        assert_eq!(counter.ask(&service, &child).await.unwrap(), "x 2");
        assert_eq!(content(&service, &child, "/note").await, "two");
        service.terminate(&child).await.unwrap();
        service.suspend(&id).await.unwrap();
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(content(&service, &id, "/note").await, "one");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn what_differs_between_two_moments_is_told() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    put(&service, &id, "/kept", "same").await;
    put(&service, &id, "/root/changed", "one").await;
    let (first, memory) = (files(&service, &id).await, service.checkpoint(&id, SnapshotKind::Memory).await.unwrap());
    put(&service, &id, "/root/changed", "three").await;
    put(&service, &id, "/root/new", "new").await;
    {
        let (agent, _in_use) = service.agent(&id, Use::Process).await.unwrap();
        agent.remove(&path("/kept"), RemoveScope::Single).await.unwrap();
        agent.remove(&path("/home/user"), RemoveScope::Tree).await.unwrap();
    }
    let told = |all: Vec<Differing>| -> Vec<(String, Difference, Option<u64>, Option<u64>)> {
        let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        all.into_iter().map(|one| (text(&one.path), one.difference, one.before, one.after)).collect()
    };
    let expected = [
        ("kept".to_owned(), Difference::Removed, Some(4), None),
        ("root/changed".to_owned(), Difference::Modified, Some(3), Some(5)),
        ("root/new".to_owned(), Difference::Added, None, Some(3)),
    ];
    let (of_first, of_memory) = (Moment::Snapshot(first.id.clone()), Moment::Snapshot(memory.id.clone()));
    let now = Moment::Sandbox(id.clone());
    assert_eq!(told(service.diff(&of_first, &of_memory).await.unwrap()), [], "both kinds were taken of the same");
    // The image of the fake engine is not on the disk, so its content is unknown there.
    let known =
        |all: Vec<Differing>| told(all).into_iter().filter(|(path, ..)| !path.starts_with("home")).collect::<Vec<_>>();
    assert_eq!(known(service.diff(&of_first, &now).await.unwrap()), expected);
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    assert_eq!(known(service.diff(&of_memory, &now).await.unwrap()), expected);
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Suspended, "nothing wakes");
    let back = known(service.diff(&now, &of_first).await.unwrap());
    assert_eq!(back.iter().filter(|(_, difference, ..)| *difference == Difference::Added).count(), 1);
    let unknown = Moment::Snapshot("aaaaaaaaaaaaaaaaaaaa".parse().unwrap());
    assert_eq!(service.diff(&now, &unknown).await.unwrap_err().code(), Code::NotFound);
    let passed = async || service.snapshots().await.unwrap().len() == 2;
    eventually("the snapshot it was compared through is gone", passed).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_snapshot_of_another_project_is_not_there() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let own = files(&service, &id).await;
    let foreign = SnapshotRecord {
        id: "bbbbbbbbbbbbbbbbbbbb".parse().unwrap(),
        project: "theirs".parse().unwrap(),
        ..own.clone()
    };
    world.store.commit(Change { snapshots: vec![foreign.clone()], ..Change::default() }).await.unwrap();
    assert_eq!(service.snapshot(&foreign.id).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(service.create(from(&foreign, "child")).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(service.rewind(&id, &foreign.id, KeepFuture::Not).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(service.delete_snapshot(&foreign.id).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(service.delete_snapshot_when_free(&foreign.id).await.unwrap_err().code(), Code::NotFound);
    let (theirs, ours) = (Moment::Snapshot(foreign.id), Moment::Snapshot(own.id));
    assert_eq!(service.diff(&ours, &theirs).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_snapshot_that_is_not_complete_is_refused_by_its_status() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let complete = files(&service, &id).await;
    let number = [
        SnapshotStatus::InProgress,
        SnapshotStatus::Failed(FailureRecord::new(Code::NoRoom, "no room")),
        SnapshotStatus::Deleting,
    ];
    for (status, letter) in number.into_iter().zip(["c", "d", "e"]) {
        let record = SnapshotRecord { id: letter.repeat(20).parse().unwrap(), status, ..complete.clone() };
        world.store.commit(Change { snapshots: vec![record.clone()], ..Change::default() }).await.unwrap();
        let refused = service.create(from(&record, "child")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Conflict, "{refused}");
        assert!(refused.message().contains(record.status.as_str()), "{refused}");
        assert_eq!(service.rewind(&id, &record.id, KeepFuture::Not).await.unwrap_err().code(), Code::Conflict);
        let (one, other) = (Moment::Snapshot(record.id), Moment::Snapshot(complete.id.clone()));
        assert_eq!(service.diff(&one, &other).await.unwrap_err().code(), Code::Conflict);
    }
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
}

#[tokio::test]
async fn a_source_that_goes_while_its_files_are_taken_leaves_a_whole_snapshot_or_none() {
    let world = World::new().await;
    let service = world.daemon().await;
    for (name, end) in [("one", StateName::Suspended), ("two", StateName::Terminated)] {
        let id = create(&service, named(name)).await;
        put(&service, &id, "/note", "one").await;
        let begun = service.begin_checkpoint(&id, Default::default()).await.unwrap();
        let ended = match end {
            StateName::Suspended => service.suspend(&id).await.unwrap(),
            _ => service.terminate(&id).await.unwrap(),
        };
        assert_eq!(state(&ended), end);
        let is_over = async || service.snapshot(&begun.id).await.unwrap().status != SnapshotStatus::InProgress;
        eventually("the snapshot is over", is_over).await;
        let snapshot = service.snapshot(&begun.id).await.unwrap();
        match snapshot.status {
            SnapshotStatus::Completed => {
                let child = create(&service, from(&snapshot, &format!("{name}-child"))).await;
                assert_eq!(content(&service, &child, "/note").await, "one");
            }
            SnapshotStatus::Failed(_) => assert_eq!(end, StateName::Terminated),
            other => panic!("{other:?}"),
        }
        world.is_sound().await;
    }
}
