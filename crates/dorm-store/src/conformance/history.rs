//! Old records are removed in batches, and records that are needed stay. The store keeps one note
//! of the clocks.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{EventKind, Origin, SavedStateId, SnapshotId, State, StateName};

use super::sample::{at, bytes, change_of, event, operation, project, sandbox, sandbox_id, snapshot};
use crate::{
    Change, ClockNote, ClockPeriod, EventFilter, Maker, NewEvent, OperationResult, Prune, Pruned, Removal,
    SandboxFilter, SandboxRecord, SnapshotFilter, SnapshotRecord, SnapshotStatus, Store, StoreError,
};

type Checked = Result<(), StoreError>;

fn terminated(number: u32, ended: u64) -> SandboxRecord {
    let mut record = sandbox(number, None, StateName::Terminated);
    record.sandbox.state = State::Terminated { cause: dorm_lifecycle::Cause::Timeout, at: at(ended) };
    record
}

fn ended_before(millis: u64) -> Prune {
    Prune { ended_before: Some(at(millis)), batch: 100, ..Prune::default() }
}

async fn left(store: &dyn Store) -> Result<Vec<SandboxRecord>, StoreError> {
    store.sandboxes(&SandboxFilter::default()).await
}

pub(super) async fn only_sandboxes_that_were_terminated_long_ago_are_removed(store: Arc<dyn Store>) -> Checked {
    let records = vec![terminated(1, 5_000), terminated(2, 7_000), sandbox(3, Some("web"), StateName::Suspended)];
    store.commit(change_of(records)).await?;
    assert_eq!(store.prune(&Prune { batch: 100, ..Prune::default() }).await?, Pruned::default());
    assert_eq!(store.prune(&ended_before(5_000)).await?, Pruned::default());
    assert_eq!(store.prune(&ended_before(5_001)).await?, Pruned { sandboxes: 1, ..Pruned::default() });
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, None);
    let ids: Vec<_> = left(&*store).await?.into_iter().map(|record| record.sandbox.id).collect();
    assert!(ids.contains(&sandbox_id(2)) && ids.contains(&sandbox_id(3)) && ids.len() == 2, "{ids:?}");
    assert_eq!(store.prune(&ended_before(u64::MAX)).await?.sandboxes, 1);
    assert_eq!(store.sandbox(&sandbox_id(3)).await?.map(|record| record.revision), Some(1));
    Ok(())
}

pub(super) async fn a_sandbox_something_came_from_stays(store: Arc<dyn Store>) -> Checked {
    let mut child = sandbox(3, None, StateName::Running);
    child.sandbox.origin = Origin::Filesystem { snapshot: snapshot(9, 0).id, source: sandbox_id(2) };
    child.sandbox.spec.layer = Some(SavedStateId::from_random(bytes(9)));
    let records = vec![terminated(1, 5_000), terminated(2, 5_000), child.clone()];
    let snapshots = vec![snapshot(1, 1_000)];
    store.commit(Change { sandboxes: records, snapshots, ..Change::default() }).await?;
    assert_eq!(store.prune(&ended_before(9_000)).await?, Pruned::default());
    store.commit(Change { forgotten: vec![snapshot(1, 1_000).id], ..Change::default() }).await?;
    assert_eq!(store.prune(&ended_before(9_000)).await?.sandboxes, 1);
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, None);
    child.revision = 1;
    child.sandbox.state = terminated(3, 6_000).sandbox.state;
    store.commit(change_of(vec![child])).await?;
    // The child is removed first; then nothing needs its parent.
    assert_eq!(store.prune(&ended_before(9_000)).await?.sandboxes, 1);
    assert_eq!(store.prune(&ended_before(9_000)).await?.sandboxes, 1);
    assert_eq!(left(&*store).await?, []);
    Ok(())
}

pub(super) async fn only_operations_that_ended_long_ago_are_removed(store: Arc<dyn Store>) -> Checked {
    let ended = |number, millis| {
        let ended = Some((at(millis), OperationResult::Done));
        crate::OperationRecord { ended, ..operation(number, 1_000) }
    };
    let operations = vec![ended(1, 5_000), ended(2, 7_000), operation(3, 1_000)];
    store.commit(Change { operations, ..Change::default() }).await?;
    assert_eq!(store.prune(&ended_before(6_000)).await?, Pruned { operations: 1, ..Pruned::default() });
    assert_eq!(store.prune(&ended_before(u64::MAX)).await?, Pruned { operations: 1, ..Pruned::default() });
    assert_eq!(store.open_operations().await?, [operation(3, 1_000)]);
    Ok(())
}

pub(super) async fn a_batch_is_not_exceeded(store: Arc<dyn Store>) -> Checked {
    let records = (0..10).map(|number| terminated(number, 1_000 + u64::from(number))).collect();
    store.commit(change_of(records)).await?;
    let batch = Prune { batch: 4, ..ended_before(9_000) };
    for (removed, rest) in [(4, 6), (4, 2), (2, 0), (0, 0)] {
        assert_eq!(store.prune(&batch).await?.sandboxes, removed);
        assert_eq!(left(&*store).await?.len(), rest);
    }
    Ok(())
}

pub(super) async fn the_oldest_events_are_removed_and_numbers_continue(store: Arc<dyn Store>) -> Checked {
    let old = |millis| NewEvent { at: at(millis), ..event(1, "x") };
    assert_eq!(store.events_removed().await?, 0);
    // The fourth event is younger than the fifth, so the fifth stays.
    let events = [1_000, 2_000, 3_000, 9_000, 3_000].map(old).to_vec();
    store.commit(Change { events, ..Change::default() }).await?;
    let before = |millis, through, batch| Prune {
        events_before: Some(at(millis)),
        events_through: through,
        batch,
        ..Prune::default()
    };
    assert_eq!(store.prune(&before(1_000, 5, 9)).await?.events, 0);
    assert_eq!(store.prune(&before(5_000, 5, 1)).await?.events, 1);
    assert_eq!(store.prune(&before(5_000, 2, 9)).await?.events, 1);
    assert_eq!(store.events_removed().await?, 2);
    assert_eq!(store.prune(&before(5_000, u64::MAX, 9)).await?.events, 1);
    assert_eq!(store.events_removed().await?, 3);
    let numbers = async |after| -> Result<Vec<u64>, StoreError> {
        let page = store.events(&EventFilter { after, ..EventFilter::default() }).await?;
        Ok(page.into_iter().map(|record| record.number).collect())
    };
    assert_eq!(numbers(0).await?, [4, 5]);
    assert_eq!(numbers(4).await?, [5]);
    assert_eq!(store.prune(&before(u64::MAX, u64::MAX, 9)).await?.events, 2);
    assert_eq!((store.events_removed().await?, numbers(0).await?), (5, vec![]));
    let recorded = store.commit(Change { events: vec![old(9_000)], ..Change::default() }).await?;
    assert_eq!(recorded.first().map(|record| record.number), Some(6));
    assert_eq!((store.events_removed().await?, numbers(0).await?), (5, vec![6]));
    Ok(())
}

pub(super) async fn the_numbers_of_removed_events_are_not_used_again(
    open: impl AsyncFn() -> Arc<dyn Store>,
) -> Checked {
    for first in [1, 3, 5] {
        let store = open().await;
        let events = vec![event(1, "a"), event(1, "b")];
        let recorded = store.commit(Change { events, ..Change::default() }).await?;
        assert_eq!(recorded.first().map(|record| record.number), Some(first));
        let all = Prune { events_before: Some(at(u64::MAX)), events_through: u64::MAX, batch: 9, ..Prune::default() };
        assert_eq!(store.prune(&all).await?.events, 2);
        assert_eq!(store.events_removed().await?, first + 1);
    }
    Ok(())
}

pub(super) async fn the_event_of_a_snapshot_is_found(store: Arc<dyn Store>) -> Checked {
    let id = snapshot(7, 0).id;
    let taken = NewEvent { kind: EventKind::SnapshotTaken, ..event(1, id.as_str()) };
    let others = [event(1, id.as_str()), NewEvent { kind: EventKind::SnapshotTaken, ..event(1, "another") }];
    store.commit(Change { events: [&others[..], std::slice::from_ref(&taken)].concat(), ..Change::default() }).await?;
    let found = store.events(&EventFilter { taken: Some(id), ..EventFilter::default() }).await?;
    assert_eq!(found.into_iter().map(|record| (record.number, record.event)).collect::<Vec<_>>(), [(3, taken)]);
    Ok(())
}

pub(super) async fn snapshots_are_found_by_what_they_are_about(store: Arc<dyn Store>) -> Checked {
    let mut all: Vec<SnapshotRecord> = (1..9).map(|number| snapshot(number, 1_000 + u64::from(number % 3))).collect();
    all[1].source = all[0].source.clone();
    all[2].layer = Some(all[0].saved_state.clone());
    all[3].made_by = Maker::Policy;
    all[4].removal = Removal::At(at(9_000));
    all[5].removal = Removal::WhenFree;
    all[6].status = SnapshotStatus::Deleting;
    (all[7].status, all[7].bytes, all[6].bytes) = (SnapshotStatus::Completed, 4_096, 8_192);
    all[7].project = project("elsewhere");
    all[7].image = "0123456789abcdef".repeat(4).parse().expect("a legal digest");
    store.commit(Change { snapshots: all.clone(), ..Change::default() }).await?;
    let none = SnapshotFilter::default;
    let cases: [(SnapshotFilter, &[usize]); 9] = [
        (SnapshotFilter { source: Some(all[0].source.clone()), ..none() }, &[0, 1]),
        (SnapshotFilter { saved_state: Some(all[4].saved_state.clone()), ..none() }, &[4]),
        (SnapshotFilter { layer: Some(all[0].saved_state.clone()), ..none() }, &[2]),
        (SnapshotFilter { image: Some(all[7].image.clone()), ..none() }, &[7]),
        (SnapshotFilter { made_by: Some(Maker::Policy), ..none() }, &[3]),
        (SnapshotFilter { leaving: true, ..none() }, &[4, 5, 6]),
        (SnapshotFilter { project: Some(project("elsewhere")), ..none() }, &[7]),
        (SnapshotFilter { project: Some(project("elsewhere")), leaving: true, ..none() }, &[]),
        (SnapshotFilter { source: Some(all[0].source.clone()), made_by: Some(Maker::Request), ..none() }, &[0, 1]),
    ];
    for (filter, expected) in cases {
        let mut expected: Vec<_> = expected.iter().map(|place| all[*place].clone()).collect();
        expected.sort_by_key(|snapshot| (snapshot.created, snapshot.id.clone()));
        assert_eq!(store.find_snapshots(&filter).await?, expected, "{filter:?}");
    }
    assert_eq!(store.snapshot_bytes().await?, 4_096);
    Ok(())
}

pub(super) async fn pages_of_snapshots_cover_everything_once(store: Arc<dyn Store>) -> Checked {
    let mut all: Vec<_> = (0..10).map(|number| snapshot(number, 1_000 + u64::from(number % 3))).collect();
    all.push(snapshot(10, u64::MAX));
    all.push(snapshot(11, u64::MAX));
    store.commit(Change { snapshots: all.clone(), ..Change::default() }).await?;
    all.sort_by_key(|snapshot| (snapshot.created, snapshot.id.clone()));
    for limit in [1, 3, 12, 13] {
        let (mut pages, mut after): (Vec<SnapshotRecord>, Option<(_, SnapshotId)>) = (Vec::new(), None);
        loop {
            let page = store.find_snapshots(&SnapshotFilter { after, limit, ..SnapshotFilter::default() }).await?;
            assert!(page.len() <= limit, "a page of {} for {limit}", page.len());
            let Some(last) = page.last() else { break };
            after = Some((last.created, last.id.clone()));
            pages.extend(page);
        }
        assert_eq!(pages, all, "in pages of {limit}");
    }
    Ok(())
}

pub(super) async fn sandboxes_are_found_by_the_snapshot_they_started_from(store: Arc<dyn Store>) -> Checked {
    let (files, memory) = (snapshot(1, 0), snapshot(2, 0));
    let mut records = [1, 2, 3].map(|number| sandbox(number, None, StateName::Running));
    records[0].sandbox.origin = Origin::Filesystem { snapshot: files.id.clone(), source: sandbox_id(9) };
    records[0].sandbox.spec.layer = Some(files.saved_state.clone());
    records[1].sandbox.origin =
        Origin::Snapshot { snapshot: memory.id.clone(), saved_state: memory.saved_state, source: sandbox_id(8) };
    store.commit(change_of(records.to_vec())).await?;
    let of_nine = SandboxFilter { origin_source: Some(sandbox_id(9)), ..SandboxFilter::default() };
    assert_eq!(store.sandboxes(&of_nine).await?.len(), 1);
    for (snapshot, number) in [(files.id, 1), (memory.id, 2)] {
        let found = store.sandboxes(&SandboxFilter { origin: Some(snapshot), ..SandboxFilter::default() }).await?;
        assert_eq!(found.into_iter().map(|record| record.sandbox.id).collect::<Vec<_>>(), [sandbox_id(number)]);
    }
    Ok(())
}

pub(super) async fn the_clocks_are_noted_in_place_of_the_note_before(
    open: impl AsyncFn() -> Arc<dyn Store>,
) -> Checked {
    assert_eq!(open().await.clock().await?, None);
    for round in 1..=3u32 {
        let note = ClockNote {
            seen: at(1_000 * u64::from(round)),
            steady: Duration::from_millis(u64::from(round)),
            boot: (round > 1).then(|| format!("boot {round}")),
            periods: vec![ClockPeriod { from: at(0), ahead_millis: -7 }, ClockPeriod { from: at(9), ahead_millis: 8 }],
            held_until: at(5),
        };
        open().await.commit(Change { clock: Some(note.clone()), ..Change::default() }).await?;
        open().await.commit(Change { events: vec![event(1, "x")], ..Change::default() }).await?;
        assert_eq!(open().await.clock().await?, Some(note));
    }
    Ok(())
}
