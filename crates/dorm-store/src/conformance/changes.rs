//! A change is applied as a whole or not at all, and only to the revision it was made from.

use std::sync::Arc;

use dorm_lifecycle::StateName;

use super::sample::{at, change_of, event, operation, put, sandbox, sandbox_id, snapshot, transition};
use crate::{
    Change, Code, EventFilter, FailureRecord, NewEvent, OperationResult, SandboxFilter, SandboxRecord, Store,
    StoreError,
};

type Checked = Result<(), StoreError>;

pub(super) async fn a_record_reads_back_as_it_was_written(store: Arc<dyn Store>) -> Checked {
    for (number, state) in (0..).zip(StateName::ALL) {
        let mut record = sandbox(number, Some("web"), state);
        record.sandbox.spec.name = Some(format!("web-{number}").parse().expect("a legal name"));
        record.sandbox.spec.labels.insert("Größe\0 \"'%_".to_owned(), "\u{1F9A6}\n".to_owned());
        record.sandbox.spec.variables.0.insert("TOKEN".to_owned(), "{}".to_owned());
        record.sandbox.last_active = at(u64::MAX);
        let record = put(&*store, record).await?;
        assert_eq!(store.sandbox(&record.sandbox.id).await?, Some(record));
    }
    assert_eq!(store.sandbox(&sandbox_id(99)).await?, None);
    Ok(())
}

pub(super) async fn a_revision_counts_the_changes_of_a_record(store: Arc<dyn Store>) -> Checked {
    let mut record = sandbox(1, None, StateName::Pending);
    for revision in 1..=5 {
        record = put(&*store, record).await?;
        assert_eq!(store.sandbox(&sandbox_id(1)).await?.map(|stored| stored.revision), Some(revision));
    }
    Ok(())
}

pub(super) async fn a_change_from_an_old_revision_is_refused(store: Arc<dyn Store>) -> Checked {
    let first = put(&*store, sandbox(1, None, StateName::Pending)).await?;
    let second = transition(&*store, first.clone(), StateName::Running).await?;
    for expected in [0, 1, 3, u64::MAX] {
        let old = SandboxRecord { revision: expected, ..first.clone() };
        let refusal = store.commit(change_of(vec![old])).await;
        let id = sandbox_id(1).to_string();
        assert!(
            matches!(&refusal, Err(StoreError::Stale { id: of, expected: from }) if *of == id && *from == expected),
            "made from {expected}: {refusal:?}"
        );
    }
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, Some(second));
    Ok(())
}

pub(super) async fn a_sandbox_that_should_be_there_and_is_not_is_missing(store: Arc<dyn Store>) -> Checked {
    for revision in [1, u64::MAX] {
        let record = SandboxRecord { revision, ..sandbox(1, None, StateName::Running) };
        let refusal = store.commit(change_of(vec![record])).await;
        assert!(matches!(&refusal, Err(StoreError::Missing(id)) if *id == sandbox_id(1).to_string()), "{refusal:?}");
    }
    Ok(())
}

pub(super) async fn a_change_holds_a_sandbox_at_most_once(store: Arc<dyn Store>) -> Checked {
    let record = sandbox(1, None, StateName::Pending);
    let next = SandboxRecord { revision: 1, ..record.clone() };
    for twice in [vec![record.clone(), record.clone()], vec![record, next]] {
        let refusal = store.commit(change_of(twice)).await;
        assert!(matches!(refusal, Err(StoreError::Stale { .. })), "{refusal:?}");
    }
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, None);
    Ok(())
}

pub(super) async fn a_sandbox_that_breaks_an_invariant_is_not_recorded(store: Arc<dyn Store>) -> Checked {
    let mut record = sandbox(1, None, StateName::Running);
    record.sandbox.run = 2;
    let refusal = store.commit(change_of(vec![record])).await;
    assert!(matches!(refusal, Err(StoreError::Failed { .. })), "{refusal:?}");
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, None);
    Ok(())
}

pub(super) async fn a_refused_change_leaves_nothing_of_any_part(store: Arc<dyn Store>) -> Checked {
    let stays = put(&*store, sandbox(1, Some("taken"), StateName::Running)).await?;
    let kept = snapshot(7, 1_000);
    store.commit(Change { snapshots: vec![kept.clone()], ..Change::default() }).await?;

    let stale = SandboxRecord { revision: 0, ..stays.clone() };
    let missing = SandboxRecord { revision: 3, ..sandbox(4, None, StateName::Running) };
    let rival = sandbox(5, Some("taken"), StateName::Pending);
    for wrong in [stale, missing, rival] {
        let refusal = store
            .commit(Change {
                sandboxes: vec![sandbox(2, None, StateName::Pending), wrong, sandbox(3, None, StateName::Terminated)],
                operations: vec![operation(1, 1_000)],
                snapshots: vec![snapshot(8, 1_000)],
                forgotten: vec![kept.id.clone()],
                discard: vec![kept.saved_state.clone()],
                discarded: Vec::new(),
                events: vec![event(2, "never")],
                ..Change::default()
            })
            .await;
        assert!(refusal.is_err(), "{refusal:?}");
        assert_eq!(store.sandboxes(&SandboxFilter::default()).await?, std::slice::from_ref(&stays));
        assert_eq!(store.open_operations().await?, []);
        assert_eq!(store.to_discard().await?, []);
        assert_eq!(store.snapshots(None).await?, std::slice::from_ref(&kept));
        assert_eq!(store.events(&EventFilter::default()).await?, []);
    }
    Ok(())
}

pub(super) async fn an_empty_change_changes_nothing(store: Arc<dyn Store>) -> Checked {
    assert_eq!(store.commit(Change::default()).await?, []);
    assert_eq!(store.sandboxes(&SandboxFilter::default()).await?, []);
    assert_eq!(store.events(&EventFilter::default()).await?, []);
    Ok(())
}

/// The commit is dropped after some turns of the scheduler, each time at another place of the
/// commit.
pub(super) async fn a_commit_that_is_not_waited_for_is_whole_or_nothing(store: Arc<dyn Store>) -> Checked {
    for number in 0..16 {
        let whole = || Change {
            sandboxes: vec![sandbox(number, None, StateName::Pending)],
            events: vec![event(number, "whole")],
            ..Change::default()
        };
        let some_turns = async {
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            committed = store.commit(whole()) => { committed?; }
            () = some_turns => {}
        }
        // The first commit was not applied, or it was applied and this one is stale.
        match store.commit(whole()).await {
            Ok(_) | Err(StoreError::Stale { .. }) => {}
            Err(error) => return Err(error),
        }
        let of_this = EventFilter { sandbox: Some(sandbox_id(number)), ..EventFilter::default() };
        let events: Vec<NewEvent> = store.events(&of_this).await?.into_iter().map(|record| record.event).collect();
        assert_eq!(events, [event(number, "whole")], "dropped after {number} turns");
        assert_eq!(store.sandbox(&sandbox_id(number)).await?.map(|record| record.revision), Some(1));
    }
    Ok(())
}

pub(super) async fn what_was_committed_is_there_after_reopening(open: impl AsyncFn() -> Arc<dyn Store>) -> Checked {
    let mut ended = operation(2, 2_000);
    ended.ended = Some((at(3_000), OperationResult::Failed(FailureRecord::new(Code::NoRoom, "the disk is full"))));
    let store = open().await;
    let change = Change {
        sandboxes: vec![sandbox(1, Some("web"), StateName::Suspended)],
        operations: vec![operation(1, 1_000), ended],
        snapshots: vec![snapshot(1, 1_000)],
        forgotten: Vec::new(),
        discard: vec![snapshot(7, 1_000).saved_state, snapshot(8, 1_000).saved_state],
        discarded: Vec::new(),
        events: vec![event(1, "first"), event(1, "second")],
        ..Change::default()
    };
    let events = store.commit(change.clone()).await?;
    drop(store);

    let store = open().await;
    let record = SandboxRecord { revision: 1, ..change.sandboxes[0].clone() };
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, Some(record.clone()));
    assert_eq!(store.open_operations().await?, [operation(1, 1_000)]);
    assert_eq!(store.snapshots(None).await?, change.snapshots);
    assert_eq!(store.events(&EventFilter::default()).await?, events);
    transition(&*store, record, StateName::Terminating).await?;
    Ok(())
}
