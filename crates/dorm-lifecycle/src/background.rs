//! Operations in the background, during which a sandbox keeps its state: a running sandbox keeps
//! running, a suspended one stays suspended.
//!
//! ```text
//! running   ─► running (attach)         ─► running, with the new volumes or the previous ones
//! running   ─► running (egress)         ─► running, with the new egress or the previous one
//! running   ─► running (resize)         ─► running, with the new limits or the previous ones
//! running   ─► running (prepare rewind) ─► suspending (rewind), or running
//! running   ─► running (save held)      ─► running, and what a rewind left is a snapshot
//! suspended ─► suspended (attach, egress, resize, snapshot, prepare rewind) ─► suspended, or resuming (rewind)
//! ```
//!
//! A sandbox has one operation at a time, so every command that begins another waits for the one in
//! the background, and so do the time limits of a running sandbox. Until the operation is done,
//! nothing about the sandbox has changed: abandoning the operation means forgetting it. A change of
//! the egress or of the limits is not abandoned after a restart of the daemon, but repeated. Saving
//! the run that a rewind holds is never abandoned as long as that run exists.

use crate::egress::Egress;
use crate::ids::{OperationId, SnapshotId};
use crate::resources::Resources;
use crate::rewind::{Held, Rewind};
use crate::time::Timestamp;
use crate::volume::Attachment;

/// An operation in progress while the sandbox keeps its state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Background {
    /// The operation.
    pub operation: OperationId,
    /// When it is abandoned.
    pub deadline: Timestamp,
    /// The work of the operation.
    pub work: BackgroundWork,
}

/// The work of a background operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BackgroundWork {
    /// Changes the attached volumes.
    Attach {
        /// All attachments of the sandbox after the operation; its spec has the previous ones.
        after: Vec<Attachment>,
    },
    /// Changes the egress policy.
    Egress {
        /// The policy after the operation; the sandbox's spec has the previous one.
        after: Egress,
    },
    /// Changes the limits of CPU and memory.
    Resize {
        /// The limits after the operation; the sandbox's spec has the previous ones.
        after: Resources,
    },
    /// Copies the saved state that the sandbox is rewound to.
    PrepareRewind(Rewind),
    /// Makes a snapshot from the sleep image. Only for a suspended sandbox.
    Snapshot(SnapshotId),
    /// Saves the paused run that a rewind has left, then ends it. Only for a running sandbox.
    SaveHeld(Held),
}
