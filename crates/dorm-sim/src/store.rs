//! The store of the simulated service: sometimes slow, sometimes unable to say how a commit ended.
//! The model sees every commit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{
    BuildId, EnvironmentId, Name, OperationId, ProjectId, RequestId, SandboxId, SavedStateId, SnapshotId,
};
use dorm_steps::Steps as _;
use dorm_store::{
    ApiKeyRecord, BuildRecord, Change, ClockNote, EnvironmentRecord, EventFilter, EventRecord, OperationFilter,
    OperationRecord, PoolRecord, ProjectRecord, Prune, Pruned, RequestRecord, SandboxFilter, SandboxRecord, Settled,
    SnapshotFilter, SnapshotRecord, Store, StoreError, TemplateRecord, Ticket, UnreadableRow, VolumeRecord,
    WebhookRecord,
};

use crate::model::Model;
use crate::random::Random;
use crate::steps::Life;

/// A wrapper of another store, for one life of the daemon.
pub(crate) struct WatchedStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) model: Arc<Model>,
    pub(crate) life: Arc<Life>,
    pub(crate) random: Mutex<Random>,
    /// The share of calls that take some milliseconds, in percent.
    pub(crate) slow: u64,
    /// The hidden results of commits.
    pub(crate) hidden: Mutex<BTreeMap<Ticket, Settled>>,
}

/// The first ticket of this store; tickets of the inner store are smaller.
const FIRST_TICKET: u64 = 1 << 62;

/// The share of failing attempts to settle a commit, in percent.
const UNREADABLE: u64 = 40;

impl WatchedStore {
    fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of the next commit, if it is hidden.
    fn hides(&self) -> Option<Settled> {
        let doubt = self.life.doubt()?;
        let mut random = self.random();
        if !random.chance(doubt.percent) {
            return None;
        }
        // A change that is not made fails its operation.
        Some(if doubt.may_fail && random.chance(50) { Settled::NotMade } else { Settled::Made })
    }

    fn hide(&self, settled: Settled) -> StoreError {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = Ticket(FIRST_TICKET + hidden.len() as u64);
        hidden.insert(ticket, settled);
        let source = Box::new(std::io::Error::other("the disk reports an error"));
        StoreError::Unknown { operation: "commit a change", ticket, source }
    }

    /// Sometimes waits; never returns to a dead daemon.
    async fn pause(&self) {
        let wait = {
            let mut random = self.random();
            random.chance(self.slow).then(|| Duration::from_millis(1 + random.below(30)))
        };
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => tokio::task::yield_now().await,
        }
        if !self.life.alive() {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for WatchedStore {
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        self.pause().await;
        let hidden = self.hides();
        if hidden == Some(Settled::NotMade) {
            return Err(self.hide(Settled::NotMade));
        }
        let events = self.inner.commit(change.clone()).await?;
        self.model.committed(&change, &events);
        // The change is committed, but its caller does not know yet.
        self.pause().await;
        match hidden {
            Some(settled) => Err(self.hide(settled)),
            None => Ok(events),
        }
    }

    async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        self.pause().await;
        if self.life.doubt().is_some() && self.random().chance(UNREADABLE) {
            let source = Box::new(std::io::Error::other("the disk reports an error"));
            return Err(StoreError::Failed { operation: "settle a change", source });
        }
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner).get(&ticket).copied();
        match hidden {
            Some(settled) => Ok(settled),
            None => self.inner.settle(ticket).await,
        }
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        self.pause().await;
        self.inner.sandbox(id).await
    }

    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError> {
        self.pause().await;
        self.inner.named(project, name).await
    }

    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
        self.pause().await;
        self.inner.sandboxes(filter).await
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
        self.pause().await;
        self.inner.snapshot(id).await
    }

    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.pause().await;
        self.inner.snapshots(project).await
    }

    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        self.pause().await;
        self.inner.open_operations().await
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError> {
        self.pause().await;
        self.inner.operation(id).await
    }

    async fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, StoreError> {
        self.pause().await;
        self.inner.request(id).await
    }

    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        self.pause().await;
        self.inner.find_operations(filter).await
    }

    async fn to_discard(&self) -> Result<Vec<SavedStateId>, StoreError> {
        self.pause().await;
        self.inner.to_discard().await
    }

    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        self.pause().await;
        self.inner.webhooks().await
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>, StoreError> {
        self.pause().await;
        self.inner.pools().await
    }

    async fn build(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
        self.pause().await;
        self.inner.build(id).await
    }

    async fn builds(&self) -> Result<Vec<BuildRecord>, StoreError> {
        self.pause().await;
        self.inner.builds().await
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        self.pause().await;
        self.inner.templates().await
    }

    async fn environment(&self, id: &EnvironmentId) -> Result<Option<EnvironmentRecord>, StoreError> {
        self.pause().await;
        self.inner.environment(id).await
    }

    async fn environment_with(&self, project: &ProjectId, key: &Key) -> Result<Option<EnvironmentRecord>, StoreError> {
        self.pause().await;
        self.inner.environment_with(project, key).await
    }

    async fn environments(&self) -> Result<Vec<EnvironmentRecord>, StoreError> {
        self.pause().await;
        self.inner.environments().await
    }

    async fn projects(&self) -> Result<Vec<ProjectRecord>, StoreError> {
        self.pause().await;
        self.inner.projects().await
    }

    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        self.pause().await;
        self.inner.api_keys().await
    }

    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError> {
        self.pause().await;
        self.inner.volumes().await
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
        self.pause().await;
        self.inner.events(filter).await
    }

    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.pause().await;
        self.inner.find_snapshots(filter).await
    }

    async fn snapshot_bytes(&self) -> Result<u64, StoreError> {
        self.pause().await;
        self.inner.snapshot_bytes().await
    }

    async fn events_removed(&self) -> Result<u64, StoreError> {
        self.pause().await;
        self.inner.events_removed().await
    }

    async fn clock(&self) -> Result<Option<ClockNote>, StoreError> {
        self.pause().await;
        self.inner.clock().await
    }

    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        self.pause().await;
        let pruned = self.inner.prune(prune).await?;
        self.pause().await;
        Ok(pruned)
    }

    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError> {
        self.pause().await;
        self.inner.unreadable().await
    }
}
