//! Carrying out effects: the order in which engine, pool and agent are asked, and what is undone when one of them
//! fails. Every way out leaves either what was wanted, or what was there before.
//!
//! The order of a verified sleep, which nothing may change:
//!
//! ```text
//! quiesce the agent ─► reserve room ─► hold the guest still and write ─► lengths, hashes, fsync, rename (pool)
//!    ─► record (actor) ─► only now: park the run, discard the image before
//! ```
//!
//! A rewind is a sleep and a wake in one: what it leaves is recorded as asleep before the run is ended.
//!
//! An agent that does not answer keeps nothing from being saved: its guest is held still without being quiesced, and the
//! event says so. On any failure before the record the draft goes and the guest simply continues; where it was not held
//! yet, the engine is not asked for anything, and where it does not answer, it is asked again later, by the actor. A guest of which a snapshot is taken
//! continues as soon as it is written, since nothing of it is given up for that.

mod background;
pub(crate) mod program;
mod reach;
mod save;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::{Agent, AgentError, Busy, HookOutcome};
use dorm_engine::{Layer, RunSpec};
use dorm_lifecycle::{CaptureId, Effect, FirstProgram, Observation, Origin, RunId, Sandbox, SnapshotKind};
use dorm_store::Code;
use tokio_util::sync::CancellationToken;

use crate::error::ServiceError;
use crate::failure::Failure;
use crate::shared::{Shared, chain};
use crate::volumes;

pub(crate) use reach::{Unreached, connect, is_over, late, reach};
#[cfg(feature = "planted-bugs")]
pub(crate) use save::give_up_image;
pub(crate) use save::{files_of_image, go_on_after_restart, park};
pub(crate) use wake::verify;

/// How long an engine may take to end or park a run.
pub(crate) const UNDO: Duration = Duration::from_secs(30);

/// Why a first run was given up for which a command could not wait.
const UNWANTED: &str = "it was terminated before what its image is made to run could be used";

/// How long relieving a run of its greediest process may take.
const RELIEF: Duration = Duration::from_secs(90);

/// What an effect works on.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sandbox: Sandbox,
    pub(crate) agent: Option<Agent>,
    pub(crate) capture: Option<CaptureId>,
    /// What the snapshot that is being taken holds.
    pub(crate) kind: SnapshotKind,
    /// Cancelled when the sandbox is to be terminated as soon as this is over.
    pub(crate) unwanted: CancellationToken,
}

impl Task {
    /// How long the agent may take for anything that does not depend on what runs in the sandbox.
    fn patience(&self) -> Duration {
        self.shared.settings.agent
    }
}

/// Whether an agent did what it was asked before the guest was held still.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Quiesced {
    /// It was not asked.
    Unasked,
    /// It did.
    Yes,
    /// It did not answer.
    No(Reason),
}

/// What an effect wrote to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Written {
    /// How much.
    pub(crate) bytes: u64,
    /// Whether it is the same copy as something that was there before.
    pub(crate) shares_data: bool,
}

impl Written {
    pub(crate) fn of(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// What was seen when an effect was over.
pub(crate) struct Seen {
    pub(crate) observation: Observation,
    /// The agent of the run that goes on.
    pub(crate) agent: Option<Agent>,
    /// Whether the agent of a run that was saved made itself quiet.
    pub(crate) quiesced: Quiesced,
    /// Why the run that goes on has no agent, if it does not answer.
    pub(crate) silent: Option<Reason>,
    /// What was written.
    pub(crate) written: Written,
    /// Why it failed, if it has: for all who wait for it, and for its record.
    pub(crate) failure: Option<Failure>,
}

impl Seen {
    pub(crate) fn of(observation: Observation) -> Self {
        let written = Written::default();
        Self { observation, agent: None, quiesced: Quiesced::Unasked, silent: None, written, failure: None }
    }

    /// It has failed.
    pub(crate) fn failed(report: fn(Reason) -> Observation, failure: Failure) -> Self {
        Self { failure: Some(failure.clone()), ..Self::of(report(failure.reason().to_owned())) }
    }

    fn with(observation: Observation, agent: Agent) -> Self {
        Self { agent: Some(agent), ..Self::of(observation) }
    }
}

/// Carries out one effect to its end, good or bad. Nothing is seen of one that is left to the next start.
pub(crate) async fn carry_out(task: Task, effect: Effect) -> Option<Seen> {
    Some(match effect {
        Effect::Start { run, origin, program } => start(&task, &run, &origin, program).await,
        Effect::Save { run } => save::save(&task, &run).await,
        Effect::Snapshot { run, .. } => save::snapshot(&task, &run).await,
        Effect::SnapshotImage { image, snapshot: _ } => background::snapshot_image(&task, &image).await,
        Effect::Attach { run, before, after } => background::attach(&task, &run, &before, &after).await,
        Effect::Evict { run } => background::evict(&task, &run).await,
        Effect::PrepareRewind { to, target } => background::prepare_rewind(&task, &to, &target).await,
        Effect::Wake { parked, fresh, image } => wake::wake(&task, &parked, &fresh, &image).await,
        Effect::Rewind { parked, fresh, target, layer, resources } => {
            // It begins as what it is to be.
            let mut task = task;
            task.sandbox.spec.layer = layer;
            task.sandbox.spec.resources = resources;
            wake::rewind(&task, &parked, &fresh, target.as_ref()).await
        }
        Effect::Stop { run } => return stop(&task, &run).await,
    })
}

/// Why an attempt did not work, in one line.
pub(crate) type Reason = String;

fn reason(error: &dyn std::error::Error) -> Reason {
    chain(error)
}

async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Failure::late(what, limit)),
    }
}

/// The same for an operation, whose limit `option` of the daemon changes.
async fn within_limit<T>(
    (limit, option): (Duration, &str),
    what: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(too_late(what, (limit, option))),
    }
}

fn too_late(what: &str, (limit, option): (Duration, &str)) -> Failure {
    Failure::late(what, limit)
        .told_as(|late| format!("{late}; raise it with {option} of `dorm serve`, or lower its --min-throughput-mib"))
}

/// What sets the limit of suspends, resumes, rewinds and snapshots.
const OPERATION_LIMIT: &str = "--operation-limit";

async fn spec(task: &Task, run: &RunId) -> Result<RunSpec, Failure> {
    let wanted = &task.sandbox.spec;
    task.shared.secrets_of(&task.sandbox)?;
    let (image, layers) = task.shared.sound(&wanted.image, wanted.layer.as_ref()).await?;
    Ok(RunSpec {
        run: run.clone(),
        image: task.sandbox.spec.image.clone(),
        rootfs: image.rootfs,
        layers: layers.iter().map(|layer| Layer { id: layer.id.clone(), directory: layer.root() }).collect(),
        resources: task.sandbox.spec.resources,
        egress: task.sandbox.spec.egress.clone(),
        mounts: task.shared.mounts(&task.sandbox).await?,
        build: None,
    })
}

async fn start(task: &Task, run: &RunId, origin: &Origin, program: FirstProgram) -> Seen {
    let limits = &task.shared.settings.limits;
    let unread = task.shared.pool.unread_bytes(&task.sandbox.spec.image).await;
    let limit = match origin {
        Origin::Image | Origin::Filesystem { .. } => limits.start_of(unread),
        // One that is not there, or cannot be read, is told of by the restore.
        Origin::Snapshot { capture, .. } => {
            let found = task.shared.pool.capture(capture).await;
            limits.start_of(found.map_or(0, |found| found.bytes()).saturating_add(unread))
        }
    };
    let attempt = async {
        let spec = spec(task, run).await?;
        match origin {
            Origin::Image | Origin::Filesystem { .. } => {
                task.shared.engine.start(&spec).await?;
                Ok(introduce(task, run, Memory::Fresh).await?)
            }
            Origin::Snapshot { capture, .. } => {
                wake::restore(task, &spec, capture).await.map_err(wake::NotRestored::into_failure)?;
                Ok(introduce(task, run, Memory::Kept).await?)
            }
        }
    };
    let started = async {
        let agent = within_limit((limit, "--start-limit"), "starting", attempt).await?;
        match program {
            FirstProgram::None => {}
            // Of all that a start does only this may take minutes, and can be given up at any moment.
            FirstProgram::OfImage => tokio::select! {
                biased;
                () = task.unwanted.cancelled() => return Err(Failure::new(Code::Conflict, UNWANTED)),
                started = program::start(task, &agent) => started?,
            },
        }
        Ok(agent)
    };
    match started.await {
        Ok(agent) => Seen::with(Observation::Started, agent),
        Err(failure) => {
            end(task, run).await;
            Seen::failed(Observation::StartFailed, failure)
        }
    }
}

/// Whether a run goes on with what the guest had in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    Kept,
    Fresh,
}

/// Makes the volumes of `sandbox` appear in its guest where they are wanted, and no others.
pub(crate) async fn mount_inside(
    shared: &Shared,
    sandbox: &Sandbox,
    agent: &Agent,
    busy: Busy,
) -> Result<(), ServiceError> {
    let patience = shared.settings.agent;
    let mounts = volumes::inside(sandbox)?;
    match tokio::time::timeout(patience, agent.mount(mounts, busy)).await.map_err(|_| reach::silent(patience))? {
        // An agent of an earlier build does not know volumes, and has none.
        Err(AgentError::Invalid(_)) if sandbox.spec.attachments.is_empty() => Ok(()),
        mounted => Ok(mounted?),
    }
}

/// Gives a run all volumes of `sandbox` and no others, on the host and inside.
pub(crate) async fn mount_all(shared: &Arc<Shared>, sandbox: &Sandbox, agent: &Agent) -> Result<(), ServiceError> {
    let mounts = shared.mounts(sandbox).await?;
    let mounted = tokio::time::timeout(UNDO, shared.engine.mount(&sandbox.run_id(), &mounts)).await;
    mounted.map_err(|_| reach::silent(UNDO))??;
    mount_inside(shared, sandbox, agent, Busy::Hide).await
}

/// Connects to the agent of a run that has just begun or goes on, and tells it who it is.
async fn introduce(task: &Task, run: &RunId, memory: Memory) -> Result<Agent, ServiceError> {
    let patience = task.patience();
    let agent = connect(task, run, patience).await?;
    // A guest that comes out of memory may have volumes that this run has not.
    if memory == Memory::Kept || !task.sandbox.spec.attachments.is_empty() {
        mount_inside(&task.shared, &task.sandbox, &agent, Busy::Hide).await?;
    }
    let identity = wake::identity(task).await?;
    let resumed = tokio::time::timeout(patience, agent.resumed(&identity)).await;
    for hook in resumed.map_err(|_| reach::silent(patience))??.hooks {
        if hook.outcome != HookOutcome::Done {
            tracing::warn!(%run, program = ?hook.path, outcome = ?hook.outcome, "a program has not taken the new identity");
        }
    }
    Ok(agent)
}

async fn remount(task: &Task, agent: &Agent) -> Result<(), ServiceError> {
    // An interrupted operation may have left volumes on the host's side that the sandbox does not have.
    match task.sandbox.attachments().next().is_none() {
        true => mount_inside(&task.shared, &task.sandbox, agent, Busy::Hide).await,
        false => mount_all(&task.shared, &task.sandbox, agent).await,
    }
}

/// Ends a run of which nothing is needed. What cannot be ended now is ended before the next run of its sandbox, or at
/// the next start.
pub(crate) async fn end(task: &Task, run: &RunId) {
    if let Err(failure) = within(UNDO, "ending its run", must_end(task, run)).await {
        tracing::warn!(%run, reason = failure.reason(), "what is left of a run is cleared away later");
    }
}

/// Ends a run beside which no other may begin.
async fn must_end(task: &Task, run: &RunId) -> Result<(), Failure> {
    task.shared.unended().insert(run.clone());
    task.shared.engine.stop(run).await?;
    task.shared.unended().remove(run);
    Ok(())
}

/// Ends `run`, and what could not be ended of the same sandbox before.
async fn must_end_all(task: &Task, run: &RunId) -> Result<(), Failure> {
    must_end(task, run).await?;
    let left: Vec<RunId> =
        task.shared.unended().iter().filter(|left| left.sandbox == task.sandbox.id).cloned().collect();
    for run in &left {
        must_end(task, run).await?;
    }
    Ok(())
}

/// Stopping is never given up: it is reported and tried again, by the next daemon if this one is stopped.
async fn stop(task: &Task, run: &RunId) -> Option<Seen> {
    let limit = task.shared.settings.limits.terminate;
    loop {
        match within(limit, "terminating", must_end_all(task, run)).await {
            Ok(()) => return Some(Seen::of(Observation::Stopped)),
            Err(failure) => {
                tracing::error!(%run, reason = failure.reason(), "a terminated sandbox still holds something; trying again")
            }
        }
        tokio::select! {
            biased;
            () = task.shared.stopping.cancelled() => return None,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Whether somebody was killed for memory a moment ago, whose memory may still be on its way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lately {
    /// Somebody was.
    Relieved,
    /// Nobody was.
    Quiet,
}

/// Answers memory that ran high: lets the guest go on, asks the agent which process is the greediest, kills that.
/// Answers nothing when the memory of one who was killed before came back after all, or no process has any. After a
/// failure the guest may still stand still.
pub(crate) async fn relieve(task: &Task, run: &RunId, lately: Lately) -> Result<Option<String>, Failure> {
    within(RELIEF, "relieving", relieve_now(task, run, lately)).await
}

/// Lets the agent of a run that is short of memory go on, for an operation that is in progress.
pub(crate) async fn breathe(shared: Arc<Shared>, run: RunId) {
    let breath = async { Ok(shared.engine.relieve(&run, None).await?) };
    if let Err(failure) = within(UNDO, "letting its agent go on", breath).await {
        tracing::warn!(%run, reason = failure.reason(), "memory ran high during an operation, which may fail for it");
    }
}

async fn relieve_now(task: &Task, run: &RunId, lately: Lately) -> Result<Option<String>, Failure> {
    let engine = &task.shared.engine;
    engine.relieve(run, None).await?;
    if sinks(task, run, lately).await? {
        engine.relieve(run, Some(NOBODY)).await?;
        return Ok(None);
    }
    let agent = match &task.agent {
        Some(agent) if !agent.is_closed() => agent.clone(),
        Some(_) | None => connect(task, run, task.patience()).await?,
    };
    let greediest = tokio::time::timeout(task.patience(), agent.greediest()).await;
    let victim = greediest.map_err(|_| Failure::new(Code::TimedOut, "its agent does not answer"))?;
    match victim {
        Some(pid) => {
            engine.relieve(run, Some(pid)).await?;
            Ok(Some(format!("process {pid} used the most memory and was killed")))
        }
        None => {
            engine.relieve(run, Some(NOBODY)).await?;
            tracing::warn!(%run, "memory ran high, and no process uses much of it");
            Ok(None)
        }
    }
}

/// No process has this id: a relief of it only says that the matter is over.
const NOBODY: u32 = u32::MAX >> 1;

/// Whether the run's memory is below three quarters of its limit, or falls below it: the kernel may take seconds to
/// give back that of a killed process.
async fn sinks(task: &Task, run: &RunId, lately: Lately) -> Result<bool, Failure> {
    let enough = task.sandbox.spec.resources.memory_bytes / 4 * 3;
    let used = async || task.shared.engine.usage(run).await.map(|usage| usage.memory_bytes);
    let looks = match lately {
        Lately::Relieved => 400,
        Lately::Quiet => 1,
    };
    for _ in 0..looks {
        let now = used().await?;
        if now < enough {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(false)
}
