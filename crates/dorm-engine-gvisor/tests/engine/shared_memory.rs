//! Memory that processes share, and files in memory, across images.

use std::sync::Arc;

use dorm_agent_client::{Agent, ExitStatus, GuestString, ProcessSpec};
use dorm_engine::{Engine, RestoredMemory, RunSpec};
use dorm_engine_gvisor::GvisorEngine;
use dorm_lifecycle::RunId;

use crate::base::{next, save};
use crate::files::spec;
use crate::host::{Place, agent_of, shell, stop_all};

const GUEST: &str = include_str!("shared_guest.py");
/// The guest shares this much.
const SHARED_BYTES: u64 = 3 * (24 << 20);

/// Starts the guest, or asks the running one to do these steps.
async fn python(agent: &Agent, steps: &str) -> u64 {
    let words = ["/usr/bin/python3", "-c", GUEST].into_iter().chain(steps.split_whitespace());
    let arguments = words.map(|word| GuestString::new(word).unwrap()).collect();
    agent.start(&ProcessSpec::new(arguments)).await.unwrap().process
}

async fn begin(engine: &Arc<GvisorEngine>, spec: &RunSpec) {
    engine.start(spec).await.unwrap();
    let agent = agent_of(engine, &spec.run).await;
    python(&agent, "").await;
    assert_eq!(shell(&agent, "until test -e /root/shared.socket; do sleep 0.05; done").await, 0);
}

/// Whether the guest finds what must be there after each of these steps.
async fn is_right(engine: &GvisorEngine, run: &RunId, steps: &str) -> bool {
    let agent = agent_of(engine, run).await;
    let process = python(&agent, steps).await;
    matches!(agent.wait(process).await.unwrap(), ExitStatus::Code(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_is_the_same_for_all_processes_after_each_restore() {
    let Some(place) = Place::new() else { return };
    let Some(mut spec) = spec(&place) else { return };
    let engine = place.open(0).await;
    begin(&engine, &spec).await;
    assert!(is_right(&engine, &spec.run, "all").await);
    let first = place.image_directory("0");
    let mut saved = save(&engine, &spec.run, &first).await;
    engine.stop(&spec.run).await.unwrap();
    // Each image has some memory that the one before had, and some that was changed.
    let mut image = first.clone();
    for (number, steps) in ["look change all", "change look", "look cut all", "all change"].into_iter().enumerate() {
        spec = next(&spec, &saved);
        engine.restore(&spec, &image).await.unwrap();
        assert!(is_right(&engine, &spec.run, steps).await, "{steps}");
        image = place.image_directory(&format!("{}", number + 1));
        saved = save(&engine, &spec.run, &image).await;
        engine.stop(&spec.run).await.unwrap();
    }
    // The first image has not changed.
    for image in [&image, &first, &image] {
        spec = next(&spec, &saved);
        engine.restore(&spec, image).await.unwrap();
        assert!(is_right(&engine, &spec.run, "all look change cut all").await, "{}", image.display());
    }
    stop_all(&engine).await;
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_stays_in_the_image_until_it_is_used() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    if engine.capabilities().memory != RestoredMemory::Mapped {
        return;
    }
    let Some(spec) = spec(&place) else { return };
    begin(&engine, &spec).await;
    let image = place.image_directory("0");
    let saved = save(&engine, &spec.run, &image).await;
    let before = engine.usage(&spec.run).await.unwrap().memory_bytes;
    engine.stop(&spec.run).await.unwrap();
    let spec = next(&spec, &saved);
    engine.restore(&spec, &image).await.unwrap();
    let after = engine.usage(&spec.run).await.unwrap().memory_bytes;
    assert!(before > SHARED_BYTES && after < SHARED_BYTES / 2, "{before} and {after} bytes");
    assert!(is_right(&engine, &spec.run, "all").await);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(place.left(), [""; 0]);
}
