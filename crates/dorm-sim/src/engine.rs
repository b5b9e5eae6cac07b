//! The fake engine for one life of the daemon: its streams end with the daemon, and no sandbox ever
//! runs twice at once.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use dorm_engine::{
    BoxStream, Capabilities, Engine, EngineError, FileSink, FoundRun, LeftOut, Mount, Notice, RunSpec, Saved, Usage,
};
use dorm_engine_fake::{FakeEngine, FakeHost};
use dorm_lifecycle::{Digest, Egress, Resources, RunCondition, RunId};
use dorm_steps::Steps as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use crate::model::Model;
use crate::steps::Life;
use crate::trace::Trace;

/// The engine of one life.
pub(crate) struct WatchedEngine {
    inner: Arc<FakeEngine>,
    host: FakeHost,
    life: Arc<Life>,
    trace: Trace,
    model: Arc<Model>,
}

impl WatchedEngine {
    /// Opens the engine of `host`, which ends the previous one.
    pub(crate) fn open(host: &FakeHost, life: &Arc<Life>, trace: &Trace, model: &Arc<Model>) -> Self {
        let (inner, life, model) = (host.open(), Arc::clone(life), Arc::clone(model));
        Self { inner, host: host.clone(), life, trace: trace.clone(), model }
    }

    /// Checks that a run that lives and is on record is not ended: only the run has its state since
    /// the last image.
    fn may_end(&self, run: &RunId) {
        let Some(record) = self.model.record(&run.sandbox) else { return };
        let is_newest = record.sandbox.run_id() == *run && record.sandbox.state.has_run();
        let found = self.host.runs().into_iter().find(|(found, _)| found == run);
        let lives = found.is_some_and(|(_, condition)| condition != RunCondition::Broken);
        if is_newest && lives {
            let state = record.sandbox.state.name();
            self.trace.wrong(format_args!("run {run} lives, its sandbox is {state}, and it is ended"));
        }
    }

    /// Checks that no other run of the same sandbox runs.
    fn is_alone(&self, run: &RunId) {
        for (other, condition) in self.host.runs() {
            if other.sandbox == run.sandbox && other != *run && condition == RunCondition::Running {
                self.trace.wrong(format_args!("runs {run} and {other} of one sandbox run at the same time"));
            }
        }
    }

    /// Passes an answer to the daemon; a dead daemon never gets one.
    async fn heard<T>(&self, answer: T) -> T {
        if !self.life.alive() {
            std::future::pending::<()>().await;
        }
        answer
    }

    fn mortal(&self, inner: BoxStream) -> BoxStream {
        Box::new(Mortal { inner, life: Arc::clone(&self.life) })
    }
}

#[async_trait]
impl Engine for WatchedEngine {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn restores(&self, build: &str) -> bool {
        self.inner.restores(build)
    }

    async fn start(&self, spec: &RunSpec) -> Result<(), EngineError> {
        self.heard(self.inner.start(spec).await).await?;
        self.is_alone(&spec.run);
        Ok(())
    }

    async fn restore(&self, spec: &RunSpec, image: &Path) -> Result<(), EngineError> {
        self.heard(self.inner.restore(spec, image).await).await?;
        self.is_alone(&spec.run);
        Ok(())
    }

    async fn save(&self, run: &RunId, into: &Path, earlier: &[PathBuf]) -> Result<Saved, EngineError> {
        self.heard(self.inner.save(run, into, earlier).await).await
    }

    async fn save_files(&self, run: &RunId, into: &Path) -> Result<Saved, EngineError> {
        self.heard(self.inner.save_files(run, into).await).await
    }

    async fn read_files(&self, image: &Path, sink: Box<dyn FileSink>) -> Result<LeftOut, EngineError> {
        self.inner.read_files(image, sink).await
    }

    async fn pause(&self, run: &RunId) -> Result<(), EngineError> {
        self.heard(self.inner.pause(run).await).await
    }

    async fn park(&self, run: &RunId) -> Result<(), EngineError> {
        self.heard(self.inner.park(run).await).await
    }

    async fn mapped_files(&self, run: &RunId, image: &Path) -> Vec<String> {
        self.heard(self.inner.mapped_files(run, image).await).await
    }

    async fn resume(&self, run: &RunId) -> Result<(), EngineError> {
        self.heard(self.inner.resume(run).await).await?;
        self.is_alone(run);
        Ok(())
    }

    async fn stop(&self, run: &RunId) -> Result<(), EngineError> {
        if self.life.alive() {
            self.may_end(run);
        }
        self.heard(self.inner.stop(run).await).await
    }

    async fn agent(&self, run: &RunId) -> Result<BoxStream, EngineError> {
        Ok(self.mortal(self.heard(self.inner.agent(run).await).await?))
    }

    async fn connect(&self, run: &RunId, port: u16) -> Result<BoxStream, EngineError> {
        Ok(self.mortal(self.heard(self.inner.connect(run, port).await).await?))
    }

    async fn usage(&self, run: &RunId) -> Result<Usage, EngineError> {
        self.heard(self.inner.usage(run).await).await
    }

    async fn mount(&self, run: &RunId, mounts: &[Mount]) -> Result<(), EngineError> {
        self.heard(self.inner.mount(run, mounts).await).await
    }

    async fn set_egress(&self, run: &RunId, egress: &Egress) -> Result<(), EngineError> {
        self.heard(self.inner.set_egress(run, egress).await).await
    }

    async fn set_limits(&self, run: &RunId, resources: &Resources) -> Result<(), EngineError> {
        self.heard(self.inner.set_limits(run, resources).await).await
    }

    async fn relieve_memory_pressure(&self, run: &RunId, victim: Option<u32>) -> Result<(), EngineError> {
        self.heard(self.inner.relieve_memory_pressure(run, victim).await).await
    }

    async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError> {
        self.heard(self.inner.inventory().await).await
    }

    async fn condition(&self, run: &RunId) -> Result<Option<RunCondition>, EngineError> {
        self.heard(self.inner.condition(run).await).await
    }

    async fn sweep(&self, known: &[RunId]) -> Result<Vec<String>, EngineError> {
        self.heard(self.inner.sweep(known).await).await
    }

    fn notices(&self) -> mpsc::Receiver<Notice> {
        self.inner.notices()
    }

    async fn prepare(&self, image: &Digest, rootfs: &Path) -> Result<(), EngineError> {
        self.heard(self.inner.prepare(image, rootfs).await).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// A stream that stops passing bytes once the daemon is dead.
struct Mortal {
    inner: BoxStream,
    life: Arc<Life>,
}

impl AsyncRead for Mortal {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.life.alive() { Pin::new(&mut self.inner).poll_read(context, to) } else { Poll::Pending }
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.life.alive() { Pin::new(&mut self.inner).poll_write(context, bytes) } else { Poll::Pending }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.life.alive() { Pin::new(&mut self.inner).poll_flush(context) } else { Poll::Pending }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.life.alive() { Pin::new(&mut self.inner).poll_shutdown(context) } else { Poll::Pending }
    }
}
