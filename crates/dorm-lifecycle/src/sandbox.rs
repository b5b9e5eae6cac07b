//! A sandbox: everything that is known about it, and what follows from that.

use std::time::Duration;

use crate::background::BackgroundWork;
use crate::caller::Caller;
use crate::checkpoints::Taken;
use crate::ids::{HoldId, ProjectId, RunId, SandboxId, SavedStateId, SnapshotId};
use crate::pool::PoolMember;
use crate::reach::{SuspendFailures, Unreachable};
use crate::resources::Resources;
use crate::rewind::Rewound;
use crate::saved::{Keep, SleepImage};
use crate::spec::{SandboxSpec, Timeouts};
use crate::state::State;
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

/// The part of its earlier state with which the present run of a sandbox started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Restored {
    /// Nothing: it booted from its image.
    Nothing,
    /// The files of a filesystem snapshot, from which it booted.
    Filesystem,
    /// Its own files, as of the suspend of this generation, from which it booted.
    Files {
        /// The generation.
        generation: u64,
    },
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
    /// The generation: 1 for the first run, plus 1 for every resume and rewind.
    pub generation: u64,
    /// The generation in which the engine's present run started: a thawed run keeps its number.
    pub run: u64,
    /// When it was last used.
    pub last_active: Timestamp,
    /// When its time limits were last set: `total` counts from then.
    pub timeouts_set: Timestamp,
    /// When its present or last run began or continued; `None` before the first.
    pub started: Option<Timestamp>,
    /// Whether a call has woken it for its present run, so that `after_wake` is its limit.
    pub woken: bool,
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
    /// The pool it was made for; `None` for a sandbox that a caller created.
    pub pool: Option<PoolMember>,
    /// Who asked for it; `None` for one that no request asked for, and if that is not known.
    pub created_by: Option<Caller>,
    /// Its state.
    pub state: State,
}

impl Sandbox {
    /// Returns a sandbox in its first generation, which comes from its image and has not been used
    /// since it was created.
    pub fn new(id: SandboxId, project: ProjectId, spec: SandboxSpec, created: Timestamp, state: State) -> Self {
        Self {
            id,
            project,
            spec,
            origin: Origin::Image,
            created,
            generation: 1,
            run: 1,
            last_active: created,
            timeouts_set: created,
            started: None,
            woken: false,
            holds: Vec::new(),
            restored: Restored::Nothing,
            rewound: None,
            older: Vec::new(),
            unreachable: None,
            suspend_failures: None,
            pool: None,
            created_by: None,
            state,
        }
    }

    /// Returns whether it is being woken for the first time, by its claim from a pool: nothing of
    /// its claimer is in it. Its first run had generation 1, and each wake has one of its own.
    pub fn is_being_claimed(&self) -> bool {
        let is_first_wake = self.generation == 2 && matches!(self.state, State::Resuming { rewind: None, .. });
        is_first_wake && self.pool.as_ref().is_some_and(|member| member.is_claimed)
    }

    /// Returns the engine's name for its present or last run.
    pub fn run_id(&self) -> RunId {
        RunId { sandbox: self.id.clone(), generation: self.run }
    }

    /// Returns every image that belongs to it: the one to wake from first, and the target of a
    /// rewind last. One of files only is among its [`Sandbox::layers`] instead.
    pub fn images(&self) -> impl Iterator<Item = &SleepImage> {
        let target = self.state.rewind().and_then(|rewind| rewind.target.as_ref());
        let all = self.state.image().into_iter().chain(&self.older).chain(target);
        all.filter(|image| image.keeps() == Keep::Memory)
    }

    /// Returns the saved states of [`Sandbox::images`], and the one that a rewind has left and that
    /// is needed until its newer state is saved.
    pub fn saved_states(&self) -> impl Iterator<Item = &SavedStateId> {
        let left = self.state.held().and_then(|held| held.image.as_ref());
        self.images().chain(left).map(|image| &image.saved_state)
    }

    /// Returns the engine's name for the paused run that a rewind has left and that is being saved.
    pub fn held_run(&self) -> Option<RunId> {
        self.state.held().map(|held| RunId { sandbox: self.id.clone(), generation: held.run })
    }

    /// Returns the snapshot that its present state derives from: the one it was last rewound to, or
    /// else the one it started from.
    pub fn parent(&self) -> Option<&SnapshotId> {
        match (&self.rewound, &self.origin) {
            (Some(rewound), _) => Some(&rewound.to),
            (None, origin) => origin.snapshot(),
        }
    }

    /// Returns the layers it is based on, now, after a rewind in progress, and before one whose
    /// previous state is being saved.
    pub fn layers(&self) -> impl Iterator<Item = &SavedStateId> {
        let then = self.state.rewind().and_then(|rewind| rewind.layer.as_ref());
        let before = self.state.held().and_then(|held| held.layer.as_ref());
        self.spec.layer.iter().chain(then).chain(before)
    }

    /// Returns the resource limits of the paused run that it has, or may have, besides its own
    /// because of a rewind.
    pub fn held_resources(&self) -> Option<Resources> {
        let before = self.state.rewind().filter(|rewind| rewind.may_hold).map(|_| self.spec.resources);
        self.state.held().map(|held| held.resources).or(before)
    }

    /// Returns the resource limits that a rewind or a resize in progress leads to.
    pub fn next_resources(&self) -> Option<Resources> {
        let resized = match self.state.background().map(|background| &background.work) {
            Some(BackgroundWork::Resize { after }) => Some(*after),
            _ => None,
        };
        self.state.rewind().map(|rewind| rewind.resources).or(resized)
    }

    /// Returns the most memory that it may use now or after an operation in progress, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let then = self.next_resources().map_or(0, |resources| resources.memory_bytes);
        self.spec.resources.memory_bytes.max(then)
    }

    /// Returns its attachments, including those that a background operation is adding.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        let own = &self.spec.attachments;
        let wanted = match self.state.background().map(|background| &background.work) {
            Some(BackgroundWork::Attach { after }) => after.as_slice(),
            Some(
                BackgroundWork::Egress { .. }
                | BackgroundWork::PrepareRewind(_)
                | BackgroundWork::Resize { .. }
                | BackgroundWork::Snapshot(_)
                | BackgroundWork::SaveHeld(_),
            )
            | None => &[],
        };
        own.iter().chain(wanted.iter().filter(|one| !own.contains(one)))
    }

    /// Returns the `total` limit of its present run.
    pub fn total(&self) -> Option<Duration> {
        let Timeouts { total, after_wake, .. } = self.spec.timeouts;
        if self.woken { after_wake.or(total) } else { total }
    }

    /// Returns when its deadline passes; only a running sandbox has one.
    pub fn expires(&self) -> Option<Timestamp> {
        self.deadline().map(|deadline| deadline.at)
    }

    /// Returns its deadline and the limit that sets it. A deadline does not interrupt an operation.
    pub fn deadline(&self) -> Option<Deadline> {
        let State::Running { since, background: None, .. } = &self.state else { return None };
        let limits = &self.spec.timeouts;
        let total = self.total().map(|limit| (since.max(&self.timeouts_set).after(limit), DeadlineKind::Total));
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
        if let (Some(_), Some(failed)) = (self.spec.on_timeout.keeps(), &self.suspend_failures) {
            deadline.at = deadline.at.max(failed.next);
        }
        Some(deadline)
    }

    /// Returns when the policy takes the next snapshot: one interval after the last attempt, or
    /// else after the run started. `None` if the sandbox is not running or has no policy.
    pub fn checkpoint_due(&self, taken: Taken, now: Timestamp) -> Option<Timestamp> {
        let State::Running { since, .. } = &self.state else { return None };
        // An attempt in the future was made before the clock was set back.
        let tried = taken.tried.filter(|tried| *tried <= now);
        Some(tried.unwrap_or(*since).after(self.spec.checkpoints.as_ref()?.every))
    }

    /// Returns the same sandbox with every timestamp replaced.
    pub fn with_moments(&self, replaced: impl Fn(Timestamp) -> Timestamp) -> Self {
        let mut next = self.clone();
        let replace = |moment: &mut Timestamp| *moment = replaced(*moment);
        for moment in [&mut next.created, &mut next.last_active, &mut next.timeouts_set] {
            replace(moment);
        }
        next.started.iter_mut().for_each(replace);
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
                if let Some(background) = background {
                    replace(&mut background.deadline);
                    if let BackgroundWork::SaveHeld(held) = &mut background.work {
                        replace(&mut held.since);
                        held.image.iter_mut().for_each(|image| replace(&mut image.taken));
                    }
                }
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
