//! Reserves room for records on a full disk: the results of operations must be recorded then, too,
//! or no caller could receive them.
//!
//! SQLite never shrinks its files: free pages of the database are used again, and so is the log
//! from its beginning after a checkpoint. So each opening makes both larger than necessary once,
//! and checkpoints come before the log has used its share.

use std::path::Path;

use sqlx::SqliteConnection;

/// The number of free pages (4 KiB each) reserved in the database and in the log.
const PAGES: i64 = 512;
/// With less free room on the disk than this, in bytes, nothing is reserved.
const ROOM_LEAST: u64 = 64 << 20;
/// The number of pages of the log after which there is a checkpoint.
pub(super) const CHECKPOINT_PAGES: &str = "256";

/// Reserves the room, if the disk has enough.
pub(super) async fn reserve(path: &Path, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    // An earlier process may have died in the middle of this.
    sqlx::query("DROP TABLE IF EXISTS room").execute(&mut *connection).await?;
    let free: i64 = sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&mut *connection).await?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log_bytes = std::fs::metadata(&log).map_or(0, |facts| facts.len());
    if free >= PAGES / 2 && log_bytes >= (PAGES / 2 * 4096) as u64 {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(path);
    let disk = rustix::fs::statvfs(directory).map_err(std::io::Error::from)?;
    if disk.f_bavail.saturating_mul(disk.f_frsize) < ROOM_LEAST {
        // The little room left is better used now than reserved.
        return Ok(());
    }
    sqlx::query("CREATE TABLE room (block BLOB)").execute(&mut *connection).await?;
    let filled = fill(connection).await;
    sqlx::query("DROP TABLE room").execute(&mut *connection).await?;
    filled
}

async fn fill(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let block = sqlx::query("INSERT INTO room VALUES (zeroblob(?))").bind(PAGES * 4096);
    block.execute(&mut *connection).await?;
    // Only now does the database itself take the room.
    sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut *connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::{ConnectOptions as _, Connection as _};

    use super::*;

    #[tokio::test]
    async fn a_store_has_free_room_after_each_opening() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        for _ in 0..2 {
            let store = crate::SqlStore::open(&path).await.unwrap();
            let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
            let free: i64 = sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&mut other).await.unwrap();
            let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = 'room'")
                .fetch_one(&mut other)
                .await
                .unwrap();
            other.close().await.unwrap();
            assert!(free >= PAGES / 2 && tables == 0, "{free} {tables}");
            let log = std::fs::metadata(directory.path().join("store.db-wal")).unwrap().len();
            assert!(log >= (PAGES / 2 * 4096) as u64, "{log}");
            store.close().await.unwrap();
        }
    }
}
