//! Carries out effects: the order in which engine, storage and agent are called, and what is undone
//! if one of the calls fails. Every exit leaves either the requested state or the previous one.
//!
//! The order of a verified sleep, which must not change:
//!
//! ```text
//! quiesce the agent ─► reserve space ─► pause the guest and write ─► lengths, hashes, fsync, rename (storage)
//!    ─► record (actor) ─► only now: park the run, discard the previous image
//! ```
//!
//! A rewind is a sleep and a wake in one: the state it leaves is recorded as asleep before the run
//! is ended. If the run is held, the wake comes first.
//!
//! An agent that does not answer does not prevent saving: its guest is paused without being
//! quiesced, and the event says so. On any failure before the record, the draft is removed and the
//! guest continues. If the guest was not paused yet, the engine is not called; if the guest does
//! not answer, the actor tries again later. When a snapshot is taken, the guest continues as soon
//! as its state is written, because nothing of it is released.

mod background;
mod program;
mod reach;
mod rewind;
mod save;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::{Agent, AgentError, Busy, HookOutcome};
use dorm_engine::{Layer, RunSpec};
use dorm_lifecycle::{
    Effect, FirstProgram, Observation, Origin, RunCondition, RunId, Sandbox, SavedStateId, SnapshotKind,
};
use dorm_store::Code;
use tokio_util::sync::CancellationToken;

use crate::error::{Failure, ServiceError, chain};
use crate::shared::Shared;
use crate::trust::{self, Before};
use crate::volumes;

pub(crate) use reach::{Unreached, connect, is_over, late, reach};
#[cfg(feature = "planted-bugs")]
pub(crate) use save::give_up_image;
pub(crate) use save::{continue_after_restart, files_of_image, park};

/// How long an engine may take to stop or park a run.
pub(crate) const UNDO: Duration = Duration::from_secs(30);

/// Why a first run was ended when a waiting terminate command needed it to end.
const UNWANTED: &str = "it was terminated before its image's program was ready";

/// How long relieving memory pressure of a run may take.
const MEMORY_PRESSURE: Duration = Duration::from_secs(90);

/// The context of an effect.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sandbox: Sandbox,
    pub(crate) agent: Option<Agent>,
    pub(crate) saved_state: Option<SavedStateId>,
    /// The kind of the snapshot that is being taken.
    pub(crate) kind: SnapshotKind,
    /// Cancelled when the sandbox must be terminated as soon as this effect ends.
    pub(crate) unwanted: CancellationToken,
}

impl Task {
    /// Returns how long the agent may take for anything that does not depend on the programs in the
    /// sandbox.
    fn patience(&self) -> Duration {
        self.shared.settings.agent
    }
}

/// Whether the agent quiesced before the guest was paused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Quiesced {
    /// The agent was not asked.
    Unasked,
    /// The agent quiesced.
    Yes,
    /// The agent did not answer.
    No(Reason),
}

/// The data that an effect wrote to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Written {
    /// The size in bytes.
    pub(crate) bytes: u64,
    /// Whether it shares its data with an existing saved state.
    pub(crate) shares_data: bool,
    /// Whether the layers below were merged into it.
    pub(crate) is_flat: bool,
}

impl Written {
    pub(crate) fn of(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// The result of an effect.
pub(crate) struct Seen {
    pub(crate) observation: Observation,
    /// The agent of the run that continues.
    pub(crate) agent: Option<Agent>,
    /// Whether the agent of a saved run quiesced.
    pub(crate) quiesced: Quiesced,
    /// Why the run that continues has no agent, if it does not answer.
    pub(crate) silent: Option<Reason>,
    /// The data that was written.
    pub(crate) written: Written,
    /// The failure, if there is one, for all waiting callers and for the record.
    pub(crate) failure: Option<Failure>,
}

impl Seen {
    pub(crate) fn of(observation: Observation) -> Self {
        let written = Written::default();
        Self { observation, agent: None, quiesced: Quiesced::Unasked, silent: None, written, failure: None }
    }

    /// Returns the result of an effect that failed.
    pub(crate) fn failed(report: fn(Reason) -> Observation, failure: Failure) -> Self {
        Self { failure: Some(failure.clone()), ..Self::of(report(failure.reason().to_owned())) }
    }

    fn with(observation: Observation, agent: Agent) -> Self {
        Self { agent: Some(agent), ..Self::of(observation) }
    }
}

/// Carries out one effect until it succeeds or fails. Returns `None` if it is left to the next
/// start.
pub(crate) async fn carry_out(task: Task, effect: Effect) -> Option<Seen> {
    Some(match effect {
        Effect::Start { run, origin, program } => start(&task, &run, &origin, program).await,
        Effect::Save { run, keep: _ } => save::save(&task, &run).await,
        Effect::Snapshot { run, .. } => save::snapshot(&task, &run).await,
        Effect::SnapshotImage { image, snapshot: _ } => background::snapshot_image(&task, &image).await,
        Effect::Attach { run, before, after } => background::attach(&task, &run, &before, &after).await,
        Effect::Egress { run, before, after } => background::egress(&task, &run, &before, &after).await,
        Effect::Resize { run, before, after } => background::resize(&task, &run, before, after).await,
        Effect::Evict { run } => background::evict(&task, &run).await,
        Effect::PrepareRewind { to, target } => background::prepare_rewind(&task, &to, &target).await,
        Effect::Wake { parked, fresh, image } => wake::wake(&task, &parked, &fresh, &image).await,
        Effect::Rewind { present, holds_present, fresh, target, layer, resources } => {
            // The run starts with the layer and resources of the rewind's target.
            let mut task = task;
            task.sandbox.spec.layer = layer;
            task.sandbox.spec.resources = resources;
            match holds_present {
                true => rewind::beside(&task, &present, &fresh, target.as_ref()).await,
                false => rewind::rewind(&task, &present, &fresh, target.as_ref()).await,
            }
        }
        Effect::SaveHeld { run } => return rewind::save_held(&task, &run).await,
        Effect::Stop { run } => return stop(&task, &run).await,
    })
}

/// Why an attempt failed, in one line.
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

/// Like [`within`], for an operation whose limit is set by the daemon's `option`.
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

/// The option that sets the limit of suspends, resumes, rewinds and snapshots.
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
    let unread = task.shared.storage.unread_bytes(&task.sandbox.spec.image).await;
    let limit = match origin {
        Origin::Image | Origin::Filesystem { .. } => limits.start_of(unread),
        // The restore reports a saved state that is missing or unreadable.
        Origin::Snapshot { saved_state, .. } => {
            let found = task.shared.storage.saved_state(saved_state).await;
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
            Origin::Snapshot { saved_state, .. } => {
                wake::restore(task, &spec, saved_state).await.map_err(wake::NotRestored::into_failure)?;
                Ok(introduce(task, run, Memory::Copied).await?)
            }
        }
    };
    let started = async {
        let agent = within_limit((limit, "--start-limit"), "starting", attempt).await?;
        match program {
            FirstProgram::None => {}
            // Only this part of a start may take minutes, and it can be interrupted at any time.
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

/// Whether the guest of a run comes from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    Kept,
    /// It comes from the memory of a snapshot.
    Copied,
    Fresh,
}

/// Mounts the volumes of `sandbox`, and no others, at their mount points in its guest.
pub(crate) async fn mount_inside(
    shared: &Shared,
    sandbox: &Sandbox,
    agent: &Agent,
    busy: Busy,
) -> Result<(), ServiceError> {
    let patience = shared.settings.agent;
    let mounts = volumes::inside(sandbox)?;
    match tokio::time::timeout(patience, agent.mount(mounts, busy)).await.map_err(|_| reach::silent(patience))? {
        // An agent of an earlier build does not support volumes, and has none mounted.
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

/// Connects to the agent of a run that has just started or continues, and sends it its identity.
async fn introduce(task: &Task, run: &RunId, memory: Memory) -> Result<Agent, ServiceError> {
    let patience = task.patience();
    let agent = connect(task, run, patience).await?;
    // A guest restored from memory may have volumes mounted that this run does not have.
    if memory != Memory::Fresh || !task.sandbox.spec.attachments.is_empty() {
        mount_inside(&task.shared, &task.sandbox, &agent, Busy::Hide).await?;
    }
    let before = if memory == Memory::Copied { Before::Copied } else { Before::Own };
    let trusting = tokio::time::timeout(patience, trust::establish(&task.shared, &task.sandbox, &agent, before)).await;
    trust::unless_over(run, trusting.map_err(|_| reach::silent(patience))?)?;
    let identity = wake::identity(task).await?;
    let resumed = tokio::time::timeout(patience, agent.resumed(&identity)).await;
    for hook in resumed.map_err(|_| reach::silent(patience))??.hooks {
        if hook.outcome != HookOutcome::Done {
            tracing::warn!(%run, program = ?hook.path, outcome = ?hook.outcome, "a program has not taken over the new identity");
        }
    }
    Ok(agent)
}

async fn remount(task: &Task, agent: &Agent) -> Result<(), ServiceError> {
    // An interrupted operation may have left volumes mounted on the host that the sandbox does not
    // have.
    match task.sandbox.attachments().next().is_none() {
        true => mount_inside(&task.shared, &task.sandbox, agent, Busy::Hide).await,
        false => mount_all(&task.shared, &task.sandbox, agent).await,
    }
}

/// Ends a run that is not needed. A run that cannot be ended now is ended before the next run of
/// its sandbox, or at the next start.
pub(crate) async fn end(task: &Task, run: &RunId) {
    if let Err(failure) = within(UNDO, "ending its run", must_end(task, run)).await {
        tracing::warn!(%run, reason = failure.reason(), "cannot end a run; it is removed later");
    }
}

/// Ends a run that must be gone before another one starts.
async fn must_end(task: &Task, run: &RunId) -> Result<(), Failure> {
    task.shared.unended().insert(run.clone());
    task.shared.engine.stop(run).await?;
    task.shared.unended().remove(run);
    Ok(())
}

/// Ends `run`, and earlier runs of the same sandbox that could not be ended.
async fn must_end_all(task: &Task, run: &RunId) -> Result<(), Failure> {
    must_end(task, run).await?;
    for run in &unended(task) {
        must_end(task, run).await?;
    }
    Ok(())
}

/// Ends the other runs of the sandbox of `run` that could not be ended earlier and whose guest may
/// run: two guests of one sandbox must never run at the same time.
async fn must_end_others(task: &Task, run: &RunId) -> Result<(), Failure> {
    for other in unended(task).iter().filter(|other| *other != run) {
        match task.shared.engine.condition(other).await? {
            None | Some(RunCondition::Broken | RunCondition::Paused | RunCondition::Parked) => {}
            Some(RunCondition::Running | RunCondition::Silent) => must_end(task, other).await?,
        }
    }
    Ok(())
}

/// Returns the runs of a sandbox that could not be ended.
fn unended(task: &Task) -> Vec<RunId> {
    task.shared.unended().iter().filter(|left| left.sandbox == task.sandbox.id).cloned().collect()
}

/// Ends the run of a terminating sandbox. This is retried without limit: failures are reported, and
/// if the daemon stops, the next one continues.
async fn stop(task: &Task, run: &RunId) -> Option<Seen> {
    let limit = task.shared.settings.limits.terminate;
    loop {
        match within(limit, "terminating", must_end_all(task, run)).await {
            Ok(()) => return Some(Seen::of(Observation::Stopped)),
            Err(failure) => {
                tracing::error!(%run, reason = failure.reason(), "cannot release the resources of a terminated sandbox; retrying")
            }
        }
        tokio::select! {
            biased;
            () = task.shared.stopping.cancelled() => return None,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Whether a process was killed for memory pressure just before, so that its memory may still be on
/// its way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lately {
    /// A process was killed.
    Relieved,
    /// No process was killed.
    Quiet,
}

/// Handles memory pressure: lets the agent continue, asks it for the OOM victim, and kills that
/// process. Returns `None` if the memory of an earlier victim came back after all, or if no process
/// uses much memory. After a failure the guest may still be paused.
pub(crate) async fn relieve_memory_pressure(
    task: &Task,
    run: &RunId,
    lately: Lately,
) -> Result<Option<String>, Failure> {
    within(MEMORY_PRESSURE, "relieving", relieve_pressure_now(task, run, lately)).await
}

/// Lets the agent of a run under memory pressure continue, for an operation in progress.
pub(crate) async fn unpause_under_pressure(shared: Arc<Shared>, run: RunId) {
    let unpaused = async { Ok(shared.engine.relieve_memory_pressure(&run, None).await?) };
    if let Err(failure) = within(UNDO, "letting its agent continue", unpaused).await {
        tracing::warn!(%run, reason = failure.reason(), "cannot relieve memory pressure during an operation, which may fail because of it");
    }
}

async fn relieve_pressure_now(task: &Task, run: &RunId, lately: Lately) -> Result<Option<String>, Failure> {
    let engine = &task.shared.engine;
    engine.relieve_memory_pressure(run, None).await?;
    if sinks(task, run, lately).await? {
        engine.relieve_memory_pressure(run, Some(NOBODY)).await?;
        return Ok(None);
    }
    let agent = match &task.agent {
        Some(agent) if !agent.is_closed() => agent.clone(),
        Some(_) | None => connect(task, run, task.patience()).await?,
    };
    let oom_victim = tokio::time::timeout(task.patience(), agent.oom_victim()).await;
    let victim = oom_victim.map_err(|_| Failure::new(Code::TimedOut, "its agent does not answer"))?;
    match victim {
        Some(pid) => {
            engine.relieve_memory_pressure(run, Some(pid)).await?;
            Ok(Some(format!("process {pid} used the most memory and was killed")))
        }
        None => {
            engine.relieve_memory_pressure(run, Some(NOBODY)).await?;
            tracing::warn!(%run, "memory pressure, but no process uses much memory");
            Ok(None)
        }
    }
}

/// An id that no process has: passing it to the engine only reports that memory pressure is over.
const NOBODY: u32 = u32::MAX >> 1;

/// Returns whether the run's memory use is below three quarters of its limit, or falls below that:
/// the kernel may take seconds to reclaim the memory of a killed process.
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
