//! Errors of a fake engine.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The cause in an [`EngineError`](dorm_engine::EngineError) of the fake engine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FakeError {
    /// [`Faults`](crate::Faults) had a fault planned for this call.
    #[error("a planned fault")]
    Planned,
    /// A file of a memory image cannot be read or written.
    #[error("the file '{}' of a memory image: use another image", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The content of a file of a memory image is not what was written.
    #[error("the file '{}' of a memory image is damaged: use another image", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A memory image depends on something that this host does not have.
    #[error("the memory image needs the {what} '{needed}' but '{found}' is there")]
    Dependency {
        /// The dependency, such as `engine build`.
        what: &'static str,
        /// The value when the image was made.
        needed: String,
        /// The value on this host.
        found: String,
    },
    /// A directory to mount does not exist.
    #[error("{} is not a directory that could be mounted", .0.display())]
    NoMount(PathBuf),
    /// An egress policy is invalid.
    #[error(transparent)]
    Egress(#[from] dorm_lifecycle::EgressError),
    /// The state of a guest cannot be serialized.
    #[error("a guest without a JSON form")]
    Json(#[from] serde_json::Error),
    /// The daemon of this engine is dead: another one has opened the host since.
    #[error("this engine was replaced by a later FakeHost::open")]
    Replaced,
}
