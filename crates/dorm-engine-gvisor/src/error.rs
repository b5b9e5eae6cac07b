//! Errors of `runsc` and its surroundings, before they become errors of the port.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use dorm_agent_client::AgentError;
use dorm_cgroup::CgroupError;
use dorm_disk::DiskError;
use dorm_engine::{EngineError, NetworkError};
use dorm_lifecycle::RunId;
use dorm_memory_image::MemoryImageError;
use thiserror::Error;

pub(crate) use dorm_engine::chain;

/// The name of this engine.
pub(crate) const NAME: &str = "gvisor";

/// Why the host or a sandbox did not complete an operation.
#[derive(Debug, Error)]
pub(crate) enum GvisorError {
    /// The guest has a deleted file on a volume open. Such a file cannot be in a memory image, and
    /// could not be opened again after a restore.
    #[error(
        "a program in the sandbox holds a deleted file of a volume open, '{}': close the file, and keep temporary files on \
         the sandbox's own disk",
        .0.display()
    )]
    DeletedOnVolume(PathBuf),
    /// The disk has lost writes, so memory and files cannot be saved as intact.
    #[error(
        "its disk has lost writes: {0}. It cannot be saved: copy the files you need out of it and create a new sandbox"
    )]
    LostWrites(String),
    #[error("cannot {operation} {}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot {operation}")]
    System {
        operation: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("invalid JSON in {}", path.display())]
    Text {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("'runsc {operation}' failed ({status}): {said}")]
    Runsc { operation: &'static str, status: String, said: String },
    #[error("no answer from the sandbox to {method}")]
    Control {
        method: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the sandbox refused {method}: {said}")]
    Refused { method: &'static str, said: String },
    #[error("timed out after {} s: {operation}", limit.as_secs())]
    Late { operation: &'static str, limit: Duration },
    #[error("{0} is not on this host: start the daemon with --runsc-also and the path of that build")]
    NoBuild(String),
    #[error("{name} is not in {}: copy that directory from the data directory in which the memory was saved", directory.display())]
    NoAgent { name: String, directory: PathBuf },
    #[error("{} is damaged: copy it from the data directory in which the memory was saved, or from a backup", .0.display())]
    DamagedAgent(PathBuf),
    #[error("the sandbox ended: {said}")]
    Died { said: String },
    #[error("the task was cancelled")]
    Task(#[from] tokio::task::JoinError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Stopped(#[from] dorm_steps::Stopped),
    #[error("cannot read the files in the memory image {}", image.display())]
    Files {
        image: PathBuf,
        #[source]
        source: MemoryImageError,
    },
    /// The size of a memory image differs from the size that it records.
    #[error("the memory image in {} is incomplete", image.display())]
    Short {
        image: PathBuf,
        #[source]
        source: MemoryImageError,
    },
    #[error("the agent in the sandbox does not answer")]
    Agent(#[from] AgentError),
}

impl GvisorError {
    pub(crate) fn file(operation: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::File { operation, path: path.into(), source: source.into() }
    }

    pub(crate) fn system(operation: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { operation, source: source.into() }
    }

    /// Converts to the port's error for `operation` on `run`.
    pub(crate) fn of(self, operation: &'static str, run: &RunId) -> EngineError {
        if self.is_lack_of_room() {
            EngineError::NoRoom { operation, run: run.clone(), source: Box::new(self) }
        } else {
            EngineError::failed(operation, run, self)
        }
    }

    /// Returns whether the host's own error says that it has no space left.
    fn is_lack_of_room(&self) -> bool {
        let full = |source: &io::Error| {
            matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory
            )
        };
        match self {
            Self::File { source, .. } | Self::System { source, .. } => full(source),
            Self::Files { source, .. } => source.host_error().is_some_and(full),
            Self::Network(NetworkError::Exhausted(_)) => true,
            Self::Disk(error) => error.is_no_room(),
            Self::Stopped(stopped) => stopped.full,
            _ => false,
        }
    }
}

/// Returns the error for a host, or a state of it, with which the engine cannot work.
pub(crate) fn unusable(hint: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> EngineError {
    EngineError::Unusable { engine: NAME, hint: hint.into(), source: Some(Box::new(source)) }
}
