//! Opens a file: refuses unsuitable ones, creates a missing one, and migrates an old one.
//!
//! ```text
//! file system? ──► create if missing ──► inspect without changes: version of SQLite, application, version of the file
//!              ──► writer in WAL mode, synced ──► migrations ──► readers
//! ```
//!
//! A process that dies in between leaves an empty file, or one whose last migration is complete;
//! the next opening continues from there.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection, SqlitePool};
use thiserror::Error;

use crate::write::Writer;

mod migrations;
mod room;

use migrations::MIGRATIONS;

/// The application id that the first migration writes into the header of the file.
const APPLICATION: i64 = 0x646f_726d;

/// Earlier versions could corrupt a file that several connections had open in WAL mode, when the
/// WAL was reset.
const SQLITE_LEAST: [u32; 3] = [3, 51, 3];

/// How long a connection waits for a lock that another process holds.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// How long a read waits for one of the connections.
const READER_WAIT: Duration = Duration::from_secs(120);

const READERS: u32 = 4;

/// How many rows a connection reads ahead of its caller: with few, the two wait for each other at
/// every handful.
const ROWS: usize = 1024;

/// Why a file could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file could not be created, or its directory could not be read.
    #[error("cannot make or reach the store {}: check that its directory is there and writable", path.display())]
    Unreachable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Its directory is on a network file system, where SQLite's locks and shared memory do not
    /// work.
    #[error("the store {} is on {kind}, where it could be corrupted: put it on a local disk", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// The SQLite in this program has a known bug.
    #[error("SQLite {found} can corrupt a store: build dorm with SQLite 3.51.3 or later")]
    OldSqlite {
        /// Its version.
        found: String,
    },
    /// The file is a database of another program.
    #[error("{} is an SQLite file of another program: choose another path for the store", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a later version of dorm.
    #[error(
        "the store {} has version {found}, but this dorm knows versions up to {known}: use the dorm that wrote it, \
         or a later one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest version this program knows.
        known: i64,
    },
    /// WAL mode cannot be enabled.
    #[error(
        "the store {} stays in journal mode '{found}', but needs 'wal': put the data directory on a local file system \
         that supports WAL",
        path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// The mode it is in.
        found: String,
    },
    /// The file could not be migrated.
    #[error("cannot bring the store {} up to date; it is as it was before", path.display())]
    Migration {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: MigrateError,
    },
    /// SQLite cannot read the file.
    #[error(
        "the store {} is damaged: rebuild it with `dorm repair --data {}`, or put a backup in its place with \
         `dorm restore`",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: sqlx::Error,
    },
    /// An operation of SQLite failed.
    #[error("cannot {step} the store {}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The operation.
        step: &'static str,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
}

pub(crate) async fn open(path: &Path) -> Result<(Writer, SqlitePool), OpenError> {
    let unreachable = |source| OpenError::Unreachable { path: path.to_owned(), source };
    // Connections are also opened later, when the working directory may be another one.
    let path = std::path::absolute(path).map_err(unreachable)?;
    make(&path)?;
    let plain = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(false)
        .busy_timeout(LOCK_WAIT)
        .foreign_keys(true)
        .row_buffer_size(ROWS)
        .disable_statement_logging();
    inspect(&path, &plain).await?;

    let synced = plain.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let synced = synced.pragma("wal_autocheckpoint", room::CHECKPOINT_PAGES);
    // Deleted content is overwritten where that costs no I/O: a secret that was blanked is then no
    // longer in a page of the file.
    let synced = synced.pragma("secure_delete", "FAST");
    let sqlite = |step| {
        let path = path.clone();
        move |source| refused(&path, step, source)
    };
    let mut connection = synced.connect().await.map_err(sqlite("open"))?;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&mut connection)
        .await
        .map_err(sqlite("read the journal mode of"))?;
    if mode != "wal" {
        return Err(OpenError::Mode { path, found: mode });
    }
    let migrated = MIGRATIONS.run_direct(None, &mut connection, false).await;
    migrated.map_err(|source| OpenError::Migration { path: path.clone(), source })?;
    if let Err(error) = room::reserve(&path, &mut connection).await {
        tracing::warn!(%error, path = %path.display(), "no room could be reserved for records: they need some when the disk is full");
    }

    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(READER_WAIT)
        .acquire_slow_threshold(READER_WAIT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(synced.clone().pragma("query_only", "1"))
        .await
        .map_err(sqlite("open readers of"))?;
    let writer = Writer::new(synced, connection).await.map_err(sqlite("register with"))?;
    Ok((writer, readers))
}

/// Creates an empty file that only its owner can read; SQLite gives its WAL the same mode. An
/// existing file is kept.
fn make(path: &Path) -> Result<(), OpenError> {
    let unreachable = |source| OpenError::Unreachable { path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(path);
    let system = rustix::fs::statfs(directory).map_err(|errno| unreachable(errno.into()))?;
    if let Some(kind) = network_file_system(system.f_type) {
        return Err(OpenError::Network { path: path.to_owned(), kind });
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(unreachable(error)),
    }
}

fn network_file_system(magic: rustix::fs::FsWord) -> Option<&'static str> {
    // The kernel's numbers have 32 bits, whatever the size of the type.
    match magic as u64 & 0xffff_ffff {
        0x0000_6969 => Some("NFS"),
        0x0000_517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB2"),
        0x5346_414f => Some("AFS"),
        0x00c3_6400 => Some("Ceph"),
        _ => None,
    }
}

/// Inspects the file without changing it: not even its journal mode, which is stored in the file.
async fn inspect(path: &Path, plain: &SqliteConnectOptions) -> Result<(), OpenError> {
    let sqlite = |step| move |source| refused(path, step, source);
    let mut connection = plain.connect().await.map_err(sqlite("open"))?;
    let verdict = judge(path, &mut connection).await;
    connection.close().await.map_err(sqlite("close"))?;
    verdict
}

async fn judge(path: &Path, connection: &mut SqliteConnection) -> Result<(), OpenError> {
    let sqlite = |step| move |source| refused(path, step, source);
    let version: String = sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(&mut *connection)
        .await
        .map_err(sqlite("ask the SQLite of"))?;
    if !is_new_enough(&version) {
        return Err(OpenError::OldSqlite { found: version });
    }
    let application: i64 = sqlx::query_scalar("PRAGMA application_id")
        .fetch_one(&mut *connection)
        .await
        .map_err(sqlite("read whose file is"))?;
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
            .fetch_all(&mut *connection)
            .await
            .map_err(sqlite("read the tables of"))?;
    let is_migrated = tables.iter().any(|table| table == "_sqlx_migrations");
    let has_others = tables.iter().any(|table| table != "_sqlx_migrations");
    if application != APPLICATION && (application != 0 || has_others) {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    if !is_migrated {
        return Ok(());
    }
    let found: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations")
        .fetch_one(&mut *connection)
        .await
        .map_err(sqlite("read the version of"))?;
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default();
    match found {
        Some(found) if found > known => Err(OpenError::Newer { path: path.to_owned(), found, known }),
        Some(_) | None => Ok(()),
    }
}

fn refused(path: &Path, step: &'static str, source: sqlx::Error) -> OpenError {
    let path = path.to_owned();
    match crate::is_damage(&source) {
        true => OpenError::Damaged { path, source },
        false => OpenError::Sqlite { path, step, source },
    }
}

fn is_new_enough(version: &str) -> bool {
    let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    numbers.as_slice() >= SQLITE_LEAST.as_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlite_with_the_known_fault_is_refused() {
        for (version, fits) in [("3.51.3", true), ("3.52.0", true), ("4.0", true), ("3.51.2", false), ("", false)] {
            assert_eq!(is_new_enough(version), fits, "{version}");
        }
    }

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(network_file_system(0x6969), Some("NFS"));
        assert_eq!(network_file_system(0xef53), None);
    }
}
