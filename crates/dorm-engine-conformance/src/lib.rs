//! The behaviour that every engine must show, as a list of named checks.
//!
//! The tests of an engine say how to make one (a [`Subject`]) and get one test per check:
//!
//! ```text
//! dorm_engine_conformance::conformance_tests!(subject);   // async fn subject() -> Result<Arc<dyn Subject>, String>
//! ```
//!
//! A check calls the engine through its port and the guest through the agent, as the service does.
//! It knows no engine by name. A check that a subject cannot run is skipped, with a message on
//! standard error. After every check all its runs are stopped, and the check fails if anything is
//! left then.
//!
//! This is a crate of its own because it needs the agent's client, which the port must not know.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // All of it is test code.

mod checks;
mod programs;
mod scenario;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dorm_engine::Engine;
use dorm_lifecycle::{Digest, RunId};

pub use checks::CHECKS;
pub use programs::Programs;
pub use scenario::{Scenario, name_shared};

/// The time limit of a check. Hosts can be very slow.
const PATIENCE: Duration = Duration::from_secs(400);

/// An engine under test, in a place of its own.
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// Returns the engine of the present daemon.
    fn engine(&self) -> Arc<dyn Engine>;

    /// Simulates the death of the daemon, without [`Engine::close`], and opens the same place with
    /// a new one.
    async fn reopen(&self);

    /// Returns an image to start runs from: its digest and its root file system.
    fn image(&self) -> (Digest, PathBuf);

    /// Returns the programs in that image that checks use.
    fn programs(&self) -> Programs;

    /// Kills a run from outside, as the host's kernel would.
    async fn kill(&self, run: &RunId);

    /// Returns a line for everything on the host that is left of runs of this subject: processes,
    /// mounts, groups, namespaces, files. Empty if no run exists; anything that the engine keeps
    /// between runs does not count.
    async fn left_overs(&self) -> Vec<String>;

    /// Returns why this subject cannot run the check `check` on this host; `None` if it can.
    fn lacks(&self, check: &str) -> Option<String>;

    /// Removes everything, also after a failed check.
    async fn close(&self);
}

/// A check in progress.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A check of one promise of the port.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The promise, as a sentence.
    pub name: &'static str,
    /// Runs the check; panics if the promise is broken.
    pub run: fn(Arc<Scenario>) -> Running,
}

/// Runs one check by its name on a subject of its own. Panics if it fails.
pub fn run_check<F>(name: &str, subject: impl FnOnce() -> F)
where
    F: Future<Output = Result<Arc<dyn Subject>, String>>,
{
    let check = CHECKS.iter().find(|check| check.name == name).expect("a check of that name");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let subject = match subject().await {
            Ok(subject) => subject,
            Err(reason) => return dorm_skip::skip(reason),
        };
        if let Some(reason) = subject.lacks(name) {
            subject.close().await;
            return dorm_skip::skip(reason);
        }
        let ended = tokio::spawn(tokio::time::timeout(PATIENCE, conclude(*check, Arc::clone(&subject)))).await;
        subject.close().await;
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(_)) => panic!("{name}: still waiting after {PATIENCE:?}"),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    });
}

async fn conclude(check: Check, subject: Arc<dyn Subject>) {
    (check.run)(Arc::new(Scenario::new(Arc::clone(&subject)))).await;
    let engine = subject.engine();
    for found in engine.inventory().await.expect("the inventory at the end") {
        engine.stop(&found.run).await.expect("stopping what is left at the end");
    }
    let left = subject.left_overs().await;
    assert!(left.is_empty(), "{}: left over: {left:#?}", check.name);
}
