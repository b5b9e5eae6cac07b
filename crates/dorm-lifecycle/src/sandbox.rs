//! A sandbox and its states. A state holds exactly the data that has a meaning in it.

use std::fmt;

use crate::background::{Background, BackgroundWork};
use crate::ids::{HoldId, OperationId, ProjectId, RunId, SandboxId, SavedStateId, SnapshotId};
use crate::reach::{SuspendFailures, Unreachable};
use crate::rewind::{Rewind, Rewinding, Rewound};
use crate::spec::{OnTimeout, SandboxSpec};
use crate::time::Timestamp;
use crate::volume::Attachment;

/// The origin of a sandbox's first run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// Its image, with a cold boot.
    Image,
    /// A filesystem snapshot, with a cold boot: the spec names the layer.
    Filesystem {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The sandbox that the snapshot was taken of.
        source: SandboxId,
    },
    /// A memory snapshot, whose saved state is `saved_state`.
    Snapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Its saved state on disk.
        saved_state: SavedStateId,
        /// The sandbox that the snapshot was taken of.
        source: SandboxId,
    },
}

impl Origin {
    /// Returns the snapshot that the sandbox comes from.
    pub const fn snapshot(&self) -> Option<&SnapshotId> {
        match self {
            Self::Image => None,
            Self::Filesystem { snapshot, .. } | Self::Snapshot { snapshot, .. } => Some(snapshot),
        }
    }

    /// Returns the sandbox that the snapshot was taken of.
    pub const fn source(&self) -> Option<&SandboxId> {
        match self {
            Self::Image => None,
            Self::Filesystem { source, .. } | Self::Snapshot { source, .. } => Some(source),
        }
    }
}

/// The content of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SnapshotKind {
    /// Files: a sandbox that starts from it boots. The default.
    #[default]
    Filesystem,
    /// Files, memory and processes: a sandbox that starts from it continues where the snapshot was
    /// taken.
    Memory,
}

impl SnapshotKind {
    /// Returns the word for it in records, answers and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Memory => "memory",
        }
    }
}

/// The private saved state that a suspended sandbox wakes from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SleepImage {
    /// Its saved state on disk.
    pub saved_state: SavedStateId,
    /// The generation that was saved; 0 if it belonged to another sandbox, to whose snapshot this
    /// one was rewound.
    pub generation: u64,
    /// When the guest was paused for it.
    pub taken: Timestamp,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The part of its earlier state with which the present run of a sandbox started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Restored {
    /// Nothing: it booted from its image.
    Nothing,
    /// The files of a filesystem snapshot, from which it booted.
    Filesystem,
    /// Memory, processes and files.
    Memory {
        /// The generation of this sandbox that they come from; `None` if they came from a snapshot.
        generation: Option<u64>,
    },
}

/// A request that a sandbox stays awake for some time. It postpones every deadline except that of
/// `max_run`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    /// Its id.
    pub id: HoldId,
    /// The reason, in the words of its holder.
    pub reason: String,
    /// When it expires.
    pub until: Timestamp,
}

/// The limit that sets a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeadlineKind {
    /// [`crate::Timeouts::total`]
    Total,
    /// [`crate::Timeouts::idle`]
    Idle,
    /// [`crate::Timeouts::max_run`]
    MaxRun,
}

impl DeadlineKind {
    /// Returns the word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Total => "timeout",
            Self::Idle => "idle_timeout",
            Self::MaxRun => "max_run",
        }
    }
}

/// The deadline of a running sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// The time.
    pub at: Timestamp,
    /// The limit that sets it.
    pub kind: DeadlineKind,
    /// The hold that postponed it to this time.
    pub held: Option<HoldId>,
}

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
        /// The rewind that follows as soon as it is saved.
        rewind: Option<Box<Rewind>>,
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
                BackgroundWork::Attach { .. } | BackgroundWork::Snapshot(_) => None,
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
}

/// Everything that the lifecycle knows about one sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// The project it belongs to.
    pub project: ProjectId,
    /// Its requested properties.
    pub spec: SandboxSpec,
    /// The origin of its first run.
    pub origin: Origin,
    /// When its record was created.
    pub created: Timestamp,
    /// The generation: 1 for the first run, plus 1 for every resume.
    pub generation: u64,
    /// The generation in which the engine's present run started: a thawed run keeps its number.
    pub run: u64,
    /// When it was last used.
    pub last_active: Timestamp,
    /// When its time limits were last set: `total` counts from then.
    pub timeouts_set: Timestamp,
    /// The holds on it.
    pub holds: Vec<Hold>,
    /// The part of its earlier state with which its present or last run started.
    pub restored: Restored,
    /// The snapshot it was last rewound to; `None` if it never was.
    pub rewound: Option<Rewound>,
    /// Images older than the one its state names, newest first: the remaining ones to fall back to.
    pub older: Vec<SleepImage>,
    /// Set if its present run does not answer.
    pub unreachable: Option<Unreachable>,
    /// The failed suspends of its present run since the last suspend that was requested explicitly.
    pub suspend_failures: Option<SuspendFailures>,
    /// Its state.
    pub state: State,
}

impl Sandbox {
    /// Returns the engine's name for its present or last run.
    pub fn run_id(&self) -> RunId {
        RunId { sandbox: self.id.clone(), generation: self.run }
    }

    /// Returns every image it keeps: the one to wake from first, and the target of a rewind last.
    pub fn images(&self) -> impl Iterator<Item = &SleepImage> {
        let target = self.state.rewind().and_then(|rewind| rewind.target.as_ref());
        self.state.image().into_iter().chain(&self.older).chain(target)
    }

    /// Returns the saved states of [`Sandbox::images`].
    pub fn saved_states(&self) -> impl Iterator<Item = &SavedStateId> {
        self.images().map(|image| &image.saved_state)
    }

    /// Returns the snapshot that its present state derives from: the one it was last rewound to, or
    /// else the one it started from.
    pub fn parent(&self) -> Option<&SnapshotId> {
        match (&self.rewound, &self.origin) {
            (Some(rewound), _) => Some(&rewound.to),
            (None, origin) => origin.snapshot(),
        }
    }

    /// Returns the layers it is based on, now and after a rewind in progress.
    pub fn layers(&self) -> impl Iterator<Item = &SavedStateId> {
        let then = self.state.rewind().and_then(|rewind| rewind.layer.as_ref());
        self.spec.layer.iter().chain(then)
    }

    /// Returns the most memory that it may use now or after a rewind in progress, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let then = self.state.rewind().map_or(0, |rewind| rewind.resources.memory_bytes);
        self.spec.resources.memory_bytes.max(then)
    }

    /// Returns its attachments, including those that a background operation is adding.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        let own = &self.spec.attachments;
        let wanted = match self.state.background().map(|background| &background.work) {
            Some(BackgroundWork::Attach { after }) => after.as_slice(),
            Some(BackgroundWork::PrepareRewind(_) | BackgroundWork::Snapshot(_)) | None => &[],
        };
        own.iter().chain(wanted.iter().filter(|one| !own.contains(one)))
    }

    /// Returns when its deadline passes; only a running sandbox has one.
    pub fn expires(&self) -> Option<Timestamp> {
        self.deadline().map(|deadline| deadline.at)
    }

    /// Returns its deadline and the limit that sets it. A deadline does not interrupt an operation.
    pub fn deadline(&self) -> Option<Deadline> {
        let State::Running { since, background: None, .. } = &self.state else { return None };
        let limits = &self.spec.timeouts;
        let total = limits.total.map(|limit| (since.max(&self.timeouts_set).after(limit), DeadlineKind::Total));
        let idle = limits.idle.map(|limit| (since.max(&self.last_active).after(limit), DeadlineKind::Idle));
        let earlier = |a: Option<(Timestamp, DeadlineKind)>, b: Option<(Timestamp, DeadlineKind)>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
            (a, b) => a.or(b),
        };
        let movable = earlier(total, idle).map(|(at, kind)| {
            let last = self.holds.iter().max_by_key(|hold| hold.until).filter(|hold| hold.until > at);
            Deadline { at: last.map_or(at, |hold| hold.until), kind, held: last.map(|hold| hold.id.clone()) }
        });
        let fixed = limits.max_run.map(|limit| since.after(limit));
        let mut deadline = match (movable, fixed) {
            (Some(movable), Some(fixed)) if movable.at <= fixed => movable,
            (_, Some(at)) => Deadline { at, kind: DeadlineKind::MaxRun, held: None },
            (movable, None) => movable?,
        };
        // A failed suspend is retried later.
        if let (OnTimeout::Suspend, Some(failed)) = (self.spec.on_timeout, &self.suspend_failures) {
            deadline.at = deadline.at.max(failed.next);
        }
        Some(deadline)
    }

    /// Returns the same sandbox with every timestamp replaced.
    pub fn with_moments(&self, replaced: impl Fn(Timestamp) -> Timestamp) -> Self {
        let mut next = self.clone();
        let replace = |moment: &mut Timestamp| *moment = replaced(*moment);
        for moment in [&mut next.created, &mut next.last_active, &mut next.timeouts_set] {
            replace(moment);
        }
        next.holds.iter_mut().for_each(|hold| replace(&mut hold.until));
        next.older.iter_mut().for_each(|image| replace(&mut image.taken));
        next.unreachable.iter_mut().for_each(|silent| replace(&mut silent.since));
        if let Some(failed) = &mut next.suspend_failures {
            replace(&mut failed.since);
            replace(&mut failed.next);
        }
        match &mut next.state {
            State::Running { since, image, background } => {
                replace(since);
                image.iter_mut().for_each(|image| replace(&mut image.taken));
                background.iter_mut().for_each(|background| replace(&mut background.deadline));
            }
            State::Snapshotting { since, deadline, image, .. } | State::Suspending { since, deadline, image, .. } => {
                replace(since);
                replace(deadline);
                image.iter_mut().for_each(|image| replace(&mut image.taken));
            }
            State::Suspended { image, background } => {
                replace(&mut image.taken);
                background.iter_mut().for_each(|background| replace(&mut background.deadline));
            }
            State::Resuming { deadline, image, .. } => {
                replace(deadline);
                replace(&mut image.taken);
            }
            State::Pending { deadline, .. } | State::Terminating { deadline, .. } => replace(deadline),
            State::Terminated { at, .. } => replace(at),
        }
        next
    }
}
