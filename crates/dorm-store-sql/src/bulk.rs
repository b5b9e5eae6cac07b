//! Fills a store with very many records, for benchmarks. Not part of any release build.
//!
//! SQLite itself copies a few records into the tables of a closed store. The arguments are not
//! checked.

use std::path::Path;

use dorm_lifecycle::Sandbox;
use dorm_store::codec;
use dorm_store::{NewEvent, OperationRecord, StoreError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::failed;

/// The number of rows in one transaction.
const ROWS: u64 = 100_000;

/// The records to write, and how many copies of each. Copies differ in their ids; the events belong
/// to the terminated sandboxes in turn.
#[derive(Debug)]
pub struct Bulk<'a> {
    /// Living sandboxes without a name.
    pub living: (u64, &'a Sandbox),
    /// Terminated sandboxes without a name, each with the operation that ended it.
    pub terminated: (u64, &'a Sandbox, &'a OperationRecord),
    /// Events.
    pub events: (u64, &'a NewEvent),
}

/// The id of the copy `n`: spread over all ids, like random ones.
const ID: &str = "printf('%s%08x%011x', ?2, (n * 2654435761) & 4294967295, n)";

/// Writes everything into the store at `path`, which must be closed, and returns the size of its
/// file in bytes.
///
/// # Errors
/// [`StoreError::Failed`].
pub async fn fill(path: &Path, bulk: &Bulk<'_>) -> Result<u64, StoreError> {
    let wrong = |error| failed("fill the store", error);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Off)
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(wrong)?;
    sqlx::raw_sql("PRAGMA cache_size = -262144").execute(&mut connection).await.map_err(wrong)?;
    let text = |text: Result<String, codec::CodecError>| text.map_err(|error| failed("write a record", error));
    let (count, sandbox) = bulk.living;
    sandboxes(&mut connection, "a", count, sandbox, text(codec::encode_sandbox(sandbox))?).await.map_err(wrong)?;
    let (count, sandbox, operation) = bulk.terminated;
    sandboxes(&mut connection, "b", count, sandbox, text(codec::encode_sandbox(sandbox))?).await.map_err(wrong)?;
    let document = text(codec::encode_operation(operation))?;
    let insert = format!(
        "INSERT INTO operations (id, is_open, document) SELECT {ID}, 0, replace(replace(?1, ?3, {ID}), ?4, 'b' || \
         substr({ID}, 2))"
    );
    for_each(&mut connection, count, &insert, &[&document, "c", operation.id.as_str(), sandbox.id.as_str()])
        .await
        .map_err(wrong)?;
    let (count, event) = bulk.events;
    let document = text(codec::encode_event(event))?;
    let of = format!("(SELECT (n % {}) AS n)", bulk.terminated.0.max(1));
    let insert = format!(
        "INSERT INTO events (project, sandbox, document) SELECT ?4, (SELECT {ID} FROM {of}), replace(?1, ?3, (SELECT {ID} FROM {of}))"
    );
    for_each(&mut connection, count, &insert, &[&document, "b", event.sandbox.as_str(), event.project.as_str()])
        .await
        .map_err(wrong)?;
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.map_err(wrong)?;
    connection.close().await.map_err(wrong)?;
    Ok(std::fs::metadata(path).map(|file| file.len()).unwrap_or_default())
}

async fn sandboxes(
    connection: &mut SqliteConnection,
    prefix: &str,
    count: u64,
    sandbox: &Sandbox,
    document: String,
) -> Result<(), sqlx::Error> {
    let insert = format!(
        "INSERT INTO sandboxes (id, project, name, state, revision, document) SELECT {ID}, '{}', NULL, '{}', 1, \
         replace(?1, ?3, {ID})",
        sandbox.project,
        sandbox.state.name().as_str()
    );
    for_each(connection, count, &insert, &[&document, prefix, sandbox.id.as_str()]).await
}

/// Executes an `INSERT … SELECT` for each `n` below `count`.
async fn for_each(
    connection: &mut SqliteConnection,
    count: u64,
    insert: &str,
    values: &[&str],
) -> Result<(), sqlx::Error> {
    let mut first = 0;
    while first < count {
        let last = (first + ROWS).min(count);
        let statement = format!(
            "WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {last}) {insert} \
             FROM numbers"
        );
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement));
        for value in values {
            query = query.bind((*value).to_owned());
        }
        query.execute(&mut *connection).await?;
        first = last;
    }
    Ok(())
}
