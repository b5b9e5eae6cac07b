//! The data of a rewind while it is in progress, and what is remembered of it afterwards.
//!
//! ```text
//! suspended ──────────────────────────────► resuming (rewind) ─► running, from the snapshot
//! running ─► suspending (rewind) ─ saved ─►        │
//!     │                                            └─ failed ─► resuming or suspended, as before
//!     └─► suspending (rewind, held) ─► running (save held) ─► running, from the snapshot
//!                  └─ failed ─► running, as before
//! ```
//!
//! The present is saved and recorded before any part of it is released. It becomes the abandoned
//! future only when a guest answers from the snapshot. If the host has room for both runs, the
//! present run is held paused until then and saved afterwards, so that nobody waits for it.

use std::time::Duration;

use crate::ids::{SavedStateId, SnapshotId};
use crate::resources::Resources;
use crate::saved::SleepImage;
use crate::time::Timestamp;

/// A rewind of a sandbox to a snapshot, in place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rewind {
    /// The snapshot.
    pub to: SnapshotId,
    /// A copy of the memory snapshot's saved state, made for this sandbox: its sleep image after
    /// the rewind. `None` for a filesystem snapshot, from which it boots.
    pub target: Option<SleepImage>,
    /// The layer on its image that it is based on afterwards.
    pub layer: Option<SavedStateId>,
    /// The resource limits of a sandbox that starts from the snapshot.
    pub resources: Resources,
    /// The snapshot to make of the present state; `None` to discard that state.
    pub future: Option<Future>,
    /// Whether the present run may be held, paused, until a guest answers from the snapshot, and
    /// saved after that. Otherwise it is saved first.
    pub may_hold: bool,
}

/// A paused run of the state that a rewind has abandoned, which is saved while the sandbox runs
/// from the snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// The number of the run.
    pub run: u64,
    /// The generation of its guest.
    pub generation: u64,
    /// When the guest that replaced it answered.
    pub since: Timestamp,
    /// The snapshot that was rewound to.
    pub rewound_to: SnapshotId,
    /// The snapshot to make of it; `None` if it only has to be ended.
    pub future: Option<Future>,
    /// The image that the snapshot is made of if the run is lost before it is saved.
    pub image: Option<SleepImage>,
    /// The layer on its image that it is based on.
    pub layer: Option<SavedStateId>,
    /// Its resource limits.
    pub resources: Resources,
    /// How many attempts to save it have failed.
    pub failures: u32,
}

/// The snapshot that keeps the state that a rewind abandons.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Future {
    /// Its id.
    pub snapshot: SnapshotId,
    /// How long it is kept before it is deleted automatically; `None` to keep it until it is
    /// deleted explicitly.
    pub keep: Option<Duration>,
}

/// The state that a rewind started from and returns to on failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RewindFrom {
    /// It was running.
    Running,
    /// It was suspended.
    Suspended,
}

/// A rewind whose present state is saved.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rewinding {
    /// The rewind.
    pub rewind: Rewind,
    /// The state it started from.
    pub from: RewindFrom,
}

/// The last rewind of a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rewound {
    /// The snapshot.
    pub to: SnapshotId,
    /// The first generation after the rewind.
    pub generation: u64,
}

/// A state that a rewind has abandoned, to be recorded as a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abandoned {
    /// The snapshot to record.
    pub future: Future,
    /// Its content, whose ownership passes to the snapshot.
    pub image: SleepImage,
    /// The snapshot that the sandbox was rewound to.
    pub rewound_to: SnapshotId,
}
