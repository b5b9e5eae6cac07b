//! Conflicts between the record in the store and the one that this actor knows: the store refuses
//! changes based on an older revision.
//!
//! Only the actor writes the record of its sandbox, so a conflict does not occur in normal
//! operation. The store is authoritative: the record is read again, and the command or observation
//! is decided again. If the record is in another state, what the actor was doing no longer applies,
//! and the sandbox is recovered as at daemon startup.

use dorm_lifecycle::{RunCondition, RunId, Sandbox};
use dorm_store::StoreError;

use super::{Actor, Seat, Waiting, revival};
use crate::error::{ServiceError, chain};
use crate::shared::Shared;

/// How many times a command is decided at most.
pub(super) const ATTEMPTS: usize = 3;

/// Whether the record is still the one that this actor works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Belongs {
    Yes,
    /// The record is in another state.
    Displaced,
    /// There is no record.
    Unrecorded,
}

/// Returns whether a change was refused because it was based on an older record.
pub(super) fn is_conflict(error: &ServiceError) -> bool {
    matches!(error, ServiceError::Store(StoreError::Stale { .. } | StoreError::Missing(_)))
}

impl Actor {
    /// Reads the record again after a change of it was refused.
    pub(super) async fn read_again(&mut self) {
        let id = self.record.sandbox.id.clone();
        metrics::counter!("dorm_record_conflicts_total").increment(1);
        match self.shared.store.sandbox(&id).await {
            Ok(Some(record)) => {
                let (known, found) = (self.record.revision, record.revision);
                tracing::error!(sandbox = %id, known, found, "the record of a sandbox was changed by another writer; it is read again");
                if record.sandbox.state != self.record.sandbox.state {
                    self.belongs = Belongs::Displaced;
                }
                self.shared.ledger.note(&record.sandbox);
                self.record = record;
            }
            Ok(None) => {
                tracing::error!(sandbox = %id, "the record of a sandbox is gone; its run is left alone");
                self.belongs = Belongs::Unrecorded;
            }
            // The next change is refused again, and the record is read then.
            Err(error) => tracing::error!(sandbox = %id, error = %chain(&error), "cannot read a record again"),
        }
    }

    /// Ends this actor after a conflict; a new actor takes over if there is a record.
    pub(super) async fn leave(mut self) {
        let conflict = || {
            let (id, expected) = (self.record.sandbox.id.to_string(), self.record.revision);
            ServiceError::from(StoreError::Stale { id, expected })
        };
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::View(_, reply) | Waiting::Command(_, reply) => _ = reply.send(Err(conflict())),
                Waiting::Snapshot(reply) => _ = reply.send(Err(conflict())),
                Waiting::Settled(reply) => _ = reply.send(Ok(())),
            }
        }
        if self.belongs == Belongs::Unrecorded {
            self.shared.left_alone.note(self.record.sandbox.run_id());
            return self.shared.leave(&self.record.sandbox.id);
        }
        let Self { shared, record, inbox, activity, later, .. } = self;
        let found = found(&shared, &record.sandbox).await;
        for message in later {
            shared.tell(&record.sandbox.id, message);
        }
        revival::take_up(&shared, record, &found, Seat { inbox, activity }).await;
    }
}

/// Returns the runs of a sandbox that the engine finds. If the engine cannot tell, the recorded
/// runs are treated as ones that do not answer.
async fn found(shared: &Shared, sandbox: &Sandbox) -> Vec<(RunId, RunCondition)> {
    let own = sandbox.run_id();
    match shared.engine.inventory().await {
        Ok(all) => {
            let found = all.into_iter().filter(|found| found.run.sandbox == own.sandbox);
            found.map(|found| (found.run, found.condition)).collect()
        }
        Err(error) => {
            tracing::warn!(run = %own, error = %error.chain(), "the engine cannot list the runs of a sandbox");
            std::iter::once(own).chain(sandbox.held_run()).map(|run| (run, RunCondition::Silent)).collect()
        }
    }
}
