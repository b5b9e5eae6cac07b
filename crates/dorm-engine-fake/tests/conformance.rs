//! The fake engine keeps every promise of the port.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dorm_engine::Engine;
use dorm_engine_conformance::{Programs, Subject};
use dorm_engine_fake::{FakeEngine, FakeHost};
use dorm_lifecycle::{Digest, RunId};

struct Fake {
    host: FakeHost,
    engine: Mutex<Arc<FakeEngine>>,
}

#[async_trait]
impl Subject for Fake {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&*self.engine.lock().unwrap()) as Arc<dyn Engine>
    }

    async fn reopen(&self) {
        *self.engine.lock().unwrap() = self.host.open();
    }

    fn image(&self) -> (Digest, PathBuf) {
        ("0".repeat(64).parse().unwrap(), PathBuf::from("/nowhere"))
    }

    fn programs(&self) -> Programs {
        programs_of_the_fake()
    }

    async fn kill(&self, run: &RunId) {
        assert!(self.host.kill(run, "killed by a test"), "{run} was not alive");
    }

    async fn left_overs(&self) -> Vec<String> {
        self.host.runs().into_iter().map(|(run, condition)| format!("{run} is {condition:?}")).collect()
    }

    fn lacks(&self, _check: &str) -> Option<String> {
        None
    }

    async fn close(&self) {}
}

fn programs_of_the_fake() -> Programs {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    Programs {
        counting: words("counter"),
        ticking: words("ticker"),
        holding_deleted: words("hold-deleted"),
        allocating: words("allocate 1000000000000"),
        serving: words("serve"),
    }
}

async fn subject() -> Result<Arc<dyn Subject>, String> {
    let host = FakeHost::new();
    let engine = Mutex::new(host.open());
    Ok(Arc::new(Fake { host, engine }))
}

dorm_engine_conformance::conformance_tests!(subject);
