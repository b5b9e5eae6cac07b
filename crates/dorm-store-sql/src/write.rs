//! The one connection that changes the file, and the transaction of a change.

mod prune;

use std::collections::BTreeMap;

use dorm_lifecycle::SandboxId;
use dorm_store::codec;
use dorm_store::{Change, EventRecord, NewEvent, SandboxRecord, StoreError};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection, SqliteTransaction};
use thiserror::Error;
use tokio::sync::Mutex;

use crate::failed;

/// The writing side of a store.
///
/// A connection is used again only after its transaction was seen to end. When SQLite itself has given a transaction
/// up (full disk, I/O error), when a rollback fails, or when whoever committed did not wait for the end, sqlx can no
/// longer tell what the connection is in: it is dropped, which rolls back, and the next commit opens another.
#[derive(Debug)]
pub(crate) struct Writer {
    options: SqliteConnectOptions,
    connection: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Ready(SqliteConnection),
    Lost,
    Closed,
}

/// The store was closed.
#[derive(Debug, Error)]
#[error("the store is closed; open it again")]
struct Closed;

impl Writer {
    pub(crate) fn new(options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        Self { options, connection: Mutex::new(Slot::Ready(connection)) }
    }

    pub(crate) async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.take(&mut slot).await?;
        let transaction =
            connection.begin_with("BEGIN IMMEDIATE").await.map_err(|error| failed("begin a change", error))?;
        let outcome = run(transaction, change).await;
        if let Outcome::Ended(_) = &outcome {
            *slot = Slot::Ready(connection);
        }
        match outcome {
            Outcome::Ended(result) => result,
            Outcome::Unknown(error) => Err(error),
        }
    }

    /// Takes the connection out, so that it is gone unless it is put back.
    async fn take(&self, slot: &mut Slot) -> Result<SqliteConnection, StoreError> {
        match std::mem::replace(slot, Slot::Lost) {
            Slot::Ready(connection) => Ok(connection),
            Slot::Lost => self.options.connect().await.map_err(|error| failed("open its file again", error)),
            Slot::Closed => {
                *slot = Slot::Closed;
                Err(failed("begin a change", Closed))
            }
        }
    }

    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        match std::mem::replace(&mut *self.connection.lock().await, Slot::Closed) {
            Slot::Ready(connection) => connection.close().await.map_err(|error| failed("close its file", error)),
            Slot::Lost | Slot::Closed => Ok(()),
        }
    }

    /// Runs a statement on the connection that writes, outside of any change.
    #[cfg(test)]
    pub(crate) async fn tinker(&self, statement: &'static str) -> Option<String> {
        use sqlx::Row;
        let mut slot = self.connection.lock().await;
        let mut connection = self.take(&mut slot).await.unwrap();
        let row = sqlx::query(statement).fetch_optional(&mut connection).await.unwrap();
        *slot = Slot::Ready(connection);
        row.map(|row| row.try_get_unchecked(0).unwrap())
    }
}

enum Outcome {
    /// The transaction was committed or rolled back.
    Ended(Result<Vec<EventRecord>, StoreError>),
    /// It was not committed, but how it ended was not seen.
    Unknown(StoreError),
}

async fn run(mut transaction: SqliteTransaction<'_>, change: Change) -> Outcome {
    match apply(&mut transaction, change).await {
        Ok(events) => match transaction.commit().await {
            Ok(()) => Outcome::Ended(Ok(events)),
            Err(error) => Outcome::Unknown(failed("commit a change", error)),
        },
        Err(refusal) => match transaction.rollback().await {
            Ok(()) => Outcome::Ended(Err(refusal)),
            Err(_) => Outcome::Unknown(refusal),
        },
    }
}

async fn apply(connection: &mut SqliteConnection, change: Change) -> Result<Vec<EventRecord>, StoreError> {
    for record in change.ordered_sandboxes()? {
        sandbox(connection, record).await?;
    }
    for operation in &change.operations {
        let document = codec::encode_operation(operation).map_err(|error| failed("write an operation", error))?;
        sqlx::query(
            "INSERT INTO operations (id, is_open, document) VALUES (?, ?, ?) \
             ON CONFLICT (id) DO UPDATE SET is_open = excluded.is_open, document = excluded.document",
        )
        .bind(operation.id.as_str())
        .bind(operation.ended.is_none())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write an operation", error))?;
    }
    for snapshot in &change.snapshots {
        let document = codec::encode_snapshot(snapshot).map_err(|error| failed("write a snapshot", error))?;
        sqlx::query(
            "INSERT INTO snapshots (id, project, document) VALUES (?, ?, ?) \
             ON CONFLICT (id) DO UPDATE SET project = excluded.project, document = excluded.document",
        )
        .bind(snapshot.id.as_str())
        .bind(snapshot.project.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a snapshot", error))?;
    }
    for id in &change.forgotten {
        sqlx::query("DELETE FROM snapshots WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("forget a snapshot", error))?;
    }
    for capture in &change.discard {
        sqlx::query("INSERT INTO discards (capture) VALUES (?) ON CONFLICT DO NOTHING")
            .bind(capture.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("note a capture to discard", error))?;
    }
    for capture in &change.discarded {
        sqlx::query("DELETE FROM discards WHERE capture = ?")
            .bind(capture.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("forget a discarded capture", error))?;
    }
    for webhook in &change.webhooks {
        let document = codec::encode_webhook(webhook).map_err(|error| failed("write a webhook", error))?;
        sqlx::query(
            "INSERT INTO webhooks (id, document) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .bind(webhook.id.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a webhook", error))?;
    }
    for id in &change.removed_webhooks {
        sqlx::query("DELETE FROM webhooks WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove a webhook", error))?;
    }
    volumes(connection, &change).await?;
    clock(connection, &change).await?;
    let mut events = Vec::with_capacity(change.events.len());
    for event in change.events {
        events.push(record_event(connection, event).await?);
    }
    Ok(events)
}

async fn volumes(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for volume in &change.volumes {
        let document = codec::encode_volume(volume).map_err(|error| failed("write a volume", error))?;
        sqlx::query(
            "INSERT INTO volumes (id, document) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .bind(volume.id.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a volume", error))?;
    }
    for id in &change.removed_volumes {
        sqlx::query("DELETE FROM volumes WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove a volume", error))?;
    }
    Ok(())
}

async fn clock(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    let Some(note) = &change.clock else { return Ok(()) };
    let document = codec::encode_clock(note).map_err(|error| failed("note the clocks", error))?;
    sqlx::query(
        "INSERT INTO clock (only_one, document) VALUES (1, ?) \
         ON CONFLICT (only_one) DO UPDATE SET document = excluded.document",
    )
    .bind(document)
    .execute(connection)
    .await
    .map_err(|error| failed("note the clocks", error))?;
    Ok(())
}

async fn sandbox(connection: &mut SqliteConnection, record: &SandboxRecord) -> Result<(), StoreError> {
    let wrong = |error| failed("write a sandbox", error);
    let sandbox = &record.sandbox;
    let id = sandbox.id.as_str();
    let stored: Option<i64> = sqlx::query_scalar("SELECT revision FROM sandboxes WHERE id = ?")
        .bind(id)
        .fetch_optional(&mut *connection)
        .await
        .map_err(wrong)?;
    let revision = record.next_revision(stored.map(i64::unsigned_abs))?;
    refuse_taken_name(connection, record).await?;
    let document = codec::encode_sandbox(sandbox).map_err(|error| failed("write a sandbox", error))?;
    sqlx::query(
        "INSERT INTO sandboxes (id, project, name, state, revision, document) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (id) DO UPDATE SET project = excluded.project, name = excluded.name, state = excluded.state, \
         revision = excluded.revision, document = excluded.document",
    )
    .bind(id)
    .bind(sandbox.project.as_str())
    .bind(sandbox.spec.name.as_ref().map(dorm_lifecycle::Name::as_str))
    .bind(sandbox.state.name().as_str())
    .bind(i64::try_from(revision).unwrap_or(i64::MAX))
    .bind(document)
    .execute(&mut *connection)
    .await
    .map_err(wrong)?;
    labels(connection, &sandbox.id, &sandbox.spec.labels).await.map_err(wrong)
}

/// The unique index would refuse it as well, but could not tell whose the name is.
async fn refuse_taken_name(connection: &mut SqliteConnection, record: &SandboxRecord) -> Result<(), StoreError> {
    let Some((project, name)) = record.held_name() else { return Ok(()) };
    let holder: Option<String> = sqlx::query_scalar(
        "SELECT id FROM sandboxes WHERE project = ? AND name = ? AND state <> 'terminated' AND id <> ?",
    )
    .bind(project.as_str())
    .bind(name.as_str())
    .bind(record.sandbox.id.as_str())
    .fetch_optional(connection)
    .await
    .map_err(|error| failed("look up a name", error))?;
    let Some(holder) = holder else { return Ok(()) };
    let holder: SandboxId = holder.parse().map_err(|error| StoreError::Unreadable {
        id: format!("the holder of the name '{name}'"),
        what: format!("{error}"),
    })?;
    Err(StoreError::NameTaken { name: name.clone(), holder })
}

/// Writes only what differs: labels hardly ever change, and a sandbox is written with each step of its life.
async fn labels(
    connection: &mut SqliteConnection,
    sandbox: &SandboxId,
    wanted: &BTreeMap<String, String>,
) -> Result<(), sqlx::Error> {
    let stored: Vec<(String, String)> = sqlx::query_as("SELECT key, value FROM labels WHERE sandbox = ?")
        .bind(sandbox.as_str())
        .fetch_all(&mut *connection)
        .await?;
    let stored: BTreeMap<_, _> = stored.into_iter().collect();
    if stored == *wanted {
        return Ok(());
    }
    sqlx::query("DELETE FROM labels WHERE sandbox = ?").bind(sandbox.as_str()).execute(&mut *connection).await?;
    for (key, value) in wanted {
        sqlx::query("INSERT INTO labels (sandbox, key, value) VALUES (?, ?, ?)")
            .bind(sandbox.as_str())
            .bind(key.as_str())
            .bind(value.as_str())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// The number is given under the write lock, which is held until the commit: numbers become visible in their order.
/// A rollback takes it back, so there are no gaps.
async fn record_event(connection: &mut SqliteConnection, event: NewEvent) -> Result<EventRecord, StoreError> {
    let document = codec::encode_event(&event).map_err(|error| failed("record an event", error))?;
    let number: i64 =
        sqlx::query_scalar("INSERT INTO events (project, sandbox, document) VALUES (?, ?, ?) RETURNING number")
            .bind(event.project.as_str())
            .bind(event.sandbox.as_str())
            .bind(document)
            .fetch_one(connection)
            .await
            .map_err(|error| failed("record an event", error))?;
    Ok(EventRecord { number: number.unsigned_abs(), event })
}
