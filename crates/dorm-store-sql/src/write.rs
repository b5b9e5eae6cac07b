//! The single connection that changes the file, and the transaction of a change.

mod environments;
mod prune;

use std::collections::BTreeMap;
use std::str::FromStr;

use dorm_lifecycle::{IdError, SandboxId};
use dorm_store::codec;
use dorm_store::{
    Change, EventRecord, NewEvent, NoSuchTicket, SandboxRecord, Settled, SnapshotRecord, StoreError, Ticket,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection, SqliteTransaction};
use thiserror::Error;
use tokio::sync::Mutex;

use crate::doubt::{self, Doubts};
use crate::failed;

/// The writing side of a store.
///
/// A connection is used again only after the end of its transaction was observed. If SQLite itself
/// has ended the transaction (full disk, I/O error), if a rollback fails, or if the caller dropped
/// the commit, sqlx does not know the state of the connection. It is then dropped, which rolls
/// back, and the next commit opens another one.
///
/// A failed `COMMIT` does not show whether the change was made: see [`crate::doubt`].
#[derive(Debug)]
pub(crate) struct Writer {
    options: SqliteConnectOptions,
    connection: Mutex<Slot>,
    /// Its row in the table of writers.
    ordinal: i64,
    #[cfg(test)]
    pub(crate) fault: std::sync::Mutex<Option<Fault>>,
}

/// How a commit fails in a test.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Before anything is written.
    Before,
    /// After everything is written.
    After,
}

#[derive(Debug)]
struct Slot {
    state: State,
    /// The number of the latest change.
    change: u64,
    doubts: Doubts,
}

#[derive(Debug)]
enum State {
    Ready(SqliteConnection),
    Lost,
    Closed,
}

/// The store was closed.
#[derive(Debug, Error)]
#[error("the store is closed; open it again")]
struct Closed;

impl Writer {
    /// Creates a writer on this connection, which must not be in a transaction.
    pub(crate) async fn new(
        options: SqliteConnectOptions,
        mut connection: SqliteConnection,
    ) -> Result<Self, sqlx::Error> {
        let ordinal = doubt::register(&mut connection).await?;
        let slot = Slot { state: State::Ready(connection), change: 0, doubts: Doubts::default() };
        Ok(Self {
            options,
            connection: Mutex::new(slot),
            ordinal,
            #[cfg(test)]
            fault: std::sync::Mutex::default(),
        })
    }

    pub(crate) async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.take(&mut slot).await?;
        slot.change += 1;
        let number = slot.change;
        let transaction =
            connection.begin_with("BEGIN IMMEDIATE").await.map_err(|error| failed("begin a change", error))?;
        match self.run(transaction, change, number).await {
            Outcome::Ended(result) => {
                slot.state = State::Ready(connection);
                result
            }
            Outcome::GivenUp(error) => Err(error),
            Outcome::Unknown(error) => {
                slot.doubts.begin(number);
                Err(StoreError::Unknown {
                    operation: "commit a change",
                    ticket: Ticket(number),
                    source: Box::new(error),
                })
            }
        }
    }

    /// Finds the outcome of a change that failed with [`StoreError::Unknown`].
    pub(crate) async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        let mut slot = self.connection.lock().await;
        let connection = self.take(&mut slot).await?;
        slot.state = State::Ready(connection);
        slot.doubts.answer(ticket).ok_or_else(|| failed("settle a change", NoSuchTicket(ticket)))
    }

    /// Takes the connection out of the slot, so that it is dropped unless the caller puts it back.
    /// No change is in doubt afterwards.
    async fn take(&self, slot: &mut Slot) -> Result<SqliteConnection, StoreError> {
        match std::mem::replace(&mut slot.state, State::Lost) {
            State::Ready(connection) => Ok(connection),
            State::Lost => {
                let mut connection =
                    self.options.connect().await.map_err(|error| failed("open its file again", error))?;
                if let Some(number) = slot.doubts.open() {
                    let settled = doubt::settle(&mut connection, self.ordinal, number).await;
                    let settled = settled.map_err(|error| failed("settle a change", error))?;
                    slot.doubts.end(settled);
                }
                Ok(connection)
            }
            State::Closed => {
                slot.state = State::Closed;
                Err(failed("begin a change", Closed))
            }
        }
    }

    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        let state = std::mem::replace(&mut self.connection.lock().await.state, State::Closed);
        match state {
            State::Ready(connection) => connection.close().await.map_err(|error| failed("close its file", error)),
            State::Lost | State::Closed => Ok(()),
        }
    }

    /// Runs `work` on the writing connection, outside any change.
    pub(crate) async fn outside<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.take(&mut slot).await?;
        let done = work(&mut connection).await.map_err(|error| failed(operation, error))?;
        slot.state = State::Ready(connection);
        Ok(done)
    }

    /// Runs a statement on the writing connection, outside any change.
    #[cfg(test)]
    pub(crate) async fn tinker(&self, statement: &'static str) -> Option<String> {
        use sqlx::Row;
        let row = self.outside("tinker", async |connection| sqlx::query(statement).fetch_optional(connection).await);
        row.await.unwrap().map(|row| row.try_get_unchecked(0).unwrap())
    }

    async fn run(&self, mut transaction: SqliteTransaction<'_>, change: Change, number: u64) -> Outcome {
        let applied = async {
            let events = apply(&mut transaction, change).await?;
            let noted = doubt::note(&mut transaction, self.ordinal, number).await;
            noted.map_err(|error| failed("number a change", error))?;
            Ok(events)
        };
        match applied.await {
            Ok(events) => match self.end(transaction).await {
                Ok(()) => Outcome::Ended(Ok(events)),
                Err(error) if doubt::is_full(&error) => Outcome::GivenUp(failed("commit a change", error)),
                Err(error) => Outcome::Unknown(error),
            },
            Err(refusal) => match transaction.rollback().await {
                Ok(()) => Outcome::Ended(Err(refusal)),
                Err(_) => Outcome::GivenUp(refusal),
            },
        }
    }

    #[cfg(not(test))]
    async fn end(&self, transaction: SqliteTransaction<'_>) -> Result<(), sqlx::Error> {
        transaction.commit().await
    }

    #[cfg(test)]
    async fn end(&self, transaction: SqliteTransaction<'_>) -> Result<(), sqlx::Error> {
        let fault = self.fault.lock().unwrap().take();
        match fault {
            None => transaction.commit().await,
            Some(Fault::Before) => {
                transaction.rollback().await?;
                Err(sqlx::Error::WorkerCrashed)
            }
            Some(Fault::After) => {
                transaction.commit().await?;
                Err(sqlx::Error::WorkerCrashed)
            }
        }
    }
}

enum Outcome {
    /// The transaction was committed or rolled back.
    Ended(Result<Vec<EventRecord>, StoreError>),
    /// It was not committed, and the connection can no longer be used.
    GivenUp(StoreError),
    /// It is unknown whether it was committed.
    Unknown(sqlx::Error),
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
    snapshots(connection, &change).await?;
    for saved_state in &change.discard {
        sqlx::query("INSERT INTO discards (saved_state) VALUES (?) ON CONFLICT DO NOTHING")
            .bind(saved_state.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("note a saved state to discard", error))?;
    }
    for saved_state in &change.discarded {
        sqlx::query("DELETE FROM discards WHERE saved_state = ?")
            .bind(saved_state.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("forget a discarded saved state", error))?;
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
    pools(connection, &change).await?;
    builds(connection, &change).await?;
    templates(connection, &change).await?;
    environments::write(connection, &change).await?;
    projects(connection, &change).await?;
    api_keys(connection, &change).await?;
    requests(connection, &change).await?;
    volumes(connection, &change).await?;
    clock(connection, &change).await?;
    let mut events = Vec::with_capacity(change.events.len());
    for event in change.events {
        events.push(record_event(connection, event).await?);
    }
    Ok(events)
}

async fn snapshots(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for snapshot in change.ordered_snapshots() {
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
        snapshot_name(connection, snapshot).await?;
    }
    for id in &change.forgotten {
        sqlx::query("DELETE FROM snapshots WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("forget a snapshot", error))?;
    }
    Ok(())
}

/// Records the name that a snapshot holds, or that it holds none.
async fn snapshot_name(connection: &mut SqliteConnection, snapshot: &SnapshotRecord) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM snapshot_names WHERE snapshot = ?")
        .bind(snapshot.id.as_str())
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("release the name of a snapshot", error))?;
    let Some(name) = snapshot.held_name() else { return Ok(()) };
    let holder: Option<String> =
        sqlx::query_scalar("SELECT snapshot FROM snapshot_names WHERE project = ? AND name = ?")
            .bind(snapshot.project.as_str())
            .bind(name.as_str())
            .fetch_optional(&mut *connection)
            .await
            .map_err(|error| failed("look up the name of a snapshot", error))?;
    if let Some(holder) = holder {
        let holder = parsed_holder(name.as_str(), &holder)?;
        return Err(StoreError::SnapshotNameTaken { name: name.clone(), holder });
    }
    sqlx::query("INSERT INTO snapshot_names (project, name, snapshot) VALUES (?, ?, ?)")
        .bind(snapshot.project.as_str())
        .bind(name.as_str())
        .bind(snapshot.id.as_str())
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write the name of a snapshot", error))?;
    Ok(())
}

async fn pools(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for pool in &change.pools {
        let document = codec::encode_pool(pool).map_err(|error| failed("write a sandbox pool", error))?;
        sqlx::query(
            "INSERT INTO pools (id, document) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .bind(pool.id.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a sandbox pool", error))?;
    }
    for id in &change.removed_pools {
        sqlx::query("DELETE FROM pools WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove a sandbox pool", error))?;
    }
    Ok(())
}

async fn builds(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for build in &change.builds {
        let document = codec::encode_build(build).map_err(|error| failed("write a build", error))?;
        sqlx::query(
            "INSERT INTO builds (id, document) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .bind(build.id.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a build", error))?;
    }
    for id in &change.removed_builds {
        sqlx::query("DELETE FROM builds WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove a build", error))?;
    }
    Ok(())
}

async fn templates(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for template in &change.templates {
        let document = codec::encode_template(template).map_err(|error| failed("write a template", error))?;
        sqlx::query(
            "INSERT INTO templates (id, document) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .bind(template.id.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a template", error))?;
    }
    for id in &change.removed_templates {
        sqlx::query("DELETE FROM templates WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove a template", error))?;
    }
    Ok(())
}

async fn projects(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for project in &change.projects {
        let document = codec::encode_project(project).map_err(|error| failed("write a project", error))?;
        sqlx::query(
            "INSERT INTO projects (id, document) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .bind(project.id.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a project", error))?;
    }
    Ok(())
}

async fn api_keys(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for key in &change.api_keys {
        let document = codec::encode_api_key(key).map_err(|error| failed("write an API key", error))?;
        sqlx::query(
            "INSERT INTO api_keys (id, document) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .bind(key.id.as_str())
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write an API key", error))?;
    }
    for id in &change.removed_api_keys {
        sqlx::query("DELETE FROM api_keys WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove an API key", error))?;
    }
    Ok(())
}

async fn requests(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for request in &change.requests {
        let document = codec::encode_request(request).map_err(|error| failed("write a request", error))?;
        sqlx::query(
            "INSERT INTO requests (id, made_at, document) VALUES (?, ?, ?) \
             ON CONFLICT (id) DO UPDATE SET made_at = excluded.made_at, document = excluded.document",
        )
        .bind(request.id.as_str())
        .bind(prune::millis(request.at))
        .bind(document)
        .execute(&mut *connection)
        .await
        .map_err(|error| failed("write a request", error))?;
    }
    for id in &change.removed_requests {
        sqlx::query("DELETE FROM requests WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove a request", error))?;
    }
    Ok(())
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

/// The unique index would refuse it as well, but could not report who holds the name.
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
    Err(StoreError::NameTaken { name: name.clone(), holder: parsed_holder(name.as_str(), &holder)? })
}

fn parsed_holder<Id: FromStr<Err = IdError>>(name: &str, holder: &str) -> Result<Id, StoreError> {
    holder.parse().map_err(|error: IdError| StoreError::Unreadable {
        id: format!("the holder of the name '{name}'"),
        what: error.to_string(),
    })
}

/// Writes only the differences: labels hardly ever change, and a sandbox is written at each step of
/// its life.
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

/// The number is assigned under the write lock, which is held until the commit, so numbers become
/// visible in their order. A rollback releases the number, so there are no gaps.
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
