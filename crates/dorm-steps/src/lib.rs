//! The places between two changes of the world at which an operation can be made to fail or the daemon to die.
//!
//! Whatever changes records, disk or host reaches a named step after each change. In the daemon as users run it every
//! step passes and costs nothing. The simulator, `dorm prove` and the tests of the storage put something else there.

#[cfg(feature = "planted-bugs")]
pub mod planted;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

/// Why a step was not passed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("stopped at the step '{step}'")]
pub struct Stopped {
    /// The step.
    pub step: &'static str,
    /// Whether to fail as if the disk were full, rather than as if it were broken.
    pub full: bool,
}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> Self {
        let kind = if stopped.full { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        Self::new(kind, stopped)
    }
}

/// Who is asked at each step.
pub trait Steps: Send + Sync + Debug + 'static {
    /// `step` is reached: what comes before it has been done, what comes after has not been begun.
    ///
    /// # Errors
    /// [`Stopped`] makes the operation fail there, as if the system had refused what comes next. When the process is
    /// no longer [`Steps::alive`], no clean-up follows either.
    fn reach(&self, step: &'static str) -> Result<(), Stopped>;

    /// Whether the process still lives. What belongs to a dead one changes nothing any more.
    fn alive(&self) -> bool {
        true
    }

    /// The content of the file, or the names in the directory, at `path` survive a loss of power from now on.
    fn durable(&self, path: &Path) {
        let _ = path;
    }

    /// Whether work that blocks is done where it is asked for and not by other threads, so that its order is always
    /// the same.
    fn in_place(&self) -> bool {
        false
    }
}

/// Every step passes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pass;

impl Steps for Pass {
    fn reach(&self, _step: &'static str) -> Result<(), Stopped> {
        Ok(())
    }
}

/// Steps as they are handed around.
pub type AnySteps = Arc<dyn Steps>;

/// Every step passes.
pub fn pass() -> AnySteps {
    Arc::new(Pass)
}
