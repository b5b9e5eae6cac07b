#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! A [`Store`] in one SQLite file.
//!
//! All changes go through one connection, each in a transaction that takes the write lock when it
//! begins. Lists and look-ups go through a few others that never write. The file is in WAL mode and
//! every commit is synced, so an acknowledged change survives a killed process and a power failure.
//! Records are text of `dorm_store::codec`; only values that are filtered by or must be unique are
//! columns. This crate does not know what the records mean.
//!
//! ```text
//! commit ──► writer (one connection) ──► BEGIN IMMEDIATE … COMMIT ──► file + WAL
//! reads  ──► readers (pool) ─────────────────────────────────────────┘
//! ```

#[cfg(feature = "test-util")]
pub mod bulk;
mod doubt;
mod history;
mod open;
mod read;
mod rows;
mod upkeep;
mod write;

use std::path::Path;

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
use sqlx::SqlitePool;

pub use open::OpenError;
pub use upkeep::{FileCheck, PackedFile, check, copy, pack, salvage, unpack};
use write::Writer;

/// A store in one SQLite file.
///
/// Several can be open on one file, also in several processes; each sees what the others have
/// committed.
#[derive(Debug)]
pub struct SqlStore {
    writer: Writer,
    readers: SqlitePool,
}

impl SqlStore {
    /// Opens the file at `path`, or creates it; its directory must exist. Only the owner can read a
    /// new file, because records hold environment variables.
    ///
    /// # Errors
    /// [`StoreError::Failed`] with an [`OpenError`] as its source. A file that is refused is not
    /// changed.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = open::open(path).await;
        let (writer, readers) = opened.map_err(|source| failed("open its file", source))?;
        Ok(Self { writer, readers })
    }

    /// Waits for the change in progress, moves the content of the WAL into the file and closes it.
    /// Later calls fail. Nothing is lost without closing: a store that is merely dropped, or
    /// killed, leaves its WAL to the next one.
    ///
    /// # Errors
    /// [`StoreError::Failed`]; every committed change is nevertheless in the file and its WAL.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.readers.close().await;
        self.writer.close().await
    }

    /// The data directory that this store belongs to; none before [`SqlStore::set_identity`].
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub async fn identity(&self) -> Result<Option<String>, StoreError> {
        let read = sqlx::query_scalar("SELECT id FROM identity").fetch_optional(&self.readers).await;
        read.map_err(|error| failed("read its identity", error))
    }

    /// Sets the data directory that this store belongs to. Durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub async fn set_identity(&self, id: &str) -> Result<(), StoreError> {
        let statement = "INSERT INTO identity (only, id) VALUES (1, ?) ON CONFLICT DO UPDATE SET id = excluded.id";
        let write = self.writer.outside("write its identity", async |connection| {
            sqlx::query(statement).bind(id).execute(connection).await
        });
        write.await.map(drop)
    }
}

fn failed(operation: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    let source: Box<dyn std::error::Error + Send + Sync> = Box::new(source);
    if is_damage(&*source) {
        StoreError::Damaged { operation, source }
    } else if source.downcast_ref().is_some_and(doubt::is_full) {
        StoreError::Full { operation, source }
    } else {
        StoreError::Failed { operation, source }
    }
}

/// Whether SQLite reports that the file is no database, or a malformed one.
fn is_damage(error: &(dyn std::error::Error + 'static)) -> bool {
    const CORRUPT: &str = "11";
    const NOT_A_DATABASE: &str = "26";
    let Some(sqlx::Error::Database(error)) = error.downcast_ref::<sqlx::Error>() else { return false };
    // An extended code has the primary code in its lowest byte.
    let code = error.code().and_then(|code| code.parse::<u32>().ok()).map(|code| (code & 0xff).to_string());
    matches!(code.as_deref(), Some(CORRUPT | NOT_A_DATABASE))
}

#[async_trait]
impl Store for SqlStore {
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        self.writer.commit(change).await
    }

    async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        self.writer.settle(ticket).await
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        read::sandbox(&self.readers, id).await
    }

    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError> {
        read::named(&self.readers, project, name).await
    }

    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
        read::sandboxes(&self.readers, filter).await
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
        read::snapshot(&self.readers, id).await
    }

    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError> {
        read::snapshots(&self.readers, project).await
    }

    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        read::open_operations(&self.readers).await
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError> {
        read::operation(&self.readers, id).await
    }

    async fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, StoreError> {
        read::request(&self.readers, id).await
    }

    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        history::find_operations(&self.readers, filter).await
    }

    async fn to_discard(&self) -> Result<Vec<SavedStateId>, StoreError> {
        read::to_discard(&self.readers).await
    }

    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        read::webhooks(&self.readers).await
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>, StoreError> {
        read::pools(&self.readers).await
    }

    async fn build(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
        read::build(&self.readers, id).await
    }

    async fn builds(&self) -> Result<Vec<BuildRecord>, StoreError> {
        read::builds(&self.readers).await
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        read::templates(&self.readers).await
    }

    async fn environment(&self, id: &EnvironmentId) -> Result<Option<EnvironmentRecord>, StoreError> {
        read::environment(&self.readers, id).await
    }

    async fn environment_with(&self, project: &ProjectId, key: &Key) -> Result<Option<EnvironmentRecord>, StoreError> {
        read::environment_with(&self.readers, project, key).await
    }

    async fn environments(&self) -> Result<Vec<EnvironmentRecord>, StoreError> {
        read::environments(&self.readers).await
    }

    async fn projects(&self) -> Result<Vec<ProjectRecord>, StoreError> {
        read::projects(&self.readers).await
    }

    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        read::api_keys(&self.readers).await
    }

    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError> {
        read::volumes(&self.readers).await
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
        read::events(&self.readers, filter).await
    }

    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError> {
        history::find_snapshots(&self.readers, filter).await
    }

    async fn snapshot_bytes(&self) -> Result<u64, StoreError> {
        history::snapshot_bytes(&self.readers).await
    }

    async fn events_removed(&self) -> Result<u64, StoreError> {
        history::events_removed(&self.readers).await
    }

    async fn clock(&self) -> Result<Option<ClockNote>, StoreError> {
        history::clock(&self.readers).await
    }

    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        self.writer.prune(prune).await
    }

    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError> {
        read::living_and_unreadable(&self.readers).await.map(|(_, unreadable)| unreadable)
    }

    async fn living_and_unreadable(&self) -> Result<(Vec<SandboxRecord>, Vec<UnreadableRow>), StoreError> {
        read::living_and_unreadable(&self.readers).await
    }
}

#[cfg(test)]
mod tests;
