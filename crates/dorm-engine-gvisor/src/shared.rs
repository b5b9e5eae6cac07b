//! The state that the parts of the engine share. Their methods on it are in their own modules.

use std::fs;
use std::sync::Mutex;

use dorm_engine::{Capabilities, Notice};
use dorm_memory_image::FilesLimits;
use dorm_worker::Program;
use tokio::sync::{Semaphore, mpsc};

use crate::expected::Expected;
use crate::host::Host;
use crate::run::Runs;
use crate::warm_pool::WarmPool;

/// The state that the engine's parts share.
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) runs: Runs,
    pub(crate) warm_pool: WarmPool,
    pub(crate) expected: Expected,
    pub(crate) reader: Option<Program>,
    pub(crate) listener: Mutex<Option<mpsc::Sender<Notice>>>,
    pub(crate) files: FilesLimits,
    /// The memory in MiB that is available for reading memory images.
    pub(crate) reading: Semaphore,
    pub(crate) capabilities: Capabilities,
    /// Locked as long as the engine exists.
    pub(crate) _lock: fs::File,
}
