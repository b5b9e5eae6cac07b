//! Save, park, resume, restore.

use std::fs;

use dorm_agent_client::{Agent, GuestPath};
use dorm_engine::{Engine, EngineError, RunSpec};
use dorm_engine_conformance::name_shared;
use dorm_engine_gvisor::GvisorEngine;
use dorm_lifecycle::{RunCondition, RunId};
use futures_util::StreamExt as _;

use crate::host::{Place, agent_of, begin_shell, mark, shell, stop_all};

async fn condition(engine: &GvisorEngine, run: &RunId) -> Option<RunCondition> {
    let found = engine.inventory().await.unwrap();
    found.into_iter().find(|found| &found.run == run).map(|found| found.condition)
}

fn next(spec: &RunSpec) -> RunSpec {
    let run = RunId { generation: spec.run.generation + 1, ..spec.run.clone() };
    RunSpec { run, ..spec.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_run_continues_with_its_memory_and_files() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    mark(&agent, 41).await;
    let counter = "n=0; while true; do n=$((n+1)); echo $n > /root/count; sleep 0.01; done";
    let process = begin_shell(&agent, counter).await;
    agent.quiesce().await.unwrap();
    let image = place.image_directory("one");
    let saved = engine.save(&spec.run, &image, &[]).await.unwrap();
    assert_eq!(saved.files.len(), 3);
    for file in &saved.files {
        assert_eq!(fs::metadata(image.join(&file.name)).unwrap().len(), file.bytes, "{}", file.name.display());
    }
    assert_eq!(condition(&engine, &spec.run).await, Some(RunCondition::Paused));
    for _ in 0..2 {
        engine.park(&spec.run).await.unwrap();
        assert_eq!(condition(&engine, &spec.run).await, Some(RunCondition::Parked));
    }
    for _ in 0..2 {
        engine.resume(&spec.run).await.unwrap();
        assert_eq!(condition(&engine, &spec.run).await, Some(RunCondition::Running));
    }
    let agent = agent_of(&engine, &spec.run).await;
    assert_eq!(agent.generation_at_connect(), 41);
    let alive = agent.processes().await.unwrap();
    assert!(alive.iter().any(|status| status.process == process), "{alive:?}");
    assert_eq!(
        shell(&agent, "old=$(cat /root/count); until test \"$(cat /root/count)\" != \"$old\"; do :; done").await,
        0
    );
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_restored_any_number_of_times_beside_its_source() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    mark(&agent, 17).await;
    assert_eq!(shell(&agent, "echo kept > /root/file").await, 0);
    agent.quiesce().await.unwrap();
    let image = place.image_directory("one");
    engine.save(&spec.run, &image, &[]).await.unwrap();
    engine.resume(&spec.run).await.unwrap();
    let mut last = spec.clone();
    for _ in 0..2 {
        last = next(&last);
        engine.restore(&last, &image).await.unwrap();
        let agent = agent_of(&engine, &last.run).await;
        assert_eq!(agent.generation_at_connect(), 17);
        assert_eq!(shell(&agent, "test \"$(cat /root/file)\" = kept && echo other > /root/file").await, 0);
    }
    let agent = agent_of(&engine, &spec.run).await;
    assert_eq!(shell(&agent, "test \"$(cat /root/file)\" = kept").await, 0);
    assert_eq!(engine.inventory().await.unwrap().len(), 3);
    stop_all(&engine).await;
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_saves_and_restores_keeps_everything() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let mut spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    mark(&agent, 5).await;
    agent.quiesce().await.unwrap();
    for step in 0..3 {
        let image = place.image_directory(&format!("step-{step}"));
        let saved = engine.save(&spec.run, &image, &[]).await.unwrap();
        name_shared(&saved.files, &image);
        engine.stop(&spec.run).await.unwrap();
        spec = next(&spec);
        engine.restore(&spec, &image).await.unwrap();
        let agent = agent_of(&engine, &spec.run).await;
        assert_eq!(agent.generation_at_connect(), 5);
        assert_eq!(shell(&agent, &format!("echo {step} >> /root/steps")).await, 0);
        agent.quiesce().await.unwrap();
    }
    let agent = agent_of(&engine, &spec.run).await;
    assert_eq!(shell(&agent, "test \"$(echo $(cat /root/steps))\" = '0 1 2'").await, 0);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_paused_run_is_parked() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    assert!(matches!(engine.park(&spec.run).await, Err(EngineError::Condition { .. })));
    engine.resume(&spec.run).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    assert_eq!(shell(&agent, "true").await, 0);
    engine.stop(&spec.run).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_an_error_and_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    agent.quiesce().await.unwrap();
    let image = place.image_directory("one");
    engine.save(&spec.run, &image, &[]).await.unwrap();
    engine.stop(&spec.run).await.unwrap();
    let whole = fs::read(image.join("checkpoint.img")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0xff;
    for damaged in [&whole[..whole.len() / 2], b"", &flipped] {
        fs::write(image.join("checkpoint.img"), damaged).unwrap();
        assert!(engine.restore(&spec, &image).await.is_err(), "{} bytes", damaged.len());
        assert_eq!(place.left(), [""; 0]);
    }
    fs::remove_file(image.join("pages_meta.img")).unwrap();
    let error = engine.restore(&spec, &image).await.unwrap_err();
    assert!(error.chain().contains("pages_meta.img"), "{}", error.chain());
    assert!(engine.inventory().await.unwrap().is_empty());
}

async fn hash_of(agent: &Agent, path: &str) -> blake3::Hash {
    let (_, mut stream) = agent.read_file(&GuestPath::new(path).unwrap(), 0, None).await.unwrap();
    let mut hasher = blake3::Hasher::new();
    while let Some(chunk) = stream.next().await {
        hasher.update(&chunk.unwrap());
    }
    hasher.finalize()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_with_more_files_than_memory_is_whole() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let mut spec = place.spec();
    spec.resources.disk_bytes = 256 << 20;
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    // Much of the image is then written with direct I/O.
    assert_eq!(shell(&agent, "dd if=/dev/urandom of=/root/much bs=1M count=150").await, 0);
    let before = hash_of(&agent, "/root/much").await;
    agent.quiesce().await.unwrap();
    let image = place.image_directory("one");
    let saved = engine.save(&spec.run, &image, &[]).await.unwrap();
    for file in &saved.files {
        assert_eq!(image.join(&file.name).metadata().unwrap().len(), file.bytes, "{}", file.name.display());
    }
    engine.stop(&spec.run).await.unwrap();
    let spec = next(&spec);
    engine.restore(&spec, &image).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    assert_eq!(hash_of(&agent, "/root/much").await, before);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_onto_a_full_disk_fails_and_the_run_is_unharmed() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    mark(&agent, 9).await;
    assert_eq!(shell(&agent, "dd if=/dev/urandom of=/root/much bs=1M count=32").await, 0);
    agent.quiesce().await.unwrap();
    let small = place.path().join("small");
    let disk =
        dorm_disk::Disk::create(&small, dorm_guest_ids::GuestIds::DEFAULT, 16 << 20, &place.path().join("blanks"))
            .unwrap();
    for without_memory in [false, true] {
        let full = match without_memory {
            true => engine.save_files(&spec.run, &disk.path()).await,
            false => engine.save(&spec.run, &disk.path(), &[]).await,
        };
        assert!(matches!(full, Err(EngineError::NoRoom { .. })), "{full:?}");
        let left = fs::read_dir(disk.path()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count();
        assert_eq!(left, 0, "a failed save leaves files");
    }
    disk.remove().unwrap();
    assert_eq!(condition(&engine, &spec.run).await, Some(RunCondition::Paused));
    let image = place.image_directory("room");
    engine.save(&spec.run, &image, &[]).await.unwrap();
    engine.resume(&spec.run).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    assert_eq!(agent.generation_at_connect(), 9);
    assert_eq!(shell(&agent, "test -s /root/much").await, 0);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}
