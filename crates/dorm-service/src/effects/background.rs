//! Work that is done while a sandbox keeps its state: changing its volumes or its egress, making a
//! snapshot from its sleep image, and making the copy for a rewind. Each ends within its limit, or
//! half a minute later if a run cannot get its previous egress back at once. On failure nothing
//! about the sandbox has changed.

use std::time::Duration;

use dorm_agent_client::{Agent, Busy};
use dorm_lifecycle::{
    Attachment, BackgroundWork, ByteSize, Egress, Keep, Observation, Resources, RunId, Sandbox, SavedStateId,
    SleepImage, SnapshotId, SnapshotKind, State,
};
use dorm_store::Code;

use super::save::unrecorded;
use super::{OPERATION_LIMIT, Seen, Task, UNDO, Written, connect, files_of_image, mount_all, mount_inside, too_late};
use crate::error::{Failure, ServiceError, chain};

/// The delay before the previous egress of a run is set again.
const AGAIN: Duration = Duration::from_secs(1);

/// Gives a live run the volumes in `after` and no others. Volumes to be removed must not be in use,
/// so they are unmounted inside first; on any failure, the run gets those in `before` again.
pub(super) async fn attach(task: &Task, run: &RunId, before: &[Attachment], after: &[Attachment]) -> Seen {
    let limit = task.shared.settings.limits.attach;
    let staying: Vec<_> = before.iter().filter(|one| after.contains(one)).cloned().collect();
    let mut agent = task.agent.clone().filter(|agent| !agent.is_closed());
    let (mut touched, mut silent) = (false, None);
    let attempt = async {
        let agent = match &agent {
            Some(agent) => agent.clone(),
            None => match connect(task, run, task.patience()).await {
                Ok(new) => agent.insert(new).clone(),
                Err(error) => {
                    silent = (!error.says_that_the_run_is_over()).then(|| chain(&error));
                    return Err(Failure::of_path(error));
                }
            },
        };
        touched = true;
        if staying.len() < before.len() {
            let left = mount_inside(&task.shared, &with(task, &staying), &agent, Busy::Refuse).await;
            left.map_err(Failure::of_path)?;
        }
        mount_all(&task.shared, &with(task, after), &agent).await.map_err(Failure::of_path)?;
        Ok::<_, Failure>(())
    };
    let changed = tokio::time::timeout(limit, attempt).await;
    match changed.unwrap_or_else(|_| Err(Failure::late("changing its volumes", limit))) {
        Ok(()) => Seen { agent, ..Seen::of(Observation::Attached) },
        Err(failure) => {
            if touched && let Err(error) = put_back(task, run, before, &mut agent).await {
                tracing::error!(%run, error = %chain(&error), "cannot restore the previous volumes of a run; its next run has them");
            }
            Seen { silent, agent, ..Seen::failed(Observation::AttachFailed, failure) }
        }
    }
}

async fn put_back(
    task: &Task,
    run: &RunId,
    before: &[Attachment],
    agent: &mut Option<Agent>,
) -> Result<(), ServiceError> {
    let agent = match agent {
        Some(agent) if !agent.is_closed() => agent.clone(),
        Some(_) | None => agent.insert(connect(task, run, task.patience()).await?).clone(),
    };
    mount_all(&task.shared, &with(task, before), &agent).await
}

/// Returns the sandbox with these attachments.
fn with(task: &Task, attachments: &[Attachment]) -> Sandbox {
    let mut sandbox = task.sandbox.clone();
    sandbox.spec.attachments = attachments.to_vec();
    sandbox
}

/// Ends a parked run that has other volumes than its sandbox will have: the sandbox then wakes from
/// its image.
pub(super) async fn evict(task: &Task, run: &RunId) -> Seen {
    if !task.shared.parking.holds(&task.sandbox.id) {
        return Seen::of(Observation::Attached);
    }
    match tokio::time::timeout(UNDO, task.shared.engine.stop(run)).await {
        Ok(Ok(())) => Seen::of(Observation::Attached),
        Ok(Err(error)) => Seen::failed(Observation::AttachFailed, error.into()),
        Err(_) => Seen::failed(Observation::AttachFailed, Failure::late("ending its parked run", UNDO)),
    }
}

/// Gives a live or parked run the egress policy `after`. A parked run that cannot be changed is
/// ended: the sandbox then wakes from its image, with the policy of its record.
pub(super) async fn egress(task: &Task, run: &RunId, before: &Egress, after: &Egress) -> Seen {
    let is_suspended = matches!(task.sandbox.state, State::Suspended { .. });
    if is_suspended && !task.shared.parking.holds(&task.sandbox.id) {
        return Seen::of(Observation::EgressSet);
    }
    let mut agent = task.agent.clone().filter(|agent| !agent.is_closed());
    let trusted = match is_suspended || after.headers().is_empty() {
        true => Ok(()),
        false => trust(task, run, after, &mut agent).await,
    };
    let changed = match trusted {
        // The certificate is there since the rules before.
        Err(failure) if before.headers().is_empty() => Err(failure),
        Err(failure) => {
            tracing::warn!(%run, reason = failure.reason(), "cannot see whether a sandbox trusts the authority of its project");
            set_egress(task, run, after).await
        }
        Ok(()) => set_egress(task, run, after).await,
    };
    let Err(failure) = changed else { return Seen { agent, ..Seen::of(Observation::EgressSet) } };
    // An attempt that is late may still have taken effect.
    let restored = match is_suspended {
        true => {
            tracing::warn!(%run, reason = failure.reason(), "cannot change the egress of a parked run; ending the run");
            match tokio::time::timeout(UNDO, task.shared.engine.stop(run)).await {
                Ok(Ok(())) => return Seen::of(Observation::EgressSet),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(Failure::late("ending its parked run", UNDO)),
            }
        }
        false => restore_egress(task, run, before).await,
    };
    let Err(also) = restored else { return Seen::failed(Observation::EgressFailed, failure) };
    tracing::error!(%run, reason = also.reason(), "cannot restore the previous egress of a run");
    let failure = failure.told_as(|why| {
        let also = also.reason();
        format!("{why}; its run may have the previous egress or the new one ({also}): set the egress again")
    });
    Seen::failed(Observation::EgressFailed, failure)
}

/// Gives a run its previous egress again. Until it has that, the operation is in progress: a daemon
/// that dies meanwhile leaves its change to the next one, which sets the new egress.
async fn restore_egress(task: &Task, run: &RunId, before: &Egress) -> Result<(), Failure> {
    let until = tokio::time::Instant::now() + UNDO;
    loop {
        let Err(failure) = set_egress(task, run, before).await else { return Ok(()) };
        if tokio::time::Instant::now() >= until {
            return Err(failure);
        }
        tokio::select! {
            biased;
            () = task.shared.stopping.cancelled() => return Err(failure),
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Makes a running guest trust the authority of its project, which the new policy needs.
async fn trust(task: &Task, run: &RunId, after: &Egress, agent: &mut Option<Agent>) -> Result<(), Failure> {
    let limit = task.patience().min(task.shared.settings.limits.egress / 4);
    let mut sandbox = task.sandbox.clone();
    sandbox.spec.egress = after.clone();
    let work = async {
        let agent = match agent {
            Some(agent) => agent.clone(),
            None => agent.insert(connect(task, run, limit).await?).clone(),
        };
        crate::trust::establish(&task.shared, &sandbox, &agent, crate::trust::Before::Own).await
    };
    match tokio::time::timeout(limit, work).await {
        Ok(trusted) => Ok(trusted?),
        Err(_) => Err(Failure::late("giving it the certificate of its project's authority", limit)),
    }
}

async fn set_egress(task: &Task, run: &RunId, egress: &Egress) -> Result<(), Failure> {
    // Trust may have taken a quarter, and the previous policy may have to be set again.
    let limit = task.shared.settings.limits.egress / 8 * 3;
    match tokio::time::timeout(limit, task.shared.engine.set_egress(run, egress)).await {
        Ok(set) => Ok(set?),
        Err(_) => Err(Failure::late("changing its egress", limit)),
    }
}

/// Gives a live or parked run the limits `after`. A parked run that cannot be changed is ended: the
/// sandbox then wakes from its image, with the limits of its record.
pub(super) async fn resize(task: &Task, run: &RunId, before: Resources, after: Resources) -> Seen {
    let is_suspended = matches!(task.sandbox.state, State::Suspended { .. });
    if is_suspended {
        // Whether it has a parked run is known to the engine alone while a daemon starts.
        let condition = tokio::time::timeout(UNDO, task.shared.engine.condition(run)).await;
        if matches!(condition, Ok(Ok(None))) {
            return Seen::of(Observation::Resized);
        }
    }
    let Err(failure) = set_limits(task, run, before, after).await else { return Seen::of(Observation::Resized) };
    if is_suspended {
        tracing::warn!(%run, reason = failure.reason(), "cannot change the limits of a parked run; ending the run");
        return match tokio::time::timeout(UNDO, task.shared.engine.stop(run)).await {
            Ok(Ok(())) => Seen::of(Observation::Resized),
            Ok(Err(error)) => Seen::failed(Observation::ResizeFailed, error.into()),
            Err(_) => Seen::failed(Observation::ResizeFailed, Failure::late("ending its parked run", UNDO)),
        };
    }
    // An attempt that is late may still have taken effect.
    let Err(also) = set_limits(task, run, after, before).await else {
        return Seen::failed(Observation::ResizeFailed, failure);
    };
    tracing::error!(%run, reason = also.reason(), "cannot restore the previous limits of a run");
    let failure = failure.told_as(|why| {
        let also = also.reason();
        format!("{why}; its run may have the previous limits or the new ones ({also}): resize it again")
    });
    Seen::failed(Observation::ResizeFailed, failure)
}

/// A limit below what is in use would have to kill a process, so it is refused.
async fn set_limits(task: &Task, run: &RunId, before: Resources, after: Resources) -> Result<(), Failure> {
    let limit = task.shared.settings.limits.egress / 2;
    let changed = async {
        if after.memory_bytes < before.memory_bytes {
            let used = task.shared.engine.usage(run).await?.memory_bytes;
            if used > after.memory_bytes {
                let why = format!("it uses {} of memory, and its limit cannot be lower", ByteSize(used));
                return Err(Failure::new(Code::Conflict, why));
            }
        }
        Ok(task.shared.engine.set_limits(run, &after).await?)
    };
    match tokio::time::timeout(limit, changed).await {
        Ok(changed) => changed,
        Err(_) => Err(Failure::late("changing its limits", limit)),
    }
}

/// Copies the saved state of a memory snapshot for the sandbox; the snapshot was verified to its
/// last byte just before.
pub(super) async fn prepare_rewind(task: &Task, to: &SnapshotId, target: &SavedStateId) -> Seen {
    let copied = task.sandbox.state.background().and_then(|background| match &background.work {
        BackgroundWork::PrepareRewind(rewind) => rewind.target.as_ref(),
        BackgroundWork::Attach { .. }
        | BackgroundWork::Egress { .. }
        | BackgroundWork::Resize { .. }
        | BackgroundWork::Snapshot(_)
        | BackgroundWork::SaveHeld(_) => None,
    });
    let limit = task.shared.settings.limits.copy_of(copied.into_iter());
    let (shared, to, copy) = (task.shared.clone(), to.clone(), target.clone());
    let copied = async move {
        let snapshot = shared.store.snapshot(&to).await?.ok_or(ServiceError::NoSnapshot(to))?;
        let copied = shared.storage.copy(&snapshot.saved_state, &copy).await?;
        let (bytes, shares_data) = (copied.saved_state.bytes(), copied.shares_data);
        Ok(Written { bytes, shares_data, ..Written::default() })
    };
    match to_its_end(task, "preparing a rewind", limit, target, copied).await {
        Ok(_) => {
            task.shared.removals.note_verified(target);
            Seen::of(Observation::RewindPrepared)
        }
        Err(failure) => Seen::failed(Observation::RewindNotPrepared, failure),
    }
}

/// Makes a snapshot from the sleep image of a suspended sandbox. Nothing is run. The files of the
/// image are read to their last byte, because damage in a snapshot would otherwise be noticed only
/// when the snapshot is needed.
pub(super) async fn snapshot_image(task: &Task, image: &SleepImage) -> Seen {
    let limit = task.shared.settings.limits.copy_of(std::iter::once(image));
    let Some(saved_state) = task.saved_state.clone() else {
        return Seen::failed(Observation::SnapshotFailed, unrecorded());
    };
    let (own, image, to) = (task.clone(), image.clone(), saved_state.clone());
    let made = async move {
        match own.kind {
            SnapshotKind::Memory => {
                let copied = own.shared.storage.copy_checked(&image.saved_state, &to).await;
                if let Err(error) = &copied {
                    own.shared.is_damaged(error).await;
                }
                let copied = copied?;
                let (bytes, shares_data) = (copied.saved_state.bytes(), copied.shares_data);
                Ok(Written { bytes, shares_data, ..Written::default() })
            }
            SnapshotKind::Filesystem if image.keeps() == Keep::Files => {
                Ok(Written::of(own.shared.storage.flatten(&image.saved_state, &to).await?.bytes()))
            }
            SnapshotKind::Filesystem => Ok(Written::of(files_of_image(&own, &image).await?.bytes())),
        }
    };
    match to_its_end(task, "taking a snapshot", limit, &saved_state, made).await {
        Ok(written) => Seen { written, ..Seen::of(Observation::SnapshotTaken) },
        Err(failure) => Seen::failed(Observation::SnapshotFailed, failure),
    }
}

/// Waits for `work`, which writes `saved_state`, up to its limit. The disk may still write after
/// that: the files are then removed when the work ends, or at the next start.
async fn to_its_end(
    task: &Task,
    what: &str,
    limit: Duration,
    saved_state: &SavedStateId,
    work: impl Future<Output = Result<Written, Failure>> + Send + 'static,
) -> Result<Written, Failure> {
    let mut working = task.shared.spawn(work);
    match tokio::time::timeout(limit, &mut working).await {
        Ok(Ok(done)) => done,
        Ok(Err(unfinished)) => Err(Failure::new(Code::Internal, unfinished.to_string())),
        Err(_) => {
            let (storage, saved_state) = (task.shared.storage.clone(), saved_state.clone());
            task.shared.spawn(async move {
                let _ = working.await;
                if let Err(error) = storage.remove(&saved_state).await {
                    tracing::warn!(%saved_state, error = %chain(&error), "cannot remove an incomplete saved state; the next start removes it");
                }
            });
            Err(too_late(what, (limit, OPERATION_LIMIT)))
        }
    }
}
