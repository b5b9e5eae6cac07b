//! The daemon ends and restarts; sandboxes end on their own.

use std::fs;
use std::sync::Arc;

use dorm_engine::{Engine, Network, Notice, RunSpec};
use dorm_lifecycle::{Egress, RunCondition};

use crate::host::{PATIENCE, Place, agent_of, mark, shell};
use crate::network::Pairs;

#[tokio::test(flavor = "multi_thread")]
async fn a_reopened_engine_finds_its_runs_as_they_were() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let (running, paused, parked) = (place.spec(), place.spec(), place.spec());
    for spec in [&running, &paused, &parked] {
        engine.start(spec).await.unwrap();
        mark(&agent_of(&engine, &spec.run).await, 33).await;
    }
    for (name, spec) in [("paused", &paused), ("parked", &parked)] {
        agent_of(&engine, &spec.run).await.quiesce().await.unwrap();
        engine.save(&spec.run, &place.image_directory(name), &[]).await.unwrap();
    }
    engine.park(&parked.run).await.unwrap();
    assert!(place.try_open(0).await.is_err(), "one engine at a time");
    drop(engine);

    let engine = place.open(0).await;
    let mut expected = vec![
        (running.run.clone(), RunCondition::Running),
        (paused.run.clone(), RunCondition::Paused),
        (parked.run.clone(), RunCondition::Parked),
    ];
    expected.sort();
    let found: Vec<_> = engine.inventory().await.unwrap().into_iter().map(|one| (one.run, one.condition)).collect();
    assert_eq!(found, expected);
    for spec in [&running, &paused, &parked] {
        engine.resume(&spec.run).await.unwrap();
        let agent = agent_of(&engine, &spec.run).await;
        assert_eq!(agent.generation_at_connect(), 33);
        assert_eq!(shell(&agent, "true").await, 0);
    }
    let cleared = engine.sweep(std::slice::from_ref(&running.run)).await.unwrap();
    assert_eq!(cleared.len(), 2, "{cleared:?}");
    assert_eq!(engine.inventory().await.unwrap().len(), 1);
    engine.stop(&running.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_a_dead_daemon_had_asked_for_goes_with_its_run() {
    let network = Arc::new(Pairs::new());
    let Some(place) = Place::with(network.clone()) else { return };
    let engine = place.open(0).await;
    let spec = RunSpec { egress: Egress::Public, ..place.spec() };
    engine.start(&spec).await.unwrap();
    drop(engine);
    // As if the daemon had died before it could note the lease that it was given.
    for container in fs::read_dir(place.path().join("engine/containers")).unwrap().flatten() {
        let path = container.path().join("note.json");
        let mut note: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        note["lease"] = "asking".into();
        fs::write(&path, note.to_string()).unwrap();
    }
    let engine = place.open(0).await;
    engine.sweep(std::slice::from_ref(&spec.run)).await.unwrap();
    engine.stop(&spec.run).await.unwrap();
    assert!(network.leases().await.unwrap().is_empty());
    assert!(network.left().is_empty());
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_pause_was_the_last_thing_noted_is_asked_what_it_does() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    drop(engine);
    // As if the disk had been full when the run was resumed.
    for container in fs::read_dir(place.path().join("engine/containers")).unwrap().flatten() {
        let path = container.path().join("note.json");
        let text = fs::read_to_string(&path).unwrap().replace("\"phase\":\"running\"", "\"phase\":\"paused\"");
        fs::write(&path, text).unwrap();
    }
    let engine = place.open(0).await;
    assert_eq!(engine.inventory().await.unwrap()[0].condition, RunCondition::Running);
    engine.resume(&spec.run).await.unwrap();
    assert_eq!(shell(&agent_of(&engine, &spec.run).await, "true").await, 0);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_about_to_be_done_is_found_out_from_the_guest() {
    let Some(place) = Place::new() else { return };
    // As if the daemon had died between its note and the call, or between the call and its note.
    for intent in ["pausing", "resuming"] {
        let engine = place.open(0).await;
        let (running, paused) = (place.spec(), place.spec());
        for spec in [&running, &paused] {
            engine.start(spec).await.unwrap();
        }
        agent_of(&engine, &paused.run).await.quiesce().await.unwrap();
        engine.save(&paused.run, &place.image_directory(intent), &[]).await.unwrap();
        drop(engine);
        for container in fs::read_dir(place.path().join("engine/containers")).unwrap().flatten() {
            let path = container.path().join("note.json");
            let mut text = fs::read_to_string(&path).unwrap();
            for phase in ["running", "paused"] {
                text = text.replace(&format!("\"phase\":\"{phase}\""), &format!("\"phase\":\"{intent}\""));
            }
            assert!(text.contains(intent), "{text}");
            fs::write(&path, text).unwrap();
        }
        let engine = place.open(0).await;
        for found in engine.inventory().await.unwrap() {
            let expected = if found.run == running.run { RunCondition::Running } else { RunCondition::Paused };
            assert_eq!(found.condition, expected);
        }
        for spec in [&running, &paused] {
            engine.resume(&spec.run).await.unwrap();
            assert_eq!(shell(&agent_of(&engine, &spec.run).await, "true").await, 0);
            engine.stop(&spec.run).await.unwrap();
        }
    }
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_is_killed_is_told_of_once_and_can_be_stopped() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let mut notices = engine.notices();
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    for pid in sandbox_pids(&place) {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let notice = tokio::time::timeout(PATIENCE, notices.recv()).await.expect("in time").unwrap();
    assert!(matches!(&notice, Notice::Ended { run, .. } if run == &spec.run), "{notice:?}");
    tokio::time::timeout(PATIENCE, agent.closed()).await.expect("its stream has ended");
    let found = engine.inventory().await.unwrap();
    assert_eq!(found[0].condition, RunCondition::Broken);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
    assert!(notices.try_recv().is_err());
}

fn sandbox_pids(place: &Place) -> Vec<rustix::process::Pid> {
    let name = &dorm_cgroup::Cgroup::list(place.prefix()).unwrap()[0];
    let group = dorm_cgroup::Cgroup::find(name).unwrap().unwrap();
    let pids = group.pids().unwrap();
    pids.into_iter().filter_map(|pid| rustix::process::Pid::from_raw(pid as i32)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_warm_containers_of_an_earlier_daemon_are_swept_away() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(1).await;
    engine.prepare(&place.image, &place.rootfs()).await.unwrap();
    // There is no network here, so containers with one cannot be created, and those without come
    // second.
    let has_failed = || async { !place.left().is_empty() };
    crate::host::wait_for("a container", has_failed).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    drop(engine);
    let engine = place.open(0).await;
    crate::host::wait_for("the earlier engine's work to end", || async {
        engine.sweep(std::slice::from_ref(&spec.run)).await.unwrap();
        fs::read_dir(place.path().join("engine/containers")).unwrap().count() == 1
    })
    .await;
    assert_eq!(shell(&agent_of(&engine, &spec.run).await, "true").await, 0);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_is_paused_when_its_memory_runs_short_and_loses_one_process() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let mut notices = engine.notices();
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    let greedy = crate::host::begin_shell(&agent, "head -c 1000000000 /dev/zero | tail").await;
    let notice = tokio::time::timeout(PATIENCE, notices.recv()).await.expect("in time").unwrap();
    assert_eq!(notice, Notice::MemoryHigh { run: spec.run.clone() });
    let found = engine.inventory().await.unwrap();
    assert_eq!(found[0].condition, RunCondition::Paused);
    // The agent names the OOM victim: the last program of the pipe, which the pause has stopped.
    engine.relieve_memory_pressure(&spec.run, None).await.unwrap();
    let victim = tokio::time::timeout(PATIENCE, agent.oom_victim()).await.expect("in time");
    engine.relieve_memory_pressure(&spec.run, victim).await.unwrap();
    tokio::time::timeout(PATIENCE, agent.wait(greedy)).await.expect("in time").unwrap();
    assert_eq!(shell(&agent, "true").await, 0);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}
