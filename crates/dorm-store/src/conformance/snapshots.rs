//! Snapshots are replaced as a whole, and removed when a change says so. A name belongs to one
//! usable snapshot of a project.

use std::sync::Arc;

use dorm_lifecycle::{SavedStateId, SnapshotId};

use super::sample::{at, bytes, project, snapshot};
use crate::{Change, Code, FailureRecord, Removal, SnapshotFilter, SnapshotRecord, SnapshotStatus, Store, StoreError};

type Checked = Result<(), StoreError>;

async fn write(store: &dyn Store, snapshots: Vec<SnapshotRecord>, forgotten: Vec<SnapshotId>) -> Checked {
    store.commit(Change { snapshots, forgotten, ..Change::default() }).await.map(drop)
}

pub(super) async fn a_snapshot_is_rewritten_and_forgotten(store: Arc<dyn Store>) -> Checked {
    let mut record = snapshot(1, 1_000);
    let statuses = [
        SnapshotStatus::InProgress,
        SnapshotStatus::Completed,
        SnapshotStatus::Failed(FailureRecord::new(Code::NoRoom, "the disk is full")),
        SnapshotStatus::Deleting,
    ];
    for (bytes, status) in (0..).zip(statuses) {
        (record.bytes, record.status) = (bytes, status);
        write(&*store, vec![record.clone()], Vec::new()).await?;
        assert_eq!(store.snapshot(&record.id).await?, Some(record.clone()));
    }
    write(&*store, Vec::new(), vec![record.id.clone()]).await?;
    assert_eq!(store.snapshot(&record.id).await?, None);
    assert_eq!(store.snapshots(None).await?, []);
    Ok(())
}

pub(super) async fn forgetting_comes_after_writing_and_is_idempotent(store: Arc<dyn Store>) -> Checked {
    let record = snapshot(1, 1_000);
    write(&*store, vec![record.clone(), snapshot(2, 1_000)], vec![record.id.clone()]).await?;
    assert_eq!(store.snapshots(None).await?, [snapshot(2, 1_000)]);
    write(&*store, Vec::new(), vec![record.id.clone(), SnapshotId::from_random(bytes(77))]).await?;
    assert_eq!(store.snapshots(None).await?, [snapshot(2, 1_000)]);
    Ok(())
}

pub(super) async fn snapshots_come_in_the_order_they_were_asked_for(store: Arc<dyn Store>) -> Checked {
    let mut records = [(5, 1_000), (2, 3_000), (9, 2_000), (1, 2_000), (3, u64::MAX)]
        .map(|(number, created)| snapshot(number, created));
    records[0].project = project("elsewhere");
    write(&*store, records.to_vec(), Vec::new()).await?;
    records.sort_by_key(|record| (record.created, record.id.clone()));
    assert_eq!(store.snapshots(None).await?, records);
    assert_eq!(store.snapshots(Some(&project("elsewhere"))).await?, records[..1]);
    assert_eq!(store.snapshots(Some(&project("local"))).await?, records[1..]);
    Ok(())
}

pub(super) async fn a_saved_state_stays_marked_until_it_is_discarded(store: Arc<dyn Store>) -> Checked {
    let [first, second] = [snapshot(1, 1_000).saved_state, snapshot(2, 1_000).saved_state];
    let discard = |saved_states: &[SavedStateId]| Change { discard: saved_states.to_vec(), ..Change::default() };
    store.commit(discard(&[first.clone(), second.clone()])).await?;
    store.commit(discard(std::slice::from_ref(&first))).await?;
    let mut both = vec![first.clone(), second.clone()];
    both.sort();
    assert_eq!(store.to_discard().await?, both);
    let discarded = Change { discarded: vec![first.clone()], ..Change::default() };
    store.commit(discarded.clone()).await?;
    store.commit(discarded).await?;
    assert_eq!(store.to_discard().await?, [second]);
    Ok(())
}

pub(super) fn named(number: u32, name: &str) -> SnapshotRecord {
    SnapshotRecord { name: Some(name.parse().expect("a legal name")), ..snapshot(number, 1_000) }
}

/// The holder of the name `my-snap`.
async fn holder(store: &dyn Store, of: &str) -> Result<Option<SnapshotRecord>, StoreError> {
    let name = Some("my-snap".parse().expect("a legal name"));
    let filter = SnapshotFilter { project: Some(project(of)), name, ..SnapshotFilter::default() };
    let mut found = store.find_snapshots(&filter).await?;
    assert!(found.len() <= 1, "{found:?}");
    Ok(found.pop())
}

async fn is_taken(store: &dyn Store, record: SnapshotRecord, by: u32) {
    let wanted = record.name.clone();
    let refusal = write(store, vec![record], Vec::new()).await;
    assert!(
        matches!(&refusal, Err(StoreError::SnapshotNameTaken { name, holder })
            if Some(name) == wanted.as_ref() && *holder == snapshot(by, 0).id),
        "{refusal:?}"
    );
}

pub(super) async fn a_name_of_a_snapshot_is_unique_among_the_usable_of_a_project(store: Arc<dyn Store>) -> Checked {
    let first = named(1, "my-snap");
    let failed = || SnapshotStatus::Failed(FailureRecord::new(Code::NoRoom, "the disk is full"));
    let cases = [
        (SnapshotStatus::InProgress, Removal::Asked, true),
        (SnapshotStatus::Completed, Removal::Asked, true),
        (SnapshotStatus::Completed, Removal::At(at(9_000)), true),
        (SnapshotStatus::Completed, Removal::WhenFree, false),
        (SnapshotStatus::Completed, Removal::Asked, true),
        (failed(), Removal::Asked, false),
        (SnapshotStatus::Deleting, Removal::Asked, false),
    ];
    for (status, removal, holds) in cases {
        let record = SnapshotRecord { status: status.clone(), removal, ..first.clone() };
        write(&*store, vec![record.clone()], Vec::new()).await?;
        assert_eq!(holder(&*store, "local").await?, holds.then_some(record), "{status:?} {removal:?}");
        if holds {
            is_taken(&*store, named(2, "my-snap"), 1).await;
            assert_eq!(store.snapshot(&snapshot(2, 0).id).await?, None);
        }
    }
    let elsewhere = SnapshotRecord { project: project("elsewhere"), ..named(3, "my-snap") };
    write(&*store, vec![named(2, "my-snap"), elsewhere.clone(), named(4, "my-snap:v2")], Vec::new()).await?;
    assert_eq!(holder(&*store, "elsewhere").await?, Some(elsewhere));
    assert_eq!(holder(&*store, "local").await?, Some(named(2, "my-snap")));
    write(&*store, Vec::new(), vec![snapshot(2, 0).id]).await?;
    assert_eq!(holder(&*store, "local").await?, None);
    write(&*store, vec![named(5, "my-snap")], Vec::new()).await
}

pub(super) async fn a_name_of_a_snapshot_can_be_taken_over_in_one_change(store: Arc<dyn Store>) -> Checked {
    write(&*store, vec![named(1, "my-snap")], Vec::new()).await?;
    let over = SnapshotRecord { status: SnapshotStatus::Deleting, ..named(1, "my-snap") };
    write(&*store, vec![named(2, "my-snap"), over], Vec::new()).await?;
    assert_eq!(holder(&*store, "local").await?, Some(named(2, "my-snap")));
    Ok(())
}

pub(super) async fn two_new_snapshots_cannot_share_a_name_in_one_change(store: Arc<dyn Store>) -> Checked {
    let refusal = write(&*store, vec![named(1, "my-snap"), named(2, "my-snap")], Vec::new()).await;
    let by = snapshot(1, 0).id;
    assert!(matches!(&refusal, Err(StoreError::SnapshotNameTaken { holder, .. }) if *holder == by), "{refusal:?}");
    assert_eq!(store.snapshots(None).await?, []);
    assert_eq!(holder(&*store, "local").await?, None);
    Ok(())
}

pub(super) async fn names_of_snapshots_are_held_across_reopening(open: impl AsyncFn() -> Arc<dyn Store>) -> Checked {
    write(&*open().await, vec![named(1, "my-snap")], Vec::new()).await?;
    is_taken(&*open().await, named(2, "my-snap"), 1).await;
    Ok(())
}
