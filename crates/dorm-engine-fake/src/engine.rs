//! The engine port over a fake host: each call consults the planned faults, then changes the
//! machine as the port specifies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dorm_engine::{
    BoxStream, Capabilities, Engine, EngineError, FileSink, FoundRun, LeftOut, Mount, Notice, RestoredMemory, RunSpec,
    Saved, Usage,
};
use dorm_lifecycle::{Digest, Egress, Resources, RunCondition, RunId, SandboxId, SnapshotKind};
use tokio::sync::mpsc;
use tokio::task::yield_now;

use crate::agent;
use crate::error::FakeError;
use crate::faults::{Fault, Moment, Operation};
use crate::guest::Guest;
use crate::host::FakeHost;
use crate::image::{self, Image};
use crate::machine::Machine;
use crate::ports;

/// The engine of one daemon on a [`FakeHost`].
pub struct FakeEngine {
    host: FakeHost,
    number: u64,
    capabilities: Capabilities,
}

/// A call in progress.
struct Call<'e> {
    engine: &'e FakeEngine,
    operation: Operation,
    number: u64,
    run: RunId,
}

impl FakeHost {
    /// Opens an engine on this host. The previous engine is dead from then on, as its daemon is:
    /// its calls fail, and it sends no more notices.
    pub fn open(&self) -> Arc<FakeEngine> {
        self.open_as("fake-1")
    }

    /// Like [`FakeHost::open`], with an engine of the build `build`.
    pub fn open_as(&self, build: &str) -> Arc<FakeEngine> {
        Arc::new(FakeEngine::new(self.clone(), self.next_engine(), build))
    }
}

impl FakeEngine {
    fn new(host: FakeHost, number: u64, build: &str) -> Self {
        let capabilities = Capabilities {
            name: "fake",
            build: build.to_owned(),
            format: None,
            also: Vec::new(),
            released: None,
            cpu: "fake".to_owned(),
            memory: RestoredMemory::Copied { reason: "fake memory is read at once".to_owned() },
            shares_blocks: false,
            holds_after_restore: false,
        };
        Self { host, number, capabilities }
    }

    /// Returns the host it runs on.
    pub fn host(&self) -> &FakeHost {
        &self.host
    }

    async fn begin(&self, operation: Operation, run: &RunId) -> Result<Call<'_>, EngineError> {
        let number = self.host.faults().begin(operation);
        let call = Call { engine: self, operation, number, run: run.clone() };
        call.strike(Moment::Before).await?;
        Ok(call)
    }

    fn machine(&self, run: &RunId) -> Result<Arc<Machine>, EngineError> {
        self.host.machine(run).ok_or_else(|| EngineError::NoRun(run.clone()))
    }

    /// Yields as a real engine does, so that a dropped call stops in the middle. Fails if the
    /// daemon of this engine is dead.
    async fn yield_once(&self, call: &Call<'_>) -> Result<(), EngineError> {
        yield_now().await;
        call.need_open()
    }
}

impl Call<'_> {
    async fn strike(&self, moment: Moment) -> Result<Option<Fault>, EngineError> {
        self.need_open()?;
        let host = &self.engine.host;
        let mut short = None;
        let (faults, mut hold) = host.faults().strike(self.operation, self.number, moment);
        for fault in faults {
            tracing::debug!(?fault, operation = self.operation.name(), run = %self.run, "a planned fault strikes");
            match fault {
                Fault::Fail => return Err(self.failed(FakeError::Planned)),
                Fault::NoRoom => return Err(self.no_room(FakeError::Planned)),
                Fault::Hang => hold.released().await,
                Fault::Delay(time) => tokio::time::sleep(time).await,
                Fault::Die => {
                    host.kill(&self.run, "a planned fault killed it");
                }
                Fault::Lose => host.lose(&self.run),
                Fault::Silence(time) => host.silence(&self.run, time),
                Fault::WriteShort => short = Some(fault),
            }
        }
        self.need_open()?;
        Ok(short)
    }

    fn need_open(&self) -> Result<(), EngineError> {
        if self.engine.host.is_open(self.engine.number) { Ok(()) } else { Err(self.failed(FakeError::Replaced)) }
    }

    async fn end<T>(&self, answer: T) -> Result<T, EngineError> {
        self.strike(Moment::After).await?;
        Ok(answer)
    }

    fn failed(&self, cause: FakeError) -> EngineError {
        EngineError::failed(self.operation.name(), &self.run, cause)
    }

    fn no_room(&self, cause: FakeError) -> EngineError {
        EngineError::NoRoom { operation: self.operation.name(), run: self.run.clone(), source: Box::new(cause) }
    }

    fn condition(&self, condition: &'static str) -> EngineError {
        EngineError::Condition { operation: self.operation.name(), run: self.run.clone(), condition }
    }

    /// Refuses an operation on a run that is incomplete or dead.
    fn need_whole(&self, condition: RunCondition) -> Result<(), EngineError> {
        match condition {
            RunCondition::Broken => Err(self.ended()),
            RunCondition::Running | RunCondition::Silent | RunCondition::Paused | RunCondition::Parked => Ok(()),
        }
    }

    fn ended(&self) -> EngineError {
        EngineError::Ended { operation: self.operation.name(), run: self.run.clone() }
    }
}

impl FakeEngine {
    /// Pauses the run and writes an image of this kind.
    async fn write(&self, run: &RunId, into: &Path, kind: SnapshotKind) -> Result<Saved, EngineError> {
        let call = self.begin(Operation::Save, run).await?;
        let machine = self.machine(run)?;
        call.need_whole(machine.condition())?;
        machine.pause();
        self.yield_once(&call).await?;
        let image = machine.look(|guest| Image::of(guest, &machine.spec, &self.capabilities, kind));
        let image = image.ok_or_else(|| call.ended())?.map_err(|error| call.failed(error))?;
        self.yield_once(&call).await?;
        let files = image.write(into, None).map_err(|error| match error {
            FakeError::File { ref source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                call.no_room(error)
            }
            error => call.failed(error),
        })?;
        match call.strike(Moment::After).await {
            Ok(None) => {}
            // The call reports success, although half of the files are missing.
            Ok(Some(_)) => drop(image.write(into, Some(image.half()))),
            Err(error) => {
                if matches!(error, EngineError::NoRoom { .. }) {
                    drop(image.write(into, Some(image.half())));
                }
                return Err(error);
            }
        }
        let stopped = machine.pause().ok_or_else(|| call.ended())?;
        let build = self.capabilities.build.clone();
        Ok(Saved { files, stopped, build })
    }
}

#[async_trait]
impl Engine for FakeEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn restores(&self, build: &str) -> bool {
        self.capabilities.build == build
    }

    async fn start(&self, spec: &RunSpec) -> Result<(), EngineError> {
        let call = self.begin(Operation::Start, &spec.run).await?;
        let machine = self.host.add(spec)?;
        self.yield_once(&call).await?;
        let mut guest = Guest::boot(&spec.resources, self.host.unix_us());
        if let Err(error) = guest.add_layers(&spec.layers) {
            self.host.lose(&spec.run);
            return Err(call.failed(error));
        }
        machine.begin(guest);
        call.end(()).await
    }

    async fn restore(&self, spec: &RunSpec, image: &Path) -> Result<(), EngineError> {
        let call = self.begin(Operation::Restore, &spec.run).await?;
        let machine = self.host.add(spec)?;
        self.yield_once(&call).await?;
        match image::read(image, spec, &self.capabilities) {
            Ok(guest) => machine.begin(guest),
            Err(error) => {
                self.host.lose(&spec.run);
                return Err(call.failed(error));
            }
        }
        call.end(()).await
    }

    async fn save(&self, run: &RunId, into: &Path, _earlier: &[PathBuf]) -> Result<Saved, EngineError> {
        self.write(run, into, SnapshotKind::Memory).await
    }

    async fn save_files(&self, run: &RunId, into: &Path) -> Result<Saved, EngineError> {
        self.write(run, into, SnapshotKind::Filesystem).await
    }

    async fn read_files(&self, image: &Path, mut sink: Box<dyn FileSink>) -> Result<LeftOut, EngineError> {
        let failed = |error: FakeError| EngineError::Files { image: image.to_owned(), source: error.into() };
        let files = image::read_files(image).map_err(failed)?;
        files
            .changes(sink.as_mut())
            .map_err(|source| EngineError::Files { image: image.to_owned(), source: source.into() })?;
        Ok(LeftOut::default())
    }

    async fn pause(&self, run: &RunId) -> Result<(), EngineError> {
        let call = self.begin(Operation::Pause, run).await?;
        match self.machine(run)?.pause() {
            Some(_) => call.end(()).await,
            None => Err(call.condition("dead or half-made: stop it")),
        }
    }

    async fn park(&self, run: &RunId) -> Result<(), EngineError> {
        let call = self.begin(Operation::Park, run).await?;
        match self.machine(run)?.park() {
            RunCondition::Paused | RunCondition::Parked => call.end(()).await,
            RunCondition::Running | RunCondition::Silent => Err(call.condition("running: save it first")),
            RunCondition::Broken => call.need_whole(RunCondition::Broken),
        }
    }

    async fn mapped_files(&self, _run: &RunId, _image: &Path) -> Vec<String> {
        Vec::new()
    }

    async fn resume(&self, run: &RunId) -> Result<(), EngineError> {
        let call = self.begin(Operation::Resume, run).await?;
        call.need_whole(self.machine(run)?.resume())?;
        call.end(()).await
    }

    async fn stop(&self, run: &RunId) -> Result<(), EngineError> {
        let call = self.begin(Operation::Stop, run).await?;
        if let Some(machine) = self.host.machine(run) {
            machine.end();
            self.yield_once(&call).await?;
            self.host.lose(run);
        }
        call.end(()).await
    }

    async fn agent(&self, run: &RunId) -> Result<BoxStream, EngineError> {
        let call = self.begin(Operation::Agent, run).await?;
        let machine = self.machine(run)?;
        call.need_whole(machine.condition())?;
        call.end(agent::open(&machine)).await
    }

    async fn connect(&self, run: &RunId, port: u16) -> Result<BoxStream, EngineError> {
        let call = self.begin(Operation::Connect, run).await?;
        let machine = self.machine(run)?;
        call.need_whole(machine.condition())?;
        if !machine.spec.egress.has_device() {
            return Err(call.condition("without a network: dial through its agent"));
        }
        let stream =
            ports::open(&machine, port).await.ok_or_else(|| EngineError::Refused { run: run.clone(), port })?;
        call.end(stream).await
    }

    async fn usage(&self, run: &RunId) -> Result<Usage, EngineError> {
        let call = self.begin(Operation::Usage, run).await?;
        let usage = self.machine(run)?.usage().ok_or_else(|| call.ended())?;
        call.end(usage).await
    }

    async fn mount(&self, run: &RunId, mounts: &[Mount]) -> Result<(), EngineError> {
        let call = self.begin(Operation::Mount, run).await?;
        let machine = self.machine(run)?;
        call.need_whole(machine.condition())?;
        if let Some(gone) = mounts.iter().find(|mount| !mount.top.join(mount.part.as_str()).is_dir()) {
            return Err(call.failed(FakeError::NoMount(gone.top.join(gone.part.as_str()))));
        }
        machine.set_mounts(mounts);
        call.end(()).await
    }

    async fn set_egress(&self, run: &RunId, egress: &Egress) -> Result<(), EngineError> {
        let call = self.begin(Operation::SetEgress, run).await?;
        let machine = self.machine(run)?;
        call.need_whole(machine.condition())?;
        if !machine.spec.egress.has_device() {
            return Err(call.condition("without a network: create it with one"));
        }
        egress.check().map_err(|error| call.failed(FakeError::Egress(error)))?;
        machine.set_egress(egress);
        call.end(()).await
    }

    async fn set_limits(&self, run: &RunId, resources: &Resources) -> Result<(), EngineError> {
        let call = self.begin(Operation::SetLimits, run).await?;
        let machine = self.machine(run)?;
        call.need_whole(machine.condition())?;
        machine.set_limits(resources);
        call.end(()).await
    }

    async fn relieve_memory_pressure(&self, run: &RunId, victim: Option<u32>) -> Result<(), EngineError> {
        let call = self.begin(Operation::Relieve, run).await?;
        call.need_whole(self.machine(run)?.relieve_memory_pressure(victim))?;
        call.end(()).await
    }

    async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError> {
        let call = self.begin(Operation::Inventory, &nobody()).await?;
        let runs = self.host.runs();
        call.end(runs.into_iter().map(|(run, condition)| FoundRun { run, condition }).collect()).await
    }

    async fn condition(&self, run: &RunId) -> Result<Option<RunCondition>, EngineError> {
        let call = self.begin(Operation::Condition, run).await?;
        call.end(self.host.machine(run).map(|machine| machine.condition())).await
    }

    async fn sweep(&self, known: &[RunId]) -> Result<Vec<String>, EngineError> {
        let call = self.begin(Operation::Sweep, &nobody()).await?;
        let mut lines = Vec::new();
        for (run, condition) in self.host.runs() {
            if !known.contains(&run) {
                self.host.lose(&run);
                lines.push(format!("run {run} ({condition:?})"));
            }
        }
        call.end(lines).await
    }

    fn notices(&self) -> mpsc::Receiver<Notice> {
        if self.host.is_open(self.number) { self.host.notices().subscribe() } else { mpsc::channel(1).1 }
    }

    async fn prepare(&self, _image: &Digest, _rootfs: &Path) -> Result<(), EngineError> {
        let call = self.begin(Operation::Prepare, &nobody()).await?;
        call.end(()).await
    }

    async fn deleted_image_bytes(&self) -> u64 {
        self.host.deleted_image_bytes()
    }

    async fn close(&self) {}
}

/// Returns the run that errors name if a call concerns no run.
fn nobody() -> RunId {
    RunId { sandbox: SandboxId::from_random([0; 20]), generation: 0 }
}
