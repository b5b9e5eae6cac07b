//! Snapshots are replaced as a whole, and removed when a change says so.

use std::sync::Arc;

use dorm_lifecycle::{SavedStateId, SnapshotId};

use super::sample::{bytes, project, snapshot};
use crate::{Change, Code, FailureRecord, SnapshotRecord, SnapshotStatus, Store, StoreError};

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
