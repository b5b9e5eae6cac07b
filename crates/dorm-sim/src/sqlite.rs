//! SQLite in a simulation: its threads finish each call while the simulation stands still, so that
//! nothing depends on their speed.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, mpsc};

use async_trait::async_trait;
use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{
    BuildId, EnvironmentId, Name, OperationId, ProjectId, RequestId, SandboxId, SavedStateId, SnapshotId,
};
use dorm_store::{
    ApiKeyRecord, BuildRecord, Change, ClockNote, EnvironmentRecord, EventFilter, EventRecord, OperationFilter,
    OperationRecord, PoolRecord, ProjectRecord, Prune, Pruned, RequestRecord, SandboxFilter, SandboxRecord, Settled,
    SnapshotFilter, SnapshotRecord, Store, StoreError, TemplateRecord, Ticket, UnreadableRow, VolumeRecord,
    WebhookRecord,
};
use dorm_store_sql::SqlStore;
use tokio::runtime::Handle;

/// A store in a file that finishes each call before it returns.
pub(crate) struct WaitingStore {
    inner: Arc<SqlStore>,
    helper: Handle,
}

fn wait<T: Send + 'static>(
    helper: &Handle,
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let (answer, asked) = mpsc::sync_channel(1);
    helper.spawn(async move {
        // The caller waits until it has the answer.
        answer.send(work.await).ok();
    });
    asked
        .recv()
        .unwrap_or_else(|source| Err(StoreError::Failed { operation: "answer at all", source: Box::new(source) }))
}

impl WaitingStore {
    pub(crate) fn open(path: &Path, helper: &Handle) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let inner = wait(helper, async move { SqlStore::open(&path).await })?;
        Ok(Self { inner: Arc::new(inner), helper: helper.clone() })
    }

    fn ask<T, F>(&self, work: impl FnOnce(Arc<SqlStore>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        wait(&self.helper, work(Arc::clone(&self.inner)))
    }
}

impl Drop for WaitingStore {
    fn drop(&mut self) {
        let inner = Arc::clone(&self.inner);
        // A store that cannot be closed is left to the next one that opens the file.
        drop(wait(&self.helper, async move { inner.close().await }));
    }
}

#[async_trait]
impl Store for WaitingStore {
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        self.ask(|store| async move { store.commit(change).await })
    }

    async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        self.ask(|store| async move { store.settle(ticket).await })
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| async move { store.sandbox(&id).await })
    }

    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError> {
        let (project, name) = (project.clone(), name.clone());
        self.ask(|store| async move { store.named(&project, &name).await })
    }

    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
        let filter = filter.clone();
        self.ask(|store| async move { store.sandboxes(&filter).await })
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| async move { store.snapshot(&id).await })
    }

    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError> {
        let project = project.cloned();
        self.ask(|store| async move { store.snapshots(project.as_ref()).await })
    }

    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        self.ask(|store| async move { store.open_operations().await })
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| async move { store.operation(&id).await })
    }

    async fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| async move { store.request(&id).await })
    }

    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        let filter = filter.clone();
        self.ask(|store| async move { store.find_operations(&filter).await })
    }

    async fn to_discard(&self) -> Result<Vec<SavedStateId>, StoreError> {
        self.ask(|store| async move { store.to_discard().await })
    }

    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        self.ask(|store| async move { store.webhooks().await })
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>, StoreError> {
        self.ask(|store| async move { store.pools().await })
    }

    async fn build(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| async move { store.build(&id).await })
    }

    async fn builds(&self) -> Result<Vec<BuildRecord>, StoreError> {
        self.ask(|store| async move { store.builds().await })
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        self.ask(|store| async move { store.templates().await })
    }

    async fn environment(&self, id: &EnvironmentId) -> Result<Option<EnvironmentRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| async move { store.environment(&id).await })
    }

    async fn environment_with(&self, project: &ProjectId, key: &Key) -> Result<Option<EnvironmentRecord>, StoreError> {
        let (project, key) = (project.clone(), key.clone());
        self.ask(|store| async move { store.environment_with(&project, &key).await })
    }

    async fn environments(&self) -> Result<Vec<EnvironmentRecord>, StoreError> {
        self.ask(|store| async move { store.environments().await })
    }

    async fn projects(&self) -> Result<Vec<ProjectRecord>, StoreError> {
        self.ask(|store| async move { store.projects().await })
    }

    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        self.ask(|store| async move { store.api_keys().await })
    }

    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError> {
        self.ask(|store| async move { store.volumes().await })
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
        let filter = filter.clone();
        self.ask(|store| async move { store.events(&filter).await })
    }

    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError> {
        let filter = filter.clone();
        self.ask(|store| async move { store.find_snapshots(&filter).await })
    }

    async fn snapshot_bytes(&self) -> Result<u64, StoreError> {
        self.ask(|store| async move { store.snapshot_bytes().await })
    }

    async fn events_removed(&self) -> Result<u64, StoreError> {
        self.ask(|store| async move { store.events_removed().await })
    }

    async fn clock(&self) -> Result<Option<ClockNote>, StoreError> {
        self.ask(|store| async move { store.clock().await })
    }

    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        let prune = *prune;
        self.ask(|store| async move { store.prune(&prune).await })
    }

    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError> {
        self.ask(|store| async move { store.unreadable().await })
    }
}
