//! Runs begin, are used, and end without a trace.

use dorm_engine::{Engine, EngineError};
use dorm_lifecycle::{Egress, RunCondition};
use std::sync::Arc;

use crate::host::{Place, agent_of, shell, wait_for};
use crate::network::Pairs;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_starts_cold_runs_programs_and_stops_without_a_trace() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    assert_eq!(shell(&agent, "echo data > /root/file && test \"$(cat /root/file)\" = data").await, 0);
    let usage = engine.usage(&spec.run).await.unwrap();
    assert!(usage.memory_bytes > 0 && usage.processes > 1, "{usage:?}");
    assert!(matches!(engine.start(&spec).await, Err(EngineError::Exists(run)) if run == spec.run));
    engine.stop(&spec.run).await.unwrap();
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
    assert!(engine.inventory().await.unwrap().is_empty());
    assert!(matches!(engine.agent(&spec.run).await.map(drop), Err(EngineError::NoRun(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_network_is_reached_at_its_ports() {
    let network = Arc::new(Pairs::new());
    let Some(place) = Place::with(network.clone()) else { return };
    let engine = place.open(0).await;
    let mut spec = place.spec();
    spec.egress = Egress::Public;
    engine.start(&spec).await.unwrap();
    assert!(matches!(engine.connect(&spec.run, 9).await.map(drop), Err(EngineError::Refused { port: 9, .. })));
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
    assert!(network.left().is_empty(), "{:?}", network.left());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_network_is_not_connected_to_directly() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    assert!(matches!(engine.connect(&spec.run, 80).await.map(drop), Err(EngineError::Condition { .. })));
    engine.stop(&spec.run).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_containers_are_used_and_made_again_and_go_when_the_engine_closes() {
    let network = Arc::new(Pairs::new());
    let Some(place) = Place::with(network.clone()) else { return };
    let engine = place.open(1).await;
    engine.prepare(&place.image, &place.rootfs()).await.unwrap();
    let all_there = || async { engine.warm_containers(&place.image) == 3 };
    wait_for("warm containers", all_there).await;
    for egress in [Egress::None, Egress::Public] {
        let mut spec = place.spec();
        spec.resources = dorm_lifecycle::Resources::default();
        spec.egress = egress;
        let begun = std::time::Instant::now();
        engine.start(&spec).await.unwrap();
        eprintln!("start from a warm container: {:?}", begun.elapsed());
        let agent = agent_of(&engine, &spec.run).await;
        assert_eq!(shell(&agent, "true").await, 0);
        let begun = std::time::Instant::now();
        engine.stop(&spec.run).await.unwrap();
        eprintln!("stop: {:?}", begun.elapsed());
        wait_for("warm containers again", all_there).await;
    }
    engine.close().await;
    assert_eq!(place.left(), [""; 0]);
    assert!(network.left().is_empty(), "{:?}", network.left());
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_runs_find_containers_and_what_is_left_goes_when_the_engine_closes() {
    let network = Arc::new(Pairs::new());
    let Some(place) = Place::with(network.clone()) else { return };
    let engine = place.open(1).await;
    let announced = engine.expect(&place.spec(), 3);
    wait_for("the containers", || async { engine.expected_containers(&place.image) == 3 }).await;
    let origin = place.spec();
    engine.start(&origin).await.unwrap();
    let image = place.image_directory("origin");
    engine.save(&origin.run, &image, &[]).await.unwrap();
    let children = [place.spec(), place.spec()];
    for child in &children {
        engine.restore(child, &image).await.unwrap();
        let agent = agent_of(&engine, &child.run).await;
        assert_eq!(shell(&agent, "true").await, 0);
    }
    assert_eq!(engine.expected_containers(&place.image), 0, "all three runs have taken one");
    drop(announced);
    // Others take the place of those, for the next fork.
    wait_for("the containers again", || async { engine.expected_containers(&place.image) == 3 }).await;
    let again = engine.expect(&place.spec(), 3);
    assert_eq!(engine.expected_containers(&place.image), 3, "they are there at once");
    for run in children.iter().chain([&origin]) {
        engine.stop(&run.run).await.unwrap();
    }
    drop(again);
    let unmet = engine.expect(&place.spec(), 5);
    engine.close().await;
    drop(unmet);
    assert_eq!(place.left(), [""; 0]);
    assert!(network.left().is_empty(), "{:?}", network.left());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_created_ahead_if_there_is_no_warm_pool() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let announced = engine.expect(&place.spec(), 3);
    assert_eq!(place.left(), [""; 0]);
    drop(announced);
    engine.close().await;
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_runs_at_once() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let (engine, spec) = (engine.clone(), place.spec());
        tasks.push(tokio::spawn(async move {
            engine.start(&spec).await.unwrap();
            let agent = agent_of(&engine, &spec.run).await;
            assert_eq!(shell(&agent, "true").await, 0);
            spec.run
        }));
    }
    let mut runs = Vec::new();
    for task in tasks {
        runs.push(task.await.unwrap());
    }
    let found = engine.inventory().await.unwrap();
    assert!(found.len() == 10 && found.iter().all(|found| found.condition == RunCondition::Running), "{found:?}");
    for run in runs {
        engine.stop(&run).await.unwrap();
    }
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_begin_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let mut spec = place.spec();
    spec.rootfs = place.path().join("nowhere");
    let error = engine.start(&spec).await.unwrap_err();
    assert!(error.chain().contains("nowhere"), "{}", error.chain());
    assert_eq!(place.left(), [""; 0]);
    let mut spec = place.spec();
    spec.egress = Egress::Public;
    assert!(matches!(engine.start(&spec).await, Err(EngineError::NoRoom { .. })), "there are no leases");
    assert_eq!(place.left(), [""; 0]);
    assert!(engine.inventory().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_stream_to_the_agent_ends_the_one_before() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let first = agent_of(&engine, &spec.run).await;
    let second = agent_of(&engine, &spec.run).await;
    tokio::time::timeout(crate::host::PATIENCE, first.closed()).await.expect("the first has ended");
    assert_eq!(shell(&second, "true").await, 0);
    engine.stop(&spec.run).await.unwrap();
    tokio::time::timeout(crate::host::PATIENCE, second.closed()).await.expect("the second has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_a_run_that_can_be_stopped() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    {
        let start = engine.start(&spec);
        tokio::select! {
            biased;
            _ = start => {}
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
        }
    }
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_of_a_run_is_a_mount_without_set_id_bits_and_devices() {
    use rustix::fs::StatVfsMountFlags;
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    let roots: Vec<_> = std::fs::read_dir(place.path().join("engine/roots")).unwrap().flatten().collect();
    let [root] = &roots[..] else { panic!("{roots:?}") };
    let flags = rustix::fs::statvfs(root.path()).unwrap().f_flag;
    let wanted = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV | StatVfsMountFlags::RDONLY;
    assert!(flags.contains(wanted), "{flags:?}");
    // Files are written to the disk of the run, as ever, and set-id bits are kept for the guest.
    assert_eq!(shell(&agent, "echo text > /etc/new && cat /etc/new > /dev/null").await, 0);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(std::fs::read_dir(place.path().join("engine/roots")).unwrap().count(), 0);
    engine.close().await;
    assert_eq!(place.left(), Vec::<String>::new());
}
