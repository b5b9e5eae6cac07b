#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

//! A process that is killed in the middle of its commits loses no acknowledged one, and leaves none
//! partly applied.
//!
//! The test starts its own executable as the process to kill. That process commits from four tasks
//! at once and writes a line for each commit that has returned.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dorm_lifecycle::{EventKind, Initiator, ProjectId, Sandbox, SandboxId, SandboxSpec, State, Timestamp};
use dorm_store::{Change, EventFilter, NewEvent, SandboxRecord, Store};
use dorm_store_sql::SqlStore;
use tokio::task::JoinSet;

const PATH: &str = "DORM_TEST_STORE_TO_BE_KILLED";
const TASKS: u8 = 4;

fn id(task: u8) -> SandboxId {
    SandboxId::from_random([task; 20])
}

fn change(task: u8, revision: u64) -> Change {
    let at = Timestamp::from_millis(revision);
    let sandbox = Sandbox {
        last_active: at,
        timeouts_set: Timestamp::from_millis(1),
        ..Sandbox::new(
            id(task),
            ProjectId::local(),
            SandboxSpec::new("c".repeat(64).parse().unwrap(), None),
            Timestamp::from_millis(0),
            State::Running { since: at, image: None, background: None },
        )
    };
    let event = NewEvent {
        project: ProjectId::local(),
        sandbox: id(task),
        at,
        kind: EventKind::Started,
        initiator: Initiator::User,
        caller: None,
        operation: None,
        generation: 1,
        detail: Some("x".repeat(500)),
        took: None,
        bytes: None,
    };
    Change { sandboxes: vec![SandboxRecord { sandbox, revision }], events: vec![event], ..Change::default() }
}

/// Not a test of its own: the other test starts and kills it. Does nothing when run alone.
#[test]
fn commits_until_it_is_killed_when_the_other_test_starts_it() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(SqlStore::open(Path::new(&path)).await.unwrap());
        let mut tasks = JoinSet::<()>::new();
        for task in 0..TASKS {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                let mut revision = store.sandbox(&id(task)).await.unwrap().map_or(0, |record| record.revision);
                loop {
                    store.commit(change(task, revision)).await.unwrap();
                    revision += 1;
                    // Ends this process if the reading process is gone.
                    writeln!(std::io::stdout(), "\nacknowledged {task} {revision}").unwrap();
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the other process, kills it after this many acknowledgements, and returns the last
/// acknowledgement of each task.
fn run_and_kill(path: &Path, after: usize) -> BTreeMap<u8, u64> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "commits_until_it_is_killed_when_the_other_test_starts_it", "--nocapture"])
        .env(PATH, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    let mut seen = 0;
    if after == 0 {
        child.0.kill().unwrap();
    }
    for line in lines {
        // The kill may cut off the last line, even within a character.
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        let ["acknowledged", task, revision] = words.as_slice() else { continue };
        let (Ok(task), Ok(revision)) = (task.parse(), revision.parse()) else { continue };
        acknowledged.insert(task, revision);
        seen += 1;
        if seen == after {
            child.0.kill().unwrap();
        }
    }
    assert!(seen >= after, "it ended by itself after {seen} of {after}");
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_it_acknowledged_and_leaves_nothing_in_part() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut at_least = BTreeMap::<u8, u64>::new();
    for after in [0, 1, 2, 40, 7, 150, 3] {
        at_least.extend(run_and_kill(&path, after));

        let store = SqlStore::open(&path).await.unwrap();
        let events = store.events(&EventFilter::default()).await.unwrap();
        let numbers: Vec<u64> = events.iter().map(|record| record.number).collect();
        assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
        for task in 0..TASKS {
            let of_this = EventFilter { sandbox: Some(id(task)), ..EventFilter::default() };
            let events = store.events(&of_this).await.unwrap();
            let revision = store.sandbox(&id(task)).await.unwrap().map_or(0, |record| record.revision);
            let acknowledged = at_least.get(&task).copied().unwrap_or_default();
            assert!(revision >= acknowledged, "task {task}: {acknowledged} was acknowledged, {revision} is there");
            let made_from: Vec<u64> = events.iter().map(|record| record.event.at.as_millis()).collect();
            assert_eq!(made_from, (0..revision).collect::<Vec<_>>(), "each revision of task {task} with its event");
        }
        // Whether the store was dropped or closed, the next process continues from there.
        if after % 2 == 0 {
            store.close().await.unwrap();
        }
    }
}
