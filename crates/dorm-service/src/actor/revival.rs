//! A new actor takes up a sandbox that another one worked on, in an earlier daemon or before a
//! conflict: according to the lifecycle's plan for what is recorded and what runs.

use std::sync::Arc;

use dorm_lifecycle::{
    Effect, Initiator, Recovery, RunCondition, RunId, SandboxId, SnapshotKind, State, leftovers, recover,
};
use dorm_store::{OperationRecord, SandboxRecord, SnapshotFilter, SnapshotStatus};
use tokio_util::sync::CancellationToken;

use super::{Actor, First, Open, Seat};
use crate::effects::{self, Task};
use crate::error::ServiceError;
use crate::messages::Message;
use crate::report::RecoveryReport;
use crate::shared::Shared;

/// Returns the records of the operation that the sandbox is in, which its actor ends: the operation
/// names the files that it wrote, and the snapshot in progress has failed with it. The start of the
/// daemon may have closed the operation already, after it removed the files.
pub(crate) async fn left_open(shared: &Arc<Shared>, record: &SandboxRecord) -> Result<Open, ServiceError> {
    let Some(id) = record.sandbox.state.operation() else { return Ok(Open::default()) };
    let operation = shared.store.operation(id).await?;
    let written = operation.as_ref().and_then(OperationRecord::writes).cloned();
    let snapshot = match written {
        Some(saved_state) => {
            let made = SnapshotFilter { saved_state: Some(saved_state), ..SnapshotFilter::default() };
            let mut made = shared.store.find_snapshots(&made).await?.into_iter();
            made.find(|snapshot| snapshot.status == SnapshotStatus::InProgress)
        }
        None => None,
    };
    Ok(Open { operation, snapshot })
}

/// Gives a sandbox an actor. Returns the parked sandboxes to evict once all of them have actors.
pub(crate) async fn revive(
    shared: &Arc<Shared>,
    record: SandboxRecord,
    found: &[(RunId, RunCondition)],
    (open, seat): (Open, Seat),
    report: &mut RecoveryReport,
) -> Vec<SandboxId> {
    let mut surplus = Vec::new();
    let id = record.sandbox.id.clone();
    end_all(shared, &record, &leftovers(&record.sandbox, found)).await;
    let first = match recover(&record.sandbox, found) {
        Recovery::Nothing => First::Nothing,
        Recovery::Adopt(run) => First::Adopt(run),
        Recovery::AdoptThen { run, report: observation } => {
            report.lines.push(format!("sandbox {id}: its operation was abandoned; the sandbox continues"));
            First::AdoptThen(run, observation)
        }
        Recovery::AdoptRedo { run, effect } => {
            report.lines.push(format!("sandbox {id}: its operation starts over; the sandbox continues"));
            First::AdoptRedo(run, effect)
        }
        Recovery::Continue { run, report: observation } => {
            report.lines.push(format!("sandbox {id}: its operation was rolled back; the sandbox continues"));
            First::Continue(run, observation)
        }
        Recovery::Redo { stop, effect } => {
            report.lines.push(format!("sandbox {id}: its operation starts over"));
            end_all(shared, &record, &stop).await;
            if let Effect::Wake { parked, .. } = &effect
                && found.iter().any(|(run, _)| run == parked && !stop.contains(run))
            {
                surplus = park(shared, &record, parked).await;
            }
            First::Effect(effect, None)
        }
        Recovery::Report { stop, report: observation } => {
            report.lines.push(match &record.sandbox.state {
                State::Suspended { .. } => {
                    format!("sandbox {id}: its operation was abandoned; the sandbox stays suspended")
                }
                _ => format!("sandbox {id}: its run was lost"),
            });
            end_all(shared, &record, &stop).await;
            First::Report(observation)
        }
        Recovery::Stop(stop) => {
            end_all(shared, &record, &stop).await;
            First::Nothing
        }
    };
    if let Some(run) = left_parked(&record, &first, found) {
        surplus = park(shared, &record, &run).await;
    }
    // The held run is saved first; then the actor notices that the own run is gone.
    let lost = matches!(&first, First::Effect(Effect::SaveHeld { .. }, _)).then(|| record.sandbox.run_id());
    Actor::spawn_in(seat, shared, record, Initiator::Recovery.into(), first, open);
    if let Some(run) = lost {
        let reason = "its run ended while the daemon was not running".to_owned();
        shared.tell(&run.sandbox.clone(), Message::RunEnded { run, reason });
    }
    surplus
}

/// Returns the run of a suspended sandbox that stays in memory.
fn left_parked(record: &SandboxRecord, first: &First, found: &[(RunId, RunCondition)]) -> Option<RunId> {
    let is_left = matches!(
        first,
        First::Nothing | First::Report(_) | First::Effect(Effect::Egress { .. } | Effect::Resize { .. }, _)
    );
    let run = matches!(record.sandbox.state, State::Suspended { .. }).then(|| record.sandbox.run_id());
    let is_in_memory = |run: &RunId| {
        found
            .iter()
            .any(|(one, condition)| one == run && matches!(condition, RunCondition::Parked | RunCondition::Paused))
    };
    run.filter(|run| is_left && is_in_memory(run))
}

/// Evicts parked sandboxes.
pub(crate) fn evict_all(shared: &Shared, surplus: impl IntoIterator<Item = SandboxId>) {
    for sandbox in surplus {
        shared.tell(&sandbox, Message::Evict { by: Initiator::Host.into(), reply: None });
    }
}

/// Continues with a sandbox whose record is not the one that its actor worked on, as daemon startup
/// would.
pub(super) async fn take_up(shared: &Arc<Shared>, record: SandboxRecord, found: &[(RunId, RunCondition)], seat: Seat) {
    let mut report = RecoveryReport::default();
    // Without it, the operation is closed at the next start.
    let open = left_open(shared, &record).await.unwrap_or_default();
    let surplus = revive(shared, record, found, (open, seat), &mut report).await;
    evict_all(shared, surplus);
    for line in report.lines {
        tracing::warn!("{line}");
    }
}

/// Records that a run is paused, and makes sure that it uses no CPU. A run that cannot be parked is
/// ended. Returns the parked sandboxes that the limits do not allow any more.
async fn park(shared: &Arc<Shared>, record: &SandboxRecord, run: &RunId) -> Vec<SandboxId> {
    match effects::park(&task(shared, record), run).await {
        Some(memory) => shared.parking.enter(&record.sandbox.id, shared.now(), memory),
        None => Vec::new(),
    }
}

pub(crate) async fn end_all(shared: &Arc<Shared>, record: &SandboxRecord, runs: &[RunId]) {
    for run in runs {
        effects::end(&task(shared, record), run).await;
    }
}

fn task(shared: &Arc<Shared>, record: &SandboxRecord) -> Task {
    Task {
        shared: shared.clone(),
        sandbox: record.sandbox.clone(),
        agent: None,
        saved_state: None,
        kind: SnapshotKind::Memory,
        unwanted: CancellationToken::new(),
    }
}
