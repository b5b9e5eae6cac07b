//! The states of a sandbox. A state holds exactly the data that has a meaning in it.

use std::fmt;

use crate::background::{Background, BackgroundWork};
use crate::ids::{OperationId, SnapshotId};
use crate::rewind::{Held, Rewind, Rewinding};
use crate::saved::SleepImage;
use crate::time::Timestamp;

/// Why a sandbox is terminated.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// On request.
    Requested,
    /// A time limit passed.
    Timeout,
    /// A failure left no state to return to.
    Failed {
        /// The failure, in one sentence.
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

/// The program that a first run starts besides its agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FirstProgram {
    /// Nothing. The default.
    #[default]
    None,
    /// The image's program. The sandbox counts as running when the program is ready, and is
    /// terminated if it fails.
    OfImage,
}

/// The state of a sandbox. Every transitional state names its one operation and that operation's
/// deadline.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Its first run is starting.
    Pending {
        /// The operation in progress.
        operation: OperationId,
        /// When the operation is abandoned.
        deadline: Timestamp,
        /// The program to start before the sandbox counts as running.
        program: FirstProgram,
    },
    /// It is running.
    Running {
        /// When it started running in this generation.
        since: Timestamp,
        /// The image it falls back to if the run is lost.
        image: Option<SleepImage>,
        /// The operation in progress while it runs.
        background: Option<Box<Background>>,
    },
    /// It is paused while a snapshot of it is taken, and continues afterwards.
    Snapshotting {
        /// The operation in progress.
        operation: OperationId,
        /// When the operation is abandoned.
        deadline: Timestamp,
        /// The snapshot.
        snapshot: SnapshotId,
        /// When it started running.
        since: Timestamp,
        /// The image it falls back to if the run is lost.
        image: Option<SleepImage>,
    },
    /// Its memory and files are being saved; nothing has been released yet.
    Suspending {
        /// The operation in progress.
        operation: OperationId,
        /// When the operation is abandoned.
        deadline: Timestamp,
        /// When it started running.
        since: Timestamp,
        /// The image it falls back to if the run is lost.
        image: Option<SleepImage>,
        /// The rewind that follows as soon as it is saved, or that happens while its run is held.
        rewind: Option<Box<Rewind>>,
        /// The filesystem snapshot that its files become, if nothing else of it is kept.
        files: Option<SnapshotId>,
    },
    /// It is saved on disk and uses no CPU.
    Suspended {
        /// The image it wakes from.
        image: SleepImage,
        /// The operation in progress while it stays suspended.
        background: Option<Box<Background>>,
    },
    /// It is being restored from its image, or rewound to a snapshot.
    Resuming {
        /// The operation in progress.
        operation: OperationId,
        /// When the operation is abandoned.
        deadline: Timestamp,
        /// The image it wakes from; in a rewind, the image it returns to on failure.
        image: SleepImage,
        /// The rewind, if this is one.
        rewind: Option<Box<Rewinding>>,
    },
    /// Its resources are being released.
    Terminating {
        /// The operation in progress.
        operation: OperationId,
        /// When the operation is reported as late; it is never abandoned.
        deadline: Timestamp,
        /// The cause.
        cause: Cause,
        /// Whether it holds no leases of its volumes, as one that was suspended: terminating it
        /// takes none.
        unleased: bool,
    },
    /// It is terminated, which is final.
    Terminated {
        /// The cause.
        cause: Cause,
        /// When it was terminated.
        at: Timestamp,
    },
}

/// The name of a [`State`], without its data.
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
    /// Every state, in the order of the lifecycle.
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

    /// Returns the word for it in records, answers and documents.
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

    /// Returns whether the state has an operation of its own in progress.
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
    /// Returns whether the record says that a run of it is active: if that run ends now, everything
    /// since its image is lost.
    pub const fn has_run(&self) -> bool {
        match self {
            Self::Running { .. } | Self::Snapshotting { .. } | Self::Suspending { .. } => true,
            Self::Pending { .. }
            | Self::Suspended { .. }
            | Self::Resuming { .. }
            | Self::Terminating { .. }
            | Self::Terminated { .. } => false,
        }
    }

    /// Returns the name of the state.
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

    /// Returns the operation in progress, including one in the background.
    pub fn operation(&self) -> Option<&OperationId> {
        match self {
            Self::Pending { operation, .. }
            | Self::Snapshotting { operation, .. }
            | Self::Suspending { operation, .. }
            | Self::Resuming { operation, .. }
            | Self::Terminating { operation, .. } => Some(operation),
            Self::Running { background, .. } | Self::Suspended { background, .. } => {
                background.as_ref().map(|background| &background.operation)
            }
            Self::Terminated { .. } => None,
        }
    }

    /// Returns the rewind in progress.
    pub fn rewind(&self) -> Option<&Rewind> {
        match self {
            Self::Suspending { rewind, .. } => rewind.as_deref(),
            Self::Resuming { rewind, .. } => rewind.as_deref().map(|rewinding| &rewinding.rewind),
            Self::Running { background, .. } | Self::Suspended { background, .. } => match &background.as_ref()?.work {
                BackgroundWork::PrepareRewind(rewind) => Some(rewind),
                BackgroundWork::Attach { .. }
                | BackgroundWork::Egress { .. }
                | BackgroundWork::Resize { .. }
                | BackgroundWork::Snapshot(_)
                | BackgroundWork::SaveHeld(_) => None,
            },
            Self::Pending { .. } | Self::Snapshotting { .. } | Self::Terminating { .. } | Self::Terminated { .. } => {
                None
            }
        }
    }

    /// Returns the image that is kept for it.
    pub const fn image(&self) -> Option<&SleepImage> {
        match self {
            Self::Running { image, .. } | Self::Snapshotting { image, .. } | Self::Suspending { image, .. } => {
                image.as_ref()
            }
            Self::Suspended { image, .. } | Self::Resuming { image, .. } => Some(image),
            Self::Pending { .. } | Self::Terminating { .. } | Self::Terminated { .. } => None,
        }
    }

    /// Returns the background operation in progress.
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

    /// Returns the paused run that a rewind has left and that is being saved.
    pub fn held(&self) -> Option<&Held> {
        match self.background().map(|background| &background.work) {
            Some(BackgroundWork::SaveHeld(held)) => Some(held),
            Some(
                BackgroundWork::Attach { .. }
                | BackgroundWork::Egress { .. }
                | BackgroundWork::Resize { .. }
                | BackgroundWork::PrepareRewind(_)
                | BackgroundWork::Snapshot(_),
            )
            | None => None,
        }
    }

    /// Returns the same state with this background operation; a state that cannot have one is
    /// unchanged.
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
