//! What taking a sandbox back to a snapshot needs to know while it is done, and what is remembered of it afterwards.
//!
//! ```text
//! suspended ──────────────────────────────► resuming (rewind) ─► running, in the past
//! running ─► suspending (rewind) ─ saved ─►        │
//!                                                  └─ failed ─► resuming or suspended, in the present
//! ```
//!
//! The present is an image on record before anything of it is given up; only a guest that answers from the past makes it
//! the abandoned future.

use std::time::Duration;

use crate::ids::{CaptureId, SnapshotId};
use crate::sandbox::SleepImage;
use crate::spec::Resources;

/// Taking a sandbox back to a snapshot, in place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rewind {
    /// The snapshot.
    pub to: SnapshotId,
    /// A copy of a memory snapshot's content, made for this sandbox: the image it has once it is back there. None for a
    /// filesystem snapshot, with which it boots.
    pub target: Option<SleepImage>,
    /// The layer on its image on which it stands from then on.
    pub layer: Option<CaptureId>,
    /// What whoever starts from the snapshot is limited to.
    pub resources: Resources,
    /// What becomes of the present; none for an end without a trace.
    pub future: Option<Future>,
}

/// The snapshot that is to hold what a rewind abandons.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Future {
    /// Its id.
    pub snapshot: SnapshotId,
    /// After which time it goes by itself; none for when somebody deletes it.
    pub keep: Option<Duration>,
}

/// Where a rewind came from, which is where it leads back to when it fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RewindFrom {
    /// It ran.
    Running,
    /// It was suspended.
    Suspended,
}

/// A rewind of which the present is saved.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rewinding {
    /// The rewind.
    pub rewind: Rewind,
    /// Where it came from.
    pub from: RewindFrom,
}

/// Where a sandbox was last taken back to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rewound {
    /// The snapshot.
    pub to: SnapshotId,
    /// The generation that began there.
    pub generation: u64,
}

/// What a rewind has abandoned, and is to be a snapshot from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abandoned {
    /// The snapshot.
    pub future: Future,
    /// Its content, which changes its owner with this.
    pub image: SleepImage,
    /// What the sandbox was taken back to instead.
    pub for_the_sake_of: SnapshotId,
}
