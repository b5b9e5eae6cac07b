//! Requests with an idempotency key: a retry returns the result of the first request.
//!
//! ```text
//! take the turn of the key ─► look for its record ─┬─ none ─► make it, and record the request in the same change
//!                                                  └─ found ─► wait for the end of what it made, return that
//! ```
//!
//! Nothing is recorded before something is made, so a request that was refused, or that a stopping
//! daemon interrupted earlier, can be sent again. The turn of a key lasts until its request has
//! been recorded or has failed, whether or not its caller still waits.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{Initiator, OperationId, RequestId, SandboxId, SnapshotId, State};
use dorm_store::{
    FailureRecord, Made, OperationFilter, OperationKind, OperationRecord, OperationResult, RequestRecord,
    SnapshotFilter, SnapshotRecord, SnapshotStatus,
};
use tokio::sync::futures::Notified;

use super::resume::ResumeSpec;
use crate::error::ServiceError;
use crate::keyed::KeyedRequest;
use crate::messages::Manner;
use crate::shared::Service;
use crate::view::SandboxView;

/// The longest time after which the record of an operation that is waited for is read again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Service {
    /// Returns a handle for one request with an idempotency key. If a request with the same key is
    /// in progress, this waits until that has made something or has failed. Through the handle,
    /// methods that make something return what the first request with the key has made.
    ///
    /// # Errors
    ///
    /// `KeyReused` if the key was used for a request with another fingerprint.
    pub async fn for_request(&self, id: &RequestId, fingerprint: [u8; 32]) -> Result<Self, ServiceError> {
        let turn = self.shared.request_turns.of(id).lock_owned().await;
        let earlier = match self.shared.store.request(id).await? {
            None => None,
            Some(record) if record.fingerprint == fingerprint => Some(record.made),
            Some(_) => return Err(ServiceError::KeyReused),
        };
        let (id, project) = (id.clone(), self.project().clone());
        let request = KeyedRequest { id, project, fingerprint, earlier, _turn: turn };
        Ok(Self { request: Some(Arc::new(request)), ..self.clone() })
    }

    /// Whether this is the handle of a request whose idempotency key has made something before.
    pub fn is_retry(&self) -> bool {
        self.earlier().is_some()
    }

    /// Returns the sandbox that the first request with this idempotency key created, once its
    /// creation has ended. `None` if this is no retry of a creation.
    ///
    /// # Errors
    ///
    /// `FailedEarlier` if it could not be created, `MadeIsGone` if its record was removed.
    pub async fn created_by_first_request(&self) -> Result<Option<SandboxView>, ServiceError> {
        match self.earlier() {
            Some(Made::Sandbox(earlier)) => self.created_earlier(earlier).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Does something to its end in a task of its own. Its caller may go away at any time: no lock
    /// is released, and no turn of a key ends, before the daemon knows what is recorded.
    pub(super) async fn to_the_end<T, W>(&self, work: impl FnOnce(Self) -> W) -> Result<T, ServiceError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, ServiceError>> + Send + 'static,
    {
        self.shared.finish(work(self.clone())).await
    }

    /// Returns the same handle without the idempotency key and the manner of a request, for its
    /// parts.
    pub(crate) fn of_part(&self) -> Self {
        Self { request: None, manner: Manner::default(), ..self.clone() }
    }

    pub(super) fn request_id(&self) -> Option<&RequestId> {
        self.request.as_ref().map(|request| &request.id)
    }

    /// Returns the object that an earlier request with the same idempotency key has made.
    pub(super) fn earlier(&self) -> Option<&Made> {
        self.request.as_ref()?.earlier.as_ref()
    }

    /// Returns the record of this request for the change that records what it makes; nothing
    /// without an idempotency key.
    pub(super) fn made(&self, made: Made) -> Vec<RequestRecord> {
        self.request.iter().map(|request| request.record(made.clone(), self.shared.now())).collect()
    }

    /// Waits for the end of an operation. `None` if it has no record.
    pub(super) async fn ended(
        &self,
        id: &OperationId,
    ) -> Result<Option<(OperationRecord, OperationResult)>, ServiceError> {
        loop {
            let news = self.shared.committed.notified();
            match self.shared.store.operation(id).await? {
                None => return Ok(None),
                Some(operation) => {
                    if let Some((_, result)) = operation.ended.clone() {
                        return Ok(Some((operation, result)));
                    }
                }
            }
            self.something_happens(news).await?;
        }
    }

    /// Returns after the next event, or after a while.
    async fn something_happens(&self, news: Notified<'_>) -> Result<(), ServiceError> {
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => Err(ServiceError::Stopping),
            _ = tokio::time::timeout(LOOK_AGAIN, news) => Ok(()),
        }
    }

    /// Returns the result of the creation of a sandbox that an earlier request recorded.
    pub(crate) async fn created_earlier(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        let filter = OperationFilter { sandbox: Some(id.clone()), ..OperationFilter::default() };
        let operations = self.shared.store.find_operations(&filter).await?;
        let creation = operations.into_iter().rfind(|operation| operation.kind == OperationKind::Create);
        if let Some(creation) = creation
            && let Some((_, OperationResult::Failed(failure))) = self.ended(&creation.id).await?
        {
            return Err(ServiceError::FailedEarlier(failure));
        }
        match self.describe(id).await {
            Err(ServiceError::NoSandbox(_)) => Err(ServiceError::made_is_gone("sandbox", id)),
            other => other,
        }
    }

    /// Returns the sandbox that an earlier request has claimed, which runs. Its wake may have
    /// failed or have been interrupted.
    pub(super) async fn claimed_earlier(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        let claimed = self.created_earlier(id).await?;
        let woken = match &claimed.sandbox.state {
            State::Suspended { .. } | State::Resuming { .. } => {
                self.resume_as(id, Initiator::User, ResumeSpec::default()).await
            }
            State::Pending { .. }
            | State::Running { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Terminating { .. }
            | State::Terminated { .. } => Ok(claimed),
        };
        let is_over = match &woken {
            Ok(view) => matches!(view.sandbox.state, State::Terminating { .. } | State::Terminated { .. }),
            Err(error) => matches!(error, ServiceError::Denied { .. } | ServiceError::NoSandbox(_)),
        };
        let filter = OperationFilter { sandbox: Some(id.clone()), ..OperationFilter::default() };
        let is_wake = |operation: &OperationRecord| operation.kind == OperationKind::Resume;
        let wake = match is_over {
            true => self.shared.store.find_operations(&filter).await?.into_iter().rfind(is_wake),
            false => None,
        };
        match wake.and_then(|wake| wake.ended) {
            Some((_, OperationResult::Failed(failure))) => Err(ServiceError::FailedEarlier(failure)),
            Some((_, OperationResult::Done)) | None => woken,
        }
    }

    /// Returns a snapshot that an earlier request recorded, once it is completed.
    pub(super) async fn taken_earlier(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        loop {
            let news = self.shared.committed.notified();
            let snapshot = self.begun_earlier(id).await?;
            match &snapshot.status {
                SnapshotStatus::InProgress => self.something_happens(news).await?,
                SnapshotStatus::Completed => return Ok(snapshot),
                SnapshotStatus::Failed(failure) => return Err(ServiceError::FailedEarlier(failure.clone())),
                SnapshotStatus::Deleting => return Err(ServiceError::made_is_gone("snapshot", id)),
            }
        }
    }

    /// Returns the snapshot of an earlier request, whether or not it is completed.
    pub(super) async fn begun_earlier(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        match self.snapshot(id).await {
            Err(ServiceError::NoSnapshot(_)) => Err(ServiceError::made_is_gone("snapshot", id)),
            other => other,
        }
    }

    /// Waits for the end of an operation that an earlier request began. The second part of the
    /// result is the failure, if it failed.
    pub(super) async fn ended_earlier(
        &self,
        id: &OperationId,
    ) -> Result<(OperationRecord, Option<FailureRecord>), ServiceError> {
        match self.ended(id).await? {
            None => Err(ServiceError::made_is_gone("operation", id)),
            Some((operation, OperationResult::Done)) => Ok((operation, None)),
            Some((operation, OperationResult::Failed(failure))) => Ok((operation, Some(failure))),
        }
    }

    /// Waits until an operation that an earlier request began has succeeded.
    pub(super) async fn done_earlier(&self, id: &OperationId) -> Result<OperationRecord, ServiceError> {
        match self.ended_earlier(id).await? {
            (operation, None) => Ok(operation),
            (_, Some(failure)) => Err(ServiceError::FailedEarlier(failure)),
        }
    }

    /// Returns the sandbox that an earlier request rewound to a snapshot, and the snapshot of the
    /// state that this abandoned.
    pub(super) async fn rewound_earlier(
        &self,
        operation: &OperationRecord,
        to: &SnapshotId,
    ) -> Result<(SandboxView, Option<SnapshotId>), ServiceError> {
        let Some(sandbox) = &operation.sandbox else {
            return Err(ServiceError::made_is_gone("operation", &operation.id));
        };
        let filter = SnapshotFilter { source: Some(sandbox.clone()), ..SnapshotFilter::default() };
        let ended = operation.ended.as_ref().map_or(operation.began, |(at, _)| *at);
        let made = self.shared.store.find_snapshots(&filter).await?;
        let future = made.into_iter().rfind(|snapshot| {
            let is_in_time = (operation.began..=ended).contains(&snapshot.created);
            // Files of a suspended sandbox are a snapshot from its suspend on.
            let was_there = snapshot.created < operation.began && snapshot.labels.contains_key("suspended");
            (is_in_time || was_there) && snapshot.labels.get("rewound").is_some_and(|rewound| rewound == to.as_str())
        });
        Ok((self.describe(sandbox).await?, future.map(|future| future.id)))
    }
}
