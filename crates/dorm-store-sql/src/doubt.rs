//! Changes whose outcome is unknown.
//!
//! When the log (WAL) cannot be synced, SQLite has already written the whole change to it, with its
//! commit mark. It then forgets the change in memory and reports a failure. Readers do not see the
//! change, but the process that opens the file after a crash replays the log and makes it. So a
//! failed `COMMIT` leaves three questions: was the change made, will it be made later, and is it
//! durable?
//!
//! ```text
//! COMMIT fails ──► new connection ──► one more commit, synced ──► the answer
//! ```
//!
//! Each change writes its number into the row of its writer. The commit that settles a change reads
//! this number, which shows whether the change was made. If it was not, this commit is the next one
//! in the log and overwrites the change there, so that no process replays it any more. If it was, a
//! checkpoint then moves it into the file and syncs the file, because the kernel does not write
//! pages again after their sync has failed.

use dorm_store::{Settled, Ticket};
use sqlx::{Connection, Row, SqliteConnection};
use std::collections::BTreeMap;

/// How many writers are remembered: enough for those that may still have a change to settle.
const WRITERS: i64 = 16;

/// The changes of one writer that were in doubt.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    open: Option<u64>,
    settled: BTreeMap<u64, Settled>,
}

impl Doubts {
    /// Records that the outcome of a change is unknown.
    pub(crate) fn begin(&mut self, number: u64) {
        self.open = Some(number);
    }

    /// The change that is in doubt now.
    pub(crate) fn open(&self) -> Option<u64> {
        self.open
    }

    /// Records the outcome of the change that was in doubt.
    pub(crate) fn end(&mut self, settled: Settled) {
        if let Some(number) = self.open.take() {
            self.settled.insert(number, settled);
        }
    }

    /// The outcome of a change that was in doubt. It stays available for a caller that did not
    /// receive the answer.
    pub(crate) fn answer(&self, ticket: Ticket) -> Option<Settled> {
        self.settled.get(&ticket.0).copied()
    }
}

/// Whether a commit failed because the disk was full. The commit mark is written last, so it is
/// missing then: a disk that is full when the log is *synced* is reported as another error.
pub(crate) fn is_full(error: &sqlx::Error) -> bool {
    const SQLITE_FULL: i32 = 13;
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xff == SQLITE_FULL)
}

/// Creates the row of a new writer and returns its key.
pub(crate) async fn register(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query("DELETE FROM writers WHERE ordinal <= (SELECT max(ordinal) FROM writers) - ?")
        .bind(WRITERS)
        .execute(&mut *connection)
        .await?;
    sqlx::query_scalar("INSERT INTO writers (change, settled) VALUES (0, 0) RETURNING ordinal")
        .fetch_one(connection)
        .await
}

/// Writes the number of a change, as part of that change.
pub(crate) async fn note(connection: &mut SqliteConnection, ordinal: i64, number: u64) -> Result<(), sqlx::Error> {
    let noted = sqlx::query("UPDATE writers SET change = ? WHERE ordinal = ?")
        .bind(number.cast_signed())
        .bind(ordinal)
        .execute(connection)
        .await?;
    // Without the row of its writer, no change could be settled.
    if noted.rows_affected() == 1 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}

/// Finds out whether the change with this number was made, and ensures that the answer stays true.
pub(crate) async fn settle(
    connection: &mut SqliteConnection,
    ordinal: i64,
    number: u64,
) -> Result<Settled, sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let settling = sqlx::query_scalar("UPDATE writers SET settled = settled + 1 WHERE ordinal = ? RETURNING change");
    let last: i64 = settling.bind(ordinal).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    if last.cast_unsigned() != number {
        return Ok(Settled::NotMade);
    }
    let checkpoint = sqlx::query("PRAGMA wal_checkpoint(FULL)").fetch_one(connection).await?;
    // A reader of an older state has not finished, so the caller must try again.
    if checkpoint.try_get::<i64, _>(0)? == 0 { Ok(Settled::Made) } else { Err(sqlx::Error::PoolTimedOut) }
}
