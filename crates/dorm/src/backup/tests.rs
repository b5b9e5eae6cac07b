//! Backup and restore.

use std::fs;

use dorm_lifecycle::{Initiator, OperationId, ProjectId, SnapshotId, Timestamp};
use dorm_store::{Change, OperationKind, OperationRecord, SnapshotRecord};

use super::*;
use crate::repair::tests::{Place, all};

#[tokio::test]
async fn records_come_back_into_the_place_of_a_lost_database_and_the_key_stays() {
    let place = Place::new().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("dorm.backup");
    let written = backup(place.data(), &file, false).await.unwrap();
    assert_eq!((written.sandboxes, written.snapshots, written.saved_states), (1, 1, 0));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(backup(place.data(), &file, false).await, Err(BackupError::There(_))));
    let refused = restore(&file, place.data(), false).await;
    assert!(matches!(refused, Err(BackupError::There(_))), "{refused:?}");

    fs::write(place.data().join(DATABASE), "no longer a database").unwrap();
    fs::write(place.data().join("key"), "another").unwrap();
    let kept = restore(&file, place.data(), true).await.unwrap().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "no longer a database");
    assert_eq!(place.records().await, all());
    assert_eq!(fs::read_to_string(place.data().join("key")).unwrap(), "another");
    // The same restore into an empty directory.
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(restore(&file, empty.path(), false).await.unwrap(), None);
    assert_eq!(fs::read_to_string(empty.path().join("key")).unwrap(), "dorm_key");
    let restored = Place { directory: empty };
    assert_eq!(restored.records().await, all());
    // A restored database works like any other.
    assert!(dorm_store_sql::check(&restored.data().join(DATABASE)).await.unwrap().is_whole());
}

#[tokio::test]
async fn saved_states_travel_too_when_they_are_asked_for_and_outlive_their_collection() {
    let place = Place::new().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let to = elsewhere.path().join("backup");
    let written = backup(place.data(), &to, true).await.unwrap();
    assert_eq!(written.saved_states, 2);
    fs::remove_dir_all(place.data().join(SAVED_STATES)).unwrap();
    let empty = tempfile::tempdir().unwrap();
    restore(&to, empty.path(), false).await.unwrap();
    let restored = Place { directory: empty };
    assert_eq!(restored.records().await, all());
    let storage = dorm_storage::Storage::open(restored.data(), &restored.data().join("images")).unwrap();
    for id in storage.saved_states().await.unwrap() {
        storage.check(&id).await.unwrap();
    }
    assert_eq!(storage.saved_states().await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_no_backup_or_a_damaged_one_is_refused_and_changes_nothing() {
    let place = Place::new().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("backup");
    backup(place.data(), &file, false).await.unwrap();
    let whole = fs::read(&file).unwrap();
    for (content, length) in [(b"not a backup".to_vec(), 12), (whole.clone(), 5000), (whole.clone(), 0)] {
        fs::write(&file, &content[..length]).unwrap();
        let refused = restore(&file, place.data(), true).await;
        assert!(
            matches!(refused, Err(BackupError::NoBackup(_) | BackupError::Damaged { .. })),
            "{length}: {refused:?}"
        );
        assert_eq!(place.records().await, all());
    }
    let missing = elsewhere.path().join("missing");
    assert!(matches!(restore(&missing, place.data(), true).await, Err(BackupError::NoBackup(_))));
    assert!(matches!(backup(elsewhere.path(), &missing, false).await, Err(BackupError::NoDatabase(_))));
}

#[tokio::test]
async fn what_an_operation_finished_after_the_backup_is_not_in_the_restored_records_of_its_start() {
    let place = Place::new().await;
    let open = |data: &Path| {
        let database = data.join(DATABASE);
        async move { SqlStore::open(&database).await.unwrap() }
    };
    let (wrote, deletes) = (SavedStateId::from_random([8; 20]), SavedStateId::from_random([9; 20]));
    let operation = |number, kind, saved_state: &SavedStateId| OperationRecord {
        id: OperationId::from_random([number; 20]),
        kind,
        project: ProjectId::local(),
        sandbox: None,
        initiator: Initiator::User,
        caller: None,
        began: Timestamp::from_millis(1_000),
        deadline: Timestamp::from_millis(9_000),
        saved_state: Some(saved_state.clone()),
        fork: None,
        promote: None,
        ended: None,
    };
    let store = open(place.data()).await;
    let known = store.snapshots(None).await.unwrap().remove(0);
    let taken = SnapshotRecord {
        id: SnapshotId::from_random([8; 20]),
        saved_state: wrote.clone(),
        status: SnapshotStatus::InProgress,
        ..known.clone()
    };
    let change = Change {
        operations: vec![
            operation(1, OperationKind::Snapshot, &wrote),
            operation(2, OperationKind::DeleteSnapshot, &deletes),
            operation(3, OperationKind::MergeLayers, &known.saved_state),
        ],
        snapshots: vec![taken.clone()],
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    store.close().await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("dorm.backup");
    backup(place.data(), &file, false).await.unwrap();
    restore(&file, place.data(), true).await.unwrap();

    let store = open(place.data()).await;
    let left: Vec<_> = store.open_operations().await.unwrap();
    let other = left[0].saved_state.clone().unwrap();
    assert!(left.len() == 3 && other != wrote && left[2].saved_state != Some(known.saved_state.clone()), "{left:?}");
    assert_eq!(left[1].saved_state, Some(deletes));
    let snapshots = store.snapshots(None).await.unwrap();
    let restored = SnapshotRecord { saved_state: other, ..taken };
    assert!(snapshots.contains(&known) && snapshots.contains(&restored), "{snapshots:?}");
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_saved_state_is_copied_with_the_one_below_it() {
    let place = Place::new().await;
    let (top, bottom) = (SavedStateId::from_random([8; 20]), SavedStateId::from_random([9; 20]));
    for (id, layer) in [(&top, Some(&bottom)), (&bottom, None)] {
        let directory = place.data().join(SAVED_STATES).join(id.as_str());
        fs::create_dir_all(&directory).unwrap();
        let manifest = serde_json::json!({"body": {"layer": layer.map(SavedStateId::as_str)}});
        fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
    }
    let to = tempfile::tempdir().unwrap();
    fs::create_dir(to.path().join(SAVED_STATES)).unwrap();
    assert_eq!(link_all(place.data(), to.path(), vec![top]).unwrap(), Some(2));
}
