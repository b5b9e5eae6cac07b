//! The one function that changes a sandbox: [`step`].
//!
//! Commands come from callers and timers, observations from the code that executed an effect. A
//! command that arrives during an operation waits for it and is evaluated again; no command is
//! refused merely because it came early.

mod background;
mod commands;
mod held;
mod limits;
mod observations;
mod rewind;

use std::time::Duration;

pub(crate) use background::{egress_effect, resize_effect};
pub(crate) use held::effect as save_held_effect;
pub use limits::Limits;
pub(crate) use rewind::effect as rewind_effect;

use crate::checkpoints::Checkpoints;
use crate::denied::Denied;
use crate::egress::Egress;
use crate::event::EventKind;
use crate::ids::{HoldId, OperationId, ProjectId, RunId, SandboxId, SavedStateId, SnapshotId};
use crate::lease::has_leases;
use crate::pool::Claim;
use crate::resources::{Resize, Resources};
use crate::rewind::{Abandoned, Rewind};
use crate::sandbox::{Hold, Origin, Restored, Sandbox};
use crate::saved::{Keep, SleepImage, SnapshotKind};
use crate::spec::{SandboxSpec, SleepRetention, Timeouts};
use crate::spec_error::SpecError;
use crate::state::{Cause, FirstProgram, State};
use crate::time::Timestamp;
use crate::update::Update;
use crate::volume::Attachment;

/// The input of a decision besides the sandbox and the command or observation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Context {
    /// The current time.
    pub now: Timestamp,
    /// The id of the operation, if one begins.
    pub operation: OperationId,
    /// The id of the snapshot that holds the files of a suspend, if one begins that keeps no more.
    pub files: SnapshotId,
    /// The time limits of operations.
    pub limits: Limits,
    /// The size in bytes of the memory snapshot that a new sandbox starts from; 0 if it boots.
    pub bytes: u64,
}

/// A command: a requested change of a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Suspend it: save it and stop it.
    Suspend(Keep),
    /// Make it run.
    Resume {
        /// Its `total` time limit from then on. If it runs already, its deadline is postponed as by
        /// [`Command::Extend`].
        total: Option<Duration>,
    },
    /// Make it run for a call that needs it; the limit `after_wake` holds then.
    Wake,
    /// Take a snapshot of it.
    Snapshot(SnapshotId, SnapshotKind),
    /// Rewind it to a snapshot, in place.
    Rewind(Box<Rewind>),
    /// Change its time limits, counted from now.
    SetTimeouts(Timeouts),
    /// Postpone the deadline that its `total` limit sets to this time from now, if it is earlier.
    Extend(Duration),
    /// Change properties that need no work on its run.
    Update(Box<Update>),
    /// Change its retention policy for sleep images, from its next suspend or resume on.
    SetRetention(SleepRetention),
    /// Change its policy for automatic snapshots.
    SetCheckpoints(Option<Checkpoints>),
    /// Change which volumes it has attached.
    SetAttachments(Vec<Attachment>),
    /// Change its egress policy, at once if it is running.
    SetEgress(Egress),
    /// Change its limits of CPU and memory, at once if it is running.
    Resize(Resize),
    /// Make it run with these properties, as a sandbox that waits in a pool no longer.
    Claim(Box<Claim>),
    /// Terminate it if it waits in a pool.
    Discard,
    /// Keep it awake; replaces a hold with the same id.
    Hold(Hold),
    /// Release a hold.
    Release(HoldId),
    /// Record that it is in use.
    Touch,
    /// Act on its passed deadline; does nothing if the deadline has moved meanwhile.
    Expire,
    /// Terminate it.
    Terminate,
}

/// An observation: a fact about a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Observation {
    /// Its first run is up and answers.
    Started,
    /// Its first run could not be started; nothing of it is left.
    StartFailed(String),
    /// Its sleep image is durable and verified, and its guest is paused.
    Saved(SleepImage),
    /// Its sleep image could not be made; its guest continues.
    SaveFailed(String),
    /// The snapshot is durable and verified; its guest continues, or stays suspended.
    SnapshotTaken,
    /// The snapshot could not be taken; its guest continues, or stays suspended.
    SnapshotFailed(String),
    /// Its run has the requested volumes mounted, and no others.
    Attached,
    /// Its volumes could not be changed; it has the previous ones.
    AttachFailed(String),
    /// Its run, if it has one, has the requested egress policy.
    EgressSet,
    /// Its egress policy could not be changed.
    EgressFailed(String),
    /// Its run, if it has one, has the requested limits.
    Resized,
    /// Its limits could not be changed.
    ResizeFailed(String),
    /// Its own copy of the saved state that it is rewound to is durable.
    RewindPrepared,
    /// That copy could not be made; nothing about the sandbox has changed.
    RewindNotPrepared(String),
    /// The run that a rewind has left is saved, or was only to be ended; it is still paused.
    HeldSaved(Option<SleepImage>),
    /// The run that a rewind has left could not be saved; it is still paused.
    HeldNotSaved(String),
    /// The run that a rewind has left ended before it was saved.
    HeldLost(String),
    /// It runs.
    Woken {
        /// The number of the engine's run: a new one if it was restored, the old one if it was
        /// thawed.
        run: u64,
        /// The state it was restored with. A generation that it has no image of stands for the
        /// newest image.
        restored: Restored,
        /// Why it was not restored from its newest image, if so.
        because: Option<String>,
    },
    /// It could not be restored; nothing of the attempt is left and its sleep image is intact.
    WakeFailed(String),
    /// Its run ended unexpectedly; nothing of it is left.
    RunLost(String),
    /// Its run is alive but does not answer.
    Unreachable(String),
    /// Its run answers.
    Reachable,
    /// All its resources are released.
    Stopped,
}

/// A command or an observation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// A requested change.
    Command(Command),
    /// A fact.
    Observation(Observation),
}

/// The action that follows a change. It is journalled with the new state before it starts, and can
/// be repeated.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Start the run.
    Start {
        /// The run.
        run: RunId,
        /// The origin of the run.
        origin: Origin,
        /// The program to start before the sandbox counts as running.
        program: FirstProgram,
    },
    /// Pause the guest, save it, verify the image. The previous image is released only after the
    /// result is recorded.
    Save {
        /// The run.
        run: RunId,
        /// The part of it that is saved.
        keep: Keep,
    },
    /// Save the guest into a snapshot and let it continue.
    Snapshot {
        /// The run.
        run: RunId,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Save the files or the memory of the sleep image into a snapshot. Nothing is run.
    SnapshotImage {
        /// The sleep image.
        image: SleepImage,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Mount the volumes in `after`, and no others, in a live run; on failure, restore those in
    /// `before`. Volumes to be unmounted must not be in use.
    Attach {
        /// The run.
        run: RunId,
        /// The present attachments.
        before: Vec<Attachment>,
        /// The requested attachments.
        after: Vec<Attachment>,
    },
    /// Replace the egress policy of a live or parked run; on failure, restore the previous one. A
    /// parked run that cannot be changed is stopped.
    Egress {
        /// The run, which may be gone if the sandbox is suspended.
        run: RunId,
        /// The present policy.
        before: Egress,
        /// The requested policy.
        after: Egress,
    },
    /// Replace the limits of CPU and memory of a live or parked run; on failure, restore the
    /// previous ones. A parked run that cannot be changed is stopped.
    Resize {
        /// The run, which may be gone if the sandbox is suspended.
        run: RunId,
        /// The present limits.
        before: Resources,
        /// The requested limits.
        after: Resources,
    },
    /// Stop a parked run, which has other volumes mounted than requested.
    Evict {
        /// The run, which may be gone already.
        run: RunId,
    },
    /// Copy the saved state of a memory snapshot for the sandbox.
    PrepareRewind {
        /// The snapshot.
        to: SnapshotId,
        /// The id of the copy.
        target: SavedStateId,
    },
    /// Wake the guest: thaw `parked` if it still exists, otherwise restore `image` as `fresh`, or
    /// boot it if it keeps files only; if
    /// that cannot be restored, restore an older image of the sandbox; if none can be restored, do
    /// what its spec permits.
    Wake {
        /// The run that may still be parked.
        parked: RunId,
        /// The run to create otherwise.
        fresh: RunId,
        /// The image to restore.
        image: SleepImage,
    },
    /// Stop or hold `present`, and stop all remains of earlier runs, then restore `target` as
    /// `fresh`, or boot it without a target.
    Rewind {
        /// The run of the present state. If it is not held, it is saved, and paused or gone.
        present: RunId,
        /// Whether the present run is paused and kept until `fresh` answers; if that fails, it
        /// continues.
        holds_present: bool,
        /// The run to create.
        fresh: RunId,
        /// The saved state to restore.
        target: Option<SavedStateId>,
        /// The layer on its image that it is based on afterwards.
        layer: Option<SavedStateId>,
        /// The resource limits of the run.
        resources: Resources,
    },
    /// Save the paused run that a rewind has left, if its state must be kept. It is ended only
    /// after the result is recorded.
    SaveHeld {
        /// The run.
        run: RunId,
    },
    /// Release everything: the run, then the images.
    Stop {
        /// The run.
        run: RunId,
    },
}

/// The result of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The sandbox changes: record the change, then carry out the effect.
    Changed,
    /// The sandbox already is as requested.
    Already,
    /// An operation is in progress: evaluate the command again when it ends.
    Wait,
}

/// The result of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The sandbox after the change.
    pub next: Sandbox,
    /// The effect to carry out next.
    pub effect: Option<Effect>,
    /// The events to record, each with an optional sentence of detail.
    pub events: Vec<(EventKind, Option<String>)>,
    /// Whether anything changes.
    pub outcome: Outcome,
    /// An image that the sandbox gives up, to be recorded as a snapshot in the same transaction.
    pub abandoned: Option<Abandoned>,
}

impl Step {
    /// Returns a change without an effect and without an event.
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

/// Returns a new sandbox, about to start its first run.
///
/// # Errors
///
/// [`SpecError`] if the requested properties are invalid.
pub fn create(
    id: SandboxId,
    project: ProjectId,
    spec: SandboxSpec,
    origin: Origin,
    context: &Context,
) -> Result<Step, SpecError> {
    create_with(id, project, spec, origin, FirstProgram::None, context)
}

/// Like [`create`], with a program that is part of the first run: at no time does the record say
/// that the sandbox runs without it.
///
/// # Errors
///
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
    let state = State::Pending {
        operation: context.operation.clone(),
        deadline: context.now.after(context.limits.start_of(context.bytes) + context.limits.program(program)),
        program,
    };
    let restored = match &origin {
        Origin::Image => Restored::Nothing,
        Origin::Filesystem { .. } => Restored::Filesystem,
        Origin::Snapshot { .. } => Restored::Memory { generation: None },
    };
    let next = Sandbox { origin: origin.clone(), restored, ..Sandbox::new(id, project, spec, context.now, state) };
    Ok(Step::silent(next).effect(Effect::Start { run, origin, program }).event(EventKind::Created))
}

/// Returns the result of applying `input` to `sandbox`.
///
/// An observation that does not fit the state is late or a duplicate and changes nothing
/// ([`Outcome::Already`]).
///
/// # Errors
///
/// [`Denied`] if a command is refused; nothing changes then.
pub fn step(sandbox: &Sandbox, input: &Input, context: &Context) -> Result<Step, Denied> {
    let mut made = match input {
        Input::Command(command) => commands::decide(sandbox, command, context)?,
        Input::Observation(observation) => observations::decide(sandbox, observation, context),
    };
    // Facts about a run end with it.
    if !made.next.state.has_run() {
        made.next.unreachable = None;
        made.next.suspend_failures = None;
    }
    // No run will use the secrets again. Their names remain, because they tell what memory
    // snapshots may contain.
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
