//! A store with a step before and after each commit, at which a test or `dorm prove` can make it
//! fail. The shipped daemon has it too, since it is what `dorm prove` examines.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{
    BuildId, EnvironmentId, Name, OperationId, ProjectId, RequestId, SandboxId, SavedStateId, SnapshotId,
};
use dorm_steps::{AnySteps, Stopped};

use crate::{
    ApiKeyRecord, BuildRecord, Change, ClockNote, EnvironmentRecord, EventFilter, EventRecord, OperationFilter,
    OperationRecord, PoolRecord, ProjectRecord, Prune, Pruned, RequestRecord, SandboxFilter, SandboxRecord, Settled,
    SnapshotFilter, SnapshotRecord, Store, StoreError, TemplateRecord, Ticket, UnreadableRow, VolumeRecord,
    WebhookRecord,
};

/// Tickets from here on are issued by this store, lower ones by the inner store.
const FIRST_TICKET: u64 = 1 << 63;

/// Another store, with steps around its commits. Reads have none.
///
/// After a failure at the first step, before the commit begins, nothing was changed. The other
/// steps are before and after the commit of the inner store; a failure at one of them leaves it
/// unknown whether the change was made.
pub struct SteppedStore {
    inner: Arc<dyn Store>,
    steps: AnySteps,
    tickets: AtomicU64,
    unknown: Mutex<BTreeMap<Ticket, Settled>>,
}

impl SteppedStore {
    /// `inner`, with `steps`.
    pub fn new(inner: Arc<dyn Store>, steps: AnySteps) -> Self {
        Self { inner, steps, tickets: AtomicU64::new(FIRST_TICKET), unknown: Mutex::default() }
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeMap<Ticket, Settled>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a step at which a failure hides the outcome of the change.
    async fn reach_hiding(&self, step: &'static str, settled: Settled) -> Result<(), StoreError> {
        match self.steps.reach(step) {
            Ok(()) => Ok(()),
            Err(_) if !self.steps.alive() => std::future::pending().await,
            Err(stopped) => {
                let ticket = Ticket(self.tickets.fetch_add(1, Ordering::SeqCst));
                self.unknown().insert(ticket, settled);
                Err(StoreError::Unknown { operation: "commit a change", ticket, source: Box::new(stopped) })
            }
        }
    }

    async fn reach(&self, step: &'static str) -> Result<(), StoreError> {
        match self.steps.reach(step) {
            Ok(()) => Ok(()),
            Err(_) if !self.steps.alive() => std::future::pending().await,
            Err(stopped) => Err(failed(stopped)),
        }
    }

    async fn living(&self) {
        if !self.steps.alive() {
            std::future::pending::<()>().await;
        }
    }
}

fn failed(stopped: Stopped) -> StoreError {
    let operation = "work with its file";
    match stopped.full {
        true => StoreError::Full { operation, source: Box::new(stopped) },
        false => StoreError::Failed { operation, source: Box::new(stopped) },
    }
}

#[async_trait]
impl Store for SteppedStore {
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        self.living().await;
        self.reach("store: about to commit").await?;
        self.reach_hiding("store: committing", Settled::NotMade).await?;
        let events = self.inner.commit(change).await?;
        self.reach_hiding("store: committed", Settled::Made).await?;
        Ok(events)
    }

    async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        self.living().await;
        self.reach("store: about to settle").await?;
        // The ticket is kept: a caller that did not receive the answer may ask again.
        let known = self.unknown().get(&ticket).copied();
        match known {
            Some(settled) => Ok(settled),
            None => self.inner.settle(ticket).await,
        }
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        self.living().await;
        self.inner.sandbox(id).await
    }

    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError> {
        self.living().await;
        self.inner.named(project, name).await
    }

    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
        self.living().await;
        self.inner.sandboxes(filter).await
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
        self.living().await;
        self.inner.snapshot(id).await
    }

    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.living().await;
        self.inner.snapshots(project).await
    }

    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        self.living().await;
        self.inner.open_operations().await
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError> {
        self.living().await;
        self.inner.operation(id).await
    }

    async fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, StoreError> {
        self.living().await;
        self.inner.request(id).await
    }

    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        self.living().await;
        self.inner.find_operations(filter).await
    }

    async fn to_discard(&self) -> Result<Vec<SavedStateId>, StoreError> {
        self.living().await;
        self.inner.to_discard().await
    }

    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        self.living().await;
        self.inner.webhooks().await
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>, StoreError> {
        self.living().await;
        self.inner.pools().await
    }

    async fn build(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
        self.living().await;
        self.inner.build(id).await
    }

    async fn builds(&self) -> Result<Vec<BuildRecord>, StoreError> {
        self.living().await;
        self.inner.builds().await
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        self.living().await;
        self.inner.templates().await
    }

    async fn environment(&self, id: &EnvironmentId) -> Result<Option<EnvironmentRecord>, StoreError> {
        self.living().await;
        self.inner.environment(id).await
    }

    async fn environment_with(&self, project: &ProjectId, key: &Key) -> Result<Option<EnvironmentRecord>, StoreError> {
        self.living().await;
        self.inner.environment_with(project, key).await
    }

    async fn environments(&self) -> Result<Vec<EnvironmentRecord>, StoreError> {
        self.living().await;
        self.inner.environments().await
    }

    async fn projects(&self) -> Result<Vec<ProjectRecord>, StoreError> {
        self.living().await;
        self.inner.projects().await
    }

    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        self.living().await;
        self.inner.api_keys().await
    }

    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError> {
        self.living().await;
        self.inner.volumes().await
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
        self.living().await;
        self.inner.events(filter).await
    }

    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.living().await;
        self.inner.find_snapshots(filter).await
    }

    async fn snapshot_bytes(&self) -> Result<u64, StoreError> {
        self.living().await;
        self.inner.snapshot_bytes().await
    }

    async fn events_removed(&self) -> Result<u64, StoreError> {
        self.living().await;
        self.inner.events_removed().await
    }

    async fn clock(&self) -> Result<Option<ClockNote>, StoreError> {
        self.living().await;
        self.inner.clock().await
    }

    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        self.living().await;
        self.reach("store: about to prune").await?;
        let pruned = self.inner.prune(prune).await?;
        // The records are removed: only the death of the process can keep the caller from receiving
        // the result.
        let _ = self.reach("store: pruned").await;
        Ok(pruned)
    }

    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError> {
        self.living().await;
        self.inner.unreadable().await
    }
}
