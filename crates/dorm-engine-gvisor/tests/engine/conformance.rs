//! The engine keeps every promise of the port.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use dorm_cgroup::Cgroup;
use dorm_engine::Engine;
use dorm_engine_conformance::{Programs, Subject};
use dorm_engine_gvisor::GvisorEngine;
use dorm_lifecycle::{Digest, RunId};
use tokio::sync::RwLock;

use crate::host::{PATIENCE, Place, base_image};
use crate::network::Pairs;

struct Gvisor {
    place: Place,
    network: Arc<Pairs>,
    base: Option<(Digest, PathBuf)>,
    engine: RwLock<Option<Arc<GvisorEngine>>>,
}

#[async_trait]
impl Subject for Gvisor {
    fn engine(&self) -> Arc<dyn Engine> {
        self.engine.try_read().expect("nobody reopens now").clone().expect("an engine")
    }

    async fn reopen(&self) {
        let mut engine = self.engine.write().await;
        *engine = None;
        // Here the earlier engine finishes its pending calls; a daemon that dies would not.
        let end = tokio::time::Instant::now() + PATIENCE;
        *engine = loop {
            match self.place.try_open(0).await {
                Ok(engine) => break Some(engine),
                Err(error) => assert!(tokio::time::Instant::now() < end, "{}", error.chain()),
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        };
    }

    fn image(&self) -> (Digest, PathBuf) {
        self.base.clone().unwrap_or_else(|| (self.place.image.clone(), self.place.rootfs()))
    }

    fn programs(&self) -> Programs {
        Programs::of_debian()
    }

    async fn kill(&self, run: &RunId) {
        for container in fs::read_dir(self.place.path().join("engine/containers")).unwrap().flatten() {
            let note = fs::read_to_string(container.path().join("note.json")).unwrap_or_default();
            if note.contains(&format!("\"{run}\"")) {
                let name = format!("{}/{}", self.place.prefix(), container.file_name().display());
                Cgroup::find(&name).unwrap().unwrap().kill_all().unwrap();
                return;
            }
        }
        panic!("{run} has no container");
    }

    async fn left_overs(&self) -> Vec<String> {
        let mut left = self.place.left();
        left.extend(self.network.left().into_iter().map(|path| path.display().to_string()));
        left
    }

    fn lacks(&self, check: &str) -> Option<String> {
        let needs_perl = ["a_port_is_reached_from_outside", "a_run_without_network_is_reached_through_its_agent_only"]
            .contains(&check);
        (needs_perl && self.base.is_none()).then(|| "there is no base image: run 'cargo xtask setup'".to_owned())
    }

    async fn close(&self) {
        let Some(engine) = self.engine.write().await.take() else { return };
        for found in engine.inventory().await.unwrap_or_default() {
            let _ = engine.stop(&found.run).await;
        }
        engine.close().await;
    }
}

async fn subject() -> Result<Arc<dyn Subject>, String> {
    let network = Arc::new(Pairs::new());
    let Some(place) = Place::with(network.clone()) else { return Err("gVisor cannot be used on this host".to_owned()) };
    let engine = RwLock::new(Some(place.open(0).await));
    Ok(Arc::new(Gvisor { place, network, base: base_image(), engine }))
}

dorm_engine_conformance::conformance_tests!(subject);
