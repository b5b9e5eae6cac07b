//! A sandbox and the states it can be in. A state holds exactly what has a meaning in it.

use std::fmt;

use crate::background::{Background, BackgroundWork};
use crate::ids::{CaptureId, HoldId, OperationId, ProjectId, RunId, SandboxId, SnapshotId};
use crate::reach::{SuspendFailures, Unreachable};
use crate::rewind::{Rewind, Rewinding, Rewound};
use crate::spec::{OnTimeout, SandboxSpec};
use crate::time::Timestamp;
use crate::volume::Attachment;

/// What a sandbox's first run starts from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// Its image, cold.
    Image,
    /// A filesystem snapshot, cold: the layer is the spec's.
    Filesystem {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The sandbox it was taken of.
        source: SandboxId,
    },
    /// A memory snapshot, whose content is in `capture`.
    Snapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Its content on disk.
        capture: CaptureId,
        /// The sandbox it was taken of.
        source: SandboxId,
    },
}

impl Origin {
    /// The snapshot it comes from.
    pub const fn snapshot(&self) -> Option<&SnapshotId> {
        match self {
            Self::Image => None,
            Self::Filesystem { snapshot, .. } | Self::Snapshot { snapshot, .. } => Some(snapshot),
        }
    }

    /// The sandbox of which that was taken.
    pub const fn source(&self) -> Option<&SandboxId> {
        match self {
            Self::Image => None,
            Self::Filesystem { source, .. } | Self::Snapshot { source, .. } => Some(source),
        }
    }
}

/// What a snapshot holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SnapshotKind {
    /// Files: what starts from it boots. The default.
    #[default]
    Filesystem,
    /// Files, memory and processes: what starts from it goes on.
    Memory,
}

impl SnapshotKind {
    /// Its word in records, answers and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Memory => "memory",
        }
    }
}

/// The private saved state a suspended sandbox wakes up from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SleepImage {
    /// Its files on disk.
    pub capture: CaptureId,
    /// The generation that was saved; 0 when it was that of another sandbox, to whose snapshot this one was taken back.
    pub generation: u64,
    /// When the guest stood still for it.
    pub taken: Timestamp,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What the present run of a sandbox began with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Restored {
    /// Nothing: it booted from its root image.
    Nothing,
    /// Files of a filesystem snapshot: it booted with them.
    Filesystem,
    /// Memory, processes and files.
    Memory {
        /// Those of this generation of its own; none when they came from a snapshot.
        generation: Option<u64>,
    },
}

/// Somebody's wish that a sandbox stays awake for a while. Deadlines wait for it, but for that of the longest run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    /// Its id.
    pub id: HoldId,
    /// Why, in its holder's words.
    pub reason: String,
    /// When it ends by itself.
    pub until: Timestamp,
}

/// Which limit sets a deadline.
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
    /// Its word in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Total => "timeout",
            Self::Idle => "idle_timeout",
            Self::MaxRun => "max_run",
        }
    }
}

/// When the time of a running sandbox is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// When.
    pub at: Timestamp,
    /// By which limit.
    pub kind: DeadlineKind,
    /// The hold that has moved it there.
    pub held: Option<HoldId>,
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

/// What a first run starts beside its agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FirstProgram {
    /// Nothing. The default.
    #[default]
    None,
    /// What its image is made to run. The sandbox runs as soon as that can be used, and is over when that fails.
    OfImage,
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
        /// What is started in it before it counts as running.
        program: FirstProgram,
    },
    /// It runs.
    Running {
        /// Since when, in this generation.
        since: Timestamp,
        /// The image it falls back to when the run is lost.
        image: Option<SleepImage>,
        /// The operation at work while it runs.
        background: Option<Box<Background>>,
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
        /// Where it is taken back to as soon as it is saved.
        rewind: Option<Box<Rewind>>,
    },
    /// It is saved on disk and uses no CPU.
    Suspended {
        /// What it wakes up from.
        image: SleepImage,
        /// The operation at work while it stays suspended.
        background: Option<Box<Background>>,
    },
    /// It is being brought back from its image, or taken back to a snapshot.
    Resuming {
        /// The operation at work.
        operation: OperationId,
        /// When that operation is given up.
        deadline: Timestamp,
        /// What it wakes up from; where it is taken back, what it returns to when that fails.
        image: SleepImage,
        /// Where it is taken back to.
        rewind: Option<Box<Rewinding>>,
    },
    /// What it holds is being given back.
    Terminating {
        /// The operation at work.
        operation: OperationId,
        /// When that operation is reported as late; it is never given up.
        deadline: Timestamp,
        /// Why.
        cause: Cause,
        /// Whether it has no leases of its volumes, as one that was suspended: it takes none to end.
        unleased: bool,
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
    /// Whether a run of it is on record as going on: one that ends now loses what it did since its image.
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

    /// The operation at work in it, be it in the background.
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

    /// The rewind that is going on in it.
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

    /// The image that is kept for it.
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
    /// When its time limits were last set: the total one counts from then.
    pub timeouts_set: Timestamp,
    /// Who wants it to stay awake.
    pub holds: Vec<Hold>,
    /// What its present or last run began with.
    pub restored: Restored,
    /// Where it was last taken back to; none if it never was.
    pub rewound: Option<Rewound>,
    /// Images before the one its state names, the newest first: what is left to fall back to.
    pub older: Vec<SleepImage>,
    /// Whether its present run answers; none where it does, or was not asked.
    pub unreachable: Option<Unreachable>,
    /// The suspends of its present run that failed, since the last that anybody asked for.
    pub suspend_failures: Option<SuspendFailures>,
    /// Where it is in its life.
    pub state: State,
}

impl Sandbox {
    /// The engine's name for its present or last run.
    pub fn run_id(&self) -> RunId {
        RunId { sandbox: self.id.clone(), generation: self.run }
    }

    /// Every image it keeps, the one to wake up from first, and last the one that it is being taken back to.
    pub fn images(&self) -> impl Iterator<Item = &SleepImage> {
        let target = self.state.rewind().and_then(|rewind| rewind.target.as_ref());
        self.state.image().into_iter().chain(&self.older).chain(target)
    }

    /// Their captures.
    pub fn captures(&self) -> impl Iterator<Item = &CaptureId> {
        self.images().map(|image| &image.capture)
    }

    /// The snapshot that its present comes from: the one it was taken back to, else the one it began from.
    pub fn parent(&self) -> Option<&SnapshotId> {
        match (&self.rewound, &self.origin) {
            (Some(rewound), _) => Some(&rewound.to),
            (None, origin) => origin.snapshot(),
        }
    }

    /// The layers on which it stands, now and as soon as a rewind is through.
    pub fn layers(&self) -> impl Iterator<Item = &CaptureId> {
        let then = self.state.rewind().and_then(|rewind| rewind.layer.as_ref());
        self.spec.layer.iter().chain(then)
    }

    /// The most memory it may use now or as soon as a rewind is through, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let then = self.state.rewind().map_or(0, |rewind| rewind.resources.memory_bytes);
        self.spec.resources.memory_bytes.max(then)
    }

    /// What it has attached, and what a background operation is attaching.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        let own = &self.spec.attachments;
        let wanted = match self.state.background().map(|background| &background.work) {
            Some(BackgroundWork::Attach { after }) => after.as_slice(),
            Some(BackgroundWork::PrepareRewind(_) | BackgroundWork::Snapshot(_)) | None => &[],
        };
        own.iter().chain(wanted.iter().filter(|one| !own.contains(one)))
    }

    /// When its time is over: only a running sandbox has such a moment.
    pub fn expires(&self) -> Option<Timestamp> {
        self.deadline().map(|deadline| deadline.at)
    }

    /// When its time is over, and why then. Nothing ends it in the middle of an operation.
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
        // A suspend that has failed is tried again later.
        if let (OnTimeout::Suspend, Some(failed)) = (self.spec.on_timeout, &self.suspend_failures) {
            deadline.at = deadline.at.max(failed.next);
        }
        Some(deadline)
    }

    /// The same sandbox with every moment replaced that is told of it or limits it.
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
