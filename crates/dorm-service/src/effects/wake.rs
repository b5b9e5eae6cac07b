//! Wakes a guest: thaws it if it is parked, or else restores it from its image.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dorm_agent_client::{Agent, Identity, Variable};
use dorm_engine::RunSpec;
use dorm_lifecycle::{Keep, Observation, OnUnrestorable, Restored, RunId, SavedStateId, SleepImage};
use dorm_storage::{SavedState, StorageError};
use dorm_store::Code;

use super::{
    Memory, OPERATION_LIMIT, Reason, Seen, Task, UNDO, end, introduce, must_end_all, spec, too_late, within,
    within_limit,
};
use crate::error::{Failure, ServiceError, chain};

/// The variable that tells every process the id of its sandbox.
const SANDBOX_VARIABLE: &str = "DORMOUSE_SANDBOX";

/// A guest that runs again.
struct Back {
    run: RunId,
    agent: Agent,
    restored: Restored,
    /// Why it was not restored from its newest image, if so.
    because: Option<Reason>,
}

pub(super) async fn wake(task: &Task, parked: &RunId, fresh: &RunId, image: &SleepImage) -> Seen {
    let limit = task.shared.settings.limits.resume_of(&task.sandbox) + first_use(task).await;
    let until = tokio::time::Instant::now() + limit;
    let limit = (limit, OPERATION_LIMIT);
    // Checked before anything is changed: a parked run stays parked.
    if let Err(lost) = task.shared.secrets_of(&task.sandbox) {
        return Seen::failed(Observation::WakeFailed, lost.into());
    }
    let thaws = match within_limit(limit, "resuming", is_usable(task, parked, image)).await {
        Ok(thaws) => thaws,
        Err(failure) => return Seen::failed(Observation::WakeFailed, failure),
    };
    // A good run is not ended because its check took nearly all of the time.
    let until = until.max(tokio::time::Instant::now() + UNDO.min(limit.0));
    let back = tokio::time::timeout_at(until, attempt(task, parked, fresh, (image, thaws)));
    match back.await.unwrap_or_else(|_| Err(too_late("resuming", limit))) {
        Ok(Back { run, agent, restored, because }) => {
            Seen::with(Observation::Woken { run: run.generation, restored, because }, agent)
        }
        Err(failure) => {
            end(task, parked).await;
            end(task, fresh).await;
            task.shared.parking.leave(&task.sandbox.id);
            Seen::failed(Observation::WakeFailed, failure)
        }
    }
}

/// Returns the additional time needed if the image has not been read since the daemon started.
pub(super) async fn first_use(task: &Task) -> Duration {
    match task.shared.storage.unread_bytes(&task.sandbox.spec.image).await {
        0 => Duration::ZERO,
        unread => task.shared.settings.limits.start_of(unread),
    }
}

/// `thaws` says whether the parked run can continue.
async fn attempt(
    task: &Task,
    parked: &RunId,
    fresh: &RunId,
    (image, thaws): (&SleepImage, bool),
) -> Result<Back, Failure> {
    let restored = Restored::Memory { generation: Some(image.generation) };
    if thaws {
        match thaw(task, parked).await {
            Ok(agent) => return Ok(Back { run: parked.clone(), agent, restored, because: None }),
            // Nothing is lost: the parked run is a cache of the image, from which the sandbox is
            // restored.
            Err(failure) => {
                tracing::warn!(run = %parked, reason = failure.reason(), "cannot thaw a parked run; its image is restored")
            }
        }
    }
    // The parked run may be running since the attempt to thaw it, and two runs of one sandbox must
    // never exist.
    within(UNDO, "ending its previous run", must_end_all(task, parked)).await?;
    let (restored, because) = from_best(task, fresh, image).await?;
    let agent = introduce(task, fresh, Memory::Kept).await?;
    Ok(Back { run: fresh.clone(), agent, restored, because })
}

/// Starts a run from the newest image that can be restored or, if none can, as the sandbox's spec
/// permits. An older image is used only if a newer one is damaged, missing or from another engine;
/// transient errors are not a reason.
async fn from_best(task: &Task, run: &RunId, newest: &SleepImage) -> Result<(Restored, Option<Reason>), Failure> {
    let spec = spec(task, run).await?;
    let mut unusable: Vec<Reason> = Vec::new();
    let mut first: Option<Failure> = None;
    for image in std::iter::once(newest).chain(&task.sandbox.older) {
        if image.keeps() == Keep::Files {
            // It is the topmost of the layers in the spec.
            task.shared.engine.start(&spec).await?;
            let restored = Restored::Files { generation: image.generation };
            return Ok((restored, degraded(newest, image, &unusable)));
        }
        match restore(task, &spec, &image.saved_state).await {
            Ok(()) => {
                let restored = Restored::Memory { generation: Some(image.generation) };
                return Ok((restored, degraded(newest, image, &unusable)));
            }
            Err(NotRestored::Unusable(failure)) => {
                unusable
                    .push(format!("the sleep image of generation {} cannot be restored: {failure}", image.generation));
                first.get_or_insert(failure);
            }
            Err(NotRestored::Failed(failure)) => return Err(failure),
        }
    }
    let why = unusable.join("; ");
    match task.sandbox.spec.retention.on_unrestorable {
        OnUnrestorable::Fail => Err(match first {
            Some(first) => first.told_as(|_| why),
            None => Failure::new(Code::Damaged, why),
        }),
        OnUnrestorable::Fresh => {
            task.shared.engine.start(&spec).await?;
            let restored = if spec.layers.is_empty() { Restored::Nothing } else { Restored::Filesystem };
            Ok((restored, Some(format!("it has booted afresh: {why}"))))
        }
    }
}

/// Returns why `image` is used in place of newer ones; `None` if it is the newest.
fn degraded(newest: &SleepImage, image: &SleepImage, unusable: &[Reason]) -> Option<Reason> {
    let gone = newest.taken.since(image.taken).as_secs();
    let why = unusable.join("; ");
    let because = format!("it is back at generation {}, {gone} s older than its newest: {why}", image.generation);
    (!unusable.is_empty()).then_some(because)
}

/// Returns whether the sandbox has a parked run with all of its memory. The files from which it
/// maps some are verified, as before a restore. It does not need the rest of the image, which may
/// even be damaged: the run is then the better copy.
///
/// # Errors
///
/// If a file cannot be read now. Nothing is known to be wrong then, and the run stays parked.
async fn is_usable(task: &Task, parked: &RunId, image: &SleepImage) -> Result<bool, Failure> {
    if image.keeps() != Keep::Memory || !task.shared.parking.holds(&task.sandbox.id) {
        return Ok(false);
    }
    let directory = task.shared.storage.saved_state_directory(&image.saved_state);
    let names = task.shared.engine.mapped_files(parked, &directory).await;
    if names.is_empty() {
        return Ok(true);
    }
    match task.shared.storage.verify_files(&image.saved_state, names).await {
        Ok(()) => Ok(true),
        Err(error @ StorageError::Damaged { .. }) => {
            task.shared.is_damaged(&error).await;
            tracing::warn!(run = %parked, error = %chain(&error), "a parked run maps a damaged image and is ended");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

async fn thaw(task: &Task, run: &RunId) -> Result<Agent, Failure> {
    if !task.sandbox.spec.attachments.is_empty() {
        let mounts = task.shared.mounts(&task.sandbox).await?;
        task.shared.engine.mount(run, &mounts).await?;
    }
    task.shared.engine.resume(run).await?;
    Ok(introduce(task, run, Memory::Kept).await?)
}

/// Why a run was not started from a saved state.
pub(super) enum NotRestored {
    /// The saved state can never be restored: it is damaged, missing, or from another engine.
    Unusable(Failure),
    /// The attempt failed; another one may succeed.
    Failed(Failure),
}

impl NotRestored {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Unusable(failure) | Self::Failed(failure) => failure,
        }
    }
}

async fn verified(task: &Task, saved_state: &SavedStateId) -> Result<SavedState, StorageError> {
    match task.shared.removals.is_verified(saved_state) {
        true => task.shared.storage.saved_state(saved_state).await,
        false => task.shared.verify_saved_state(saved_state).await,
    }
}

/// Verifies a saved state to its last byte, then starts a run from it. No code of the guest runs
/// before that.
pub(super) async fn restore(task: &Task, spec: &RunSpec, saved_state: &SavedStateId) -> Result<(), NotRestored> {
    let began = Instant::now();
    let saved_state = verified(task, saved_state).await.map_err(|error| match error {
        StorageError::Missing(_)
        | StorageError::Damaged { .. }
        | StorageError::Incompatible { .. }
        | StorageError::MissingImage { .. } => NotRestored::Unusable(error.into()),
        _ => NotRestored::Failed(error.into()),
    })?;
    let verified = Instant::now();
    let spec = &RunSpec { build: Some(saved_state.facts.build.clone()), ..spec.clone() };
    task.shared
        .engine
        .restore(spec, &saved_state.directory)
        .await
        .map_err(|error| NotRestored::Failed(error.into()))?;
    let (verifying, restoring) = (verified - began, verified.elapsed());
    tracing::debug!(run = %spec.run, bytes = saved_state.bytes(), ?verifying, ?restoring, "restored");
    Ok(())
}

/// Returns what the agent tells the sandbox about itself when a run starts or continues.
///
/// # Errors
///
/// `SecretLost`.
pub(super) async fn identity(task: &Task) -> Result<Identity, ServiceError> {
    let sandbox = &task.sandbox;
    let image = task.shared.image_config(&sandbox.spec.image).await;
    let hostname = sandbox.spec.name.as_ref().map_or_else(|| sandbox.id.as_str(), |name| name.as_str());
    let own = [(SANDBOX_VARIABLE, sandbox.id.as_str())];
    let secrets = task.shared.secrets_of(sandbox)?;
    let given = sandbox.spec.variables.0.iter().chain(&secrets.0);
    let given = given.map(|(name, value)| (name.as_str(), value.as_str()));
    // Later values override earlier ones of the same name.
    let given: BTreeMap<_, _> = image.variables().chain(given).chain(own).collect();
    // Names and values that are not valid for a variable were rejected when the sandbox was
    // created.
    let variables = given.into_iter().filter_map(|(name, value)| Variable::new(name, value).ok()).collect();
    Ok(Identity {
        generation: sandbox.generation,
        hostname: hostname.to_owned(),
        unix_time_us: task.shared.clock.wall().as_millis().saturating_mul(1000),
        entropy: task.shared.ids().random(),
        variables,
    })
}
