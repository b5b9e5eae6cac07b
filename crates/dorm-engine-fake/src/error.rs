//! What a fake engine fails with.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The cause in an [`EngineError`](dorm_engine::EngineError) of the fake engine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FakeError {
    /// A plan of [`Faults`](crate::Faults) said so.
    #[error("a planned fault")]
    Planned,
    /// A file of a memory image cannot be read or written.
    #[error("the file '{}' of a memory image: use another image", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of a memory image is not what was written.
    #[error("the file '{}' of a memory image is damaged: use another image", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
    },
    /// A memory image depends on something else than what is there.
    #[error("the memory image needs the {what} '{needed}' but '{found}' is there")]
    Dependency {
        /// What it depends on.
        what: &'static str,
        /// What was there when it was made.
        needed: String,
        /// What is there.
        found: String,
    },
    /// What is to be mounted is not there.
    #[error("{} is not a directory that could be mounted", .0.display())]
    NoMount(PathBuf),
    /// A run cannot be written down.
    #[error("a guest without a JSON form")]
    Json(#[from] serde_json::Error),
    /// The daemon of this engine is dead: another one has opened the host since.
    #[error("this engine was replaced by a later FakeHost::open")]
    Replaced,
}
