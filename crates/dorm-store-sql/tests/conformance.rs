#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

//! Runs the conformance suite of stores on the one in an SQLite file.

use std::sync::Arc;

use dorm_store::conformance::{conforms, keeps_unreadable_rows};
use dorm_store::{RowKind, Store};
use dorm_store_sql::SqlStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_in_a_file_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let open = async |place: &'static str| {
        let path = directory.path().join(place);
        let store: Arc<dyn Store> = Arc::new(SqlStore::open(&path).await.unwrap());
        store
    };
    conforms(open).await.unwrap();
}

#[tokio::test]
async fn the_store_in_a_file_conforms_on_one_thread() {
    let directory = tempfile::tempdir().unwrap();
    let open = async |place: &'static str| {
        let path = directory.path().join(place);
        let store: Arc<dyn Store> = Arc::new(SqlStore::open(&path).await.unwrap());
        store
    };
    conforms(open).await.unwrap();
}

#[tokio::test]
async fn the_store_in_a_file_keeps_unreadable_rows() {
    // Half a document, and bytes that are not text, as a damaged disk leaves them.
    for document in ["substr(document, 1, length(document) / 2)", "CAST(x'ff00fe' AS TEXT)"] {
        let directory = tempfile::tempdir().unwrap();
        let at = |place: &str| directory.path().join(place);
        let open = async |place: &'static str| {
            let store: Arc<dyn Store> = Arc::new(SqlStore::open(&at(place)).await.unwrap());
            store
        };
        let spoil = async |place: &'static str, kind: RowKind, id: &str| {
            let mut connection = SqliteConnectOptions::new().filename(at(place)).connect().await.unwrap();
            let key = if kind == RowKind::Event { "number" } else { "id" };
            let statement = format!("UPDATE {} SET document = {document} WHERE {key} = '{id}'", table(kind));
            let done = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
            assert_eq!(done.rows_affected(), 1);
            connection.close().await.unwrap();
        };
        keeps_unreadable_rows(open, spoil).await.unwrap();
    }
}

fn table(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Sandbox => "sandboxes",
        RowKind::Operation => "operations",
        RowKind::Snapshot => "snapshots",
        RowKind::Discard => "discards",
        RowKind::Webhook => "webhooks",
        RowKind::Pool => "pools",
        RowKind::Build => "builds",
        RowKind::Template => "templates",
        RowKind::Environment => "environments",
        RowKind::Project => "projects",
        RowKind::ApiKey => "api_keys",
        RowKind::Request => "requests",
        RowKind::Volume => "volumes",
        RowKind::Event => "events",
    }
}
