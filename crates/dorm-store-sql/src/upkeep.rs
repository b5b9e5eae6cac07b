//! Maintenance of a file that need not be open in a daemon: checking it, copying it, and salvaging
//! the content of a damaged one.
//!
//! Checking and copying only read, and can run while a daemon works. The callers decide how to
//! handle a row that cannot be read.

use std::collections::BTreeMap;
use std::path::Path;

use dorm_store::{RowKind, StoreError, UnreadableRow};
use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, Sqlite, SqliteConnection};

use crate::rows::{
    DocumentRow, SandboxRow, api_key_of, build_of, discard_of, environment_of, event_of, operation_of, pool_of,
    project_of, request_of, sandbox_of, snapshot_of, template_of, volume_of, webhook_of,
};
use crate::{SqlStore, failed};

/// The tables, each with its columns and the kind of record in it; referenced tables come first.
const TABLES: [(&str, &[&str], Option<RowKind>); 18] = [
    ("sandboxes", &["id", "project", "name", "state", "revision", "document"], Some(RowKind::Sandbox)),
    ("labels", &["sandbox", "key", "value"], None),
    ("operations", &["id", "is_open", "document"], Some(RowKind::Operation)),
    ("snapshots", &["id", "project", "document"], Some(RowKind::Snapshot)),
    ("discards", &["saved_state"], Some(RowKind::Discard)),
    ("events", &["number", "project", "sandbox", "document"], Some(RowKind::Event)),
    ("webhooks", &["id", "document"], Some(RowKind::Webhook)),
    ("pools", &["id", "document"], Some(RowKind::Pool)),
    ("builds", &["id", "document"], Some(RowKind::Build)),
    ("templates", &["id", "document"], Some(RowKind::Template)),
    ("environments", &["id", "project", "key_hash", "document"], Some(RowKind::Environment)),
    ("projects", &["id", "document"], Some(RowKind::Project)),
    ("api_keys", &["id", "document"], Some(RowKind::ApiKey)),
    ("requests", &["id", "made_at", "document"], Some(RowKind::Request)),
    ("volumes", &["id", "document"], Some(RowKind::Volume)),
    ("identity", &["only", "id"], None),
    ("clock", &["only_one", "document"], None),
    ("snapshot_names", &["project", "name", "snapshot"], None),
];

/// The result of a check of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileCheck {
    /// The faults that SQLite reports in the file itself; empty if there are none.
    pub faults: Vec<String>,
    /// The number of rows of each kind.
    pub rows: BTreeMap<RowKind, u64>,
    /// The rows that cannot be read, history included.
    pub unreadable: Vec<UnreadableRow>,
}

impl FileCheck {
    /// Whether the file and every row can be read.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty() && self.unreadable.is_empty()
    }
}

/// Reads a whole file without changing it.
///
/// # Errors
/// [`StoreError::Failed`] if the file cannot be opened. Defects of its content are part of the
/// result.
pub async fn check(path: &Path) -> Result<FileCheck, StoreError> {
    let mut connection = read_only(path).await?;
    let mut check = FileCheck::default();
    let faults: Result<Vec<String>, _> =
        sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(&mut connection).await;
    match faults {
        Ok(faults) => check.faults = faults.into_iter().filter(|fault| fault != "ok").collect(),
        Err(error) => check.faults.push(error.to_string()),
    }
    for (table, _, kind) in TABLES {
        let Some(kind) = kind else { continue };
        if let Err(error) = rows(&mut connection, kind, &mut check).await {
            check.faults.push(format!("table {table}: {error}"));
        }
    }
    check.unreadable.sort();
    let _ = connection.close().await;
    Ok(check)
}

/// Reads every row of a kind, one after the other, because history may be long.
async fn rows(connection: &mut SqliteConnection, kind: RowKind, check: &mut FileCheck) -> Result<(), sqlx::Error> {
    macro_rules! read {
        ($row:ty, $text:literal, $record:ident) => {{
            let mut rows = sqlx::query_as::<_, $row>($text).fetch(connection);
            while let Some(row) = rows.try_next().await? {
                *check.rows.entry(kind).or_default() += 1;
                check.unreadable.extend($record(row).err().map(|row| *row));
            }
        }};
    }
    match kind {
        RowKind::Sandbox => {
            read!(SandboxRow, "SELECT id, project, name, state, revision, document FROM sandboxes", sandbox_of);
        }
        RowKind::Operation => read!(DocumentRow, "SELECT id, document FROM operations", operation_of),
        RowKind::Snapshot => read!(DocumentRow, "SELECT id, document FROM snapshots", snapshot_of),
        RowKind::Discard => read!((Vec<u8>,), "SELECT saved_state FROM discards", discard_of),
        RowKind::Webhook => read!(DocumentRow, "SELECT id, document FROM webhooks", webhook_of),
        RowKind::Pool => read!(DocumentRow, "SELECT id, document FROM pools", pool_of),
        RowKind::Build => read!(DocumentRow, "SELECT id, document FROM builds", build_of),
        RowKind::Template => read!(DocumentRow, "SELECT id, document FROM templates", template_of),
        RowKind::Environment => read!(DocumentRow, "SELECT id, document FROM environments", environment_of),
        RowKind::Project => read!(DocumentRow, "SELECT id, document FROM projects", project_of),
        RowKind::ApiKey => read!(DocumentRow, "SELECT id, document FROM api_keys", api_key_of),
        RowKind::Request => read!(DocumentRow, "SELECT id, document FROM requests", request_of),
        RowKind::Volume => read!(DocumentRow, "SELECT id, document FROM volumes", volume_of),
        RowKind::Event => read!((i64, Vec<u8>), "SELECT number, document FROM events", event_of),
    }
    Ok(())
}

/// Writes a copy of the file as it is at one moment, even if changes are committed meanwhile. `to`
/// must not exist.
///
/// # Errors
/// [`StoreError::Failed`]; a partial copy may then exist.
pub async fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    let wrong = |error| failed("copy its file", error);
    let mut connection = read_only(from).await?;
    let target = to.to_string_lossy().into_owned();
    sqlx::query("VACUUM INTO ?").bind(target).execute(&mut connection).await.map_err(wrong)?;
    connection.close().await.map_err(wrong)
}

/// A small file that travels in a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedFile {
    /// Its name, without any directory.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
}

/// Adds files to a copy of a database, in a table of their own.
///
/// # Errors
/// [`StoreError::Failed`].
pub async fn pack(path: &Path, files: &[PackedFile]) -> Result<(), StoreError> {
    let wrong = |error| failed("put files into a backup", error);
    let mut connection = writable(path).await?;
    sqlx::query("CREATE TABLE backup_files (name TEXT NOT NULL PRIMARY KEY, content BLOB NOT NULL) STRICT")
        .execute(&mut connection)
        .await
        .map_err(wrong)?;
    for PackedFile { name, content } in files {
        let query = sqlx::query("INSERT INTO backup_files (name, content) VALUES (?, ?)").bind(name).bind(content);
        query.execute(&mut connection).await.map_err(wrong)?;
    }
    connection.close().await.map_err(wrong)
}

/// Removes the files of [`pack`] from a copy and returns them.
///
/// # Errors
/// [`StoreError::Failed`], also if it is no backup.
pub async fn unpack(path: &Path) -> Result<Vec<PackedFile>, StoreError> {
    let wrong = |error| failed("take files out of a backup", error);
    let mut connection = writable(path).await?;
    let files: Vec<(String, Vec<u8>)> = sqlx::query_as("SELECT name, content FROM backup_files ORDER BY name")
        .fetch_all(&mut connection)
        .await
        .map_err(wrong)?;
    sqlx::query("DROP TABLE backup_files").execute(&mut connection).await.map_err(wrong)?;
    connection.close().await.map_err(wrong)?;
    Ok(files.into_iter().map(|(name, content)| PackedFile { name, content }).collect())
}

/// Copies every row that can still be read from a damaged file into the empty store `to`. Returns
/// the number of rows.
///
/// # Errors
/// [`StoreError::Failed`] if `to` cannot be written. Unreadable parts of `from` are skipped.
pub async fn salvage(from: &Path, to: &SqlStore) -> Result<u64, StoreError> {
    let Ok(mut damaged) = read_only(from).await else { return Ok(0) };
    let mut saved = 0;
    // One commit for all rows, because each commit is synced.
    to.plain("BEGIN IMMEDIATE").await?;
    for (table, columns, _) in TABLES {
        // From both ends, because a damaged page ends a scan.
        for order in ["", " ORDER BY 1 DESC"] {
            let text = format!("SELECT {} FROM {table}{order}", columns.join(", "));
            let mut rows = sqlx::query(sqlx::AssertSqlSafe(text)).fetch(&mut damaged);
            while let Ok(Some(row)) = rows.try_next().await {
                saved += to.put_row(table, columns, &row).await?;
            }
        }
    }
    to.plain("COMMIT").await?;
    let _ = damaged.close().await;
    Ok(saved)
}

impl SqlStore {
    /// Removes a row that cannot be read. The caller has saved its content.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub async fn take_out(&self, row: &UnreadableRow) -> Result<(), StoreError> {
        let (table, columns, _) = TABLES[table_of(row.kind)];
        let text = format!("DELETE FROM {table} WHERE CAST({} AS TEXT) = ?", columns[0]);
        let id = row.id.clone();
        self.writer
            .outside("change its file", async |connection| {
                sqlx::query(sqlx::AssertSqlSafe(text)).bind(id).execute(connection).await.map(drop)
            })
            .await
    }

    async fn plain(&self, statement: &'static str) -> Result<(), StoreError> {
        self.writer
            .outside("change its file", async |connection| sqlx::query(statement).execute(connection).await.map(drop))
            .await
    }

    /// Writes a row unchanged, unless there is one with its key.
    async fn put_row(&self, table: &str, columns: &[&str], row: &SqliteRow) -> Result<u64, StoreError> {
        let places = vec!["?"; columns.len()].join(", ");
        let text = format!("INSERT OR IGNORE INTO {table} ({}) VALUES ({places})", columns.join(", "));
        let mut values = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let Some(value) = Value::of(row, at, column) else { return Ok(0) };
            values.push(value);
        }
        self.writer
            .outside("change its file", async |connection| {
                let mut query = sqlx::query(sqlx::AssertSqlSafe(text));
                for value in values {
                    query = value.bind_to(query);
                }
                // A row that violates a constraint of its table is skipped.
                Ok(query.execute(connection).await.map_or(0, |done| done.rows_affected()))
            })
            .await
    }
}

enum Value {
    Number(i64),
    Text(Option<String>),
}

impl Value {
    fn of(row: &SqliteRow, at: usize, column: &str) -> Option<Self> {
        match column {
            "revision" | "is_open" | "number" | "only" | "only_one" => row.try_get(at).ok().map(Self::Number),
            _ => {
                let bytes: Option<Vec<u8>> = row.try_get(at).ok()?;
                Some(Self::Text(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())))
            }
        }
    }

    fn bind_to<'q>(
        self,
        query: sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments> {
        match self {
            Self::Number(number) => query.bind(number),
            Self::Text(text) => query.bind(text),
        }
    }
}

const fn table_of(kind: RowKind) -> usize {
    match kind {
        RowKind::Sandbox => 0,
        RowKind::Operation => 2,
        RowKind::Snapshot => 3,
        RowKind::Discard => 4,
        RowKind::Event => 5,
        RowKind::Webhook => 6,
        RowKind::Pool => 7,
        RowKind::Build => 8,
        RowKind::Template => 9,
        RowKind::Environment => 10,
        RowKind::Project => 11,
        RowKind::ApiKey => 12,
        RowKind::Request => 13,
        RowKind::Volume => 14,
    }
}

async fn writable(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options =
        SqliteConnectOptions::new().filename(path).create_if_missing(false).synchronous(SqliteSynchronous::Full);
    options.disable_statement_logging().connect().await.map_err(|error| failed("open a backup", error))
}

async fn read_only(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false).read_only(true);
    options.disable_statement_logging().connect().await.map_err(|error| failed("open its file to look at it", error))
}
