//! An engine that stops at a step before and after each call that changes the host.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dorm_lifecycle::{Digest, Egress, Resources, RunCondition, RunId};
use dorm_steps::AnySteps;
use tokio::sync::mpsc;

use crate::{
    BoxStream, Capabilities, Engine, EngineError, Expectation, FileSink, ForeignRun, FoundRun, LeftOut, Mount, Notice,
    RunSpec, Saved, Usage,
};

/// Another engine, with steps around its calls. Read-only calls have none.
pub struct SteppedEngine {
    inner: Arc<dyn Engine>,
    steps: AnySteps,
}

impl SteppedEngine {
    /// Returns `inner` with `steps`.
    pub fn new(inner: Arc<dyn Engine>, steps: AnySteps) -> Self {
        Self { inner, steps }
    }

    async fn around<T>(
        &self,
        names: [&'static str; 2],
        run: &RunId,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let [before, after] = names;
        self.reach(before, run).await?;
        let answer = call.await?;
        self.reach(after, run).await?;
        Ok(answer)
    }

    async fn reach(&self, step: &'static str, run: &RunId) -> Result<(), EngineError> {
        self.living().await;
        match self.steps.reach(step) {
            Ok(()) => Ok(()),
            Err(_) if !self.steps.alive() => std::future::pending().await,
            Err(stopped) => Err(EngineError::failed("continue past a step of", run, stopped)),
        }
    }

    async fn living(&self) {
        if !self.steps.alive() {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Engine for SteppedEngine {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn restores(&self, build: &str) -> bool {
        self.inner.restores(build)
    }

    async fn start(&self, spec: &RunSpec) -> Result<(), EngineError> {
        let names = ["engine: about to start", "engine: started"];
        self.around(names, &spec.run, self.inner.start(spec)).await
    }

    async fn restore(&self, spec: &RunSpec, image: &Path) -> Result<(), EngineError> {
        let names = ["engine: about to restore", "engine: restored"];
        self.around(names, &spec.run, self.inner.restore(spec, image)).await
    }

    async fn save(&self, run: &RunId, into: &Path, earlier: &[PathBuf]) -> Result<Saved, EngineError> {
        let names = ["engine: about to save", "engine: saved"];
        self.around(names, run, self.inner.save(run, into, earlier)).await
    }

    async fn save_files(&self, run: &RunId, into: &Path) -> Result<Saved, EngineError> {
        let names = ["engine: about to save files", "engine: files saved"];
        self.around(names, run, self.inner.save_files(run, into)).await
    }

    async fn read_files(&self, image: &Path, sink: Box<dyn FileSink>) -> Result<LeftOut, EngineError> {
        let reach = async |step| {
            self.living().await;
            match self.steps.reach(step) {
                Ok(()) => Ok(()),
                Err(_) if !self.steps.alive() => std::future::pending().await,
                Err(stopped) => Err(EngineError::Files { image: image.to_owned(), source: stopped.into() }),
            }
        };
        reach("engine: about to read files").await?;
        let answer = self.inner.read_files(image, sink).await?;
        reach("engine: files read").await?;
        Ok(answer)
    }

    async fn pause(&self, run: &RunId) -> Result<(), EngineError> {
        self.around(["engine: about to pause", "engine: paused"], run, self.inner.pause(run)).await
    }

    async fn park(&self, run: &RunId) -> Result<(), EngineError> {
        self.around(["engine: about to park", "engine: parked"], run, self.inner.park(run)).await
    }

    async fn mapped_files(&self, run: &RunId, image: &Path) -> Vec<String> {
        self.living().await;
        self.inner.mapped_files(run, image).await
    }

    async fn resume(&self, run: &RunId) -> Result<(), EngineError> {
        let names = ["engine: about to resume", "engine: resumed"];
        self.around(names, run, self.inner.resume(run)).await
    }

    async fn stop(&self, run: &RunId) -> Result<(), EngineError> {
        self.around(["engine: about to stop", "engine: stopped"], run, self.inner.stop(run)).await
    }

    async fn agent(&self, run: &RunId) -> Result<BoxStream, EngineError> {
        self.living().await;
        self.inner.agent(run).await
    }

    async fn connect(&self, run: &RunId, port: u16) -> Result<BoxStream, EngineError> {
        self.living().await;
        self.inner.connect(run, port).await
    }

    async fn usage(&self, run: &RunId) -> Result<Usage, EngineError> {
        self.living().await;
        self.inner.usage(run).await
    }

    async fn mount(&self, run: &RunId, mounts: &[Mount]) -> Result<(), EngineError> {
        self.around(["engine: about to mount volumes", "engine: volumes mounted"], run, self.inner.mount(run, mounts))
            .await
    }

    async fn set_limits(&self, run: &RunId, resources: &Resources) -> Result<(), EngineError> {
        self.around(["engine: about to set limits", "engine: limits set"], run, self.inner.set_limits(run, resources))
            .await
    }

    async fn set_egress(&self, run: &RunId, egress: &Egress) -> Result<(), EngineError> {
        self.around(["engine: about to set egress", "engine: egress set"], run, self.inner.set_egress(run, egress))
            .await
    }

    async fn relieve_memory_pressure(&self, run: &RunId, victim: Option<u32>) -> Result<(), EngineError> {
        self.living().await;
        self.inner.relieve_memory_pressure(run, victim).await
    }

    async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError> {
        self.living().await;
        self.inner.inventory().await
    }

    async fn condition(&self, run: &RunId) -> Result<Option<RunCondition>, EngineError> {
        self.living().await;
        self.inner.condition(run).await
    }

    async fn foreign_runs(&self) -> Result<Vec<ForeignRun>, EngineError> {
        self.living().await;
        self.inner.foreign_runs().await
    }

    async fn sweep(&self, known: &[RunId]) -> Result<Vec<String>, EngineError> {
        self.living().await;
        self.inner.sweep(known).await
    }

    fn notices(&self) -> mpsc::Receiver<Notice> {
        self.inner.notices()
    }

    async fn prepare(&self, image: &Digest, rootfs: &Path) -> Result<(), EngineError> {
        self.living().await;
        self.inner.prepare(image, rootfs).await
    }

    async fn deleted_image_bytes(&self) -> u64 {
        self.inner.deleted_image_bytes().await
    }

    async fn deleted_on_volumes(&self, run: &RunId) -> Vec<String> {
        self.inner.deleted_on_volumes(run).await
    }

    fn expect(&self, like: &RunSpec, count: usize) -> Expectation {
        self.inner.expect(like, count)
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
