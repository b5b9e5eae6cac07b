//! Snapshots taken automatically, according to the policies of sandboxes.
//!
//! One task handles all sandboxes. It sleeps until the next snapshot is due, and then checks in
//! memory whether the sandbox has been used since the last one: an unused sandbox costs neither a
//! snapshot nor a read of its record. Due times follow from the records alone, so a restarted
//! daemon continues the schedule of its predecessor.

use std::time::Duration;

use dorm_lifecycle::{EventKind, Initiator, SandboxId};
use dorm_store::{Change, NewEvent};

use crate::error::{ServiceError, chain};
use crate::shared::Service;

/// The longest sleep: the host may be suspended meanwhile, which a timer does not count.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// Takes due snapshots until the service stops.
pub(crate) async fn keep_checkpointing(service: Service) {
    let shared = &service.shared;
    loop {
        let now = shared.now();
        for (id, taken) in shared.checkpointing.due(now) {
            let Some(handle) = shared.actor(&id) else { continue };
            if taken.is_behind(handle.activity.last()) {
                shared.checkpointing.take(&id);
                let own = service.of_project(&handle.project);
                shared.spawn(async move {
                    own.take_due(&id).await;
                    own.shared.checkpointing.over(&id);
                });
            }
        }
        let wait = shared.checkpointing.next().map_or(LOOK_AGAIN, |at| at.since(now).min(LOOK_AGAIN));
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = shared.checkpointing.news.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

impl Service {
    async fn take_due(&self, id: &SandboxId) {
        let shared = &self.shared;
        let turn = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            turn = shared.checkpointing.turns.acquire() => turn,
        };
        // The policy or the state may have changed while other sandboxes had their turn.
        let Ok(record) = self.record(id).await else { return };
        let Some(policy) = record.sandbox.spec.checkpoints else { return };
        let taken = self.policy_snapshot(id, policy.kind, Initiator::Timer).await;
        drop(turn);
        let Err(error) = taken else { return };
        match &error {
            // It is not running any more, so there is nothing to take.
            ServiceError::NotRunning { .. } | ServiceError::Denied { .. } | ServiceError::Stopping => return,
            ServiceError::NoSandbox(_) => return,
            // The failure has been recorded as an event already.
            ServiceError::OperationFailed { .. } => {}
            _ => self.note_untaken(id, &error).await,
        }
        tracing::warn!(sandbox = %id, error = %chain(&error), "cannot take an automatic snapshot");
    }

    /// Records that a snapshot could not even be started.
    async fn note_untaken(&self, id: &SandboxId, error: &ServiceError) {
        let Ok(record) = self.record(id).await else { return };
        let event = NewEvent {
            project: record.sandbox.project,
            sandbox: id.clone(),
            at: self.shared.now(),
            kind: EventKind::SnapshotFailed,
            initiator: Initiator::Timer,
            caller: None,
            operation: None,
            generation: record.sandbox.generation,
            detail: Some(error.message()),
            took: None,
            bytes: None,
        };
        if let Err(error) = self.shared.commit(Change { events: vec![event], ..Change::default() }).await {
            tracing::warn!(sandbox = %id, error = %chain(&error), "cannot record an event");
        }
    }
}
