//! A sandbox and the states it can be in. A state holds exactly what has a meaning in it.

use std::fmt;

use crate::ids::{CaptureId, OperationId, ProjectId, RunId, SandboxId, SnapshotId};
use crate::spec::SandboxSpec;
use crate::time::Timestamp;

/// What a sandbox's first run starts from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// Its image, cold.
    Image,
    /// A memory snapshot, whose content is in `capture`.
    Snapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Its content on disk.
        capture: CaptureId,
    },
}

/// The private saved state a suspended sandbox wakes up from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SleepImage {
    /// Its files on disk.
    pub capture: CaptureId,
    /// The generation that was saved.
    pub generation: u64,
    /// When the guest stood still for it.
    pub taken: Timestamp,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why a sandbox is over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// Somebody asked for it.
    Requested,
    /// Its time was over.
    Timeout,
    /// There was nothing left to return to.
    Failed {
        /// What happened, in one sentence.
        reason: String,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("requested"),
            Self::Timeout => f.write_str("timeout"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
        }
    }
}

/// Where a sandbox is in its life. Every transitional state names its one operation and that operation's deadline.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Its first run is being started.
    Pending {
        /// The operation at work.
        operation: OperationId,
        /// When that operation is given up.
        deadline: Timestamp,
    },
    /// It runs.
    Running {
        /// Since when, in this generation.
        since: Timestamp,
        /// The image it falls back to when the run is lost.
        image: Option<SleepImage>,
    },
    /// It is held still while a snapshot of it is taken, and goes on afterwards.
    Snapshotting {
        /// The operation at work.
        operation: OperationId,
        /// When that operation is given up.
        deadline: Timestamp,
        /// The snapshot.
        snapshot: SnapshotId,
        /// Since when it has been running.
        since: Timestamp,
        /// The image it falls back to when the run is lost.
        image: Option<SleepImage>,
    },
    /// Its memory and files are being saved; nothing has been given up yet.
    Suspending {
        /// The operation at work.
        operation: OperationId,
        /// When that operation is given up.
        deadline: Timestamp,
        /// Since when it has been running.
        since: Timestamp,
        /// The image it falls back to when the run is lost.
        image: Option<SleepImage>,
    },
    /// It is saved on disk and uses no CPU.
    Suspended {
        /// What it wakes up from.
        image: SleepImage,
    },
    /// It is being brought back from its image.
    Resuming {
        /// The operation at work.
        operation: OperationId,
        /// When that operation is given up.
        deadline: Timestamp,
        /// What it wakes up from.
        image: SleepImage,
    },
    /// What it holds is being given back.
    Terminating {
        /// The operation at work.
        operation: OperationId,
        /// When that operation is reported as late; it is never given up.
        deadline: Timestamp,
        /// Why.
        cause: Cause,
    },
    /// It is over.
    Terminated {
        /// Why.
        cause: Cause,
        /// Since when.
        at: Timestamp,
    },
}

/// The name of a [`State`], without what it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StateName {
    /// [`State::Pending`]
    Pending,
    /// [`State::Running`]
    Running,
    /// [`State::Snapshotting`]
    Snapshotting,
    /// [`State::Suspending`]
    Suspending,
    /// [`State::Suspended`]
    Suspended,
    /// [`State::Resuming`]
    Resuming,
    /// [`State::Terminating`]
    Terminating,
    /// [`State::Terminated`]
    Terminated,
}

impl StateName {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Snapshotting,
        Self::Suspending,
        Self::Suspended,
        Self::Resuming,
        Self::Terminating,
        Self::Terminated,
    ];

    /// Its word in records, answers and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Snapshotting => "snapshotting",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Terminating => "terminating",
            Self::Terminated => "terminated",
        }
    }

    /// Whether an operation is at work in it.
    pub const fn is_transitional(self) -> bool {
        match self {
            Self::Pending | Self::Snapshotting | Self::Suspending | Self::Resuming | Self::Terminating => true,
            Self::Running | Self::Suspended | Self::Terminated => false,
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl State {
    /// Its name.
    pub const fn name(&self) -> StateName {
        match self {
            Self::Pending { .. } => StateName::Pending,
            Self::Running { .. } => StateName::Running,
            Self::Snapshotting { .. } => StateName::Snapshotting,
            Self::Suspending { .. } => StateName::Suspending,
            Self::Suspended { .. } => StateName::Suspended,
            Self::Resuming { .. } => StateName::Resuming,
            Self::Terminating { .. } => StateName::Terminating,
            Self::Terminated { .. } => StateName::Terminated,
        }
    }

    /// The operation at work in it.
    pub const fn operation(&self) -> Option<&OperationId> {
        match self {
            Self::Pending { operation, .. }
            | Self::Snapshotting { operation, .. }
            | Self::Suspending { operation, .. }
            | Self::Resuming { operation, .. }
            | Self::Terminating { operation, .. } => Some(operation),
            Self::Running { .. } | Self::Suspended { .. } | Self::Terminated { .. } => None,
        }
    }

    /// The image that is kept for it.
    pub const fn image(&self) -> Option<&SleepImage> {
        match self {
            Self::Running { image, .. } | Self::Snapshotting { image, .. } | Self::Suspending { image, .. } => {
                image.as_ref()
            }
            Self::Suspended { image } | Self::Resuming { image, .. } => Some(image),
            Self::Pending { .. } | Self::Terminating { .. } | Self::Terminated { .. } => None,
        }
    }
}

/// Everything the lifecycle knows of one sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is.
    pub project: ProjectId,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// What its first run started from.
    pub origin: Origin,
    /// When its record was made.
    pub created: Timestamp,
    /// Counts its runs: 1 for the first, one more with every resume.
    pub generation: u64,
    /// The generation in which the engine's present run began: a run that is thawed goes on under its own number.
    pub run: u64,
    /// When something last used it.
    pub last_active: Timestamp,
    /// Where it is in its life.
    pub state: State,
}

impl Sandbox {
    /// The engine's name for its present or last run.
    pub fn run_id(&self) -> RunId {
        RunId { sandbox: self.id.clone(), generation: self.run }
    }

    /// When its time is over: only a running sandbox has such a moment.
    pub fn expires(&self) -> Option<Timestamp> {
        match &self.state {
            State::Running { since, .. } => {
                let total = self.spec.timeouts.total.map(|limit| since.after(limit));
                let idle = self.spec.timeouts.idle.map(|limit| self.last_active.max(*since).after(limit));
                match (total, idle) {
                    (Some(total), Some(idle)) => Some(total.min(idle)),
                    (total, idle) => total.or(idle),
                }
            }
            State::Pending { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Suspended { .. }
            | State::Resuming { .. }
            | State::Terminating { .. }
            | State::Terminated { .. } => None,
        }
    }
}
