//! Look-ups that must not read the whole history: each uses an index of `0001_records.sql`.

use dorm_store::codec;
use dorm_store::{ClockNote, OperationFilter, OperationRecord, SnapshotFilter, SnapshotRecord, StoreError};
use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use crate::failed;
use crate::read::{at_most, page};
use crate::rows::{chain, operation_of, snapshot_of};

pub(crate) async fn find_snapshots(
    pool: &SqlitePool,
    filter: &SnapshotFilter,
) -> Result<Vec<SnapshotRecord>, StoreError> {
    let query = |limit| snapshots_of(&SnapshotFilter { limit, ..filter.clone() });
    page(pool, filter.limit, query, snapshot_of, "list snapshots").await
}

/// A `+` before a column keeps the planner from using its index. Projects and images are likely to
/// have many rows with an equal value, so their indexes are not used if the filter also names a
/// single sandbox or saved state.
pub(crate) fn snapshots_of(filter: &SnapshotFilter) -> QueryBuilder<Sqlite> {
    let SnapshotFilter { project, name, source, saved_state, layer, image, made_by, leaving, after, limit } = filter;
    let is_narrow = name.is_some() || source.is_some() || saved_state.is_some() || layer.is_some() || *leaving;
    let mut query = QueryBuilder::<Sqlite>::new("SELECT id, document FROM snapshots WHERE TRUE");
    if let Some(project) = project {
        let column = if is_narrow || image.is_some() { " AND +project = " } else { " AND project = " };
        query.push(column).push_bind(project.to_string());
    }
    if let Some(name) = name {
        query.push(" AND id IN (SELECT snapshot FROM snapshot_names WHERE name = ").push_bind(name.to_string());
        if let Some(project) = project {
            query.push(" AND project = ").push_bind(project.to_string());
        }
        query.push(")");
    }
    if let Some(source) = source {
        query.push(" AND source = ").push_bind(source.to_string());
    }
    if let Some(saved_state) = saved_state {
        query.push(" AND saved_state = ").push_bind(saved_state.to_string());
    }
    if let Some(layer) = layer {
        query.push(" AND layer = ").push_bind(layer.to_string());
    }
    if let Some(image) = image {
        let column = if is_narrow { " AND +image = " } else { " AND image = " };
        query.push(column).push_bind(image.to_string());
    }
    if let Some(made_by) = made_by {
        query.push(" AND made_by = ").push_bind(made_by.as_str());
    }
    if *leaving {
        query.push(" AND leaving = 1");
    }
    if let Some((created, id)) = after {
        // As text, because a time may exceed the range of INTEGER.
        query.push(" AND (created, id) > (CAST(").push_bind(created.as_millis().to_string());
        query.push(" AS NUMERIC), ").push_bind(id.to_string()).push(")");
    }
    query.push(" ORDER BY created, id LIMIT ").push_bind(at_most(*limit));
    query
}

pub(crate) async fn find_operations(
    pool: &SqlitePool,
    filter: &OperationFilter,
) -> Result<Vec<OperationRecord>, StoreError> {
    let query = |limit| operations_of(&OperationFilter { limit, ..filter.clone() });
    page(pool, filter.limit, query, operation_of, "list operations").await
}

pub(crate) fn operations_of(filter: &OperationFilter) -> QueryBuilder<Sqlite> {
    let OperationFilter { project, sandbox, after, limit } = filter;
    let mut query = QueryBuilder::<Sqlite>::new("SELECT id, document FROM operations WHERE TRUE");
    if let Some(project) = project {
        query.push(" AND project = ").push_bind(project.to_string());
    }
    if let Some(sandbox) = sandbox {
        query.push(" AND sandbox = ").push_bind(sandbox.to_string());
    }
    if let Some((began, id)) = after {
        // As text, because a time may exceed the range of INTEGER.
        query.push(" AND (began, id) < (CAST(").push_bind(began.as_millis().to_string());
        query.push(" AS NUMERIC), ").push_bind(id.to_string()).push(")");
    }
    query.push(" ORDER BY began DESC, id DESC LIMIT ").push_bind(at_most(*limit));
    query
}

pub(crate) const SNAPSHOT_BYTES: &str = "SELECT total(bytes) FROM snapshots WHERE bytes IS NOT NULL";

pub(crate) async fn snapshot_bytes(pool: &SqlitePool) -> Result<u64, StoreError> {
    let bytes: f64 = sqlx::query_scalar(SNAPSHOT_BYTES)
        .fetch_one(pool)
        .await
        .map_err(|error| failed("add up the sizes of snapshots", error))?;
    // Exact up to 8 PiB.
    Ok(bytes as u64)
}

pub(crate) async fn events_removed(pool: &SqlitePool) -> Result<u64, StoreError> {
    // Numbers have no gaps, so the oldest one shows how many came before it. Without events, all
    // that were ever numbered have been removed.
    let removed: Option<i64> = sqlx::query_scalar(
        "SELECT coalesce((SELECT min(number) FROM events) - 1, (SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)",
    )
    .fetch_optional(pool)
    .await
    .map_err(|error| failed("look for the oldest event", error))?;
    Ok(removed.unwrap_or_default().unsigned_abs())
}

pub(crate) async fn clock(pool: &SqlitePool) -> Result<Option<ClockNote>, StoreError> {
    let document: Option<Vec<u8>> = sqlx::query_scalar("SELECT document FROM clock")
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read the note of the clocks", error))?;
    let decode = |document: Vec<u8>| {
        let unreadable = |what| StoreError::Unreadable { id: "the clocks".to_owned(), what };
        let text = String::from_utf8(document).map_err(|error| unreadable(error.to_string()))?;
        codec::decode_clock(&text).map_err(|error| unreadable(chain(&error)))
    };
    document.map(decode).transpose()
}
