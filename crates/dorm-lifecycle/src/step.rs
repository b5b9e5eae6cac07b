//! The one function that changes a sandbox: [`step`].
//!
//! Commands come from callers and timers, observations from whoever carried out an effect. A command that meets an
//! operation in progress waits for it and is asked again; nothing is refused merely because it came early.

mod background;
mod commands;
mod limits;
mod observations;
mod rewind;

pub use limits::Limits;
pub(crate) use rewind::effect as rewind_effect;

use crate::checkpoints::Checkpoints;
use crate::denied::Denied;
use crate::event::EventKind;
use crate::ids::{CaptureId, HoldId, OperationId, ProjectId, RunId, SandboxId, SnapshotId};
use crate::rewind::{Abandoned, Rewind};
use crate::sandbox::{Cause, FirstProgram, Hold, Origin, Restored, Sandbox, SleepImage, State};
use crate::spec::{Keeping, Resources, SandboxSpec, SpecError, Timeouts};
use crate::time::Timestamp;
use crate::volume::{Attachment, has_leases};

/// What a decision depends on besides the sandbox and the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Context {
    /// The time.
    pub now: Timestamp,
    /// The id of the operation, if one begins.
    pub operation: OperationId,
    /// How long operations may take.
    pub limits: Limits,
    /// How many bytes of a memory snapshot a new sandbox starts from; 0 where it boots.
    pub bytes: u64,
}

/// What is wanted of a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Save it and let it sleep.
    Suspend,
    /// Let it run.
    Resume,
    /// Take a snapshot of it.
    Snapshot(SnapshotId),
    /// Take it back to a snapshot, in place.
    Rewind(Box<Rewind>),
    /// Change its time limits from now on.
    SetTimeouts(Timeouts),
    /// Change what is kept to bring it back, from its next suspend or resume on.
    SetKeeping(Keeping),
    /// Change which snapshots are taken of it by themselves.
    SetCheckpoints(Option<Checkpoints>),
    /// Change which volumes it has attached.
    SetAttachments(Vec<Attachment>),
    /// Keep it awake; one that is held already under this id is held as this one says.
    Hold(Hold),
    /// Take back a hold.
    Release(HoldId),
    /// It is in use.
    Touch,
    /// Its deadline is reached; does nothing when it has moved meanwhile.
    Expire,
    /// End it.
    Terminate,
}

/// What was seen of a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Observation {
    /// Its first run answers.
    Started,
    /// Its first run could not begin; nothing of it is left.
    StartFailed(String),
    /// Its image is durable and verified, and its guest stands still.
    Saved(SleepImage),
    /// Its image could not be made; its guest goes on.
    SaveFailed(String),
    /// The snapshot is durable and verified, and its guest goes on, or stays suspended.
    SnapshotTaken,
    /// The snapshot could not be taken; its guest goes on, or stays suspended.
    SnapshotFailed(String),
    /// Its run has the volumes that it was to have, and no others.
    Attached,
    /// Its volumes could not be changed; it has those it had.
    AttachFailed(String),
    /// Its own copy of what it is taken back to is durable.
    RewindPrepared,
    /// That copy could not be made; nothing of the sandbox has changed.
    RewindNotPrepared(String),
    /// It runs, in the engine's run of that number.
    Woken {
        /// The number of the engine's run: a new one if it was restored, the old one if it was thawed.
        run: u64,
        /// What it came back with. Of a generation it has no image of, the newest is meant.
        restored: Restored,
        /// Why not with its newest image, if so.
        because: Option<String>,
    },
    /// It could not be brought back; nothing of the attempt is left and its image is untouched.
    WakeFailed(String),
    /// Its run has ended by itself; nothing of it is left.
    RunLost(String),
    /// Its run lives and does not answer.
    Unreachable(String),
    /// Its run answers.
    Reachable,
    /// Everything it held has been given back.
    Stopped,
}

/// A command or an observation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// Something is wanted.
    Command(Command),
    /// Something was seen.
    Observation(Observation),
}

/// What has to be done next. It is journalled with the new state before it is begun, and can be done again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Start the run.
    Start {
        /// The run.
        run: RunId,
        /// What from.
        origin: Origin,
        /// What is started in it before it counts as running.
        program: FirstProgram,
    },
    /// Hold the guest still, save it, verify it. The image before is released only after the answer is recorded.
    Save {
        /// The run.
        run: RunId,
    },
    /// Save the guest into a snapshot and let it go on.
    Snapshot {
        /// The run.
        run: RunId,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Save the files or the memory of the sleep image into a snapshot. Nothing runs.
    SnapshotImage {
        /// The sleep image.
        image: SleepImage,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Give a run that goes on the volumes in `after` and no others; when that fails, those in `before`. What goes must
    /// not be in use.
    Attach {
        /// The run.
        run: RunId,
        /// What it has.
        before: Vec<Attachment>,
        /// What it is to have.
        after: Vec<Attachment>,
    },
    /// End a parked run, which has other volumes mounted than the sandbox is to have.
    Evict {
        /// The run, which may be gone.
        run: RunId,
    },
    /// Make the sandbox's own copy of the saved state of a memory snapshot.
    PrepareRewind {
        /// The snapshot.
        to: SnapshotId,
        /// The copy.
        target: CaptureId,
    },
    /// Bring the guest back: thaw `parked` if it is still there, else restore `image` as `fresh`; where that cannot be
    /// restored, an older image of the sandbox, and where none can, what its spec allows.
    Wake {
        /// The run that may still be parked.
        parked: RunId,
        /// The run to make where it is not.
        fresh: RunId,
        /// What to restore.
        image: SleepImage,
    },
    /// End `parked` and all that is left of runs before it, then restore `target` as `fresh`, or boot it where there is none.
    Rewind {
        /// The run of the present, which stands still or is gone.
        parked: RunId,
        /// The run to make.
        fresh: RunId,
        /// What to restore.
        target: Option<CaptureId>,
        /// The layer on its image on which it stands then.
        layer: Option<CaptureId>,
        /// What that run is limited to.
        resources: Resources,
    },
    /// Give back everything: the run, then the images.
    Stop {
        /// The run.
        run: RunId,
    },
}

/// Whether a command changed anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It did: record the change, then carry out the effect.
    Changed,
    /// What was wanted holds already.
    Already,
    /// An operation is in progress: ask again when it is over.
    Wait,
}

/// What an input leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The sandbox afterwards.
    pub next: Sandbox,
    /// What to do then.
    pub effect: Option<Effect>,
    /// What to record, each with a sentence of detail or none.
    pub events: Vec<(EventKind, Option<String>)>,
    /// Whether anything changed.
    pub outcome: Outcome,
    /// What is to be recorded as a snapshot with it: an image that the sandbox gives away.
    pub abandoned: Option<Abandoned>,
}

impl Step {
    /// A change without an effect that nobody need be told of.
    pub fn silent(next: Sandbox) -> Self {
        Self { next, effect: None, events: Vec::new(), outcome: Outcome::Changed, abandoned: None }
    }

    fn stays(sandbox: &Sandbox, outcome: Outcome) -> Self {
        Self { outcome, ..Self::silent(sandbox.clone()) }
    }

    fn to(sandbox: &Sandbox, state: State) -> Self {
        Self::silent(Sandbox { state, ..sandbox.clone() })
    }

    fn event(mut self, kind: EventKind) -> Self {
        self.events.push((kind, None));
        self
    }

    fn event_because(mut self, kind: EventKind, reason: impl Into<String>) -> Self {
        self.events.push((kind, Some(reason.into())));
        self
    }

    fn first_event_because(mut self, kind: EventKind, reason: impl Into<String>) -> Self {
        self.events.insert(0, (kind, Some(reason.into())));
        self
    }

    fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    fn active(mut self, now: Timestamp) -> Self {
        self.next.last_active = self.next.last_active.max(now);
        self
    }
}

/// A new sandbox, on its way to its first run.
///
/// # Errors
/// [`SpecError`] when it cannot be asked for like this.
pub fn create(
    id: SandboxId,
    project: ProjectId,
    spec: SandboxSpec,
    origin: Origin,
    context: &Context,
) -> Result<Step, SpecError> {
    create_with(id, project, spec, origin, FirstProgram::None, context)
}

/// [`create`], with a program that is part of it: there is no moment at which the sandbox is on record as running without
/// it.
///
/// # Errors
/// Those of [`create`].
pub fn create_with(
    id: SandboxId,
    project: ProjectId,
    spec: SandboxSpec,
    origin: Origin,
    program: FirstProgram,
    context: &Context,
) -> Result<Step, SpecError> {
    spec.check()?;
    let run = RunId { sandbox: id.clone(), generation: 1 };
    let next = Sandbox {
        id,
        project,
        spec,
        origin: origin.clone(),
        created: context.now,
        generation: 1,
        run: 1,
        last_active: context.now,
        timeouts_set: context.now,
        holds: Vec::new(),
        restored: match &origin {
            Origin::Image => Restored::Nothing,
            Origin::Filesystem { .. } => Restored::Filesystem,
            Origin::Snapshot { .. } => Restored::Memory { generation: None },
        },
        rewound: None,
        older: Vec::new(),
        unreachable: None,
        suspend_failures: None,
        state: State::Pending {
            operation: context.operation.clone(),
            deadline: context.now.after(context.limits.start_of(context.bytes) + context.limits.program(program)),
            program,
        },
    };
    Ok(Step::silent(next).effect(Effect::Start { run, origin, program }).event(EventKind::Created))
}

/// What `input` makes of `sandbox`.
///
/// An observation that does not fit the state is late or doubled and changes nothing ([`Outcome::Already`]).
///
/// # Errors
/// [`Denied`] when a command is refused; nothing changes then.
pub fn step(sandbox: &Sandbox, input: &Input, context: &Context) -> Result<Step, Denied> {
    let mut made = match input {
        Input::Command(command) => commands::decide(sandbox, command, context)?,
        Input::Observation(observation) => observations::decide(sandbox, observation, context),
    };
    // Facts of a run end with it.
    if !made.next.state.has_run() {
        made.next.unreachable = None;
        made.next.suspend_failures = None;
    }
    // Nothing is started with them any more. Their names say what memory snapshots may hold.
    if matches!(made.next.state, State::Terminated { .. }) {
        made.next.spec.secrets.blank();
    }
    Ok(made)
}

fn terminating(sandbox: &Sandbox, cause: Cause, context: &Context) -> Step {
    let state = State::Terminating {
        operation: context.operation.clone(),
        deadline: context.now.after(context.limits.terminate),
        cause,
        unleased: !has_leases(&sandbox.state),
    };
    let mut step = Step::to(sandbox, state).event(EventKind::Terminating);
    step.next.older.clear();
    step.next.holds.clear();
    step.effect(Effect::Stop { run: sandbox.run_id() })
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod relation;
