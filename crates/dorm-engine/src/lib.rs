//! The port between Dormouse and the engines that run sandboxes.
//!
//! An engine carries out effects and reports facts; it makes no decisions. It knows runs, not
//! sandboxes: `dorm-lifecycle` decides what the end of a run means. It knows nothing about HTTP,
//! records, names or timeouts. The conformance suite in `dorm-engine-conformance` checks what every
//! engine must do.
//!
//! ```text
//! start ─┐                         ┌─► resume (the same run continues)
//!        ├─► running ──► save ──┼─► park ──► resume
//! restore┘               (paused)  └─► stop
//! ```

mod error;
mod files;
mod mounts;
mod network;
mod stepped;
mod stream_end;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use dorm_lifecycle::{Digest, Egress, Resources, RunCondition, RunId, SavedStateId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

pub use error::{EngineError, chain};
pub use files::{Content, Entry, EntryKind, FileSink, LeftOut, NoContent};
pub use mounts::{MOUNTS, Mount};
pub use network::{Lease, LeaseId, Network, NetworkError, Traffic};
pub use stepped::SteppedEngine;
pub use stream_end::{PortStream, StreamEnd};

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A boxed [`Stream`].
pub type BoxStream = Box<dyn Stream>;

/// The properties and abilities of an engine. These are facts, shown to users unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The name: `gvisor`, `fake`, …
    pub name: &'static str,
    /// The exact build.
    pub build: String,
    /// The format of the memory images that the build writes, if it is known. Images of a known
    /// format can be restored by every build with that format, others only by the build that wrote
    /// them.
    pub format: Option<&'static str>,
    /// Other builds installed on this host. They are used only for memory images that the first one
    /// cannot restore.
    pub also: Vec<String>,
    /// The release date of the build, such as `2024-07-29`, if known.
    pub released: Option<String>,
    /// A digest of the names of the CPU features that a memory image of this host depends on.
    pub cpu: String,
    /// Where the memory of a restored run is.
    pub memory: RestoredMemory,
    /// Whether files of the engine's directory can share blocks with copies of them.
    pub shares_blocks: bool,
    /// Whether user code can be held back after a restore until the agent has done its work. If
    /// `false`, user code may run for some milliseconds before that.
    pub holds_after_restore: bool,
}

/// Where the memory of a restored run is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestoredMemory {
    /// In its image, until the run writes to it. Runs of one image share it.
    Mapped,
    /// In memory of its own: all of the image is read before the run continues.
    Copied {
        /// Why it does not stay in the image.
        reason: String,
    },
}

impl RestoredMemory {
    /// Returns why memory does not stay in its image; `None` if it does.
    pub fn copied_because(&self) -> Option<&str> {
        match self {
            Self::Mapped => None,
            Self::Copied { reason } => Some(reason),
        }
    }
}

/// The expectation of runs, as announced by [`Engine::expect`]. It ends when this is dropped.
#[must_use = "dropping it ends the expectation"]
#[derive(Default)]
pub struct Expectation(Option<Box<dyn FnOnce() + Send>>);

impl Expectation {
    /// Returns an expectation at whose end `end` is called. `end` must not block.
    pub fn ending_with(end: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

/// The host resources that a run needs, however it starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunSpec {
    /// The id of the run; never reused.
    pub run: RunId,
    /// The digest of the image of the root file system.
    pub image: Digest,
    /// The image's root file system: immutable, with ownership already shifted to the ids of
    /// guests.
    pub rootfs: PathBuf,
    /// The layers on top of it, the topmost first.
    pub layers: Vec<Layer>,
    /// The resource limits.
    pub resources: Resources,
    /// The egress policy.
    pub egress: Egress,
    /// Directories of the host that are mounted in the run from its start.
    pub mounts: Vec<Mount>,
    /// The build that wrote the memory image it starts from. The engine runs it with a build that
    /// can restore that image. `None` for the engine's own build.
    pub build: Option<String>,
}

/// Files on top of a root file system, immutable and with the same ownership: a directory in the
/// format of the upper layer of Linux's overlay file system (a character device 0/0 for a removed
/// file, `trusted.overlay.opaque` on a directory that replaces one).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// The id: equal content has an equal id.
    pub id: SavedStateId,
    /// The directory.
    pub directory: PathBuf,
}

/// The result of [`Engine::save`], with paths relative to the directory it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Every file of the memory image, in any order. A file is durable once the storage has synced
    /// it.
    pub files: Vec<SavedFile>,
    /// How long the guest has been paused so far.
    pub stopped: Duration,
    /// The build that wrote it.
    pub build: String,
}

/// One file of a memory image that was just written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedFile {
    /// The path, relative to the directory of the memory image.
    pub name: PathBuf,
    /// The number of bytes that the engine wrote. A file of any other length is not what was
    /// saved.
    pub bytes: u64,
    /// `Some` if the engine has written no such file: the file at this path, which belongs to an
    /// earlier memory image, belongs to this one too. The storage gives it the name.
    pub shared_with: Option<PathBuf>,
    /// BLAKE3 of its content, 64 hexadecimal digits, if the engine has computed it from what it
    /// wrote, and nothing else could write to the file. The storage reads all other files.
    pub blake3: Option<String>,
}

/// A run that the engine found on the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRun {
    /// The run.
    pub run: RunId,
    /// Its condition.
    pub condition: RunCondition,
}

/// A run on this host that was made by the engine of another data directory, found by a note in
/// this one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ForeignRun {
    /// The run.
    pub run: RunId,
    /// The id of the other data directory.
    pub owner: String,
}

/// The present resource usage of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// CPU time used on the host since the run started, in microseconds.
    pub cpu_micros: u64,
    /// Host memory in use, in bytes.
    pub memory_bytes: u64,
    /// The number of host processes.
    pub processes: u64,
    /// The used part of its disk, in bytes; `None` if its disk has no size of its own.
    pub disk_bytes: Option<u64>,
    /// Its traffic since the run started; `None` without a network of its own.
    pub network: Option<Traffic>,
    /// Its disk reads and writes; `None` if they are not counted.
    pub disk_io: Option<DiskIo>,
}

/// The disk usage of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIo {
    /// Bytes read since the run started.
    pub read_bytes: u64,
    /// Bytes written since the run started, as far as the host attributes delayed writes.
    pub written_bytes: u64,
    /// The limit for reading, in bytes per second.
    pub read_limit: Option<u64>,
    /// The limit for writing, in bytes per second.
    pub write_limit: Option<u64>,
    /// The limit for reads per second, and also for writes per second.
    pub operations_limit: Option<u64>,
}

/// An event that an engine reports unasked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The run has ended unexpectedly: it crashed, was killed, or ran out of memory. The notice may
    /// be read late, when the same run has been started again: [`Engine::condition`] returns the
    /// present condition.
    Ended {
        /// The run.
        run: RunId,
        /// The reason as far as known, in one sentence.
        reason: String,
    },
    /// The run has passed its soft memory limit and is paused: its OOM victim must be killed now,
    /// with [`Engine::relieve_memory_pressure`].
    MemoryHigh {
        /// The run.
        run: RunId,
    },
    /// A parked run has released memory and maps it from its image.
    MemoryReleased {
        /// The run.
        run: RunId,
        /// The host memory that it still holds, in bytes.
        memory_bytes: u64,
    },
}

/// The interface of an engine.
///
/// Every method may be called again after a failure or a restart of the daemon; each describes the
/// effect of a repeated call. Errors name the operation and the run. After a future is dropped,
/// [`Engine::stop`] or [`Engine::sweep`] removes everything it left behind.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Returns the properties and abilities of the engine.
    fn capabilities(&self) -> &Capabilities;

    /// Returns whether a build on this host can restore memory images of `build`, which may be
    /// gone.
    fn restores(&self, build: &str) -> bool;

    /// Starts a run with a cold boot, or with an equivalent of it. When it returns, the agent
    /// inside answers. Starting a run that exists fails with [`EngineError::Exists`].
    async fn start(&self, spec: &RunSpec) -> Result<(), EngineError>;

    /// Starts a run from the memory image in `image`, which was written by [`Engine::save`] of
    /// this engine and has been verified by the caller. Only reads from it. When it returns, the
    /// agent answers; user code may have run before that unless
    /// [`Capabilities::holds_after_restore`] is set.
    async fn restore(&self, spec: &RunSpec, image: &std::path::Path) -> Result<(), EngineError>;

    /// Pauses the run and writes its memory and changed files into the empty directory `into`. The
    /// run is kept, paused, whether this succeeds or fails; only [`Engine::resume`] lets it
    /// continue. A paused run can be saved. The lengths in the result are those that should have
    /// been written, from the engine's own account if it has one: the caller compares them with the
    /// files.
    ///
    /// `earlier` are the directories of complete images of the same sandbox, which stay until the
    /// new one is complete. It may share files with them, as with the one that the run was restored
    /// from. One that is missing is not an error.
    async fn save(
        &self,
        run: &RunId,
        into: &std::path::Path,
        earlier: &[std::path::PathBuf],
    ) -> Result<Saved, EngineError>;

    /// Like [`Engine::save`], but the image need only have what [`Engine::read_files`] reads. It
    /// may not be restorable.
    async fn save_files(&self, run: &RunId, into: &std::path::Path) -> Result<Saved, EngineError>;

    /// Reads the guest's changes to its root file system out of the image in `image`, which was
    /// written by [`Engine::save`] or [`Engine::save_files`], and passes them to `sink`.
    /// Works for images of any build of the engine, as far as they can be read. No code of the
    /// guest runs. Fails with [`EngineError::Files`] if the image cannot be understood or the sink
    /// fails.
    async fn read_files(&self, image: &std::path::Path, sink: Box<dyn FileSink>) -> Result<LeftOut, EngineError>;

    /// Pauses the run and writes nothing; only [`Engine::resume`] lets it continue. Pausing a
    /// paused run has no effect.
    async fn pause(&self, run: &RunId) -> Result<(), EngineError>;

    /// Makes a paused run use no CPU at all. Parking a parked run has no effect.
    async fn park(&self, run: &RunId) -> Result<(), EngineError>;

    /// Returns the names of the files of `image` in which the run may have memory that it has
    /// nowhere else: a parked run may release its memory and map it from the image that it was
    /// saved to, and any run may map the base of that. The caller verifies these files before
    /// it resumes the run, and no others. A run that does not exist has none.
    async fn mapped_files(&self, run: &RunId, image: &std::path::Path) -> Vec<String>;

    /// Lets a paused or parked run continue exactly where it stopped. On a running run it has no
    /// effect.
    async fn resume(&self, run: &RunId) -> Result<(), EngineError>;

    /// Ends the run and releases all its resources: processes, mounts, control groups, namespaces,
    /// files. Stopping a run that does not exist is a success.
    async fn stop(&self, run: &RunId) -> Result<(), EngineError>;

    /// Returns a new stream to the agent inside (`dorm-agent-proto`). There is one stream at a
    /// time: a new one ends the previous one.
    async fn agent(&self, run: &RunId) -> Result<BoxStream, EngineError>;

    /// Connects to a TCP port inside. Fails with [`EngineError::Refused`] if nothing listens on it.
    async fn connect(&self, run: &RunId, port: u16) -> Result<BoxStream, EngineError>;

    /// Returns the present resource usage of the run.
    async fn usage(&self, run: &RunId) -> Result<Usage, EngineError>;

    /// Mounts these directories of the host in the run, and no others. Files that the run has open
    /// in a directory that is unmounted stay open until it closes them. Fails with
    /// [`EngineError::Failed`] if a directory does not exist: then the other mounts may have
    /// changed. Can be called in any condition of the run.
    async fn mount(&self, run: &RunId, mounts: &[Mount]) -> Result<(), EngineError>;

    /// Replaces the egress policy of the run at once, in any condition of the run. Connections that
    /// the new policy does not allow end, and none that it does. Fails with
    /// [`EngineError::Condition`] if the run has no network device. On any failure, the previous
    /// policy is in effect, unless the future was dropped.
    async fn set_egress(&self, run: &RunId, egress: &Egress) -> Result<(), EngineError>;

    /// Replaces the limits of CPU time and memory of the run at once, in any condition of the run;
    /// the other limits of `resources` stay as they are. Fails with [`EngineError::Condition`] if
    /// the engine cannot change them while the run exists. On any failure, the previous limits are
    /// in effect, unless the future was dropped. The caller has made sure that the run uses less
    /// memory.
    async fn set_limits(&self, run: &RunId, resources: &Resources) -> Result<(), EngineError>;

    /// Responds to [`Notice::MemoryHigh`]: kills `victim`, a process id inside as known to the
    /// agent, and lets the run continue. Without a victim only the agent continues, so that it can
    /// be asked for one, until a victim is named, the run is saved, or 10 s have passed. A run
    /// that is paused for any other reason than its memory stays paused.
    async fn relieve_memory_pressure(&self, run: &RunId, victim: Option<u32>) -> Result<(), EngineError>;

    /// Returns the runs on this host, including those from before a restart of the daemon. They can
    /// be used like any other run.
    async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError>;

    /// Returns the condition of one run, as in [`Engine::inventory`]; `None` for a run that the
    /// engine does not know.
    async fn condition(&self, run: &RunId) -> Result<Option<RunCondition>, EngineError>;

    /// Returns the live runs that are named by notes in this engine's directory but belong to
    /// another data directory, of which this one is a copy. They can neither be used nor ended
    /// through this engine. An engine that writes no notes returns none.
    async fn foreign_runs(&self) -> Result<Vec<ForeignRun>, EngineError> {
        Ok(Vec::new())
    }

    /// Removes what is left of runs that are not in `known` and that were made by this engine,
    /// according to its own notes. Returns one line for everything that was removed.
    async fn sweep(&self, known: &[RunId]) -> Result<Vec<String>, EngineError>;

    /// Returns the receiver of notices from now on. There is one receiver: a second call replaces
    /// the first.
    fn notices(&self) -> mpsc::Receiver<Notice>;

    /// Prepares resources that make the next [`Engine::start`] of this image fast (a booted
    /// template, warm containers). `start` does not depend on it.
    async fn prepare(&self, image: &Digest, rootfs: &std::path::Path) -> Result<(), EngineError>;

    /// Returns the disk space, in bytes, of deleted memory images that runs still read from. It
    /// becomes free when those runs end.
    async fn deleted_image_bytes(&self) -> u64 {
        0
    }

    /// Returns files on the volumes of a run that its sandbox has open although the host or another
    /// sandbox has deleted or replaced them, by their paths in the guest below [`MOUNTS`]. The
    /// guest finds out when one of its programs looks for such a path; only then is the file
    /// closed, if no program has it open, or shown to the guest as deleted. Best effort, and at
    /// most 4,096.
    async fn deleted_on_volumes(&self, run: &RunId) -> Vec<String> {
        let _ = run;
        Vec::new()
    }

    /// Prepares resources for `count` runs that will start soon and depend on the host as `like`
    /// does: the same image, layers and disk size, also with or without a network. The run of
    /// `like` does not matter. Dropping the result ends the expectation: resources that no run has
    /// taken are released, at once or after a while. [`Engine::start`] and [`Engine::restore`] do
    /// not depend on it, and this never fails.
    fn expect(&self, _like: &RunSpec, _count: usize) -> Expectation {
        Expectation::default()
    }

    /// Releases everything that is not a run: warm containers, helpers. Runs continue. Called at a
    /// clean stop.
    async fn close(&self);
}
