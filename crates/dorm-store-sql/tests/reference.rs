#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

//! After any changes in any order, the store in a file gives the same answers as the one in memory.

use std::sync::Arc;

use dorm_lifecycle::{
    Cause, EventKind, FirstProgram, Initiator, Name, OnTimeout, OperationId, ProjectId, Resources, Sandbox, SandboxId,
    SandboxSpec, SavedStateId, SleepImage, SnapshotId, SnapshotName, State, StateName, Timestamp,
};
use dorm_store::memory::MemoryStore;
use dorm_store::{
    Change, EventFilter, NewEvent, OperationKind, OperationRecord, OperationResult, SandboxFilter, SandboxRecord,
    SnapshotFilter, SnapshotRecord, SnapshotStatus, Store,
};
use dorm_store_sql::SqlStore;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// A change in small numbers, so that records and names often conflict.
#[derive(Clone, Debug)]
struct Plan {
    sandboxes: Vec<PlannedSandbox>,
    /// Number, start, and whether it has ended.
    operations: Vec<(u8, u64, bool)>,
    /// Number, creation time, project.
    snapshots: Vec<(u8, u64, u8)>,
    forgotten: Vec<u8>,
    /// Sandbox, project.
    events: Vec<(u8, u8)>,
    /// The filter for reading afterwards.
    filter: SandboxFilter,
    event_filter: EventFilter,
    reopens: bool,
}

#[derive(Clone, Debug)]
struct PlannedSandbox {
    number: u8,
    project: u8,
    name: Option<u8>,
    state: usize,
    labels: Vec<(u8, u8)>,
    /// None for the current revision.
    revision: Option<u64>,
}

fn id(number: u8) -> SandboxId {
    SandboxId::from_random([number; 20])
}

fn project(number: u8) -> ProjectId {
    format!("p{number}").parse().unwrap()
}

fn name(number: u8) -> Name {
    format!("n{number}").parse().unwrap()
}

fn label((key, value): (u8, u8)) -> (String, String) {
    (format!("k{key}"), format!("v{value}"))
}

fn planned_sandbox() -> impl Strategy<Value = PlannedSandbox> {
    let labels = prop::collection::vec((0..3u8, 0..3u8), 0..3);
    let revision = prop::option::weighted(0.1, 0..4u64);
    (0..6u8, 0..2u8, prop::option::of(0..3u8), 0..8usize, labels, revision).prop_map(
        |(number, project, name, state, labels, revision)| PlannedSandbox {
            number,
            project,
            name,
            state,
            labels,
            revision,
        },
    )
}

fn filter() -> impl Strategy<Value = SandboxFilter> {
    let states = prop::collection::vec(prop::sample::select(StateName::ALL.to_vec()), 0..4);
    let labels = prop::collection::vec((0..3u8, 0..3u8).prop_map(label), 0..2);
    let rarely = 0.3;
    (
        prop::option::weighted(rarely, (0..2u8).prop_map(project)),
        states,
        prop::option::weighted(rarely, (0..3u8).prop_map(name)),
        labels,
        prop::option::weighted(rarely, (0..6u8).prop_map(id)),
        0..4usize,
    )
        .prop_map(|(project, states, name, labels, after, limit)| SandboxFilter {
            project,
            states,
            name,
            labels,
            after,
            limit,
            ..SandboxFilter::default()
        })
}

fn event_filter() -> impl Strategy<Value = EventFilter> {
    (
        prop::option::of((0..2u8).prop_map(project)),
        prop::option::of((0..6u8).prop_map(id)),
        0..12u64,
        0..4usize,
        0..4usize,
    )
        .prop_map(|(project, sandbox, after, limit, newest)| EventFilter {
            project,
            sandbox,
            after,
            limit,
            newest,
            ..EventFilter::default()
        })
}

fn plan() -> impl Strategy<Value = Plan> {
    use prop::collection::vec;
    (
        vec(planned_sandbox(), 0..4),
        vec((0..4u8, 0..3u64, any::<bool>()), 0..2),
        vec((0..4u8, 0..3u64, 0..2u8), 0..4),
        vec(0..4u8, 0..2),
        vec((0..6u8, 0..2u8), 0..3),
        filter(),
        event_filter(),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(sandboxes, operations, snapshots, forgotten, events, filter, event_filter, reopens)| Plan {
            sandboxes,
            operations,
            snapshots,
            forgotten,
            events,
            filter,
            event_filter,
            reopens,
        })
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn state(number: usize) -> State {
    let operation = OperationId::from_random([9; 20]);
    let (deadline, since) = (at(9_000), at(1_000));
    let image = SleepImage {
        saved_state: SavedStateId::from_random([8; 20]),
        generation: 1,
        taken: at(1_500),
        bytes: 1,
        files: None,
    };
    match StateName::ALL[number] {
        StateName::Pending => State::Pending { operation, deadline, program: FirstProgram::None },
        StateName::Running => State::Running { since, image: None, background: None },
        StateName::Snapshotting => {
            let snapshot = SnapshotId::from_random([7; 20]);
            State::Snapshotting { operation, deadline, snapshot, since, image: None }
        }
        StateName::Suspending => {
            State::Suspending { operation, deadline, since, image: Some(image), rewind: None, files: None }
        }
        StateName::Suspended => State::Suspended { image, background: None },
        StateName::Resuming => State::Resuming { operation, deadline, image, rewind: None },
        StateName::Terminating => State::Terminating { operation, deadline, cause: Cause::Timeout, unleased: false },
        StateName::Terminated => State::Terminated { cause: Cause::Requested, at: since },
    }
}

async fn sandbox(plan: &PlannedSandbox, present: &MemoryStore) -> SandboxRecord {
    let mut spec = SandboxSpec::new("a".repeat(64).parse().unwrap(), plan.name.map(name));
    (spec.suspendable, spec.on_timeout) = (true, OnTimeout::Suspend);
    spec.labels = plan.labels.iter().copied().map(label).collect();
    let sandbox = Sandbox::new(id(plan.number), project(plan.project), spec, at(1_000), state(plan.state));
    let stored = present.sandbox(&sandbox.id).await.unwrap().map_or(0, |record| record.revision);
    SandboxRecord { sandbox, revision: plan.revision.unwrap_or(stored) }
}

fn operation(&(number, began, has_ended): &(u8, u64, bool)) -> OperationRecord {
    OperationRecord {
        id: OperationId::from_random([number; 20]),
        kind: OperationKind::Create,
        project: ProjectId::local(),
        sandbox: None,
        initiator: Initiator::Recovery,
        caller: None,
        began: at(began),
        deadline: at(9_000),
        saved_state: None,
        fork: None,
        promote: None,
        ended: has_ended.then_some((at(8_000), OperationResult::Done)),
    }
}

fn snapshot_name(number: u64) -> Option<SnapshotName> {
    (number > 0).then(|| format!("snap:{number}").parse().unwrap())
}

fn snapshot(&(number, created, of): &(u8, u64, u8)) -> SnapshotRecord {
    SnapshotRecord {
        id: SnapshotId::from_random([number; 20]),
        project: project(of),
        // Few names, of which some are taken.
        name: snapshot_name(created),
        source: id(number),
        generation: 1,
        parent: None,
        kind: dorm_lifecycle::SnapshotKind::Memory,
        layer: None,
        saved_state: SavedStateId::from_random([number; 20]),
        image: "b".repeat(64).parse().unwrap(),
        resources: Resources::default(),
        inherited: None,
        created: at(created),
        bytes: created,
        shares_data: false,
        labels: std::collections::BTreeMap::new(),
        removal: dorm_store::Removal::Asked,
        made_by: dorm_store::Maker::Request,
        status: if number == 3 { SnapshotStatus::Deleting } else { SnapshotStatus::Completed },
    }
}

fn event(&(of, in_project): &(u8, u8)) -> NewEvent {
    NewEvent {
        project: project(in_project),
        sandbox: id(of),
        at: at(5_000),
        kind: EventKind::Recovered,
        initiator: Initiator::Host,
        caller: None,
        operation: None,
        generation: 1,
        detail: None,
        took: None,
        bytes: None,
    }
}

async fn change(plan: &Plan, present: &MemoryStore) -> Change {
    let mut sandboxes = Vec::new();
    for planned in &plan.sandboxes {
        sandboxes.push(sandbox(planned, present).await);
    }
    Change {
        sandboxes,
        operations: plan.operations.iter().map(operation).collect(),
        snapshots: plan.snapshots.iter().map(snapshot).collect(),
        forgotten: plan.forgotten.iter().map(|number| SnapshotId::from_random([*number; 20])).collect(),
        discard: Vec::new(),
        discarded: Vec::new(),
        events: plan.events.iter().map(event).collect(),
        ..Change::default()
    }
}

/// Everything that a store returns, as text.
async fn view(store: &dyn Store, plan: &Plan) -> String {
    let mut text = String::new();
    let mut add = |seen: String| text.push_str(&(seen + "\n"));
    for number in 0..6 {
        add(format!("{:?}", store.sandbox(&id(number)).await));
    }
    for (of, called) in (0..2).flat_map(|of| (0..3).map(move |called| (of, called))) {
        add(format!("{:?}", store.named(&project(of), &name(called)).await));
    }
    for filter in [SandboxFilter::default(), plan.filter.clone()] {
        add(format!("{:?}", store.sandboxes(&filter).await));
    }
    for number in 0..4 {
        add(format!("{:?}", store.snapshot(&SnapshotId::from_random([number; 20])).await));
    }
    for (of, called) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let filter =
            SnapshotFilter { project: Some(project(of)), name: snapshot_name(called), ..SnapshotFilter::default() };
        add(format!("{:?}", store.find_snapshots(&filter).await));
    }
    add(format!("{:?}", store.snapshots(None).await));
    add(format!("{:?}", store.snapshots(Some(&project(1))).await));
    add(format!("{:?}", store.open_operations().await));
    for filter in [EventFilter::default(), plan.event_filter.clone()] {
        add(format!("{:?}", store.events(&filter).await));
    }
    text
}

async fn compare(plans: Vec<Plan>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let memory = MemoryStore::new();
    let mut file = Arc::new(SqlStore::open(&path).await.unwrap());
    for plan in plans {
        let change = change(&plan, &memory).await;
        let expected = format!("{:?}", memory.commit(change.clone()).await);
        assert_eq!(format!("{:?}", file.commit(change).await), expected);
        if plan.reopens {
            file = Arc::new(SqlStore::open(&path).await.unwrap());
        }
        assert_eq!(view(&*file, &plan).await, view(&memory, &plan).await);
    }
    file.close().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        max_shrink_iters: 200,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_file_answers_as_the_memory_does(plans in prop::collection::vec(plan(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare(plans));
    }
}
