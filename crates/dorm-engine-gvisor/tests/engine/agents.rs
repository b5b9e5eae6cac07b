//! Daemons with other agents: what one has saved, the next continues with the agent that it needs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use dorm_engine::{Engine, RunSpec};
use dorm_engine_conformance::name_shared;
use dorm_engine_gvisor::GvisorEngine;
use dorm_lifecycle::{RunId, SandboxId};

use crate::host::{Place, agent, agent_of, mark, shell};

/// Installs an agent that differs from the real one by `more` bytes at its end.
fn install(directory: &Path, more: usize) -> PathBuf {
    let mut content = fs::read(agent()).unwrap();
    content.extend(std::iter::repeat_n(b'x', more));
    let home = directory.join(format!("agent-{}", &blake3::hash(&content).to_hex()[..16]));
    fs::create_dir_all(&home).unwrap();
    let path = home.join("dorm-agent");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn after(spec: &RunSpec, build: &str) -> RunSpec {
    let run = RunId { generation: spec.run.generation + 1, ..spec.run.clone() };
    RunSpec { run, build: Some(build.to_owned()), ..spec.clone() }
}

/// Whether the agent in the sandbox is the one at `path`.
async fn has_agent(engine: &GvisorEngine, run: &RunId, path: &Path) -> bool {
    let last = fs::metadata(path).unwrap().len();
    let script = format!("test \"$(tail -c +{last} /dorm-agent)\" = x");
    shell(&agent_of(engine, run).await, &script).await == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_continues_with_the_agent_it_was_saved_with() {
    let Some(place) = Place::new() else { return };
    let (old, new) = (install(place.path(), 1), install(place.path(), 3));
    let engine = place.open_with_agent(old.clone()).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    mark(&agent_of(&engine, &spec.run).await, 7).await;
    assert!(has_agent(&engine, &spec.run, &old).await);
    drop(engine);
    // Another daemon has adopted the run when it is saved.
    let engine = place.open_with_agent(new.clone()).await;
    let image = place.image_directory("one");
    let saved = engine.save(&spec.run, &image, &[]).await.unwrap();
    engine.stop(&spec.run).await.unwrap();
    assert!(engine.restores(&saved.build), "{}", saved.build);

    let again = after(&spec, &saved.build);
    engine.restore(&again, &image).await.unwrap();
    assert_eq!(agent_of(&engine, &again.run).await.generation_at_connect(), 7);
    assert!(has_agent(&engine, &again.run, &old).await);
    let image = place.image_directory("two");
    let saved_again = engine.save(&again.run, &image, &[]).await.unwrap();
    name_shared(&saved_again.files, &image);
    assert_eq!(saved_again.build, saved.build);
    engine.stop(&again.run).await.unwrap();

    let fresh = RunSpec { run: RunId { sandbox: SandboxId::from_random([7; 20]), generation: 1 }, ..spec.clone() };
    engine.start(&fresh).await.unwrap();
    assert!(has_agent(&engine, &fresh.run, &new).await);
    engine.stop(&fresh.run).await.unwrap();

    fs::rename(old.parent().unwrap(), place.path().join("elsewhere")).unwrap();
    assert!(!engine.restores(&saved.build));
    let third = after(&again, &saved.build);
    let refused = engine.restore(&third, &image).await.unwrap_err();
    let name = old.parent().unwrap().file_name().unwrap().to_str().unwrap();
    assert!(format!("{:?} {refused}", std::error::Error::source(&refused)).contains(name), "{refused:?}");
    fs::rename(place.path().join("elsewhere"), old.parent().unwrap()).unwrap();
    engine.restore(&third, &image).await.unwrap();
    assert_eq!(agent_of(&engine, &third.run).await.generation_at_connect(), 7);
    engine.stop(&third.run).await.unwrap();
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}
