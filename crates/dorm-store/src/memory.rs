//! A store in memory, for tests and the simulator: it behaves like one on disk. Shipped programs
//! are built without it.
//!
//! The content lives as long as a handle to it does. A clone is another handle to the same content,
//! as if the store had been opened again. The store fails only where a test asks for it.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{
    ApiKeyId, BuildId, EnvironmentId, EventKind, Name, OperationId, PoolId, ProjectId, RequestId, SandboxId,
    SavedStateId, SnapshotId, SnapshotName, State, TemplateId, VolumeId, WebhookId,
};

use crate::{
    ApiKeyRecord, BuildRecord, Change, ClockNote, EnvironmentRecord, EventFilter, EventRecord, OperationFilter,
    OperationRecord, PoolRecord, ProjectRecord, Prune, Pruned, RequestRecord, RowKind, SandboxFilter, SandboxRecord,
    SnapshotFilter, SnapshotRecord, SnapshotStatus, Store, StoreError, TemplateRecord, UnreadableRow, VolumeRecord,
    WebhookRecord,
};

mod spoiled;

type SnapshotNames = BTreeMap<(ProjectId, SnapshotName), SnapshotId>;

/// A store in memory. Clones share its content.
#[derive(Clone, Default, Debug)]
pub struct MemoryStore {
    content: Arc<Mutex<Content>>,
    /// The number of next reads that fail.
    failing: Arc<AtomicUsize>,
}

#[derive(Default, Debug)]
struct Content {
    sandboxes: BTreeMap<SandboxId, SandboxRecord>,
    operations: BTreeMap<OperationId, OperationRecord>,
    snapshots: BTreeMap<SnapshotId, SnapshotRecord>,
    /// The holders of names. The name of a row that cannot be read stays taken.
    snapshot_names: SnapshotNames,
    discard: BTreeSet<SavedStateId>,
    webhooks: BTreeMap<WebhookId, WebhookRecord>,
    pools: BTreeMap<PoolId, PoolRecord>,
    builds: BTreeMap<BuildId, BuildRecord>,
    templates: BTreeMap<TemplateId, TemplateRecord>,
    environments: BTreeMap<EnvironmentId, EnvironmentRecord>,
    projects: BTreeMap<ProjectId, ProjectRecord>,
    api_keys: BTreeMap<ApiKeyId, ApiKeyRecord>,
    requests: BTreeMap<RequestId, RequestRecord>,
    volumes: BTreeMap<VolumeId, VolumeRecord>,
    clock: Option<ClockNote>,
    /// How many events have been removed; they were the oldest.
    removed: u64,
    /// The event at position `n` has the number `removed + n + 1`.
    events: Vec<EventRecord>,
    /// Rows that a test has made unreadable, by kind and key.
    spoiled: BTreeMap<(RowKind, String), UnreadableRow>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next `count` lists of events and webhooks fail, as a busy or damaged disk would.
    pub fn fail_reads(&self, count: usize) {
        self.failing.store(count, Ordering::SeqCst);
    }

    /// How many reads are still set to fail.
    pub fn reads_to_fail(&self) -> usize {
        self.failing.load(Ordering::SeqCst)
    }

    fn readable(&self) -> Result<MutexGuard<'_, Content>, StoreError> {
        let left = self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Err(_) => Ok(self.content()),
            Ok(_) => {
                let source = std::io::Error::other("a test wants it to fail");
                Err(StoreError::Failed { operation: "read", source: Box::new(source) })
            }
        }
    }

    /// A panic while the lock was held cannot leave half a change: [`Content::commit`] stages what
    /// may be refused and applies the rest by moves.
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Refuses a key that another environment has.
    fn refuse_taken_keys(&self, change: &Change) -> Result<(), StoreError> {
        for environment in &change.environments {
            let has_it = |one: &&EnvironmentRecord| {
                one.id != environment.id && one.project == environment.project && one.key == environment.key
            };
            let written = |one: &&EnvironmentRecord| change.environments.iter().any(|other| other.id == one.id);
            let removed = |one: &&EnvironmentRecord| change.removed_environments.contains(&one.id);
            let stored = self.environments.values().filter(|one| !written(one) && !removed(one));
            if let Some(holder) = stored.chain(&change.environments).find(has_it) {
                return Err(StoreError::KeyTaken { key: Box::new(environment.key.clone()), holder: holder.id.clone() });
            }
        }
        Ok(())
    }

    fn commit(&mut self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        let staged = self.stage(&change)?;
        self.refuse_taken_keys(&change)?;
        self.snapshot_names = self.staged_names(&change)?;
        self.unspoil(&change);
        let snapshots: Vec<_> = change.ordered_snapshots().cloned().collect();
        let last = self.removed + self.events.len() as u64;
        let numbered = |(number, event)| EventRecord { number, event };
        let events: Vec<_> = (last + 1..).zip(change.events).map(numbered).collect();
        self.sandboxes.extend(staged);
        self.operations.extend(change.operations.into_iter().map(|operation| (operation.id.clone(), operation)));
        self.snapshots.extend(snapshots.into_iter().map(|snapshot| (snapshot.id.clone(), snapshot)));
        for id in &change.forgotten {
            self.snapshots.remove(id);
            self.snapshot_names.retain(|_, holder| holder != id);
        }
        self.discard.extend(change.discard);
        for saved_state in &change.discarded {
            self.discard.remove(saved_state);
        }
        self.webhooks.extend(change.webhooks.into_iter().map(|webhook| (webhook.id.clone(), webhook)));
        for id in &change.removed_webhooks {
            self.webhooks.remove(id);
        }
        self.pools.extend(change.pools.into_iter().map(|pool| (pool.id.clone(), pool)));
        for id in &change.removed_pools {
            self.pools.remove(id);
        }
        self.builds.extend(change.builds.into_iter().map(|build| (build.id.clone(), build)));
        for id in &change.removed_builds {
            self.builds.remove(id);
        }
        self.templates.extend(change.templates.into_iter().map(|template| (template.id.clone(), template)));
        for id in &change.removed_templates {
            self.templates.remove(id);
        }
        for id in &change.removed_environments {
            self.environments.remove(id);
        }
        self.environments.extend(change.environments.into_iter().map(|one| (one.id.clone(), one)));
        self.projects.extend(change.projects.into_iter().map(|project| (project.id.clone(), project)));
        self.api_keys.extend(change.api_keys.into_iter().map(|key| (key.id.clone(), key)));
        for id in &change.removed_api_keys {
            self.api_keys.remove(id);
        }
        self.requests.extend(change.requests.into_iter().map(|request| (request.id.clone(), request)));
        for id in &change.removed_requests {
            self.requests.remove(id);
        }
        self.volumes.extend(change.volumes.into_iter().map(|volume| (volume.id.clone(), volume)));
        for id in &change.removed_volumes {
            self.volumes.remove(id);
        }
        self.clock = change.clock.or(self.clock.take());
        self.events.extend(events.iter().cloned());
        Ok(events)
    }

    fn stage(&self, change: &Change) -> Result<BTreeMap<SandboxId, SandboxRecord>, StoreError> {
        let mut staged = BTreeMap::new();
        for record in change.ordered_sandboxes()? {
            let id = &record.sandbox.id;
            let stored = self.sandboxes.get(id).map(|stored| stored.revision);
            let revision = record.next_revision(stored.or_else(|| self.spoiled_revision(id)))?;
            if let Some((project, name)) = record.held_name()
                && let Some(holder) = self.holder(&staged, project, name)
                && holder != id
            {
                return Err(StoreError::NameTaken { name: name.clone(), holder: holder.clone() });
            }
            if let Some((project, name)) = record.held_name()
                && let Some(row) = self.spoiled_name(project, name)
                && row.id != id.as_str()
            {
                let holder = row.id.parse().map_err(|_| row.error())?;
                return Err(StoreError::NameTaken { name: name.clone(), holder });
            }
            staged.insert(id.clone(), SandboxRecord { revision, ..record.clone() });
        }
        Ok(staged)
    }

    fn staged_names(&self, change: &Change) -> Result<SnapshotNames, StoreError> {
        let mut names = self.snapshot_names.clone();
        for snapshot in change.ordered_snapshots() {
            names.retain(|_, holder| *holder != snapshot.id);
            let Some(name) = snapshot.held_name() else { continue };
            match names.entry((snapshot.project.clone(), name.clone())) {
                Entry::Vacant(free) => drop(free.insert(snapshot.id.clone())),
                Entry::Occupied(taken) => {
                    return Err(StoreError::SnapshotNameTaken { name: name.clone(), holder: taken.get().clone() });
                }
            }
        }
        Ok(names)
    }

    fn holder<'a>(
        &'a self,
        staged: &'a BTreeMap<SandboxId, SandboxRecord>,
        project: &ProjectId,
        name: &Name,
    ) -> Option<&'a SandboxId> {
        let kept = self.sandboxes.values().filter(|record| !staged.contains_key(&record.sandbox.id));
        let holds = |record: &&SandboxRecord| record.held_name() == Some((project, name));
        staged.values().chain(kept).find(holds).map(|record| &record.sandbox.id)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        self.content().commit(change)
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        let content = self.content();
        content.refuse_spoiled(RowKind::Sandbox, id.as_str())?;
        Ok(content.sandboxes.get(id).cloned())
    }

    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError> {
        let content = self.content();
        if let Some(row) = content.spoiled_name(project, name) {
            return Err(row.error());
        }
        let found = content.holder(&BTreeMap::new(), project, name).and_then(|id| content.sandboxes.get(id));
        Ok(found.cloned())
    }

    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
        let content = self.content();
        Ok(filter.listed(content.sandboxes.values()))
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
        let content = self.content();
        content.refuse_spoiled(RowKind::Snapshot, id.as_str())?;
        Ok(content.snapshots.get(id).cloned())
    }

    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError> {
        let content = self.content();
        let mut found: Vec<_> = content
            .snapshots
            .values()
            .filter(|snapshot| project.is_none_or(|project| snapshot.project == *project))
            .cloned()
            .collect();
        found.sort_by_key(|snapshot| (snapshot.created, snapshot.id.clone()));
        Ok(found)
    }

    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        let content = self.content();
        let mut open: Vec<_> =
            content.operations.values().filter(|operation| operation.ended.is_none()).cloned().collect();
        open.sort_by_key(|operation| (operation.began, operation.id.clone()));
        Ok(open)
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError> {
        let content = self.content();
        content.refuse_spoiled(RowKind::Operation, id.as_str())?;
        Ok(content.operations.get(id).cloned())
    }

    async fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, StoreError> {
        let content = self.content();
        content.refuse_spoiled(RowKind::Request, id.as_str())?;
        Ok(content.requests.get(id).cloned())
    }

    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        let content = self.content();
        let mut found: Vec<_> = content.operations.values().filter(|one| filter.matches(one)).cloned().collect();
        found.sort_by_key(|operation| Reverse((operation.began, operation.id.clone())));
        found.truncate(at_most(filter.limit));
        Ok(found)
    }

    async fn to_discard(&self) -> Result<Vec<SavedStateId>, StoreError> {
        Ok(self.content().discard.iter().cloned().collect())
    }

    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        Ok(self.readable()?.webhooks.values().cloned().collect())
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>, StoreError> {
        Ok(self.readable()?.pools.values().cloned().collect())
    }

    async fn build(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
        let content = self.content();
        content.refuse_spoiled(RowKind::Build, id.as_str())?;
        Ok(content.builds.get(id).cloned())
    }

    async fn builds(&self) -> Result<Vec<BuildRecord>, StoreError> {
        Ok(self.readable()?.builds.values().cloned().collect())
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        Ok(self.readable()?.templates.values().cloned().collect())
    }

    async fn environment(&self, id: &EnvironmentId) -> Result<Option<EnvironmentRecord>, StoreError> {
        let content = self.content();
        content.refuse_spoiled(RowKind::Environment, id.as_str())?;
        Ok(content.environments.get(id).cloned())
    }

    async fn environment_with(&self, project: &ProjectId, key: &Key) -> Result<Option<EnvironmentRecord>, StoreError> {
        let content = self.content();
        Ok(content.environments.values().find(|one| one.project == *project && one.key == *key).cloned())
    }

    async fn environments(&self) -> Result<Vec<EnvironmentRecord>, StoreError> {
        Ok(self.readable()?.environments.values().cloned().collect())
    }

    async fn projects(&self) -> Result<Vec<ProjectRecord>, StoreError> {
        Ok(self.readable()?.projects.values().cloned().collect())
    }

    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        Ok(self.readable()?.api_keys.values().cloned().collect())
    }

    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError> {
        Ok(self.content().volumes.values().cloned().collect())
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
        let content = self.readable()?;
        let skipped = filter.after.saturating_sub(content.removed);
        let start = usize::try_from(skipped).unwrap_or(usize::MAX).min(content.events.len());
        let found = content.events[start..].iter().filter(|record| {
            let is_spoiled = content.spoiled.contains_key(&(RowKind::Event, record.number.to_string()));
            !is_spoiled
                && filter.project.as_ref().is_none_or(|project| record.event.project == *project)
                && filter.sandbox.as_ref().is_none_or(|sandbox| record.event.sandbox == *sandbox)
                && filter.taken.as_ref().is_none_or(|snapshot| tells_of(record, snapshot))
        });
        let found: Vec<_> = found.collect();
        let skipped = if filter.newest == 0 { 0 } else { found.len().saturating_sub(filter.newest) };
        Ok(found.into_iter().skip(skipped).take(at_most(filter.limit)).cloned().collect())
    }

    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError> {
        let content = self.content();
        let mut found: Vec<_> = content.snapshots.values().filter(|one| filter.matches(one)).cloned().collect();
        found.sort_by_key(|snapshot| (snapshot.created, snapshot.id.clone()));
        found.truncate(at_most(filter.limit));
        Ok(found)
    }

    async fn snapshot_bytes(&self) -> Result<u64, StoreError> {
        let content = self.content();
        let complete = content.snapshots.values().filter(|snapshot| snapshot.status == SnapshotStatus::Completed);
        Ok(complete.map(|snapshot| snapshot.bytes).sum())
    }

    async fn events_removed(&self) -> Result<u64, StoreError> {
        Ok(self.content().removed)
    }

    async fn clock(&self) -> Result<Option<ClockNote>, StoreError> {
        Ok(self.content().clock.clone())
    }

    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        Ok(self.content().prune(prune))
    }

    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError> {
        let content = self.content();
        Ok(content.spoiled.values().filter(|row| row.kind != RowKind::Event).cloned().collect())
    }
}

impl Content {
    fn prune(&mut self, prune: &Prune) -> Pruned {
        let mut pruned = Pruned::default();
        if let Some(before) = prune.ended_before {
            let needed: BTreeSet<SandboxId> = self.snapshots.values().map(|snapshot| snapshot.source.clone()).collect();
            let origins = self.sandboxes.values().filter_map(|record| record.sandbox.origin.source().cloned());
            let needed: BTreeSet<SandboxId> = needed.into_iter().chain(origins).collect();
            let mut over: Vec<_> = self
                .sandboxes
                .values()
                .filter_map(|SandboxRecord { sandbox, .. }| match &sandbox.state {
                    State::Terminated { at, .. } if *at < before && !needed.contains(&sandbox.id) => {
                        Some((*at, sandbox.id.clone()))
                    }
                    _ => None,
                })
                .collect();
            over.sort();
            over.truncate(prune.batch);
            pruned.sandboxes = over.len();
            over.iter().for_each(|(_, id)| drop(self.sandboxes.remove(id)));
            let ended = |operation: &OperationRecord| operation.ended.as_ref().map(|(at, _)| *at);
            let mut over: Vec<_> = self
                .operations
                .values()
                .filter_map(|operation| Some((ended(operation).filter(|at| *at < before)?, operation.id.clone())))
                .collect();
            over.sort();
            over.truncate(prune.batch);
            pruned.operations = over.len();
            over.iter().for_each(|(_, id)| drop(self.operations.remove(id)));
        }
        if let Some(before) = prune.requests_before {
            let old = self.requests.values().filter(|request| request.at < before);
            let mut old: Vec<_> = old.map(|request| (request.at, request.id.clone())).collect();
            old.sort();
            old.truncate(prune.batch);
            pruned.requests = old.len();
            old.iter().for_each(|(_, id)| drop(self.requests.remove(id)));
        }
        if let Some(before) = prune.events_before {
            let old = |record: &&EventRecord| record.event.at < before && record.number <= prune.events_through;
            pruned.events = self.events.iter().take(prune.batch).take_while(old).count();
            self.events.drain(..pruned.events);
            self.removed += pruned.events as u64;
        }
        pruned
    }
}

fn tells_of(record: &EventRecord, snapshot: &SnapshotId) -> bool {
    record.event.kind == EventKind::SnapshotTaken && record.event.detail.as_deref() == Some(snapshot.as_str())
}

fn at_most(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use tokio::sync::Mutex;

    use super::MemoryStore;
    use crate::Store;
    use crate::conformance::{conforms, keeps_unreadable_rows};

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_store_in_memory_conforms() {
        let places = Mutex::new(BTreeMap::<&str, MemoryStore>::new());
        let open = async |place: &'static str| {
            let store: Arc<dyn Store> = Arc::new(places.lock().await.entry(place).or_default().clone());
            store
        };
        conforms(open).await.expect("conforms");
    }

    #[tokio::test]
    async fn the_store_in_memory_keeps_unreadable_rows() {
        let places = Mutex::new(BTreeMap::<&str, MemoryStore>::new());
        let open = async |place: &'static str| {
            let store: Arc<dyn Store> = Arc::new(places.lock().await.entry(place).or_default().clone());
            store
        };
        let spoil = async |place: &'static str, kind, id: &str| {
            places.lock().await.entry(place).or_default().spoil(kind, id, "{\"v\":1,\"broken\"");
        };
        keeps_unreadable_rows(open, spoil).await.expect("conforms");
    }
}
