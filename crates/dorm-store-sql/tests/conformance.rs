#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

//! The behaviour every store must show, shown by the one in an SQLite file.

use std::sync::Arc;

use dorm_store::Store;
use dorm_store::conformance::conforms;
use dorm_store_sql::SqlStore;

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
