//! Room for records on a disk that is full: what was seen must be recorded then too, or nobody could be told of it.
//!
//! SQLite never gives back what a file has taken: pages of the database that were freed are used again, and so is the
//! log from its beginning after a checkpoint. So both are made larger than they have to be once, at each opening, and
//! checkpoints come before the log has used its share.

use std::path::Path;

use sqlx::SqliteConnection;

/// How many pages (4 KiB each) the database and the log have to spare.
const PAGES: i64 = 512;
/// With less room on the disk than this nothing is reserved.
const ROOM_LEAST: u64 = 64 << 20;
/// After how many pages of the log there is a checkpoint.
pub(super) const CHECKPOINT_PAGES: &str = "256";

/// Sees to it that there is room, as far as the disk has it.
pub(super) async fn reserve(path: &Path, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    // A process may have died in the middle of this.
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
        // It is better used now than kept for later.
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
    // Only now the database itself takes the room.
    sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut *connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::{ConnectOptions as _, Connection as _};

    use super::*;

    #[tokio::test]
    async fn a_store_has_room_to_spare_after_each_opening() {
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
