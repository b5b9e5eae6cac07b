use dorm_lifecycle::{Origin, Restored, Sandbox, SandboxSpec, State, Timestamp};
use dorm_store::memory::MemoryStore;

use super::*;

fn sandbox(number: u8) -> Sandbox {
    let at = Timestamp::from_millis(1_000);
    Sandbox {
        id: SandboxId::from_random([number; 20]),
        project: ProjectId::local(),
        spec: SandboxSpec::new("0".repeat(64).parse().unwrap(), Some("web".parse().unwrap())),
        origin: Origin::Image,
        created: at,
        generation: 1,
        run: 1,
        last_active: at,
        timeouts_set: at,
        started: None,
        woken: false,
        holds: Vec::new(),
        restored: Restored::Nothing,
        rewound: None,
        older: Vec::new(),
        unreachable: None,
        suspend_failures: None,
        pool: None,
        created_by: None,
        state: State::Running { since: at, image: None, background: None },
    }
}

fn named(number: u8, name: &str) -> Sandbox {
    let mut sandbox = sandbox(number);
    sandbox.spec.name = Some(name.parse().unwrap());
    sandbox
}

fn change(sandbox: Sandbox, revision: u64) -> Change {
    Change { sandboxes: vec![SandboxRecord { sandbox, revision }], ..Change::default() }
}

#[tokio::test]
async fn a_living_sandbox_has_a_file_that_says_what_the_database_says() {
    let directory = tempfile::tempdir().unwrap();
    let inner = MemoryStore::new();
    let store = FiledStore::new(Arc::new(inner.clone()), directory.path());
    store.commit(change(sandbox(1), 0)).await.unwrap();
    let mut second = sandbox(1);
    second.generation = 2;
    store.commit(change(second.clone(), 1)).await.unwrap();
    store.close().await;
    let (files, unreadable) = RecordFile::all(directory.path()).unwrap();
    assert!(unreadable.is_empty());
    let [file] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((file.kind, file.revision), (RowKind::Sandbox, 2));
    assert_eq!(codec::decode_sandbox(&file.document).unwrap(), second);

    // The files catch up with what happened without them, and a terminated sandbox has none.
    second.generation = 3;
    inner.commit(change(second.clone(), 2)).await.unwrap();
    let store = FiledStore::new(Arc::new(inner.clone()), directory.path());
    store.catch_up().await.unwrap();
    store.close().await;
    assert_eq!(RecordFile::all(directory.path()).unwrap().0[0].revision, 3);
    second.state = State::Terminated { cause: dorm_lifecycle::Cause::Requested, at: Timestamp::from_millis(2_000) };
    inner.commit(change(second, 3)).await.unwrap();
    let store = FiledStore::new(Arc::new(inner.clone()), directory.path());
    store.catch_up().await.unwrap();
    store.close().await;
    assert!(RecordFile::all(directory.path()).unwrap().0.is_empty());
}

#[tokio::test]
async fn what_changes_while_files_are_caught_up_with_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let inner = MemoryStore::new();
    inner.commit(change(sandbox(1), 0)).await.unwrap();
    inner.commit(change(named(2, "other"), 0)).await.unwrap();
    let store = FiledStore::new(Arc::new(inner), directory.path());
    let old = store.kept().await.unwrap();
    let mut newer = sandbox(1);
    newer.generation = 2;
    store.commit(change(newer, 1)).await.unwrap();
    let mut over = named(2, "other");
    over.state = State::Terminated { cause: dorm_lifecycle::Cause::Requested, at: Timestamp::from_millis(2_000) };
    store.commit(change(over, 1)).await.unwrap();
    store.write_unchanged(verdicts(&old));
    store.close().await;
    let files = RecordFile::all(directory.path()).unwrap().0;
    let found: Vec<_> = files.iter().map(|file| (file.id.as_str(), file.revision)).collect();
    assert_eq!(found, [(sandbox(1).id.as_str(), 2)]);
}

#[tokio::test]
async fn a_file_that_was_changed_is_found_out() {
    let directory = tempfile::tempdir().unwrap();
    let store = FiledStore::new(Arc::new(MemoryStore::new()), directory.path());
    store.commit(change(sandbox(1), 0)).await.unwrap();
    store.close().await;
    let path = directory.path().join(DIRECTORY).join(name(RowKind::Sandbox, sandbox(1).id.as_str()));
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() - 1 {
        let mut text = whole.clone();
        text[at] ^= 1;
        fs::write(&path, &text).unwrap();
        assert!(RecordFile::read(&path).is_err(), "byte {at}");
    }
}
