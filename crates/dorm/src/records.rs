//! Record files: each record of a sandbox that is not terminated, a snapshot, a volume or a webhook
//! is also kept in `records/KIND-ID.json` of the data directory, so that `dorm repair` can bring
//! back what the database has lost. The daemon never reads these files; failing to write one is
//! only a warning.
//!
//! ```text
//! commit ─► database (synced) ─► answered
//!              └─► queue, the newest text of each record ─► one thread: draft, sync, rename
//! ```
//!
//! A file may be a few changes behind when the daemon is killed; it contains its revision.

mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dorm_lifecycle::environment;
use dorm_lifecycle::{
    BuildId, EnvironmentId, Name, OperationId, ProjectId, RequestId, SandboxId, SavedStateId, SnapshotId, StateName,
};
use dorm_store::{
    ApiKeyRecord, BuildRecord, Change, ClockNote, EnvironmentRecord, EventFilter, EventRecord, OperationFilter,
    OperationRecord, PoolRecord, ProjectRecord, Prune, Pruned, RequestRecord, RowKind, SandboxFilter, SandboxRecord,
    Settled, SnapshotFilter, SnapshotRecord, Store, StoreError, TemplateRecord, Ticket, UnreadableRow, VolumeRecord,
    WebhookRecord, codec,
};
use serde::{Deserialize, Serialize};

use writer::Writer;

/// The directory of record files, below the data directory.
pub(crate) const DIRECTORY: &str = "records";

/// A record as a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordFile {
    pub(crate) kind: RowKind,
    pub(crate) id: String,
    /// The number of changes that the record of a sandbox had seen; 0 for every other kind.
    pub(crate) revision: u64,
    /// The record as text of `dorm_store::codec`.
    pub(crate) document: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// The hash of the other fields, each on a line.
    blake3: String,
    kind: String,
    id: String,
    revision: u64,
    document: String,
}

impl RecordFile {
    fn text(&self) -> Vec<u8> {
        let Self { kind, id, revision, document } = self.clone();
        let text = Text { blake3: self.seal(), kind: kind.as_str().to_owned(), id, revision, document };
        let mut text = serde_json::to_vec(&text).unwrap_or_default();
        text.push(b'\n');
        text
    }

    fn seal(&self) -> String {
        let Self { kind, id, revision, document } = self;
        blake3::hash(format!("{kind}\n{id}\n{revision}\n{document}").as_bytes()).to_hex().to_string()
    }

    /// Reads a file. Fails with the reason if it is not what was written.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read(path).map_err(|error| error.to_string())?;
        let text: Text = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let kind = RowKind::ALL.into_iter().find(|kind| kind.as_str() == text.kind);
        let kind = kind.ok_or_else(|| format!("unknown kind of record '{}'", text.kind))?;
        let file = Self { kind, id: text.id, revision: text.revision, document: text.document };
        match file.seal() == text.blake3 {
            true => Ok(file),
            false => Err("it was changed: its hash differs".to_owned()),
        }
    }

    /// Returns all record files of a data directory, and those that cannot be read with the reason.
    pub(crate) fn all(data: &Path) -> io::Result<(Vec<Self>, Vec<Unreadable>)> {
        let (mut files, mut unreadable) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(data.join(DIRECTORY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((files, unreadable)),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "json") {
                match Self::read(&path) {
                    Ok(file) => files.push(file),
                    Err(what) => unreadable.push((path, what)),
                }
            }
        }
        files.sort_by(|one, other| (one.kind, &one.id).cmp(&(other.kind, &other.id)));
        Ok((files, unreadable))
    }
}

/// Returns the sandboxes that have a file in `directory`.
fn sandboxes_in(directory: &Path) -> Vec<SandboxId> {
    let id = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix(RowKind::Sandbox.as_str())?.strip_prefix('-')?.strip_suffix(".json")?.parse().ok()
    };
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(id).collect()
}

fn name(kind: RowKind, id: &str) -> String {
    format!("{kind}-{id}.json")
}

/// A file that cannot be read, and the reason.
pub(crate) type Unreadable = (PathBuf, String);

/// The effect on a file: it gets this content, or it is removed.
type Verdict = Option<RecordFile>;

/// The kind and id of a record.
type Key = (RowKind, String);

/// The effect on the file of one record.
type Keyed = (Key, Verdict);

/// Returns what a change means for the files: a new content, or none if the file is removed.
fn verdicts(change: &Change) -> Vec<Keyed> {
    let mut verdicts = Vec::new();
    let mut put = |kind, id: &str, revision, document: Result<String, codec::CodecError>| {
        if let Ok(document) = document {
            let file = RecordFile { kind, id: id.to_owned(), revision, document };
            verdicts.push(((kind, id.to_owned()), Some(file)));
        }
    };
    for SandboxRecord { sandbox, revision } in &change.sandboxes {
        if sandbox.state.name() != StateName::Terminated {
            put(RowKind::Sandbox, sandbox.id.as_str(), revision + 1, codec::encode_sandbox(sandbox));
        }
    }
    for snapshot in &change.snapshots {
        put(RowKind::Snapshot, snapshot.id.as_str(), 0, codec::encode_snapshot(snapshot));
    }
    for webhook in &change.webhooks {
        put(RowKind::Webhook, webhook.id.as_str(), 0, codec::encode_webhook(webhook));
    }
    for pool in &change.pools {
        put(RowKind::Pool, pool.id.as_str(), 0, codec::encode_pool(pool));
    }
    for build in &change.builds {
        put(RowKind::Build, build.id.as_str(), 0, codec::encode_build(build));
    }
    for template in &change.templates {
        put(RowKind::Template, template.id.as_str(), 0, codec::encode_template(template));
    }
    for one in &change.environments {
        put(RowKind::Environment, one.id.as_str(), 0, codec::encode_environment(one));
    }
    for project in &change.projects {
        put(RowKind::Project, project.id.as_str(), 0, codec::encode_project(project));
    }
    for volume in &change.volumes {
        put(RowKind::Volume, volume.id.as_str(), 0, codec::encode_volume(volume));
    }
    let over = change.sandboxes.iter().filter(|record| record.sandbox.state.name() == StateName::Terminated);
    let gone = over.map(|record| (RowKind::Sandbox, record.sandbox.id.to_string()));
    let gone = gone.chain(change.forgotten.iter().map(|id| (RowKind::Snapshot, id.to_string())));
    let gone = gone.chain(change.removed_webhooks.iter().map(|id| (RowKind::Webhook, id.to_string())));
    let gone = gone.chain(change.removed_pools.iter().map(|id| (RowKind::Pool, id.to_string())));
    let gone = gone.chain(change.removed_builds.iter().map(|id| (RowKind::Build, id.to_string())));
    let gone = gone.chain(change.removed_templates.iter().map(|id| (RowKind::Template, id.to_string())));
    let gone = gone.chain(change.removed_environments.iter().map(|id| (RowKind::Environment, id.to_string())));
    let gone = gone.chain(change.removed_volumes.iter().map(|id| (RowKind::Volume, id.to_string())));
    verdicts.extend(gone.map(|key| (key, None)));
    verdicts
}

/// A store whose records are also kept as files.
pub(crate) struct FiledStore {
    inner: Arc<dyn Store>,
    writer: Writer,
    /// The effects of changes of which it is unknown whether they were committed.
    unsettled: Mutex<BTreeMap<Ticket, Vec<Keyed>>>,
    data: PathBuf,
    /// The records that have changed since the start, until the files of earlier daemons are up to
    /// date.
    changed: Mutex<Option<BTreeSet<Key>>>,
}

impl FiledStore {
    /// Returns a store over `inner`, with files below the data directory.
    pub(crate) fn new(inner: Arc<dyn Store>, data: &Path) -> Self {
        let writer = Writer::start(data.join(DIRECTORY));
        let changed = Mutex::new(Some(BTreeSet::new()));
        Self { inner, writer, unsettled: Mutex::default(), data: data.to_owned(), changed }
    }

    /// Waits for a limited time until every file is written.
    pub(crate) async fn close(&self) {
        self.writer.close().await;
    }

    fn unsettled(&self) -> MutexGuard<'_, BTreeMap<Ticket, Vec<Keyed>>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) -> MutexGuard<'_, Option<BTreeSet<Key>>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, verdicts: Vec<Keyed>) {
        // Held until the writer has them, so that nothing older comes in between.
        let mut changed = self.changed();
        if let Some(changed) = &mut *changed {
            changed.extend(verdicts.iter().map(|(key, _)| key.clone()));
        }
        self.writer.write(verdicts);
    }

    /// Updates the files that an earlier daemon left outdated. Records may change meanwhile.
    pub(crate) async fn catch_up(&self) -> Result<(), StoreError> {
        let kept = self.kept().await?;
        let living: BTreeSet<&SandboxId> = kept.sandboxes.iter().map(|record| &record.sandbox.id).collect();
        self.write_unchanged(verdicts(&kept));
        for id in sandboxes_in(&self.data.join(DIRECTORY)).into_iter().filter(|id| !living.contains(id)) {
            // A sandbox without a row is unknown: its file is kept.
            if let Ok(Some(record)) = self.inner.sandbox(&id).await
                && record.sandbox.state.name() == StateName::Terminated
            {
                self.write(vec![((RowKind::Sandbox, id.to_string()), None)]);
            }
        }
        Ok(())
    }

    /// Returns every record that has a file, as if all of them had just been changed.
    async fn kept(&self) -> Result<Change, StoreError> {
        let mut sandboxes = self.inner.sandboxes(&SandboxFilter::living()).await?;
        for record in &mut sandboxes {
            // The revision before the change that produced this record.
            record.revision = record.revision.saturating_sub(1);
        }
        Ok(Change {
            sandboxes,
            snapshots: self.inner.snapshots(None).await?,
            webhooks: self.inner.webhooks().await?,
            pools: self.inner.pools().await?,
            builds: self.inner.builds().await?,
            templates: self.inner.templates().await?,
            environments: self.inner.environments().await?,
            projects: self.inner.projects().await?,
            volumes: self.inner.volumes().await?,
            ..Change::default()
        })
    }

    /// Writes the files of records as they were read, except those that have changed since the
    /// start.
    fn write_unchanged(&self, mut verdicts: Vec<Keyed>) {
        let mut changed = self.changed();
        let newer = changed.take().unwrap_or_default();
        verdicts.retain(|(key, _)| !newer.contains(key));
        self.writer.write(verdicts);
    }
}

#[async_trait]
impl Store for FiledStore {
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        let verdicts = verdicts(&change);
        match self.inner.commit(change).await {
            Ok(events) => {
                self.write(verdicts);
                Ok(events)
            }
            Err(error) => {
                if let StoreError::Unknown { ticket, .. } = &error {
                    self.unsettled().insert(*ticket, verdicts);
                }
                Err(error)
            }
        }
    }

    async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        let settled = self.inner.settle(ticket).await?;
        let verdicts = self.unsettled().remove(&ticket).unwrap_or_default();
        if settled == Settled::Made {
            self.write(verdicts);
        }
        Ok(settled)
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        self.inner.sandbox(id).await
    }

    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError> {
        self.inner.named(project, name).await
    }

    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
        self.inner.sandboxes(filter).await
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
        self.inner.snapshot(id).await
    }

    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.inner.snapshots(project).await
    }

    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        self.inner.open_operations().await
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError> {
        self.inner.operation(id).await
    }

    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        self.inner.find_operations(filter).await
    }

    async fn to_discard(&self) -> Result<Vec<SavedStateId>, StoreError> {
        self.inner.to_discard().await
    }

    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        self.inner.webhooks().await
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>, StoreError> {
        self.inner.pools().await
    }

    async fn build(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
        self.inner.build(id).await
    }

    async fn builds(&self) -> Result<Vec<BuildRecord>, StoreError> {
        self.inner.builds().await
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        self.inner.templates().await
    }

    async fn environment(&self, id: &EnvironmentId) -> Result<Option<EnvironmentRecord>, StoreError> {
        self.inner.environment(id).await
    }

    async fn environment_with(
        &self,
        project: &ProjectId,
        key: &environment::Key,
    ) -> Result<Option<EnvironmentRecord>, StoreError> {
        self.inner.environment_with(project, key).await
    }

    async fn environments(&self) -> Result<Vec<EnvironmentRecord>, StoreError> {
        self.inner.environments().await
    }

    async fn projects(&self) -> Result<Vec<ProjectRecord>, StoreError> {
        self.inner.projects().await
    }

    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        self.inner.api_keys().await
    }

    async fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, StoreError> {
        self.inner.request(id).await
    }

    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError> {
        self.inner.volumes().await
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
        self.inner.events(filter).await
    }

    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.inner.find_snapshots(filter).await
    }

    async fn snapshot_bytes(&self) -> Result<u64, StoreError> {
        self.inner.snapshot_bytes().await
    }

    async fn events_removed(&self) -> Result<u64, StoreError> {
        self.inner.events_removed().await
    }

    async fn clock(&self) -> Result<Option<ClockNote>, StoreError> {
        self.inner.clock().await
    }

    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        self.inner.prune(prune).await
    }

    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError> {
        self.inner.unreadable().await
    }

    async fn living_and_unreadable(&self) -> Result<(Vec<SandboxRecord>, Vec<UnreadableRow>), StoreError> {
        self.inner.living_and_unreadable().await
    }
}

#[cfg(test)]
mod tests;
