//! Tests that need the inside of a store: the settings of the connections, and a store whose disk
//! is full.

use std::path::Path;

use dorm_lifecycle::{
    EventKind, Initiator, OnTimeout, ProjectId, Sandbox, SandboxId, SandboxSpec, SavedStateId, SnapshotId, State,
    StateName, Timestamp,
};
use dorm_store::{
    Change, EventFilter, NewEvent, OperationFilter, SandboxFilter, SandboxRecord, Settled, SnapshotFilter, Store,
    StoreError, Ticket,
};

use crate::SqlStore;
use crate::write::Fault;

fn id(number: u8) -> SandboxId {
    SandboxId::from_random([number; 20])
}

fn sandbox(number: u8) -> SandboxRecord {
    let mut spec = SandboxSpec::new("0".repeat(64).parse().unwrap(), None);
    spec.on_timeout = OnTimeout::Terminate;
    let at = Timestamp::from_millis(1_000);
    let sandbox = Sandbox {
        timeouts_set: Timestamp::from_millis(1),
        ..Sandbox::new(
            id(number),
            ProjectId::local(),
            spec,
            at,
            State::Running { since: at, image: None, background: None },
        )
    };
    SandboxRecord { sandbox, revision: 0 }
}

fn change(number: u8, detail: String) -> Change {
    let event = NewEvent {
        project: ProjectId::local(),
        sandbox: id(number),
        at: Timestamp::from_millis(1_000),
        kind: EventKind::Started,
        initiator: Initiator::User,
        caller: None,
        operation: None,
        generation: 1,
        detail: Some(detail),
        took: None,
        bytes: None,
    };
    Change { sandboxes: vec![sandbox(number)], events: vec![event], ..Change::default() }
}

async fn open(directory: &Path) -> SqlStore {
    SqlStore::open(&directory.join("store.db")).await.unwrap()
}

#[tokio::test]
async fn every_commit_is_synced() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let ask = async |statement| store.writer.tinker(statement).await;
    assert_eq!(ask("SELECT journal_mode FROM pragma_journal_mode").await.as_deref(), Some("wal"));
    assert_eq!(ask("SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous").await.as_deref(), Some("2"));
    assert_eq!(ask("SELECT CAST(foreign_keys AS TEXT) FROM pragma_foreign_keys").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_reader_cannot_write() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    assert!(sqlx::query("DELETE FROM events").execute(&store.readers).await.is_err());
}

#[tokio::test]
async fn a_full_store_fails_a_change_wholly_and_works_again_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    store.commit(change(1, "before".to_owned())).await.unwrap();
    // SQLite replaces a number below the present size by that size, so the store cannot grow.
    store.writer.tinker("PRAGMA max_page_count = 1").await;
    // More than the reserve of free pages.
    let large = || "x".repeat(4_000_000);
    for _ in 0..3 {
        let refusal = store.commit(change(2, large())).await;
        assert!(matches!(refusal, Err(StoreError::Full { .. })), "not refused: {}", refusal.is_ok());
        assert_eq!(store.sandbox(&id(2)).await.unwrap(), None);
        assert_eq!(store.sandboxes(&SandboxFilter::default()).await.unwrap().len(), 1);
        assert_eq!(store.events(&EventFilter::default()).await.unwrap().len(), 1);
        store.writer.tinker("PRAGMA max_page_count = 1").await;
    }
    store.writer.tinker("PRAGMA max_page_count = 1000000").await;
    let numbered = store.commit(change(2, large())).await.unwrap();
    assert_eq!(numbered[0].number, 2);
    assert_eq!(store.sandbox(&id(2)).await.unwrap().unwrap().revision, 1);
}

#[tokio::test]
async fn the_unique_index_backs_the_look_up_of_names() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let mut first = change(1, "first".to_owned());
    first.sandboxes[0].sandbox.spec.name = Some("web".parse().unwrap());
    store.commit(first).await.unwrap();
    store.commit(change(2, "second".to_owned())).await.unwrap();
    let forced = sqlx::query("UPDATE sandboxes SET name = 'web'");
    let mut connection = sqlx::ConnectOptions::connect(
        &sqlx::sqlite::SqliteConnectOptions::new().filename(directory.path().join("store.db")),
    )
    .await
    .unwrap();
    let refusal = forced.execute(&mut connection).await.unwrap_err();
    assert!(refusal.as_database_error().unwrap().is_unique_violation(), "{refusal}");
}

/// After some failures of the disk, SQLite itself ends a transaction. sqlx does not notice this:
/// the connection would refuse to begin another one for ever.
#[tokio::test]
async fn a_transaction_that_sqlite_gives_up_by_itself_costs_one_change() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let gives_up =
        "CREATE TEMP TRIGGER gives_up BEFORE INSERT ON main.events BEGIN SELECT RAISE(ROLLBACK, 'disk'); END";
    store.writer.tinker(gives_up).await;
    let refusal = store.commit(change(1, "lost".to_owned())).await;
    assert!(matches!(refusal, Err(StoreError::Failed { operation: "record an event", .. })), "{refusal:?}");
    assert_eq!(store.sandbox(&id(1)).await.unwrap(), None);
    assert_eq!(store.commit(change(1, "kept".to_owned())).await.unwrap()[0].number, 1);
}

/// The query plan of SQLite: a line for each table it reads.
async fn plan(store: &SqlStore, query: &str) -> Vec<String> {
    use sqlx::Row;
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}")));
    let rows = rows.fetch_all(&store.readers).await.unwrap();
    rows.into_iter().map(|row| row.get::<String, _>("detail")).collect()
}

#[tokio::test]
async fn no_question_of_the_service_reads_the_whole_history() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let project = Some(ProjectId::local());
    let living = vec![StateName::Running, StateName::Suspended];
    let sandboxes = SandboxFilter::default;
    let filters = [
        (SandboxFilter { states: living.clone(), ..sandboxes() }, "sandboxes_living"),
        (SandboxFilter { states: living, project: project.clone(), limit: 101, ..sandboxes() }, "sandboxes_living"),
        (
            SandboxFilter { project: project.clone(), name: Some("web".parse().unwrap()), ..sandboxes() },
            "sandboxes_of_name",
        ),
        (SandboxFilter { origin: Some(SnapshotId::from_random([1; 20])), ..sandboxes() }, "sandboxes_of_origin"),
        (SandboxFilter { origin_source: Some(id(1)), ..sandboxes() }, "sandboxes_of_source"),
    ];
    let mut questions: Vec<_> =
        filters.iter().map(|(filter, index)| (crate::read::sandboxes_of(filter).into_string(), *index)).collect();
    let snapshots = SnapshotFilter::default;
    let saved_state = || Some(SavedStateId::from_random([1; 20]));
    let filters = [
        (SnapshotFilter { source: Some(id(1)), project: project.clone(), ..snapshots() }, "snapshots_of_source"),
        (SnapshotFilter { saved_state: saved_state(), ..snapshots() }, "snapshots_of_saved_state"),
        (SnapshotFilter { layer: saved_state(), ..snapshots() }, "snapshots_of_layer"),
        (SnapshotFilter { image: Some("0".repeat(64).parse().unwrap()), ..snapshots() }, "snapshots_of_image"),
        (SnapshotFilter { leaving: true, ..snapshots() }, "snapshots_leaving"),
        (
            SnapshotFilter { project: project.clone(), name: Some("my-snap".parse().unwrap()), ..snapshots() },
            "snapshot_names USING PRIMARY KEY",
        ),
        (SnapshotFilter { project, limit: 101, ..snapshots() }, "snapshots_in_order"),
    ];
    questions
        .extend(filters.iter().map(|(filter, index)| (crate::history::snapshots_of(filter).into_string(), *index)));
    let operations = OperationFilter::default;
    let filters = [
        (OperationFilter { project: Some(ProjectId::local()), limit: 101, ..operations() }, "operations_of_project"),
        (OperationFilter { sandbox: Some(id(1)), limit: 101, ..operations() }, "operations_of_sandbox"),
    ];
    questions
        .extend(filters.iter().map(|(filter, index)| (crate::history::operations_of(filter).into_string(), *index)));
    questions.push((crate::rows::OPEN.to_owned(), "open_operations"));
    questions.push((crate::history::SNAPSHOT_BYTES.to_owned(), "snapshots_complete"));
    for (query, index) in questions {
        let plan = plan(&store, &query).await;
        assert!(plan.iter().any(|line| line.contains(index)), "{query}: {plan:?}");
    }
}

/// Makes a change whose commit fails with `fault`, and returns its ticket.
async fn in_doubt(store: &SqlStore, number: u8, fault: Fault) -> Ticket {
    *store.writer.fault.lock().unwrap() = Some(fault);
    match store.commit(change(number, "in doubt".to_owned())).await {
        Err(StoreError::Unknown { ticket, .. }) => ticket,
        other => panic!("not in doubt: {other:?}"),
    }
}

#[tokio::test]
async fn a_commit_whose_end_was_not_seen_is_settled_as_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let lost = in_doubt(&store, 1, Fault::Before).await;
    assert_eq!(store.settle(lost).await.unwrap(), Settled::NotMade);
    assert_eq!(store.sandbox(&id(1)).await.unwrap(), None);
    let made = in_doubt(&store, 2, Fault::After).await;
    assert_eq!(store.settle(made).await.unwrap(), Settled::Made);
    assert_eq!(store.sandbox(&id(2)).await.unwrap().unwrap().revision, 1);
    assert_eq!(store.settle(lost).await.unwrap(), Settled::NotMade, "asked again");
}

#[tokio::test]
async fn changes_after_one_in_doubt_do_not_hide_how_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let (mut tickets, mut revision) = (Vec::new(), 0);
    for fault in [Fault::After, Fault::Before, Fault::Before, Fault::After] {
        let number = u8::try_from(tickets.len()).unwrap() + 1;
        tickets.push((in_doubt(&store, number, fault).await, fault));
        let mut other = change(20, "between".to_owned());
        other.sandboxes[0].revision = revision;
        store.commit(other).await.unwrap();
        revision += 1;
    }
    for (at, (ticket, fault)) in tickets.into_iter().enumerate() {
        let is_there = store.sandbox(&id(u8::try_from(at).unwrap() + 1)).await.unwrap().is_some();
        let expected = if matches!(fault, Fault::After) { Settled::Made } else { Settled::NotMade };
        assert_eq!((store.settle(ticket).await.unwrap(), is_there), (expected, expected == Settled::Made));
    }
}

/// When the sync of the log fails, SQLite leaves the change in the log, but its index of the log no
/// longer contains it. The test restores the index from before the commit to get this state.
#[tokio::test]
async fn a_change_that_is_settled_as_not_made_is_not_made_by_a_later_process_either() {
    for settles in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = open(directory.path()).await;
        store.commit(change(1, "before".to_owned())).await.unwrap();
        let index = std::fs::read(directory.path().join("store.db-shm")).unwrap();
        let ticket = in_doubt(&store, 2, Fault::After).await;
        write_in_place(&directory.path().join("store.db-shm"), &index);
        assert_eq!(store.sandbox(&id(2)).await.unwrap(), None, "the index of before");
        if settles {
            assert_eq!(store.settle(ticket).await.unwrap(), Settled::NotMade);
        }
        // The process dies here: the next one has only the file and its log.
        let next = tempfile::tempdir().unwrap();
        for name in ["store.db", "store.db-wal"] {
            std::fs::copy(directory.path().join(name), next.path().join(name)).unwrap();
        }
        let later = SqlStore::open(&next.path().join("store.db")).await.unwrap();
        let is_there = later.sandbox(&id(2)).await.unwrap().is_some();
        assert_eq!(is_there, !settles, "{}: without the settling commit the log is replayed", path.display());
        assert!(later.sandbox(&id(1)).await.unwrap().is_some());
    }
}

fn write_in_place(path: &Path, content: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    std::fs::File::options().write(true).open(path).unwrap().write_all_at(content, 0).unwrap();
}

#[tokio::test]
async fn a_store_keeps_the_identity_it_was_given() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    assert_eq!(store.identity().await.unwrap(), None);
    store.set_identity("first").await.unwrap();
    store.set_identity("second").await.unwrap();
    store.close().await.unwrap();
    assert_eq!(open(directory.path()).await.identity().await.unwrap().as_deref(), Some("second"));
}
