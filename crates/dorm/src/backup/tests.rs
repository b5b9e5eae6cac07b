//! Backup and restore.

use std::fs;

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
