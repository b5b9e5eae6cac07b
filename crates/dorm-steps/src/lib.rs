//! Named steps: the places between two changes at which an operation can be made to fail, or the
//! daemon to die.
//!
//! Code that changes records, the disk or the host calls a named step after each change. In the
//! daemon that users run, every step passes and costs nothing. The simulator, `dorm prove` and the
//! tests of the storage replace this.

#[cfg(feature = "planted-bugs")]
pub mod planted;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

/// The error of a step that did not pass.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("stopped at the step '{step}'")]
pub struct Stopped {
    /// The step.
    pub step: &'static str,
    /// Whether to fail as with a full disk, rather than with a broken one.
    pub full: bool,
}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> Self {
        let kind = if stopped.full { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        Self::new(kind, stopped)
    }
}

/// The hook that is called at each step.
pub trait Steps: Send + Sync + Debug + 'static {
    /// Called at `step`: the changes before it are done, and those after it have not begun.
    ///
    /// # Errors
    /// [`Stopped`] makes the operation fail there, as if the system had refused the next change. If
    /// the process is no longer [`Steps::alive`], there is no clean-up either.
    fn reach(&self, step: &'static str) -> Result<(), Stopped>;

    /// Whether the simulated process is still alive. A dead one changes nothing any more.
    fn alive(&self) -> bool {
        true
    }

    /// Called when the content of the file, or the names in the directory, at `path` will survive a
    /// power failure.
    fn durable(&self, path: &Path) {
        let _ = path;
    }

    /// Whether blocking work is done by its caller and not by other threads, so that its order is
    /// always the same.
    fn in_place(&self) -> bool {
        false
    }
}

/// A hook that lets every step pass.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pass;

impl Steps for Pass {
    fn reach(&self, _step: &'static str) -> Result<(), Stopped> {
        Ok(())
    }
}

/// A shared hook.
pub type AnySteps = Arc<dyn Steps>;

/// Returns a hook that lets every step pass.
pub fn pass() -> AnySteps {
    Arc::new(Pass)
}
