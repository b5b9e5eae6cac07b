//! An unreadable row hides no other row, and stays.

#![allow(clippy::panic, reason = "checks for tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use dorm_lifecycle::{StateName, WebhookId};

use super::sample::{at, bytes, change_of, event, name, operation, project, put, sandbox, sandbox_id, snapshot};
use super::snapshots::named;
use super::{api_keys, builds, environments, pools, volumes};
use crate::{
    Change, EventFilter, KeyScope, ProjectBudgets, ProjectRecord, RowKind, SandboxFilter, SandboxRecord,
    SnapshotRecord, Store, StoreError, WebhookRecord,
};

type Checked = Result<(), StoreError>;

fn keys(rows: &[crate::UnreadableRow]) -> Vec<(RowKind, String)> {
    rows.iter().map(|row| (row.kind, row.id.clone())).collect()
}

/// Spoils the row of that kind and key at the place of the check.
pub(super) trait Spoil: AsyncFn(RowKind, &str) {}
impl<F: AsyncFn(RowKind, &str)> Spoil for F {}

pub(super) async fn the_other_rows_are_listed(store: Arc<dyn Store>, spoil: impl Spoil) -> Checked {
    for number in 1..=3 {
        put(&*store, sandbox(number, None, StateName::Suspended)).await?;
    }
    let webhook = |number| WebhookRecord {
        id: WebhookId::from_random(bytes(number)),
        project: project("local"),
        url: "http://127.0.0.1:9000/".to_owned(),
        secret: [7; 32],
        kinds: Vec::new(),
        created: at(1_000),
        delivered: 3,
    };
    let change = Change {
        snapshots: (1..=3).map(|number| snapshot(number, 1_000)).collect(),
        operations: (1..=3).map(|number| operation(number, 1_000)).collect(),
        discard: (1..=3).map(|number| snapshot(number, 0).saved_state).collect(),
        webhooks: (1..=3).map(webhook).collect(),
        events: (1..=3).map(|number| event(number, "x")).collect(),
        ..Change::default()
    };
    store.commit(change).await?;
    let second = sandbox_id(2);
    for kind in [RowKind::Sandbox, RowKind::Snapshot, RowKind::Operation, RowKind::Webhook] {
        spoil(kind, second.as_str()).await;
    }
    spoil(RowKind::Event, "2").await;
    let listed = store.sandboxes(&SandboxFilter::default()).await?;
    assert_eq!(listed.iter().map(|one| one.sandbox.id.clone()).collect::<Vec<_>>(), [sandbox_id(1), sandbox_id(3)]);
    assert_eq!(store.snapshots(None).await?, [snapshot(1, 1_000), snapshot(3, 1_000)]);
    assert_eq!(store.open_operations().await?, [operation(1, 1_000), operation(3, 1_000)]);
    assert_eq!(store.webhooks().await?, [webhook(1), webhook(3)]);
    let numbers = async |filter: EventFilter| {
        store.events(&filter).await.map(|events| events.into_iter().map(|event| event.number).collect::<Vec<_>>())
    };
    assert_eq!(numbers(EventFilter::default()).await?, [1, 3]);
    assert_eq!(numbers(EventFilter { after: 1, limit: 1, ..EventFilter::default() }).await?, [3]);
    // Only the last page may be short.
    let page = SandboxFilter { after: Some(sandbox_id(1)), limit: 1, ..SandboxFilter::default() };
    assert_eq!(store.sandboxes(&page).await?.len(), 1);
    let expected = [RowKind::Sandbox, RowKind::Operation, RowKind::Snapshot, RowKind::Webhook];
    assert_eq!(keys(&store.unreadable().await?), expected.map(|kind| (kind, second.to_string())));
    let (living, unreadable) = store.living_and_unreadable().await?;
    assert_eq!(living, store.sandboxes(&SandboxFilter::living()).await?);
    assert_eq!(keys(&unreadable), keys(&store.unreadable().await?));
    Ok(())
}

/// A row of every kind that is listed. Requests are history: they are only looked up.
pub(super) async fn a_row_of_each_kind_is_reported(store: Arc<dyn Store>, spoil: impl Spoil) -> Checked {
    put(&*store, sandbox(1, None, StateName::Suspended)).await?;
    let local = ProjectRecord {
        id: project("local"),
        budgets: ProjectBudgets::default(),
        created: at(1_000),
        removed: None,
        secrets: BTreeMap::new(),
    };
    let key = api_keys::key(1, KeyScope::Full);
    let rows = [
        (RowKind::Sandbox, sandbox_id(1).to_string()),
        (RowKind::Operation, operation(1, 1_000).id.to_string()),
        (RowKind::Snapshot, snapshot(1, 1_000).id.to_string()),
        (RowKind::Pool, pools::pool(1).id.to_string()),
        (RowKind::Build, builds::build(1).id.to_string()),
        (RowKind::Template, builds::template(1).id.to_string()),
        (RowKind::Environment, environments::environment(1).id.to_string()),
        (RowKind::Project, local.id.to_string()),
        (RowKind::ApiKey, key.id.to_string()),
        (RowKind::Volume, volumes::volume(1).id.to_string()),
    ];
    let change = Change {
        operations: vec![operation(1, 1_000)],
        snapshots: vec![snapshot(1, 1_000)],
        pools: vec![pools::pool(1)],
        builds: vec![builds::build(1)],
        templates: vec![builds::template(1)],
        environments: vec![environments::environment(1)],
        projects: vec![local],
        api_keys: vec![key],
        volumes: vec![volumes::volume(1)],
        ..Change::default()
    };
    store.commit(change).await?;
    for (kind, id) in &rows {
        spoil(*kind, id).await;
    }
    assert_eq!(keys(&store.unreadable().await?), rows);
    assert_eq!(keys(&store.living_and_unreadable().await?.1), rows);
    Ok(())
}

pub(super) async fn a_look_up_names_the_row(store: Arc<dyn Store>, spoil: impl Spoil) -> Checked {
    put(&*store, sandbox(1, Some("web"), StateName::Suspended)).await?;
    store.commit(Change { snapshots: vec![snapshot(1, 1_000)], ..Change::default() }).await?;
    spoil(RowKind::Sandbox, sandbox_id(1).as_str()).await;
    spoil(RowKind::Snapshot, snapshot(1, 0).id.as_str()).await;
    let said = |error: StoreError| match error {
        StoreError::Unreadable { id, .. } => id,
        other => panic!("another error: {other}"),
    };
    let title = format!("sandbox {}", sandbox_id(1));
    assert_eq!(store.sandbox(&sandbox_id(1)).await.map_err(said), Err(title.clone()));
    assert_eq!(store.named(&project("local"), &name("web")).await.map_err(said), Err(title));
    let title = format!("snapshot {}", snapshot(1, 0).id);
    assert_eq!(store.snapshot(&snapshot(1, 0).id).await.map_err(said), Err(title));
    let row = &store.unreadable().await?[0];
    assert_eq!((row.revision, row.name.clone()), (Some(1), Some(name("web"))));
    Ok(())
}

pub(super) async fn its_name_stays_taken(store: Arc<dyn Store>, spoil: impl Spoil) -> Checked {
    put(&*store, sandbox(1, Some("web"), StateName::Suspended)).await?;
    spoil(RowKind::Sandbox, sandbox_id(1).as_str()).await;
    match store.commit(change_of(vec![sandbox(2, Some("web"), StateName::Running)])).await {
        Err(StoreError::NameTaken { holder, .. }) => assert_eq!(holder, sandbox_id(1)),
        other => panic!("the name was given away: {other:?}"),
    }
    match store.commit(change_of(vec![sandbox(1, None, StateName::Running)])).await {
        Err(StoreError::Stale { .. }) => {}
        other => panic!("it was overwritten: {other:?}"),
    }
    assert_eq!(store.unreadable().await?.len(), 1);
    Ok(())
}

pub(super) async fn the_name_of_a_snapshot_stays_taken(store: Arc<dyn Store>, spoil: impl Spoil) -> Checked {
    let write = async |snapshots: Vec<SnapshotRecord>| store.commit(Change { snapshots, ..Change::default() }).await;
    let first = named(1, "my-snap");
    write(vec![first.clone()]).await?;
    spoil(RowKind::Snapshot, first.id.as_str()).await;
    match write(vec![named(2, "my-snap")]).await {
        Err(StoreError::SnapshotNameTaken { holder, .. }) => assert_eq!(holder, first.id),
        other => panic!("the name was given away: {other:?}"),
    }
    write(vec![first.clone()]).await?;
    assert_eq!(store.snapshot(&first.id).await?, Some(first));
    Ok(())
}

pub(super) async fn a_record_of_its_revision_mends_it(store: Arc<dyn Store>, spoil: impl Spoil) -> Checked {
    let before = put(&*store, sandbox(1, Some("web"), StateName::Suspended)).await?;
    spoil(RowKind::Sandbox, sandbox_id(1).as_str()).await;
    let after = put(&*store, before).await?;
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, Some(SandboxRecord { revision: 2, ..after }));
    assert!(store.unreadable().await?.is_empty());
    Ok(())
}
