//! Rewinds a guest: restores it from a snapshot after its present run was saved, or beside its
//! present run, which is held paused and saved afterwards.
//!
//! ```text
//! saved:  end the present run ─► restore the snapshot ─► record
//! held:   quiesce and pause the present run ─► restore the snapshot ─► record ─► answer
//!            ─► save the held run ─► record ─► end it
//! ```
//!
//! If the snapshot cannot be restored beside a held run, that run continues as if nothing had
//! happened.

use std::time::Duration;

use dorm_agent_client::Agent;
use dorm_lifecycle::{Held, Observation, Restored, RunId, Sandbox, SavedStateId, SleepImage, SnapshotKind, State};

use super::save::{self, Progress};
use super::wake::{NotRestored, first_use, identity, restore};
use super::{
    Memory, OPERATION_LIMIT, Seen, Task, UNDO, Written, end, introduce, must_end_all, spec, within, within_limit,
};
use crate::error::Failure;

/// How long a held run waits until it is saved, so that saving it does not delay the calls that
/// follow a rewind.
const SAVED_AFTER: Duration = Duration::from_millis(100);

/// The delays before saving a held run is tried again, first and longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Restores the guest from `target`. Of the present state, only the run is ended, whose image is on
/// record.
pub(super) async fn rewind(task: &Task, present: &RunId, fresh: &RunId, target: Option<&SavedStateId>) -> Seen {
    task.shared.parking.leave(&task.sandbox.id);
    let attempt = async {
        within(UNDO, "ending its previous run", must_end_all(task, present)).await?;
        arrive(task, fresh, target).await
    };
    match within_limit(limit(task).await, "rewinding", attempt).await {
        Ok((agent, restored)) => {
            Seen::with(Observation::Woken { run: fresh.generation, restored, because: None }, agent)
        }
        Err(failure) => {
            end(task, fresh).await;
            Seen::failed(Observation::WakeFailed, failure)
        }
    }
}

/// Pauses the present run and restores the guest from `target` beside it.
pub(super) async fn beside(task: &Task, present: &RunId, fresh: &RunId, target: Option<&SavedStateId>) -> Seen {
    let mut progress = Progress::default();
    let attempt = async {
        save::hold(task, present, &mut progress).await?;
        arrive(task, fresh, target).await
    };
    match within_limit(limit(task).await, "rewinding", attempt).await {
        Ok((agent, restored)) => {
            save::close_agents(task, &progress);
            let quiesced = progress.quiesced();
            Seen {
                quiesced,
                ..Seen::with(Observation::Woken { run: fresh.generation, restored, because: None }, agent)
            }
        }
        Err(failure) => {
            // Two runs of one sandbox must never answer.
            end(task, fresh).await;
            let seen = save::undo(task, present, progress, Observation::SaveFailed, failure).await;
            if let Some(agent) = &seen.agent {
                tell_generation(task, agent).await;
            }
            seen
        }
    }
}

async fn limit(task: &Task) -> (Duration, &'static str) {
    let limits = &task.shared.settings.limits;
    let limit = match task.sandbox.state.rewind() {
        Some(rewind) => limits.rewind_of(&task.sandbox, rewind),
        None => limits.resume_of(&task.sandbox),
    };
    (limit + first_use(task).await, OPERATION_LIMIT)
}

async fn arrive(task: &Task, fresh: &RunId, target: Option<&SavedStateId>) -> Result<(Agent, Restored), Failure> {
    let spec = spec(task, fresh).await?;
    let (restored, memory) = match target {
        Some(target) => {
            restore(task, &spec, target).await.map_err(NotRestored::into_failure)?;
            (Restored::Memory { generation: None }, Memory::Copied)
        }
        None => {
            task.shared.engine.start(&spec).await?;
            (Restored::Filesystem, Memory::Fresh)
        }
    };
    Ok((introduce(task, fresh, memory).await?, restored))
}

/// Tells a guest that continues after a failed rewind its generation, which has changed.
async fn tell_generation(task: &Task, agent: &Agent) {
    let told = async {
        let identity = identity(task).await?;
        agent.resumed(&identity).await.map_err(Failure::from)?;
        Ok::<_, Failure>(())
    };
    if let Err(failure) = within(task.patience(), "telling it its generation", told).await {
        tracing::warn!(sandbox = %task.sandbox.id, reason = failure.reason(), "a sandbox continues, but its guest does not know its generation");
    }
}

/// Saves the run that a rewind has left, if its state must be kept. The run stays paused. Returns
/// `None` if the daemon stops before another attempt.
pub(super) async fn save_held(task: &Task, run: &RunId) -> Option<Seen> {
    let Some(held) = task.sandbox.state.held().cloned() else {
        return Some(Seen::failed(Observation::HeldLost, save::unrecorded()));
    };
    if held.future.is_none() {
        return Some(Seen::of(Observation::HeldSaved(None)));
    }
    tokio::select! {
        biased;
        () = task.shared.stopping.cancelled(), if held.failures > 0 => return None,
        () = task.shared.stopping.cancelled() => {}
        () = task.unwanted.cancelled() => {}
        () = tokio::time::sleep(delay(held.failures)) => {}
    }
    let before = Task { sandbox: left(&task.sandbox, &held), kind: SnapshotKind::Memory, agent: None, ..task.clone() };
    let limit = task.shared.settings.limits.suspend_with(&held.resources);
    let mut progress = Progress::default();
    match within_limit((limit, OPERATION_LIMIT), "saving", save::write_held(&before, run, &mut progress)).await {
        Ok(saved_state) => {
            let image = SleepImage {
                bytes: saved_state.bytes(),
                saved_state: saved_state.id,
                generation: held.generation,
                taken: held.since,
                files: None,
            };
            let written = Written::of(image.bytes);
            Some(Seen { written, ..Seen::of(Observation::HeldSaved(Some(image))) })
        }
        Err(failure) => {
            tracing::warn!(%run, reason = failure.reason(), "cannot save the state that a rewind has left");
            save::remove_saved_state(&before).await;
            let report = if progress.is_over() || task.unwanted.is_cancelled() {
                Observation::HeldLost
            } else {
                Observation::HeldNotSaved
            };
            Some(Seen::failed(report, failure))
        }
    }
}

fn delay(failures: u32) -> Duration {
    let (first, longest) = AGAIN;
    match failures.checked_sub(1) {
        None => SAVED_AFTER,
        Some(more) => first.saturating_mul(1 << more.min(16)).min(longest),
    }
}

/// Returns `sandbox` as it was before the rewind.
fn left(sandbox: &Sandbox, held: &Held) -> Sandbox {
    let state = State::Running { since: held.since, image: held.image.clone(), background: None };
    let mut left = Sandbox { generation: held.generation, run: held.run, state, ..sandbox.clone() };
    left.spec.layer.clone_from(&held.layer);
    left.spec.resources = held.resources;
    left
}
