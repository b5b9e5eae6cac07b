#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

//! A real disk that is full: a commit fails as a whole, no acknowledged change is lost, and commits
//! succeed again when there is room.
//!
//! The disk is a small tmpfs in a mount namespace of its own, which ends with the process that the
//! test starts from its own executable.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use dorm_lifecycle::{EventKind, Initiator, ProjectId, SandboxId, Timestamp};
use dorm_store::{Change, EventFilter, NewEvent, OperationKind, OperationRecord, Store, StoreError};
use dorm_store_sql::SqlStore;

const DIRECTORY: &str = "DORM_TEST_FULL_DISK";

fn change(number: u64) -> Change {
    let event = NewEvent {
        project: ProjectId::local(),
        sandbox: SandboxId::from_random([1; 20]),
        at: Timestamp::from_millis(number),
        kind: EventKind::Created,
        initiator: Initiator::User,
        caller: None,
        operation: None,
        generation: 1,
        detail: Some("x".repeat(20_000)),
        took: None,
        bytes: None,
    };
    let operation = OperationRecord {
        id: dorm_lifecycle::OperationId::from_random([1; 20]),
        kind: OperationKind::Create,
        project: ProjectId::local(),
        sandbox: None,
        initiator: Initiator::User,
        caller: None,
        began: Timestamp::from_millis(number),
        deadline: Timestamp::from_millis(number),
        saved_state: None,
        fork: None,
        promote: None,
        ended: None,
    };
    Change { events: vec![event], operations: vec![operation], ..Change::default() }
}

async fn holds_exactly(store: &SqlStore, committed: u64) {
    let events = store.events(&EventFilter::default()).await.unwrap();
    let seen: Vec<_> = events.iter().map(|record| (record.number, record.event.at.as_millis())).collect();
    assert_eq!(seen, (1..=committed).map(|number| (number, number)).collect::<Vec<_>>());
    let open = store.open_operations().await.unwrap();
    assert_eq!(open.last().map(|operation| operation.began.as_millis()), Some(committed));
}

async fn fill(store: &SqlStore, committed: &mut u64) {
    loop {
        match store.commit(change(*committed + 1)).await {
            Ok(_) => *committed += 1,
            Err(StoreError::Full { .. }) => break,
            Err(other) => panic!("{other:?}"),
        }
        assert!(*committed < 10_000, "the disk does not fill up");
    }
}

/// Not a test of its own: the other test starts it with a small disk. Does nothing when run alone.
#[test]
fn fills_its_disk_when_the_other_test_starts_it() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let ballast = [directory.join("ballast"), directory.join("more-ballast")];
    for file in &ballast {
        fs::write(file, vec![1; 1 << 20]).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let path = directory.join("store.db");
        let store = SqlStore::open(&path).await.unwrap();
        let mut committed = 0;
        fill(&store, &mut committed).await;
        assert!(committed > 0);
        holds_exactly(&store, committed).await;
        // The disk stays full, and the store stays intact.
        assert!(matches!(store.commit(change(committed + 1)).await, Err(StoreError::Full { .. })));
        holds_exactly(&store, committed).await;

        fs::remove_file(&ballast[0]).unwrap();
        let full_at = committed;
        fill(&store, &mut committed).await;
        assert!(committed > full_at, "it works again when there is room");
        holds_exactly(&store, committed).await;
        fs::remove_file(&ballast[1]).unwrap();
        drop(store);
        holds_exactly(&SqlStore::open(&path).await.unwrap(), committed).await;
    });
}

#[test]
fn a_full_disk_fails_commits_wholly_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let ways: [&[&str]; 2] = [&["--mount"], &["--map-root-user", "--mount"]];
    let mount = "mount -t tmpfs -o size=4m dormouse-test \"$0\"";
    let works = |way: &&&[&str]| {
        let mut probe = Command::new("unshare");
        probe.args(**way).args(["sh", "-c", mount]).arg(directory.path());
        probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let Some(way) = ways.iter().find(works) else {
        dorm_skip::skip("it allows no mount namespace");
        return;
    };
    let status = Command::new("unshare")
        .args(*way)
        .args(["sh", "-c", &format!("{mount} && exec \"$@\"")])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "fills_its_disk_when_the_other_test_starts_it", "--nocapture"])
        .env(DIRECTORY, directory.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the disk was its own");
}
