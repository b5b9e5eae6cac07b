//! Pauses a guest and saves it: for a sleep, after which it stays paused, and for a snapshot, after
//! which it continues.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dorm_agent_client::{Agent, AgentError, GuestPath};
use dorm_engine::{EngineError, SavedFile};
#[cfg(feature = "planted-bugs")]
use dorm_lifecycle::SavedStateId;
use dorm_lifecycle::{Access, Observation, Origin, RunId, SleepImage, SnapshotKind, State};
use dorm_storage::{SavedState, SavedStateDraft, SavedStateFacts, WrittenFile};
use dorm_store::Code;
use dorm_volume::VolumeError;

use super::{
    OPERATION_LIMIT, Quiesced, Reason, Seen, Task, UNDO, Unreached, connect, end, late, reach, reason, within,
    within_limit,
};
use crate::error::Failure;

/// How long the agent may take to finish what is in progress before the guest is saved regardless.
const QUIESCE: Duration = Duration::from_secs(10);

/// Files on at least this many layers are merged with them when they are saved.
const LAYERS: usize = 8;

/// How long the agent may take to copy deleted files of volumes to its own disk.
const EXCHANGE: Duration = Duration::from_secs(60);

/// The error of an operation that has no id for the saved state it should write: a bug in Dormouse.
pub(super) fn unrecorded() -> Failure {
    Failure::new(Code::Internal, "no saved state is recorded for it")
}

/// The progress of an operation on a running guest, however it ends.
#[derive(Default)]
pub(super) struct Progress {
    /// Whether the engine was asked to pause the guest.
    held: bool,
    /// The agent that was asked to quiesce.
    agent: Option<Agent>,
    /// Why the agent has not quiesced, or could not be asked.
    silent: Option<Reason>,
    /// Whether the engine reports that nothing is left of the run.
    over: bool,
}

impl Progress {
    /// Records an error of the engine.
    fn met(&mut self, error: EngineError) -> Failure {
        self.over |= error.says_that_the_run_is_over();
        let failure = Failure::from(error);
        match &self.silent {
            None => failure,
            Some(silent) => failure.told_as(|met| format!("{met}; its agent does not answer: {silent}")),
        }
    }

    /// Returns whether the engine reports that nothing is left of the run.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn quiesced(&self) -> Quiesced {
        match (&self.silent, &self.agent) {
            (Some(reason), _) => Quiesced::No(reason.clone()),
            (None, Some(_)) => Quiesced::Yes,
            (None, None) => Quiesced::Unasked,
        }
    }
}

pub(super) async fn save(task: &Task, run: &RunId) -> Seen {
    let limit = task.shared.settings.limits.suspend_of(&task.sandbox);
    let taken = task.shared.now();
    let mut progress = Progress::default();
    let saved = within_limit((limit, OPERATION_LIMIT), "suspending", write_saved_state(task, run, &mut progress)).await;
    match saved {
        Ok(saved_state) => {
            let is_flat = saved_state.facts.layer.is_none();
            let image = SleepImage {
                bytes: saved_state.bytes(),
                saved_state: saved_state.id,
                generation: task.sandbox.generation,
                taken,
                files: match &task.sandbox.state {
                    State::Suspending { files, .. } => files.clone(),
                    _ => None,
                },
            };
            close_agents(task, &progress);
            let quiesced = progress.quiesced();
            let written = super::Written { is_flat, ..super::Written::of(image.bytes) };
            Seen { written, quiesced, ..Seen::of(Observation::Saved(image)) }
        }
        Err(failure) => undo(task, run, progress, Observation::SaveFailed, failure).await,
    }
}

/// Parks a run. Called only once the image is recorded: a parked run is a cache of the image, and a
/// run that cannot be parked is ended. Returns the host memory it holds, in bytes. The guest has
/// been paused since it was saved.
pub(crate) async fn park(task: &Task, run: &RunId) -> Option<u64> {
    let engine = &task.shared.engine;
    let parked = async {
        engine.park(run).await?;
        Ok(engine.usage(run).await?)
    };
    match within(UNDO, "parking", parked).await {
        Ok(usage) => Some(usage.memory_bytes),
        Err(failure) => {
            tracing::warn!(%run, reason = failure.reason(), "cannot park a suspended sandbox; it is on disk only");
            end(task, run).await;
            None
        }
    }
}

pub(super) async fn snapshot(task: &Task, run: &RunId) -> Seen {
    let limit = (task.shared.settings.limits.snapshot_of(&task.sandbox), OPERATION_LIMIT);
    let mut progress = Progress::default();
    let written = match within_limit(limit, "taking a snapshot", write(task, run, &mut progress)).await {
        Ok(written) => written,
        Err(failure) => return undo(task, run, progress, Observation::SnapshotFailed, failure).await,
    };
    // The guest need not wait until its image is on disk: unlike in a sleep, nothing of it is
    // released.
    let seen = release(task, run, progress, Observation::SnapshotTaken).await;
    if seen.observation != Observation::SnapshotTaken {
        abandon(written.draft).await;
        return seen;
    }
    match within_limit(limit, "taking a snapshot", commit(task, written)).await {
        Ok(saved_state) => Seen { written: super::Written::of(saved_state.bytes()), ..seen },
        Err(failure) => {
            remove_saved_state(task).await;
            let Seen { observation, failure, .. } = Seen::failed(Observation::SnapshotFailed, failure);
            Seen { observation, failure, ..seen }
        }
    }
}

async fn write_saved_state(task: &Task, run: &RunId, progress: &mut Progress) -> Result<SavedState, Failure> {
    commit(task, write(task, run, progress).await?).await
}

/// A memory image that is written, but not committed yet.
struct Written {
    draft: SavedStateDraft,
    files: Vec<WrittenFile>,
    /// The directory of the memory image.
    memory: PathBuf,
    /// The build of the engine that wrote it.
    build: String,
}

/// Closes the connections to the agent of a run that does not continue.
pub(super) fn close_agents(task: &Task, progress: &Progress) {
    for agent in [&task.agent, &progress.agent].into_iter().flatten() {
        agent.close();
    }
}

/// Pauses the guest, whose memory image is written later. Fails if there is no room for that now.
pub(super) async fn hold(task: &Task, run: &RunId, progress: &mut Progress) -> Result<(), Failure> {
    let shared = &task.shared;
    prepare(task, run, progress).await?;
    let need = shared.engine.usage(run).await.map_err(|error| progress.met(error))?.memory_bytes;
    shared.storage.has_room(need).await?;
    progress.held = true;
    shared.engine.pause(run).await.map_err(|error| progress.met(error))
}

/// Saves a guest that was paused by [`hold`].
pub(super) async fn write_held(task: &Task, run: &RunId, progress: &mut Progress) -> Result<SavedState, Failure> {
    progress.held = true;
    commit(task, write_paused(task, run, progress).await?).await
}

/// Pauses the guest and has its memory image written.
async fn write(task: &Task, run: &RunId, progress: &mut Progress) -> Result<Written, Failure> {
    prepare(task, run, progress).await?;
    write_paused(task, run, progress).await
}

/// Does what has to be done before the guest is paused.
async fn prepare(task: &Task, run: &RunId, progress: &mut Progress) -> Result<(), Failure> {
    let shared = &task.shared;
    if shared.paused_for_disk.leave(&task.sandbox.id) {
        // Its agent has to answer once more. If this fails, the next check of the disk pauses it
        // again.
        progress.held = true;
        shared.engine.resume(run).await.map_err(|error| progress.met(error))?;
    }
    make_ready(task, run, progress).await
}

async fn write_paused(task: &Task, run: &RunId, progress: &mut Progress) -> Result<Written, Failure> {
    let shared = &task.shared;
    let Some(id) = &task.saved_state else { return Err(unrecorded()) };
    let began = Instant::now();
    let need = shared.engine.usage(run).await.map_err(|error| progress.met(error))?.memory_bytes;
    let draft = shared.storage.begin(id, need).await?;
    let into = match task.kind {
        SnapshotKind::Memory => draft.directory().to_owned(),
        SnapshotKind::Filesystem => draft.make_memory().await?,
    };
    progress.held = true;
    let written = match task.kind {
        SnapshotKind::Memory => {
            // A sandbox that is resumed while it is parked still maps the image that it was
            // restored from. Only the newer one has a name for those pages.
            let earlier = task.sandbox.saved_states().map(|id| shared.storage.saved_state_directory(id));
            shared.engine.save(run, &into, &earlier.collect::<Vec<_>>()).await
        }
        SnapshotKind::Filesystem => shared.engine.save_files(run, &into).await,
    };
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            abandon(draft).await;
            return Err(progress.met(error));
        }
    };
    if matches!(task.sandbox.state, State::Suspending { .. })
        && let Err(why) = sync_volumes(task).await
    {
        abandon(draft).await;
        return Err(why);
    }
    tracing::debug!(%run, took = ?began.elapsed(), stopped = ?written.stopped, "saved");
    let build = written.build;
    let named = |SavedFile { name, bytes, shared_with, blake3 }| WrittenFile { name, bytes, shared_with, blake3 };
    let files = written.files.into_iter().map(named).collect();
    Ok(Written { draft, files, memory: into, build })
}

/// Makes the writes of a paused guest to its volumes durable: they are part of the state that is
/// reported as saved.
async fn sync_volumes(task: &Task) -> Result<(), Failure> {
    for attachment in task.sandbox.spec.attachments.iter().filter(|one| one.access == Access::Write) {
        task.shared.volumes.sync(&attachment.volume).await.map_err(unsynced)?;
    }
    Ok(())
}

fn unsynced(error: VolumeError) -> Failure {
    let full = matches!(&error, VolumeError::Disk { source, .. } if source.is_no_room());
    Failure::new(if full { Code::NoRoom } else { Code::Failed }, reason(&error))
}

/// Commits what was written as a saved state: durable and with hashes.
async fn commit(task: &Task, written: Written) -> Result<SavedState, Failure> {
    let began = Instant::now();
    let facts = SavedStateFacts { build: written.build.clone(), ..facts(task) };
    let saved_state = match task.kind {
        SnapshotKind::Memory => written.draft.commit(facts, &written.files).await,
        SnapshotKind::Filesystem => {
            written.draft.check_memory(&written.files).await?;
            return read_files(task, written.draft, &written.memory, facts).await;
        }
    };
    let saved_state = saved_state?;
    tracing::debug!(saved_state = %saved_state.id, bytes = saved_state.bytes(), took = ?began.elapsed(), "committed");
    Ok(saved_state)
}

/// Reads the files out of the memory image in `memory` and commits them as a saved state.
async fn read_files(
    task: &Task,
    draft: SavedStateDraft,
    memory: &Path,
    facts: SavedStateFacts,
) -> Result<SavedState, Failure> {
    let began = Instant::now();
    let read = async {
        let storage = &task.shared.storage;
        let below = storage.below(&facts.image, facts.layer.as_ref()).await?;
        let tree = draft.begin_tree(below).await?;
        let sink = Box::new(tree.clone());
        let left_out = task.shared.engine.read_files(memory, sink).await?;
        Ok::<_, Failure>((tree, left_out))
    };
    let (tree, left_out) = match read.await {
        Ok(read) => read,
        Err(failure) => {
            abandon(draft).await;
            return Err(failure);
        }
    };
    let reading = began.elapsed();
    let sleeps = matches!(task.sandbox.state, State::Suspending { .. });
    let saved_state = match &facts.layer {
        // A sandbox that is suspended with its files again and again must not stand on ever more
        // layers.
        Some(layer) if sleeps && task.shared.storage.depth(layer).await? >= LAYERS => {
            let rootfs = task.shared.storage.image(&facts.image).await?.rootfs;
            draft.commit_flat(facts, tree, rootfs).await?
        }
        Some(_) | None => draft.commit_tree(facts, tree).await?,
    };
    let committing = began.elapsed() - reading;
    tracing::debug!(saved_state = %saved_state.id, tree = ?saved_state.tree, ?left_out, ?reading, ?committing, "files committed");
    Ok(saved_state)
}

/// Commits the files in the image of a suspended sandbox as a saved state. Nothing is run.
pub(crate) async fn files_of_image(task: &Task, image: &SleepImage) -> Result<SavedState, Failure> {
    let shared = &task.shared;
    let Some(id) = &task.saved_state else { return Err(unrecorded()) };
    let attempt = async {
        let source = shared.storage.check(&image.saved_state).await?;
        let draft = shared.storage.begin(id, 0).await?;
        let facts = SavedStateFacts { generation: image.generation, taken: image.taken, ..facts(task) };
        read_files(task, draft, &source.directory, facts).await
    };
    let limit = shared.settings.limits.copy_of(std::iter::once(image));
    within_limit((limit, OPERATION_LIMIT), "taking a snapshot", attempt).await
}

/// Does what has to be done inside before the guest is paused. If the agent does not answer, that
/// is noted, and the guest is paused without it. The engine then refuses a guest that has a deleted
/// file of a volume open.
async fn make_ready(task: &Task, run: &RunId, progress: &mut Progress) -> Result<(), Failure> {
    let patience = QUIESCE.min(task.patience());
    let agent = match &task.agent {
        Some(agent) if !agent.is_closed() => agent.clone(),
        Some(_) | None => match connect(task, run, patience).await {
            Ok(agent) => agent,
            Err(error) if error.says_that_the_run_is_over() => {
                progress.over = true;
                return Err(error.into());
            }
            Err(error) => {
                progress.silent = Some(reason(&error));
                return Ok(());
            }
        },
    };
    progress.agent = Some(agent.clone());
    if !task.sandbox.spec.attachments.is_empty() {
        let exchanged = async {
            notice_deleted(task, run, &agent).await;
            agent.exchange_deleted().await
        };
        match tokio::time::timeout(EXCHANGE.min(2 * task.patience()), exchanged).await {
            // An agent of an earlier build does not support this; the engine refuses where it
            // matters.
            Ok(Ok(()) | Err(AgentError::Invalid(_))) => {}
            Ok(Err(error @ AgentError::Closed { .. })) => progress.silent = Some(reason(&error)),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                progress.silent = Some("copying its deleted files on volumes took too long".to_owned());
            }
        }
    }
    if progress.silent.is_none() {
        progress.silent = match tokio::time::timeout(patience, agent.quiesce()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(reason(&error)),
            Err(_) => Some(late("its agent", patience)),
        };
    }
    Ok(())
}

/// Has the guest look for the files of volumes that were deleted or replaced outside of it. It
/// keeps them open until then, even if no program does, and an open deleted file cannot be saved.
async fn notice_deleted(task: &Task, run: &RunId, agent: &Agent) {
    for path in task.shared.engine.deleted_on_volumes(run).await {
        let Ok(path) = GuestPath::new(path) else { continue };
        // That it is not there is what the guest should find out.
        let _ = agent.stat(&path).await;
    }
}

async fn abandon(draft: SavedStateDraft) {
    if let Err(error) = draft.abandon().await {
        tracing::warn!(error = %reason(&error), "cannot remove an incomplete saved state; the next start removes it");
    }
}

fn facts(task: &Task) -> SavedStateFacts {
    let capabilities = task.shared.engine.capabilities();
    let parent = match (&task.sandbox.state.image(), &task.sandbox.origin) {
        (Some(image), _) => Some(image.saved_state.clone()),
        (None, Origin::Snapshot { saved_state, .. }) => Some(saved_state.clone()),
        (None, Origin::Image | Origin::Filesystem { .. }) => None,
    };
    SavedStateFacts {
        engine: capabilities.name.to_owned(),
        build: capabilities.build.clone(),
        cpu: capabilities.cpu.clone(),
        image: task.sandbox.spec.image.clone(),
        layer: task.sandbox.spec.layer.clone(),
        sandbox: task.sandbox.id.clone(),
        generation: task.sandbox.generation,
        parent,
        resources: task.sandbox.spec.resources,
        taken: task.shared.now(),
    }
}

/// Lets the guest continue, if it was paused, and reports. A guest that does not answer is left as
/// it is; the actor tries again.
async fn release(task: &Task, run: &RunId, progress: Progress, report: Observation) -> Seen {
    let quiesced = progress.quiesced();
    let agent = progress.agent.clone().or_else(|| task.agent.clone());
    match reached(task, run, progress).await {
        Ok(Some(agent)) => Seen { quiesced, ..Seen::with(report, agent) },
        Ok(None) => Seen { quiesced, ..Seen::of(report) },
        Err(Unreached::Silent(reason)) => Seen { quiesced, silent: Some(reason), agent, ..Seen::of(report) },
        Err(Unreached::Over(reason)) => {
            end(task, run).await;
            Seen::of(Observation::RunLost(reason))
        }
    }
}

async fn reached(task: &Task, run: &RunId, progress: Progress) -> Result<Option<Agent>, Unreached> {
    let Progress { held, agent, silent, over } = progress;
    if over {
        return Err(Unreached::Over("the run ended while it was being saved".to_owned()));
    }
    if held {
        let task = Task { agent: agent.or_else(|| task.agent.clone()), ..task.clone() };
        return match silent {
            None => reach(&task, run, task.patience()).await.map(Some),
            // The agent was asked just before.
            Some(silent) => {
                super::reach::release(&task, run, task.patience()).await.and(Err(Unreached::Silent(silent)))
            }
        };
    }
    match (silent, agent) {
        (Some(silent), _) => Err(Unreached::Silent(silent)),
        (None, None) => Ok(None),
        (None, Some(agent)) => match tokio::time::timeout(task.patience(), agent.unquiesce()).await {
            Ok(Ok(())) => Ok(Some(agent)),
            Ok(Err(error)) => Err(Unreached::Silent(reason(&error))),
            Err(_) => Err(Unreached::Silent(late("its agent", task.patience()))),
        },
    }
}

pub(super) async fn remove_saved_state(task: &Task) {
    if let Some(saved_state) = &task.saved_state
        && let Err(error) = task.shared.storage.remove(saved_state).await
    {
        tracing::warn!(%saved_state, error = %reason(&error), "cannot remove an incomplete saved state; the next start removes it");
    }
}

/// Removes what was written and lets the guest continue.
pub(super) async fn undo(
    task: &Task,
    run: &RunId,
    progress: Progress,
    report: fn(Reason) -> Observation,
    failure: Failure,
) -> Seen {
    remove_saved_state(task).await;
    let Seen { observation, failure, .. } = Seen::failed(report, failure);
    #[cfg(feature = "planted-bugs")]
    if dorm_steps::planted::is(dorm_steps::planted::Planted::MissedUndo) {
        return Seen { failure, ..Seen::of(observation) };
    }
    #[cfg(feature = "planted-bugs")]
    if dorm_steps::planted::is(dorm_steps::planted::Planted::RunEndedOnFailedSave)
        && let Observation::SaveFailed(reason) = &observation
    {
        end(task, run).await;
        return Seen::of(Observation::RunLost(reason.clone()));
    }
    let seen = release(task, run, progress, observation).await;
    // If the run is lost, that is reported instead.
    let failure = failure.filter(|_| !matches!(seen.observation, Observation::RunLost(_)));
    Seen { failure, ..seen }
}

/// Removes an image of which it is not known whether it was recorded:
/// [`dorm_steps::planted::Planted::CommitReportedFailed`].
#[cfg(feature = "planted-bugs")]
pub(crate) async fn give_up_image(task: &Task, saved_state: &SavedStateId, why: &str) -> Seen {
    let task = Task { saved_state: Some(saved_state.clone()), ..task.clone() };
    let run = task.sandbox.run_id();
    let held = Progress { held: true, ..Progress::default() };
    undo(&task, &run, held, Observation::SaveFailed, Failure::new(Code::StoreFailed, why)).await
}

/// After a daemon restart: lets a paused guest continue, then reports.
pub(crate) async fn continue_after_restart(task: &Task, run: &RunId, report: Observation) -> Seen {
    release(task, run, Progress { held: true, ..Progress::default() }, report).await
}
