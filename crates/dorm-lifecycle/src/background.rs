//! Operations that are at work while a sandbox keeps its state: a running sandbox goes on running, a suspended one stays
//! suspended.
//!
//! ```text
//! running   ─► running (attach)         ─► running, with the other volumes, or with those it had
//! running   ─► running (prepare rewind) ─► suspending (rewind), or running
//! suspended ─► suspended (attach, snapshot, prepare rewind) ─► suspended, or resuming (rewind)
//! ```
//!
//! A sandbox has one operation at a time, so every command that begins another waits for the one in the background, and the
//! time limits of a running sandbox wait for it too. Until it is done nothing of the sandbox has changed: giving it up
//! means forgetting it.

use crate::ids::{OperationId, SnapshotId};
use crate::rewind::Rewind;
use crate::sandbox::State;
use crate::time::Timestamp;
use crate::volume::Attachment;

/// An operation at work while the sandbox keeps its state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Background {
    /// The operation.
    pub operation: OperationId,
    /// When it is given up.
    pub deadline: Timestamp,
    /// What it does.
    pub work: BackgroundWork,
}

/// What a background operation does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BackgroundWork {
    /// Changes the attached volumes.
    Attach {
        /// All attachments the sandbox has once this is done; its spec has those from before.
        after: Vec<Attachment>,
    },
    /// Makes the sandbox's own copy of the saved state that it is taken back to.
    PrepareRewind(Rewind),
    /// Makes a snapshot from the sleep image. Only a suspended sandbox has this.
    Snapshot(SnapshotId),
}

impl State {
    /// The background operation at work in it.
    pub fn background(&self) -> Option<&Background> {
        match self {
            Self::Running { background, .. } | Self::Suspended { background, .. } => background.as_deref(),
            Self::Pending { .. }
            | Self::Snapshotting { .. }
            | Self::Suspending { .. }
            | Self::Resuming { .. }
            | Self::Terminating { .. }
            | Self::Terminated { .. } => None,
        }
    }

    /// The same state with this background operation; a state that can have none stays as it is.
    pub(crate) fn with_background(&self, now: Option<Background>) -> Self {
        let mut state = self.clone();
        match &mut state {
            Self::Running { background, .. } | Self::Suspended { background, .. } => *background = now.map(Box::new),
            Self::Pending { .. }
            | Self::Snapshotting { .. }
            | Self::Suspending { .. }
            | Self::Resuming { .. }
            | Self::Terminating { .. }
            | Self::Terminated { .. } => {}
        }
        state
    }
}
