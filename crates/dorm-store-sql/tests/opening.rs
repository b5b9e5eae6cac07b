#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

//! Files that can be opened, and files that are refused: a refused file is not changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dorm_lifecycle::{EventKind, Initiator, ProjectId, SandboxId, Timestamp};
use dorm_store::{Change, EventFilter, NewEvent, RowKind, Store, StoreError};
use dorm_store_sql::{OpenError, SqlStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

fn change(detail: &str) -> Change {
    let event = NewEvent {
        project: ProjectId::local(),
        sandbox: SandboxId::from_random([1; 20]),
        at: Timestamp::from_millis(1_000),
        kind: EventKind::Created,
        initiator: Initiator::User,
        caller: None,
        operation: None,
        generation: 1,
        detail: Some(detail.to_owned()),
        took: None,
        bytes: None,
    };
    Change { events: vec![event], ..Change::default() }
}

async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

async fn details(store: &SqlStore) -> Vec<String> {
    let events = store.events(&EventFilter::default()).await.unwrap();
    events.into_iter().filter_map(|record| record.event.detail).collect()
}

/// Opens a file that must be refused and returns the error; asserts that the file did not change.
async fn refusal(path: &Path) -> Box<OpenError> {
    let before = fs::read(path).unwrap();
    let StoreError::Failed { operation: "open its file", source } = SqlStore::open(path).await.unwrap_err() else {
        panic!("another error");
    };
    assert_eq!(fs::read(path).unwrap(), before, "the file was changed");
    source.downcast().unwrap()
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    SqlStore::open(&path).await.unwrap().close().await.unwrap();
    let mut connection = raw(&path).await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (999, 'of tomorrow', TRUE, x'00', 0)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();

    let error = refusal(&path).await;
    let OpenError::Newer { found: 999, known, .. } = &*error else { panic!("{error:?}") };
    let expected = format!(
        "has version 999, but this dorm knows versions up to {known}: use the dorm that wrote it, or a later one"
    );
    assert!(error.to_string().ends_with(&expected), "{error}");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.db");
    let mut connection = raw(&path).await;
    sqlx::raw_sql("CREATE TABLE notes (text TEXT)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let error = refusal(&path).await;
    assert!(matches!(&*error, OpenError::Foreign { .. }), "{error:?}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("letter.txt");
    fs::write(&path, "Dear Sir or Madam, this is no database.\n".repeat(200)).unwrap();
    let error = refusal(&path).await;
    assert!(matches!(&*error, OpenError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nowhere/store.db");
    let StoreError::Failed { source, .. } = SqlStore::open(&path).await.unwrap_err() else { panic!("another error") };
    assert!(source.to_string().contains("nowhere/store.db"), "{source}");
    assert!(source.source().is_some());
    assert!(!directory.path().join("nowhere").exists());
}

#[tokio::test]
async fn what_a_death_while_opening_leaves_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    SqlStore::open(&empty).await.unwrap().commit(change("first")).await.unwrap();

    // The table of migrations is created before the first migration.
    let begun = directory.path().join("begun.db");
    SqlStore::open(&begun).await.unwrap().close().await.unwrap();
    let mut connection = raw(&begun).await;
    let schema: String = sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE name = '_sqlx_migrations'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    fs::remove_file(&begun).unwrap();
    let mut connection = raw(&begun).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(schema)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    SqlStore::open(&begun).await.unwrap().commit(change("first")).await.unwrap();
}

#[tokio::test]
async fn only_the_owner_can_read_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqlStore::open(&directory.path().join("store.db")).await.unwrap();
    store.commit(change("first")).await.unwrap();
    let mut files = 0;
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        files += 1;
    }
    assert_eq!(files, 3, "the file, its WAL and its shared memory");
}

#[tokio::test]
async fn a_closed_store_has_everything_in_one_file_and_refuses_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqlStore::open(&path).await.unwrap();
    store.commit(change("first")).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.commit(change("second")).await, Err(StoreError::Failed { .. })));
    assert!(matches!(store.events(&EventFilter::default()).await, Err(StoreError::Failed { .. })));

    let copy = directory.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    assert_eq!(details(&SqlStore::open(&copy).await.unwrap()).await, ["first"]);
}

#[tokio::test]
async fn two_stores_on_one_file_see_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let (one, other) = (SqlStore::open(&path).await.unwrap(), SqlStore::open(&path).await.unwrap());
    one.commit(change("first")).await.unwrap();
    other.commit(change("second")).await.unwrap();
    assert_eq!(details(&one).await, ["first", "second"]);
    assert_eq!(details(&other).await, ["first", "second"]);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqlStore::open(&path).await.unwrap();
    store.commit(change("first")).await.unwrap();
    let mut connection = raw(&path).await;
    let later = "UPDATE events SET document = json_set(document, '$.v', 99)";
    sqlx::query(later).execute(&mut connection).await.unwrap();
    store.commit(change("second")).await.unwrap();
    sqlx::query(later).execute(&mut connection).await.unwrap();
    store.commit(change("third")).await.unwrap();
    assert_eq!(details(&store).await, ["third"], "the rest is served");
    let unreadable = dorm_store_sql::check(&path).await.unwrap().unreadable;
    let named: Vec<_> = unreadable.iter().map(|row| (row.kind, row.id.as_str())).collect();
    assert_eq!(named, [(RowKind::Event, "1"), (RowKind::Event, "2")]);
    assert!(unreadable[0].error().to_string().contains("version 99"), "{}", unreadable[0].error());
}
