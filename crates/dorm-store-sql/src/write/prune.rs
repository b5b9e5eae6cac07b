//! Removes old records in batches, so that no commit waits long for the write lock.

use dorm_lifecycle::Timestamp;
use dorm_store::{Prune, Pruned, StoreError};
use sqlx::{Connection, SqliteConnection};

use super::{State, Writer};
use crate::failed;

impl Writer {
    pub(crate) async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        let wrong = |error| failed("remove old records", error);
        let mut slot = self.connection.lock().await;
        let mut connection = self.take(&mut slot).await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(wrong)?;
        let pruned = remove(&mut transaction, prune).await.map_err(wrong)?;
        transaction.commit().await.map_err(wrong)?;
        slot.state = State::Ready(connection);
        Ok(pruned)
    }
}

async fn remove(connection: &mut SqliteConnection, prune: &Prune) -> Result<Pruned, sqlx::Error> {
    let mut pruned = Pruned::default();
    let batch = i64::try_from(prune.batch).unwrap_or(i64::MAX);
    if let Some(before) = prune.ended_before {
        let before = millis(before);
        // The foreign key removes labels, too.
        let over = sqlx::query(
            "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes AS old INDEXED BY sandboxes_over \
             WHERE old.state = 'terminated' AND old.ended < ? \
             AND NOT EXISTS (SELECT 1 FROM snapshots WHERE snapshots.source = old.id) \
             AND NOT EXISTS (SELECT 1 FROM sandboxes AS child WHERE child.origin_source = old.id) \
             ORDER BY old.ended LIMIT ?)",
        );
        pruned.sandboxes = count(over.bind(before).bind(batch).execute(&mut *connection).await?.rows_affected());
        let over = sqlx::query(
            "DELETE FROM operations WHERE id IN (SELECT id FROM operations INDEXED BY operations_over \
             WHERE is_open = 0 AND ended < ? ORDER BY ended LIMIT ?)",
        );
        pruned.operations = count(over.bind(before).bind(batch).execute(&mut *connection).await?.rows_affected());
    }
    if let Some(before) = prune.requests_before {
        let old = sqlx::query(
            "DELETE FROM requests WHERE id IN (SELECT id FROM requests INDEXED BY requests_made_at \
             WHERE made_at < ? ORDER BY made_at LIMIT ?)",
        );
        pruned.requests = count(old.bind(millis(before)).bind(batch).execute(&mut *connection).await?.rows_affected());
    }
    if let Some(before) = prune.events_before {
        let old: Vec<(i64, Option<f64>)> = sqlx::query_as(
            "SELECT number, CASE WHEN json_valid(document) THEN CAST(json_extract(document, '$.at') AS REAL) END \
             FROM events WHERE number <= ? ORDER BY number LIMIT ?",
        )
        .bind(i64::try_from(prune.events_through).unwrap_or(i64::MAX))
        .bind(batch)
        .fetch_all(&mut *connection)
        .await?;
        // The position of an unreadable event determines its age. Milliseconds are exact in a float
        // for 285,000 years.
        let before = before.as_millis() as f64;
        let old = old.iter().take_while(|(_, at)| at.is_none_or(|at| at < before)).last();
        if let Some((last, _)) = old {
            let gone = sqlx::query("DELETE FROM events WHERE number <= ?").bind(last);
            pruned.events = count(gone.execute(&mut *connection).await?.rows_affected());
        }
    }
    Ok(pruned)
}

pub(super) fn millis(moment: Timestamp) -> i64 {
    i64::try_from(moment.as_millis()).unwrap_or(i64::MAX)
}

fn count(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}
