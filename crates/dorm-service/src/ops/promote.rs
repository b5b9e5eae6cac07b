//! Promotions: a child takes the place of the sandbox it was made from.
//!
//! ```text
//! record the promotion ─► memory snapshot of the child, deleted when unused ─► rewind the parent to it
//!    ─► terminate the child ─► record the end of the promotion
//! ```
//!
//! A daemon that dies in between leaves an open promotion. The next daemon finishes it if the
//! parent has been rewound, and abandons it otherwise: then both sandboxes continue as they were.

use dorm_lifecycle::{Denied, EventKind, Initiator, OperationId, Sandbox, SandboxId, SnapshotId, SnapshotKind, State};
use dorm_store::{Change, Made, NewEvent, OperationKind, OperationRecord, OperationResult, PromotePlan, Removal};

use super::fork::{Recorded, close};
use super::rewind::{KeepFuture, RewoundSandbox};
use crate::error::{ServiceError, chain, stopped};
use crate::messages::SnapshotSpec;
use crate::shared::{Service, Using};
use crate::view::SandboxView;

/// A sandbox that was replaced by a child of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promoted {
    /// The sandbox, with the child's memory and files.
    pub sandbox: SandboxView,
    /// The child, which is terminated.
    pub child: SandboxId,
    /// The snapshot of its previous state.
    pub future: Option<SnapshotId>,
}

impl Service {
    /// Puts a child in the place of the sandbox it was made from: the parent continues with the
    /// child's memory and files under its own id, name and settings, and the child is terminated.
    /// Work that the child does after the snapshot for this was taken is lost.
    ///
    /// # Errors
    ///
    /// `Denied` for a terminated child, `BadPromotion` for one whose parent is terminated or
    /// missing; those of [`Service::checkpoint`] and [`Service::rewind`]: both sandboxes then
    /// continue as they were.
    pub async fn promote(&self, child: &SandboxId, keep: KeepFuture) -> Result<Promoted, ServiceError> {
        if let Some(Made::Operation(earlier)) = self.earlier() {
            return self.promoted_earlier(earlier).await;
        }
        let sandbox = self.record(child).await?.sandbox;
        let parent = self.parent_of(&sandbox).await?;
        self.shared.admit_write("promote a sandbox", 0).await?;
        let (service, child) = (self.clone(), child.clone());
        let work = async move { service.promote_now(parent, child, keep).await };
        self.shared.finish(work).await
    }

    /// Returns the result of a promotion that an earlier request began.
    async fn promoted_earlier(&self, earlier: &OperationId) -> Result<Promoted, ServiceError> {
        let operation = self.done_earlier(earlier).await?;
        let Some(PromotePlan { child, snapshot }) = operation.promote.clone() else {
            return Err(ServiceError::made_is_gone("operation", earlier));
        };
        let (sandbox, future) = self.rewound_earlier(&operation, &snapshot).await?;
        Ok(Promoted { sandbox, child, future })
    }

    async fn parent_of(&self, child: &Sandbox) -> Result<SandboxId, ServiceError> {
        if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &child.state {
            let denied = Denied::Terminated(cause.clone());
            return Err(ServiceError::Denied { operation: "promote", sandbox: child.id.clone(), denied });
        }
        let bad = |what: String| ServiceError::BadPromotion { child: child.id.clone(), what };
        let Some(parent) = child.origin.source() else {
            return Err(bad("it was not made from another sandbox".to_owned()));
        };
        match self.record(parent).await {
            Err(ServiceError::NoSandbox(_)) => Err(bad(format!("its parent {parent} has no record"))),
            Err(error) => Err(error),
            Ok(record) => match &record.sandbox.state {
                State::Terminating { cause, .. } | State::Terminated { cause, .. } => {
                    Err(bad(format!("its parent {parent} is terminated ({cause})")))
                }
                _ => Ok(parent.clone()),
            },
        }
    }

    async fn promote_now(
        &self,
        parent: SandboxId,
        child: SandboxId,
        keep: KeepFuture,
    ) -> Result<Promoted, ServiceError> {
        let shared = &self.shared;
        let limits = shared.settings.limits;
        let source = self.record(&child).await?.sandbox;
        // The saved state of the child is restored into its parent, which is saved before.
        let limit = limits.snapshot_of(&source) + limits.suspend_of(&source) + limits.resume_of(&source);
        let plan = PromotePlan { child: child.clone(), snapshot: shared.ids().snapshot() };
        let operation = OperationRecord {
            sandbox: Some(parent.clone()),
            promote: Some(plan.clone()),
            ..shared.operation(self.project(), OperationKind::Promote, self.asked_by(Initiator::User), limit)
        };
        let _using = Using::of(shared, &plan.snapshot);
        let requests = self.made(Made::Operation(operation.id.clone()));
        shared.commit(Change { operations: vec![operation.clone()], requests, ..Change::default() }).await?;
        let part = self.of_part();
        let by = self.asked_by(Initiator::User);
        let asked = SnapshotSpec::new(plan.snapshot.clone(), SnapshotKind::Memory, Removal::WhenFree, by);
        let rewound = match self.snapshot_as(&child, asked).await {
            Ok(_) => part.rewind_now(&parent, &plan.snapshot, keep).await,
            Err(error) => Err(error),
        };
        match rewound {
            Ok(RewoundSandbox { sandbox, future, .. }) => {
                // If the daemon stops before this is recorded, the next start finishes it.
                self.finish_promotion(operation, &plan, Initiator::User).await;
                Ok(Promoted { sandbox, child, future })
            }
            Err(error) => {
                close(shared, operation, OperationResult::Failed(error.record()), None).await;
                Err(error)
            }
        }
    }

    /// Finishes a promotion: the child's memory and files are in the parent's place, and the child
    /// is terminated.
    async fn finish_promotion(&self, operation: OperationRecord, plan: &PromotePlan, by: Initiator) -> Recorded {
        if self.end_child(&plan.child, by).await == Recorded::NotYet {
            return Recorded::NotYet;
        }
        let event = match &operation.sandbox {
            Some(parent) => Some(NewEvent {
                project: self.project().clone(),
                sandbox: parent.clone(),
                at: self.shared.now(),
                kind: EventKind::Promoted,
                initiator: by,
                caller: self.asked_by(by).caller(),
                operation: Some(operation.id.clone()),
                generation: self.record(parent).await.map_or(0, |record| record.sandbox.generation),
                detail: Some(format!("{} took its place", plan.child)),
                took: Some(self.shared.now().since(operation.began)),
                bytes: None,
            }),
            None => None,
        };
        close(&self.shared, operation, OperationResult::Done, event).await
    }

    /// Ends a promotion during which a daemon died.
    pub(crate) async fn end_promotion(&self, operation: OperationRecord) {
        let Some(plan) = operation.promote.clone() else { return };
        let id = operation.id.clone();
        let ended = match self.was_rewound(&operation, &plan.snapshot).await {
            Ok(true) => Ok(self.finish_promotion(operation, &plan, Initiator::Recovery).await),
            Ok(false) => {
                let result = OperationResult::Failed(stopped());
                Ok(close(&self.shared, operation, result, None).await)
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(Recorded::Yes) => self.shared.removals.end_use(&plan.snapshot),
            Ok(Recorded::NotYet) => {}
            Err(error) => {
                tracing::warn!(operation = %id, error = %chain(&error), "cannot end a promotion; retrying at the next start");
            }
        }
    }

    /// Returns whether the sandbox of `operation` has been rewound to `snapshot`. Waits while the
    /// rewind is in progress.
    async fn was_rewound(&self, operation: &OperationRecord, snapshot: &SnapshotId) -> Result<bool, ServiceError> {
        let Some(parent) = &operation.sandbox else { return Ok(false) };
        loop {
            let news = self.shared.committed.notified();
            let Some(record) = self.shared.store.sandbox(parent).await? else { return Ok(false) };
            let sandbox = record.sandbox;
            if sandbox.state.rewind().is_none_or(|rewind| rewind.to != *snapshot) {
                return Ok(sandbox.rewound.is_some_and(|rewound| rewound.to == *snapshot));
            }
            tokio::select! {
                biased;
                () = self.shared.stopping.cancelled() => return Err(ServiceError::Stopping),
                () = news => {}
            }
        }
    }
}
