//! Look-ups and lists, each one statement and therefore one consistent view.

use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{
    BuildId, EnvironmentId, Name, OperationId, ProjectId, RequestId, SandboxId, SavedStateId, SnapshotId, StateName,
};
use dorm_store::{
    ApiKeyRecord, BuildRecord, EnvironmentRecord, EventFilter, EventRecord, OperationRecord, PoolRecord, ProjectRecord,
    RequestRecord, SandboxFilter, SandboxOrder, SandboxRecord, SnapshotRecord, StoreError, TemplateRecord,
    UnreadableRow, VolumeRecord, WebhookRecord, key_hash,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, QueryBuilder, Sqlite, SqlitePool};

use crate::failed;
use crate::rows::{
    API_KEYS, BUILDS, DISCARDS, DocumentRow, ENVIRONMENTS, LIVING, OPEN, POOLS, PROJECTS, SNAPSHOTS, SandboxRow,
    TEMPLATES, Unread, VOLUMES, WEBHOOKS, api_key_of, build_of, discard_of, environment_of, event_of, operation_of,
    pool_of, project_of, readable, request_of, sandbox_of, snapshot_of, template_of, unreadable_of, volume_of,
    webhook_of,
};

pub(crate) async fn sandbox(pool: &SqlitePool, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
    let row: Option<SandboxRow> =
        sqlx::query_as("SELECT id, project, name, state, revision, document FROM sandboxes WHERE id = ?")
            .bind(id.as_str())
            .fetch_optional(pool)
            .await
            .map_err(|error| failed("read a sandbox", error))?;
    row.map(sandbox_of).transpose().map_err(|row| row.error())
}

pub(crate) async fn named(
    pool: &SqlitePool,
    project: &ProjectId,
    name: &Name,
) -> Result<Option<SandboxRecord>, StoreError> {
    let row: Option<SandboxRow> = sqlx::query_as(
        "SELECT id, project, name, state, revision, document FROM sandboxes \
         WHERE project = ? AND name = ? AND state <> 'terminated'",
    )
    .bind(project.as_str())
    .bind(name.as_str())
    .fetch_optional(pool)
    .await
    .map_err(|error| failed("look up a name", error))?;
    row.map(sandbox_of).transpose().map_err(|row| row.error())
}

pub(crate) async fn sandboxes(pool: &SqlitePool, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
    let query = |limit| sandboxes_of(&SandboxFilter { limit, ..filter.clone() });
    page(pool, filter.limit, query, sandbox_of, "list sandboxes").await
}

/// Reads the first `limit` readable records of a query; 0 for all. Unreadable rows make a page
/// short. Only the last page may be short, so more rows are then requested.
pub(crate) async fn page<Row, Record>(
    pool: &SqlitePool,
    limit: usize,
    query: impl Fn(usize) -> QueryBuilder<Sqlite>,
    record: impl Fn(Row) -> Result<Record, Unread>,
    operation: &'static str,
) -> Result<Vec<Record>, StoreError>
where
    Row: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
{
    let mut wanted = limit;
    loop {
        let rows: Vec<Row> =
            query(wanted).build_query_as().fetch_all(pool).await.map_err(|error| failed(operation, error))?;
        let count = rows.len();
        let mut found = readable(rows, &record);
        if limit == 0 || count < wanted || found.len() >= limit {
            found.truncate(if limit == 0 { usize::MAX } else { limit });
            return Ok(found);
        }
        wanted += count - found.len();
    }
}

pub(crate) fn sandboxes_of(filter: &SandboxFilter) -> QueryBuilder<Sqlite> {
    let SandboxFilter { project, states, name, labels, origin, origin_source, order, after, after_moment, limit } =
        filter;
    let column = match order {
        SandboxOrder::Id => None,
        SandboxOrder::Created(_) => Some("created"),
        SandboxOrder::Started(_) => Some("started"),
    };
    let mut query = QueryBuilder::<Sqlite>::new("SELECT id, project, name, state, revision, document FROM sandboxes");
    let is_living = !states.is_empty() && !states.contains(&StateName::Terminated);
    let by_origin = origin.is_some() || origin_source.is_some();
    // Without statistics the planner assumes that all sandboxes of a project are fewer than its
    // living ones, or than those with one name.
    match (project, name) {
        (Some(_) | None, None) if column.is_some() => {}
        (Some(_), Some(_)) if !is_living && !by_origin => drop(query.push(" INDEXED BY sandboxes_of_name")),
        (_, None) if is_living && !by_origin => drop(query.push(" INDEXED BY sandboxes_living")),
        (Some(_) | None, Some(_) | None) => {}
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
    match (after, column) {
        (Some(after), None) => drop(query.push(" AND id > ").push_bind(after.to_string())),
        (Some(after), Some(column)) => {
            let is_after = if order.is_descending() { "<" } else { ">" };
            query
                .push(format!(" AND ({column}, id) {is_after} (CAST("))
                .push_bind(after_moment.as_millis().to_string());
            query.push(" AS NUMERIC), ").push_bind(after.to_string()).push(")");
        }
        (None, _) => {}
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
    let direction = if order.is_descending() { "DESC" } else { "ASC" };
    match column {
        None => query.push(" ORDER BY id"),
        Some(column) => query.push(format!(" ORDER BY {column} {direction}, id {direction}")),
    };
    query.push(" LIMIT ").push_bind(at_most(*limit));
    query
}

pub(crate) async fn snapshot(pool: &SqlitePool, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
    let row: Option<DocumentRow> = sqlx::query_as("SELECT id, document FROM snapshots WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read a snapshot", error))?;
    row.map(snapshot_of).transpose().map_err(|row| row.error())
}

pub(crate) async fn snapshots(
    pool: &SqlitePool,
    project: Option<&ProjectId>,
) -> Result<Vec<SnapshotRecord>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(SNAPSHOTS);
    if let Some(project) = project {
        query.push(" WHERE project = ").push_bind(project.as_str());
    }
    let rows: Vec<DocumentRow> =
        query.build_query_as().fetch_all(pool).await.map_err(|error| failed("list snapshots", error))?;
    let mut snapshots = readable(rows, snapshot_of);
    snapshots.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
    Ok(snapshots)
}

pub(crate) async fn operation(pool: &SqlitePool, id: &OperationId) -> Result<Option<OperationRecord>, StoreError> {
    let row: Option<DocumentRow> = sqlx::query_as("SELECT id, document FROM operations WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read an operation", error))?;
    row.map(operation_of).transpose().map_err(|row| row.error())
}

pub(crate) async fn request(pool: &SqlitePool, id: &RequestId) -> Result<Option<RequestRecord>, StoreError> {
    let row: Option<DocumentRow> = sqlx::query_as("SELECT id, document FROM requests WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read a request", error))?;
    row.map(request_of).transpose().map_err(|row| row.error())
}

pub(crate) async fn open_operations(pool: &SqlitePool) -> Result<Vec<OperationRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(OPEN).fetch_all(pool).await.map_err(|error| failed("list open operations", error))?;
    let mut operations = readable(rows, operation_of);
    operations.sort_by(|a, b| (a.began, &a.id).cmp(&(b.began, &b.id)));
    Ok(operations)
}

pub(crate) async fn to_discard(pool: &SqlitePool) -> Result<Vec<SavedStateId>, StoreError> {
    let rows: Vec<(Vec<u8>,)> = sqlx::query_as(DISCARDS)
        .fetch_all(pool)
        .await
        .map_err(|error| failed("list saved states to discard", error))?;
    Ok(readable(rows, discard_of))
}

pub(crate) async fn webhooks(pool: &SqlitePool) -> Result<Vec<WebhookRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(WEBHOOKS).fetch_all(pool).await.map_err(|error| failed("read webhooks", error))?;
    Ok(readable(rows, webhook_of))
}

pub(crate) async fn pools(pool: &SqlitePool) -> Result<Vec<PoolRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(POOLS).fetch_all(pool).await.map_err(|error| failed("read sandbox pools", error))?;
    Ok(readable(rows, pool_of))
}

pub(crate) async fn build(pool: &SqlitePool, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
    let row: Option<DocumentRow> = sqlx::query_as("SELECT id, document FROM builds WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read a build", error))?;
    row.map(build_of).transpose().map_err(|row| row.error())
}

pub(crate) async fn builds(pool: &SqlitePool) -> Result<Vec<BuildRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(BUILDS).fetch_all(pool).await.map_err(|error| failed("read builds", error))?;
    Ok(readable(rows, build_of))
}

pub(crate) async fn templates(pool: &SqlitePool) -> Result<Vec<TemplateRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(TEMPLATES).fetch_all(pool).await.map_err(|error| failed("read templates", error))?;
    Ok(readable(rows, template_of))
}

pub(crate) async fn environment(
    pool: &SqlitePool,
    id: &EnvironmentId,
) -> Result<Option<EnvironmentRecord>, StoreError> {
    let row: Option<DocumentRow> = sqlx::query_as("SELECT id, document FROM environments WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| failed("read an environment", error))?;
    row.map(environment_of).transpose().map_err(|row| row.error())
}

pub(crate) async fn environment_with(
    pool: &SqlitePool,
    project: &ProjectId,
    key: &Key,
) -> Result<Option<EnvironmentRecord>, StoreError> {
    let row: Option<DocumentRow> =
        sqlx::query_as("SELECT id, document FROM environments WHERE project = ? AND key_hash = ?")
            .bind(project.as_str())
            .bind(key_hash(key))
            .fetch_optional(pool)
            .await
            .map_err(|error| failed("read an environment", error))?;
    let found = row.map(environment_of).transpose().map_err(|row| row.error())?;
    Ok(found.filter(|environment| environment.key == *key))
}

pub(crate) async fn environments(pool: &SqlitePool) -> Result<Vec<EnvironmentRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(ENVIRONMENTS).fetch_all(pool).await.map_err(|error| failed("read environments", error))?;
    Ok(readable(rows, environment_of))
}

pub(crate) async fn projects(pool: &SqlitePool) -> Result<Vec<ProjectRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(PROJECTS).fetch_all(pool).await.map_err(|error| failed("read projects", error))?;
    Ok(readable(rows, project_of))
}

pub(crate) async fn api_keys(pool: &SqlitePool) -> Result<Vec<ApiKeyRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(API_KEYS).fetch_all(pool).await.map_err(|error| failed("read API keys", error))?;
    Ok(readable(rows, api_key_of))
}

pub(crate) async fn volumes(pool: &SqlitePool) -> Result<Vec<VolumeRecord>, StoreError> {
    let rows: Vec<DocumentRow> =
        sqlx::query_as(VOLUMES).fetch_all(pool).await.map_err(|error| failed("read volumes", error))?;
    Ok(readable(rows, volume_of))
}

/// Rows that cannot be read, without history. One connection reads all lists, one after the other.
pub(crate) async fn living_and_unreadable(
    pool: &SqlitePool,
) -> Result<(Vec<SandboxRecord>, Vec<UnreadableRow>), StoreError> {
    let wrong = |error| failed("look for rows that cannot be read", error);
    let mut connection = pool.acquire().await.map_err(wrong)?;
    let (mut living, mut found) = (Vec::new(), Vec::new());
    let rows: Vec<SandboxRow> = sqlx::query_as(LIVING).fetch_all(&mut *connection).await.map_err(wrong)?;
    for row in rows {
        match sandbox_of(row) {
            Ok(record) => living.push(record),
            Err(row) => found.push(*row),
        }
    }
    living.sort_by(|one, other| one.sandbox.id.cmp(&other.sandbox.id));
    let rows: Vec<DocumentRow> = sqlx::query_as(OPEN).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, operation_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(SNAPSHOTS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, snapshot_of));
    let rows: Vec<(Vec<u8>,)> = sqlx::query_as(DISCARDS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, discard_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(WEBHOOKS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, webhook_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(POOLS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, pool_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(BUILDS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, build_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(TEMPLATES).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, template_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(ENVIRONMENTS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, environment_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(PROJECTS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, project_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(API_KEYS).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, api_key_of));
    let rows: Vec<DocumentRow> = sqlx::query_as(VOLUMES).fetch_all(&mut *connection).await.map_err(wrong)?;
    found.extend(unreadable_of(rows, volume_of));
    found.sort();
    Ok((living, found))
}

pub(crate) async fn events(pool: &SqlitePool, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
    let (mut filter, limit) = (filter.clone(), filter.limit);
    let mut found = Vec::new();
    loop {
        let rows = some_events(pool, &filter).await?;
        let (count, last) = (rows.len(), rows.last().map(|(number, _)| number.unsigned_abs()));
        found.extend(readable(rows, event_of));
        // Unreadable rows make a page short; only the last page may be short.
        match last {
            Some(last) if limit > 0 && filter.newest == 0 && count == filter.limit && found.len() < limit => {
                filter.after = last;
                filter.limit = limit - found.len();
            }
            Some(_) | None => return Ok(found),
        }
    }
}

async fn some_events(pool: &SqlitePool, filter: &EventFilter) -> Result<Vec<(i64, Vec<u8>)>, StoreError> {
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
    // An index has both orders. If only the newest are wanted, only those are read.
    query.push(if *newest == 0 { " ORDER BY number LIMIT " } else { " ORDER BY number DESC LIMIT " });
    query.push_bind(at_most(if *newest == 0 { *limit } else { *newest }));
    query.push(") ORDER BY number LIMIT ").push_bind(at_most(*limit));
    query.build_query_as().fetch_all(pool).await.map_err(|error| failed("read events", error))
}

/// Converts a limit for SQLite, where a negative limit means none.
pub(crate) fn at_most(limit: usize) -> i64 {
    if limit == 0 { -1 } else { i64::try_from(limit).unwrap_or(i64::MAX) }
}
