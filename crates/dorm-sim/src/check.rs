//! The checks of every quiet moment, when nothing is in progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dorm_lifecycle::{RunCondition, RunId, SavedStateId, SleepImage, State, StateName};
use dorm_storage::Expected;
use dorm_store::{EventFilter, Removal, SandboxFilter, SnapshotStatus, Store};

use crate::world::World;

/// How long operations may take to finish.
const SETTLE: Duration = Duration::from_secs(600);

/// Waits until nothing is in progress, then checks everything. Failed checks go to the trace.
pub(crate) async fn is_sound(world: &World) -> Result<()> {
    let deadline = tokio::time::Instant::now() + SETTLE;
    let mut wait = Duration::from_millis(1);
    while let Err(what) = quiet(world)? {
        if tokio::time::Instant::now() > deadline {
            world.trace.wrong(format_args!("it never settles: {what}"));
            return Ok(());
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(10));
    }
    world.trace.note("quiet");
    records_agree(world).await?;
    saved_states_are_whole(world).await
}

/// Waits until every guest that is on record as running runs or is dead.
pub(crate) async fn nobody_stands_still(world: &World) {
    let deadline = tokio::time::Instant::now() + SETTLE;
    let mut wait = Duration::from_millis(1);
    while let Some(run) = stands_still(world) {
        if tokio::time::Instant::now() > deadline {
            world.trace.wrong(format_args!("run {run} is said to run and stands still"));
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(10));
    }
}

fn stands_still(world: &World) -> Option<RunId> {
    let still = |run: &RunId| {
        let found = world.host.runs().into_iter().find(|(found, _)| found == run);
        matches!(found, Some((_, RunCondition::Paused | RunCondition::Parked)))
    };
    let records = world.model.records();
    let running = records.iter().filter(|record| matches!(record.sandbox.state, State::Running { .. }));
    running.map(|record| record.sandbox.run_id()).find(still)
}

/// Whether nothing is in progress and nothing is left over; the inner error names the first
/// exception.
fn quiet(world: &World) -> Result<Result<(), String>> {
    let mut needed = BTreeMap::new();
    let mut own =
        |saved_state: &SavedStateId, owner: String| match needed.insert(saved_state.to_string(), owner.clone()) {
            Some(other) => Err(format!("saved state {saved_state} belongs to {other} and to {owner}")),
            None => Ok(()),
        };
    let mut runs: BTreeMap<RunId, RunCondition> = world.host.runs().into_iter().collect();
    for record in world.model.records() {
        let sandbox = &record.sandbox;
        if let Some(held) = sandbox.held_run() {
            return Ok(Err(format!("{} has left run {held}, which is being saved", sandbox.id)));
        }
        let run = runs.remove(&sandbox.run_id());
        let fits = matches!(
            (&sandbox.state, run),
            (State::Running { .. }, Some(RunCondition::Running))
                | (State::Suspended { .. }, None)
                | (State::Suspended { image: SleepImage { files: None, .. }, .. }, Some(RunCondition::Parked))
                | (State::Terminated { .. }, None)
        );
        if !fits {
            return Ok(Err(format!("{} is {} and its run is {run:?}", sandbox.id, sandbox.state.name())));
        }
        if let Some(egress) = world.host.egress(&sandbox.run_id())
            && egress != sandbox.spec.egress
        {
            let wanted = &sandbox.spec.egress;
            return Ok(Err(format!("run {} has the egress {egress:?}, not {wanted:?}", sandbox.run_id())));
        }
        if let Some(limit) = world.host.memory_limit(&sandbox.run_id())
            && limit != sandbox.spec.resources.memory_bytes
        {
            let wanted = sandbox.spec.resources.memory_bytes;
            return Ok(Err(format!("run {} has {limit} bytes of memory, not {wanted}", sandbox.run_id())));
        }
        for saved_state in sandbox.saved_states() {
            if let Err(what) = own(saved_state, format!("sandbox {}", sandbox.id)) {
                return Ok(Err(what));
            }
        }
    }
    for (run, wanted) in world.model.places() {
        let mut inside: Vec<_> = world.host.volumes_inside(&run).into_iter().map(|(path, _)| path).collect();
        inside.sort();
        if inside != wanted {
            return Ok(Err(format!("run {run} has volumes at {inside:?} and is to have them at {wanted:?}")));
        }
    }
    if let Some((run, condition)) = runs.pop_first() {
        return Ok(Err(format!("run {run} ({condition:?}) belongs to nobody")));
    }
    for (is_done, children) in world.model.forks_that_roll_back() {
        for child in children {
            let record = world.model.record(&child);
            let is_living = record.as_ref().is_some_and(|record| record.sandbox.state.name() != StateName::Terminated);
            if is_done && record.is_none() {
                return Ok(Err(format!("a fork is done, and there is no record of its child {child}")));
            }
            if !is_done && is_living {
                return Ok(Err(format!("a fork that rolls back has failed, and its child {child} lives")));
            }
        }
    }
    let wrong = world.model.wrong_pool().or_else(|| world.model.open_build());
    if let Some(wrong) = wrong.or_else(|| world.model.open_environment()) {
        return Ok(Err(wrong));
    }
    for child in world.model.promoted() {
        let record = world.model.record(&child);
        if record.is_some_and(|record| record.sandbox.state.name() != StateName::Terminated) {
            return Ok(Err(format!("{child} was promoted and lives")));
        }
    }
    for snapshot in world.model.snapshot_records() {
        let holds_files = world.model.records().iter().any(|record| {
            let is_over = record.sandbox.state.name() == StateName::Terminated;
            !is_over && record.sandbox.layers().any(|layer| *layer == snapshot.saved_state)
        });
        let holds_layer = world.model.snapshot_records().iter().any(|other| {
            !matches!(other.status, SnapshotStatus::Failed(_)) && other.layer.as_ref() == Some(&snapshot.saved_state)
        });
        let is_held = holds_files || holds_layer || world.model.holder(&snapshot.id).is_some();
        if snapshot.removal == Removal::WhenFree && !is_held {
            return Ok(Err(format!("snapshot {} is to go", snapshot.id)));
        }
        match &snapshot.status {
            SnapshotStatus::Completed => {
                if let Err(what) = own(&snapshot.saved_state, format!("snapshot {}", snapshot.id)) {
                    return Ok(Err(what));
                }
            }
            SnapshotStatus::Failed(_) => {}
            SnapshotStatus::InProgress | SnapshotStatus::Deleting => {
                return Ok(Err(format!("snapshot {} is {}", snapshot.id, snapshot.status.as_str())));
            }
        }
    }
    if let Some(operation) = world.model.open_operations().first() {
        return Ok(Err(format!("the operation {} ({}) is open", operation.id, operation.kind.as_str())));
    }
    if let Some(saved_state) = world.model.to_discard().first() {
        return Ok(Err(format!("saved state {saved_state} is still to be discarded")));
    }
    let mut there = Vec::new();
    for entry in std::fs::read_dir(world.saved_states()).context("list the saved states")? {
        there.push(entry.context("list the saved states")?.file_name().to_string_lossy().into_owned());
    }
    there.sort();
    for name in &there {
        if needed.remove(name).is_none() {
            return Ok(Err(format!("nobody needs the saved state {name}")));
        }
    }
    Ok(match needed.pop_first() {
        Some((saved_state, owner)) => Err(format!("the saved state {saved_state} of {owner} is not there")),
        None => Ok(()),
    })
}

/// Checks that the store holds everything that was committed, and that the events lead to the same
/// states.
async fn records_agree(world: &World) -> Result<()> {
    let (store, model, trace) = (world.store()?, &world.model, &world.trace);
    let store: &Arc<dyn Store> = &store;
    if store.sandboxes(&SandboxFilter::default()).await.context("read the sandboxes")? != model.records() {
        trace.wrong("the store does not hold the sandboxes that were committed");
    }
    let mut snapshots = store.snapshots(None).await.context("read the snapshots")?;
    snapshots.sort_by(|a, b| a.id.cmp(&b.id));
    if snapshots != model.snapshot_records() {
        trace.wrong("the store does not hold the snapshots that were committed");
    }
    if store.events(&EventFilter::default()).await.context("read the events")? != model.events() {
        trace.wrong("the store does not hold the events that were committed");
    }
    if store.builds().await.context("read the builds")? != model.build_records() {
        trace.wrong("the store does not hold the builds that were committed");
    }
    if store.environments().await.context("read the environments")? != model.environment_records() {
        trace.wrong("the store does not hold the environments that were committed");
    }
    if !store.open_operations().await.context("read the operations")?.is_empty() {
        trace.wrong("the store holds an open operation");
    }
    if !store.to_discard().await.context("read what must be discarded")?.is_empty() {
        trace.wrong("the store holds a saved state to discard");
    }
    for record in model.records() {
        let state = record.sandbox.state.name();
        match model.told(&record.sandbox.id) {
            Some(told) if told == state => {}
            told => trace.wrong(format_args!("{} is {state}, but its events tell {told:?}", record.sandbox.id)),
        }
    }
    Ok(())
}

/// Checks that every saved state that is needed has its written content.
async fn saved_states_are_whole(world: &World) -> Result<()> {
    let storage = world.storage(&world.life())?;
    let engine = Expected { engine: "fake".to_owned(), build: "fake-1".to_owned(), cpu: "fake".to_owned() };
    let mut needed = Vec::new();
    for record in world.model.records() {
        needed.extend(record.sandbox.saved_states().cloned());
    }
    let snapshots = world.model.snapshot_records();
    let complete = snapshots.into_iter().filter(|snapshot| snapshot.status == SnapshotStatus::Completed);
    needed.extend(complete.map(|snapshot| snapshot.saved_state));
    for saved_state in needed {
        if let Err(error) = storage.verify(&saved_state, &engine).await {
            world.trace.wrong(format_args!("a needed saved state is not whole: {error}"));
        }
    }
    Ok(())
}

/// Whether a sandbox is over.
pub(crate) fn is_over(state: &State) -> bool {
    matches!(state.name(), StateName::Terminating | StateName::Terminated)
}
