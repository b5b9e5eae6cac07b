//! Look-ups and lists, each one statement and so one consistent view.

use std::fmt::Display;

use dorm_lifecycle::{CaptureId, IdError, Name, ProjectId, SandboxId, SnapshotId, StateName};
use dorm_store::codec::{self, CodecError};
use dorm_store::{
    EventFilter, EventRecord, OperationRecord, SandboxFilter, SandboxRecord, SnapshotRecord, StoreError, VolumeRecord,
    WebhookRecord,
};
use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use crate::failed;

type Row = (String, i64, String);

pub(crate) async fn sandbox(pool: &SqlitePool, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
    let row: Option<Row> = sqlx::query_as("SELECT id, revision, document FROM sandboxes WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read a sandbox", error))?;
    row.map(sandbox_of).transpose()
}

pub(crate) async fn named(
    pool: &SqlitePool,
    project: &ProjectId,
    name: &Name,
) -> Result<Option<SandboxRecord>, StoreError> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT id, revision, document FROM sandboxes WHERE project = ? AND name = ? AND state <> 'terminated'",
    )
    .bind(project.as_str())
    .bind(name.as_str())
    .fetch_optional(pool)
    .await
    .map_err(|error| failed("look up a name", error))?;
    row.map(sandbox_of).transpose()
}

pub(crate) async fn sandboxes(pool: &SqlitePool, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
    let mut query = sandboxes_of(filter);
    let rows: Vec<Row> =
        query.build_query_as().fetch_all(pool).await.map_err(|error| failed("list sandboxes", error))?;
    rows.into_iter().map(sandbox_of).collect()
}

pub(crate) fn sandboxes_of(filter: &SandboxFilter) -> QueryBuilder<Sqlite> {
    let SandboxFilter { project, states, name, labels, origin, origin_source, after, limit } = filter;
    let mut query = QueryBuilder::<Sqlite>::new("SELECT id, revision, document FROM sandboxes");
    let is_living = !states.is_empty() && !states.contains(&StateName::Terminated);
    if is_living && name.is_none() && origin.is_none() && origin_source.is_none() {
        // Without statistics the planner takes all of a project for fewer than its living.
        query.push(" INDEXED BY sandboxes_living");
    }
    query.push(if is_living { " WHERE state <> 'terminated'" } else { " WHERE TRUE" });
    if let Some(origin) = origin {
        query.push(" AND origin = ").push_bind(origin.to_string());
    }
    if let Some(source) = origin_source {
        query.push(" AND origin_source = ").push_bind(source.to_string());
    }
    if let Some(project) = project {
        query.push(" AND project = ").push_bind(project.to_string());
    }
    if let Some(name) = name {
        query.push(" AND name = ").push_bind(name.to_string());
    }
    if let Some(after) = after {
        query.push(" AND id > ").push_bind(after.to_string());
    }
    if !states.is_empty() {
        query.push(" AND state IN (");
        let mut list = query.separated(", ");
        for state in states {
            list.push_bind(state.as_str());
        }
        query.push(")");
    }
    for (key, value) in labels {
        query.push(" AND id IN (SELECT sandbox FROM labels WHERE key = ").push_bind(key.clone());
        query.push(" AND value = ").push_bind(value.clone()).push(")");
    }
    query.push(" ORDER BY id LIMIT ").push_bind(at_most(*limit));
    query
}

pub(crate) async fn snapshot(pool: &SqlitePool, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
    let row: Option<(String, String)> = sqlx::query_as("SELECT id, document FROM snapshots WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read a snapshot", error))?;
    row.map(snapshot_of).transpose()
}

pub(crate) async fn snapshots(
    pool: &SqlitePool,
    project: Option<&ProjectId>,
) -> Result<Vec<SnapshotRecord>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new("SELECT id, document FROM snapshots");
    if let Some(project) = project {
        query.push(" WHERE project = ").push_bind(project.as_str());
    }
    let rows: Vec<(String, String)> =
        query.build_query_as().fetch_all(pool).await.map_err(|error| failed("list snapshots", error))?;
    let mut snapshots = rows.into_iter().map(snapshot_of).collect::<Result<Vec<_>, _>>()?;
    snapshots.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
    Ok(snapshots)
}

pub(crate) async fn open_operations(pool: &SqlitePool) -> Result<Vec<OperationRecord>, StoreError> {
    let rows: Vec<(String, String)> = sqlx::query_as("SELECT id, document FROM operations WHERE is_open = 1")
        .fetch_all(pool)
        .await
        .map_err(|error| failed("list open operations", error))?;
    let decode = |(id, document): (String, String)| {
        codec::decode_operation(&document).map_err(|error| unreadable("operation", &id, &error))
    };
    let mut operations = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    operations.sort_by(|a, b| (a.began, &a.id).cmp(&(b.began, &b.id)));
    Ok(operations)
}

pub(crate) async fn to_discard(pool: &SqlitePool) -> Result<Vec<CaptureId>, StoreError> {
    let rows: Vec<(String,)> = sqlx::query_as("SELECT capture FROM discards ORDER BY capture")
        .fetch_all(pool)
        .await
        .map_err(|error| failed("list captures to discard", error))?;
    let parse = |(capture,): (String,)| {
        capture.parse().map_err(|error: IdError| StoreError::Unreadable {
            id: format!("discarded capture {capture}"),
            what: error.to_string(),
        })
    };
    rows.into_iter().map(parse).collect()
}

pub(crate) async fn webhooks(pool: &SqlitePool) -> Result<Vec<WebhookRecord>, StoreError> {
    let rows: Vec<(String, String)> = sqlx::query_as("SELECT id, document FROM webhooks ORDER BY id")
        .fetch_all(pool)
        .await
        .map_err(|error| failed("read webhooks", error))?;
    let decode = |(id, document): (String, String)| {
        codec::decode_webhook(&document).map_err(|error| unreadable("webhook", &id, &error))
    };
    rows.into_iter().map(decode).collect()
}

pub(crate) async fn volumes(pool: &SqlitePool) -> Result<Vec<VolumeRecord>, StoreError> {
    let rows: Vec<(String, String)> = sqlx::query_as("SELECT id, document FROM volumes ORDER BY id")
        .fetch_all(pool)
        .await
        .map_err(|error| failed("read volumes", error))?;
    let decode = |(id, document): (String, String)| {
        codec::decode_volume(&document).map_err(|error| unreadable("volume", &id, &error))
    };
    rows.into_iter().map(decode).collect()
}

pub(crate) async fn events(pool: &SqlitePool, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
    let EventFilter { project, sandbox, taken, after, limit, newest } = filter;
    let mut query = QueryBuilder::<Sqlite>::new(
        "SELECT number, document FROM (SELECT number, document FROM events WHERE number > ",
    );
    query.push_bind(i64::try_from(*after).unwrap_or(i64::MAX));
    if let Some(project) = project {
        query.push(" AND project = ").push_bind(project.as_str());
    }
    if let Some(sandbox) = sandbox {
        query.push(" AND sandbox = ").push_bind(sandbox.as_str());
    }
    if let Some(taken) = taken {
        query.push(" AND taken = ").push_bind(taken.as_str());
    }
    // Both orders are those of an index; only the newest are read when so many are wanted.
    query.push(if *newest == 0 { " ORDER BY number LIMIT " } else { " ORDER BY number DESC LIMIT " });
    query.push_bind(at_most(if *newest == 0 { *limit } else { *newest }));
    query.push(") ORDER BY number LIMIT ").push_bind(at_most(*limit));
    let rows: Vec<(i64, String)> =
        query.build_query_as().fetch_all(pool).await.map_err(|error| failed("read events", error))?;
    let decode = |(number, document): (i64, String)| {
        let event = codec::decode_event(&document).map_err(|error| unreadable("event", number, &error))?;
        Ok(EventRecord { number: number.unsigned_abs(), event })
    };
    rows.into_iter().map(decode).collect()
}

/// SQLite's way to say how many: a negative limit is none.
pub(crate) fn at_most(limit: usize) -> i64 {
    if limit == 0 { -1 } else { i64::try_from(limit).unwrap_or(i64::MAX) }
}

fn sandbox_of((id, revision, document): Row) -> Result<SandboxRecord, StoreError> {
    let sandbox = codec::decode_sandbox(&document).map_err(|error| unreadable("sandbox", &id, &error))?;
    Ok(SandboxRecord { sandbox, revision: revision.unsigned_abs() })
}

pub(crate) fn snapshot_of((id, document): (String, String)) -> Result<SnapshotRecord, StoreError> {
    codec::decode_snapshot(&document).map_err(|error| unreadable("snapshot", &id, &error))
}

pub(crate) fn unreadable(what: &str, id: impl Display, error: &CodecError) -> StoreError {
    let cause = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    StoreError::Unreadable { id: format!("{what} {id}"), what: format!("{error}{cause}") }
}
