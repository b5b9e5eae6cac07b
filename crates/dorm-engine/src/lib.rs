//! The port between Dormouse and whatever runs a sandbox.
//!
//! An engine carries out effects and reports facts; it never decides. It knows runs, not sandboxes: what a run's end
//! means is decided by `dorm-lifecycle`. It knows nothing of HTTP, records, names or timeouts. What every engine must
//! do is checked by `dorm-engine-conformance`.
//!
//! ```text
//! start ─┐                         ┌─► go_on (the same run continues)
//!        ├─► running ──► capture ──┼─► park ──► go_on
//! restore┘               (paused)  └─► stop
//! ```

mod error;
mod files;
mod mounts;
mod network;
mod stepped;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use dorm_lifecycle::{CaptureId, Digest, Egress, Resources, RunCondition, RunId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

pub use error::EngineError;
pub use files::{Content, Entry, EntryKind, FileSink, LeftOut, NoContent};
pub use mounts::{MOUNTS, Mount};
pub use network::{Lease, LeaseId, Network, NetworkError, Traffic};
pub use stepped::SteppedEngine;

/// A two-way byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A [`Stream`] of any kind.
pub type BoxStream = Box<dyn Stream>;

/// What an engine is and can do. Facts, shown to users as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// `gvisor`, `fake`, …
    pub name: &'static str,
    /// The exact build: a memory image is only good for the same one.
    pub build: String,
    /// Other builds, for whose memory images there are programs on this host. Nothing else begins with them.
    pub also: Vec<String>,
    /// The day on which that build was released, such as `2024-07-29`, where it is known.
    pub released: Option<String>,
    /// The CPU features a memory image of this host depends on, as a digest of their names.
    pub cpu: String,
    /// Whether user code can be held back after a restore until the agent has done its work. `false` means there is
    /// a window of some milliseconds.
    pub holds_after_restore: bool,
}

impl Capabilities {
    /// Whether memory images of `build` can be used.
    pub fn restores(&self, build: &str) -> bool {
        self.build == build || self.also.iter().any(|also| also == build)
    }
}

/// What a run needs from the host, whichever way it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunSpec {
    /// Which run; never used again.
    pub run: RunId,
    /// The digest of the root filesystem's image.
    pub image: Digest,
    /// The image's root filesystem: immutable, ownership already shifted for guests.
    pub rootfs: PathBuf,
    /// What lies on it, the topmost first.
    pub layers: Vec<Layer>,
    /// Its limits.
    pub resources: Resources,
    /// Where it may connect to.
    pub egress: Egress,
    /// Directories of the host that it sees from its beginning.
    pub mounts: Vec<Mount>,
    /// The build that is to run it: that of the memory image it begins with. None for the engine's own.
    pub build: Option<String>,
}

/// Files that lie on a root filesystem, immutable like it and owned like it: a directory in the form of the upper layer
/// of Linux's overlay file system (a character device 0/0 where something is gone, `trusted.overlay.opaque` on a
/// directory that replaces one).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// Which one: the same content has the same id.
    pub id: CaptureId,
    /// Where it is.
    pub directory: PathBuf,
}

/// The files that [`Engine::capture`] wrote, relative to the directory it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// Every file of the image, in no order. Each is durable once the pool has synced it.
    pub files: Vec<CapturedFile>,
    /// How long the guest stood still so far.
    pub stopped: Duration,
    /// The build that wrote it and alone can use it.
    pub build: String,
}

/// One file of an image that was just written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedFile {
    /// Relative to the directory of the image.
    pub name: PathBuf,
    /// How many bytes of it the engine wrote. A file of any other length is not what was captured.
    pub bytes: u64,
}

/// A run that the engine found on the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRun {
    /// Which run.
    pub run: RunId,
    /// What it does.
    pub condition: RunCondition,
}

/// A run on this host that the engine of another data directory made, found by a note in this one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ForeignRun {
    /// Which run.
    pub run: RunId,
    /// The id of that data directory.
    pub owner: String,
}

/// What one run uses now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// CPU time used since the run began, in microseconds, on the host.
    pub cpu_micros: u64,
    /// Host memory in use, in bytes.
    pub memory_bytes: u64,
    /// Host processes.
    pub processes: u64,
    /// What of its disk is taken, in bytes; `None` where its disk has no size of its own.
    pub disk_bytes: Option<u64>,
    /// Its traffic since the run began; `None` without a network of its own.
    pub network: Option<Traffic>,
    /// What it has read from its disk and written to it; `None` where that is not counted.
    pub disk_io: Option<DiskIo>,
}

/// How a run uses its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIo {
    /// Bytes read since the run began.
    pub read_bytes: u64,
    /// Bytes written since the run began, as far as the host counts what it writes back later.
    pub written_bytes: u64,
    /// Bytes that may be read a second.
    pub read_limit: Option<u64>,
    /// Bytes that may be written a second.
    pub write_limit: Option<u64>,
    /// Reads a second, and writes a second.
    pub operations_limit: Option<u64>,
}

/// A fact that nobody asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The run has ended without having been stopped: it crashed, was killed, or ran out of memory. It may be read late,
    /// when the same run was begun again: [`Engine::condition`] says what is so now.
    Ended {
        /// Which run.
        run: RunId,
        /// What is known of the reason, one sentence.
        reason: String,
    },
    /// The run has passed its soft memory threshold and is paused: the greediest process in it must die now, by
    /// [`Engine::relieve`].
    MemoryHigh {
        /// Which run.
        run: RunId,
    },
}

/// What runs sandboxes.
///
/// Every method may be called again after a failure or a restart of the daemon; each says what a repetition does.
/// Errors name the operation and the run. Dropping a future leaves nothing behind that [`Engine::stop`] or
/// [`Engine::sweep`] does not clear away.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// What it is and can do.
    fn capabilities(&self) -> &Capabilities;

    /// Begins a run with a cold boot, or what cannot be told from one. When it returns, the agent inside answers.
    /// Starting a run that exists is [`EngineError::Exists`].
    async fn start(&self, spec: &RunSpec) -> Result<(), EngineError>;

    /// Begins a run from the memory image in `image`, which was written by [`Engine::capture`] of this engine and
    /// has been verified by the caller. Only reads from it. When it returns, the agent answers; user code may
    /// have run before that unless [`Capabilities::holds_after_restore`].
    async fn restore(&self, spec: &RunSpec, image: &std::path::Path) -> Result<(), EngineError>;

    /// Pauses the run and writes its memory and changed files into the empty directory `into`. The source is kept,
    /// paused, whether this succeeds or fails; only [`Engine::go_on`] lets it continue. Capturing a paused run is
    /// allowed. The lengths in the answer are those of what was to be written, from the engine's own account where it
    /// has one: the caller compares them with the files.
    async fn capture(&self, run: &RunId, into: &std::path::Path) -> Result<Captured, EngineError>;

    /// Reads out of the memory image in `image`, as for [`Engine::restore`], what the guest had changed in its root
    /// filesystem, whatever build of the engine wrote it as far as that can be read, and gives it to `sink`. Nothing of
    /// the guest runs. [`EngineError::Files`] when the image cannot be understood or the sink fails.
    async fn read_files(&self, image: &std::path::Path, sink: Box<dyn FileSink>) -> Result<LeftOut, EngineError>;

    /// Pauses the run and writes nothing; only [`Engine::go_on`] lets it continue. Pausing a paused run changes nothing.
    async fn pause(&self, run: &RunId) -> Result<(), EngineError>;

    /// Makes a paused run use no CPU at all. Parking a parked run changes nothing.
    async fn park(&self, run: &RunId) -> Result<(), EngineError>;

    /// Lets a paused or parked run continue exactly where it stood. On a running one it changes nothing.
    async fn go_on(&self, run: &RunId) -> Result<(), EngineError>;

    /// Ends the run and gives back all that it held: processes, mounts, groups, namespaces, files. Stopping a run
    /// that is not there is a success.
    async fn stop(&self, run: &RunId) -> Result<(), EngineError>;

    /// A fresh stream to the agent inside (`dorm-agent-proto`). There is one at a time: a new one ends the one before.
    async fn agent(&self, run: &RunId) -> Result<BoxStream, EngineError>;

    /// Connects to a TCP port inside. [`EngineError::Refused`] when nobody listens there.
    async fn connect(&self, run: &RunId, port: u16) -> Result<BoxStream, EngineError>;

    /// What the run uses.
    async fn usage(&self, run: &RunId) -> Result<Usage, EngineError>;

    /// Makes the directories of the host that the run sees these and no others. What it has open of one that goes, it
    /// keeps until it closes it. [`EngineError::Failed`] for a directory that is not there: then the others may have
    /// changed. May be called in any condition of the run.
    async fn mount(&self, run: &RunId, mounts: &[Mount]) -> Result<(), EngineError>;

    /// The answer to [`Notice::MemoryHigh`]: kills `victim`, a process id inside as the agent knows it, and lets the run
    /// continue. Without a victim only its agent continues, so that it can be asked for one, until a victim is named,
    /// the run is captured, or 10 s have passed. A run that stands still for anything else than its memory stays so.
    async fn relieve(&self, run: &RunId, victim: Option<u32>) -> Result<(), EngineError>;

    /// What runs on this host, also from before a restart of the daemon. Found runs can be used like any other.
    async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError>;

    /// What one run does, as [`Engine::inventory`] says it; `None` of a run that the engine does not know.
    async fn condition(&self, run: &RunId) -> Result<Option<RunCondition>, EngineError>;

    /// The living runs that notes in this engine's directory name and that belong to another data directory, of which this
    /// one is a copy. They can neither be used nor ended through this engine. An engine that writes no notes knows none.
    async fn foreign_runs(&self) -> Result<Vec<ForeignRun>, EngineError> {
        Ok(Vec::new())
    }

    /// Clears away what is left of runs that are not in `known` and which this engine's own notes say it made.
    /// Answers a line for each thing cleared away.
    async fn sweep(&self, known: &[RunId]) -> Result<Vec<String>, EngineError>;

    /// The notices from now on. There is one receiver: a second call takes over from the first.
    fn notices(&self) -> mpsc::Receiver<Notice>;

    /// Prepares what makes the next [`Engine::start`] of this image fast (a booted template, warm containers). Does
    /// nothing that `start` depends on.
    async fn prepare(&self, image: &Digest, rootfs: &std::path::Path) -> Result<(), EngineError>;

    /// Lets go of everything that is not a run: warm containers, helpers. Runs continue. Called at a clean stop.
    async fn close(&self);
}
