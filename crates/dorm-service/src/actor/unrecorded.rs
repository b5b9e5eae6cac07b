//! Observations that could not be recorded, when it is certain that they were not.
//!
//! The failure is recorded first, with the written files marked for removal, and only then the
//! files are removed. A crash in between leaves either a record that marks them, or the operation
//! that names them as its own.

use dorm_lifecycle::Observation;

use super::Actor;
use crate::effects;
use crate::error::{ServiceError, chain};

impl Actor {
    /// Returns the observation to record in place of `observation`, which was not recorded because
    /// of `error`. `None` if it is not certain that it was not recorded: then the daemon is
    /// stopping, and the next start reads what holds.
    pub(super) async fn instead_of(&mut self, observation: Observation, error: &ServiceError) -> Option<Observation> {
        let reason = chain(error);
        let sandbox = &self.record.sandbox.id;
        if error.is_unknown() {
            tracing::error!(%sandbox, error = %reason, "cannot determine whether the result of an operation was recorded; the next start does");
            return None;
        }
        tracing::error!(%sandbox, error = %reason, "cannot record the result of an operation; retrying");
        #[cfg(feature = "planted-bugs")]
        if dorm_steps::planted::is(dorm_steps::planted::Planted::CommitReportedFailed)
            && let Observation::Saved(image) = &observation
        {
            let seen = effects::give_up_image(&self.task(), &image.saved_state, &reason).await;
            self.agent = seen.agent;
            return Some(seen.observation);
        }
        Some(match observation {
            Observation::Saved(_) => {
                let (task, run) = (self.task(), self.record.sandbox.run_id());
                let seen = effects::continue_after_restart(&task, &run, Observation::SaveFailed(reason)).await;
                self.agent = seen.agent;
                self.remember_silence(seen.silent);
                seen.observation
            }
            Observation::SnapshotTaken => Observation::SnapshotFailed(reason),
            // This failure could not be recorded either, so there may be no room for it. No record
            // names the files.
            failed @ (Observation::SaveFailed(_) | Observation::SnapshotFailed(_) | Observation::RunLost(_)) => {
                if let Some(saved_state) = &self.saved_state
                    && let Err(error) = self.shared.storage.remove(saved_state).await
                {
                    tracing::warn!(%saved_state, error = %chain(&error), "cannot remove an unrecorded saved state; the next start removes it");
                }
                failed
            }
            other @ (Observation::Started
            | Observation::StartFailed(_)
            | Observation::Attached
            | Observation::AttachFailed(_)
            | Observation::EgressSet
            | Observation::EgressFailed(_)
            | Observation::Resized
            | Observation::ResizeFailed(_)
            | Observation::RewindPrepared
            | Observation::RewindNotPrepared(_)
            | Observation::HeldSaved(_)
            | Observation::HeldNotSaved(_)
            | Observation::HeldLost(_)
            | Observation::Woken { .. }
            | Observation::WakeFailed(_)
            | Observation::Unreachable(_)
            | Observation::Reachable
            | Observation::Stopped) => other,
        })
    }
}
