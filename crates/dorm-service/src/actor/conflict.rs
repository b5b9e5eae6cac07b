//! A record in the store that is not the one this actor knows: the store refuses changes of an older revision.
//!
//! Nobody but the actor writes the record of its sandbox, so this is not met while all is well. What the store says holds: the
//! record is read again, and what was asked or seen is decided again by it. Where it is in another state, what the actor does
//! does not belong to it any more, and the sandbox is taken up as at a start of the daemon.

use dorm_lifecycle::{RunCondition, RunId};
use dorm_store::StoreError;

use super::{Actor, Seat, Waiting};
use crate::error::ServiceError;
use crate::recovery;
use crate::shared::{Shared, chain};

/// How often a command is decided again at most.
pub(super) const ATTEMPTS: usize = 3;

/// Whether the record is still the one this actor works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Belongs {
    Yes,
    /// It is in another state.
    Displaced,
    /// There is none.
    Unrecorded,
}

/// Whether a change was refused since it was made from an older record.
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
                tracing::error!(sandbox = %id, known, found, "the record of a sandbox was changed by somebody else; it is read again");
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
            // The next change is refused again, and it is read then.
            Err(error) => tracing::error!(sandbox = %id, error = %chain(&error), "a record cannot be read again"),
        }
    }

    /// Ends this actor after a conflict; another one goes on where there is a record.
    pub(super) async fn leave(mut self) {
        let conflict = || {
            let (id, expected) = (self.record.sandbox.id.to_string(), self.record.revision);
            ServiceError::from(StoreError::Stale { id, expected })
        };
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::View(_, reply) => _ = reply.send(Err(conflict())),
                Waiting::Snapshot(reply) => _ = reply.send(Err(conflict())),
            }
        }
        if self.belongs == Belongs::Unrecorded {
            self.shared.left_alone.note(self.record.sandbox.run_id());
            return self.shared.leave(&self.record.sandbox.id);
        }
        let Self { shared, record, inbox, activity, later, .. } = self;
        let found = found(&shared, record.sandbox.run_id()).await;
        for message in later {
            shared.tell(&record.sandbox.id, message);
        }
        recovery::take_up(&shared, record, &found, Seat { inbox, activity }).await;
    }
}

/// What the engine runs of a sandbox. Where it cannot tell, the run on record is taken for one that does not answer.
async fn found(shared: &Shared, own: RunId) -> Vec<(RunId, RunCondition)> {
    match shared.engine.inventory().await {
        Ok(all) => {
            let found = all.into_iter().filter(|found| found.run.sandbox == own.sandbox);
            found.map(|found| (found.run, found.condition)).collect()
        }
        Err(error) => {
            tracing::warn!(run = %own, error = %error.chain(), "the engine does not say what runs of a sandbox");
            vec![(own, RunCondition::Silent)]
        }
    }
}
