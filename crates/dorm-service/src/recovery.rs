//! Startup of the service: the records and the runs on the host are reconciled, according to the
//! lifecycle's plan, before any caller is answered.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use dorm_engine::{EngineError, FoundRun};
use dorm_lifecycle::{
    Effect, Initiator, Recovery, RunCondition, RunId, SandboxId, SnapshotId, SnapshotKind, State, recover,
};
use dorm_store::{
    Change, OperationKind, OperationRecord, OperationResult, SandboxRecord, SnapshotFilter, SnapshotStatus,
};

use tokio_util::sync::CancellationToken;

use crate::actor::{Actor, First, Open, Seat};
use crate::checkpointing;
use crate::data_disk;
use crate::effects::{self, Task};
use crate::error::ServiceError;
use crate::failure::stopped;
use crate::notices;
use crate::ops::runs::Belonging;
use crate::quarantine::Unreadable;
use crate::references;
use crate::removals;
use crate::retention;
use crate::shared::{Parts, Service, Shared, chain};
use crate::soundness;
use crate::timekeeping;

mod living;

/// How long an engine may take to list the runs on the host, or to remove unknown remains.
const LOOK: Duration = Duration::from_secs(300);

/// The findings and actions of a start, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// The number of sandboxes on record that are not terminated.
    pub sandboxes: usize,
    /// The number of runs that continued without the daemon.
    pub runs: usize,
    /// One line for everything that was removed, rolled back or started over.
    pub lines: Vec<String>,
}

impl RecoveryReport {
    /// Reports work that failed and does not prevent the start.
    fn postponed(&mut self, what: &str, error: &(dyn std::error::Error + 'static)) {
        let reason = chain(error);
        tracing::warn!(reason, "{what} failed; retrying at the next start");
        self.lines.push(format!("{what} failed and is retried at the next start: {reason}"));
    }
}

impl Service {
    /// Opens the service: recovers what an earlier daemon left, and starts to drive every sandbox
    /// that is not terminated.
    ///
    /// # Errors
    ///
    /// Fails if the records cannot be read or the host cannot be examined. A second attempt then
    /// finds everything again.
    pub async fn open(parts: Parts) -> Result<(Self, RecoveryReport), ServiceError> {
        let mut report = RecoveryReport::default();
        let clock = timekeeping::begin(&parts, &mut report).await?;
        let shared = Shared::new(parts, clock);
        let (living, unreadable) = shared.read_all().await?;
        shared.api_keys.load(&*shared.store).await?;
        for row in unreadable.rows() {
            let title = row.title();
            tracing::warn!(record = %title, reason = %row.what, "a record cannot be read; it is left as it is: see `dorm repair`");
            report.lines.push(format!("{title}: its record cannot be read ({}) and is left as it is", row.what));
        }
        shared.refer_to_all().await?;
        let found = answered(&shared, shared.engine.inventory()).await?;
        report.sandboxes = living.len();
        report.runs = found.len();
        let mut runs: HashMap<SandboxId, Vec<(RunId, RunCondition)>> = HashMap::new();
        let ids: BTreeSet<_> = living.iter().map(|record| record.sandbox.id.clone()).collect();
        let mut known = Vec::new();
        for FoundRun { run, condition } in found {
            match shared.belonging(&ids, &run).await? {
                Belonging::Living => {
                    known.push(run.clone());
                    runs.entry(run.sandbox.clone()).or_default().push((run, condition));
                }
                Belonging::Over => {}
                Belonging::Unrecorded => {
                    let why = match unreadable.may_need_run(&run) {
                        true => "the record of its sandbox cannot be read",
                        false => "no record names this run",
                    };
                    tracing::warn!(%run, ?condition, "{why}; it is left alone: see `dorm gc -n`");
                    let said = why.replace("this run", "it");
                    report.lines.push(format!("run {run}: {said}; it is left alone"));
                    known.push(run.clone());
                    shared.left_alone.note(run);
                }
            }
        }
        for foreign in answered(&shared, shared.engine.foreign_runs()).await? {
            tracing::warn!(run = %foreign.run, owner = %foreign.owner, "this run belongs to another data directory; it is left alone");
            report.lines.push(format!("run {}: it belongs to another data directory; it is left alone", foreign.run));
            shared.left_alone.note_foreign(foreign);
        }
        match answered(&shared, shared.engine.sweep(&known)).await {
            Ok(lines) => report.lines.extend(lines),
            Err(error) => report.postponed("removing what an earlier daemon left", &error),
        }
        close_operations(&shared, &living, &unreadable, &mut report).await?;
        // It is not known for certain which of them an unreadable record needs.
        let doomed = match unreadable.may_hold_saved_states() {
            true => Vec::new(),
            false => shared.store.to_discard().await?,
        };
        for saved_state in doomed {
            report.lines.push(format!("saved state {saved_state} was discarded"));
            shared.discard(vec![saved_state]).await;
        }
        shared.spawn(notices::listen(shared.clone()));
        shared.spawn(timekeeping::keep_time(shared.clone()));
        let now = shared.now();
        for SandboxRecord { sandbox, .. } in &living {
            let source = Some(sandbox.id.clone()).filter(|_| sandbox.spec.checkpoints.is_some());
            let Some(source) = source else { continue };
            let taken = SnapshotFilter { source: Some(source), ..SnapshotFilter::default() };
            for snapshot in shared.store.find_snapshots(&taken).await? {
                shared.checkpointing.remember(&snapshot, now);
            }
        }
        for record in living {
            let found = runs.remove(&record.sandbox.id).unwrap_or_default();
            let (record, preferred) = living::prefer(&shared, record, &found, &mut report).await?;
            match preferred {
                Some(run) => Actor::spawn(&shared, record, Initiator::Recovery, First::Adopt(run), Open::default()),
                None => {
                    let open = left_open(&shared, &record).await?;
                    let seat = Seat::take(&shared, &record.sandbox);
                    revive(&shared, record, &found, (open, seat), &mut report).await;
                }
            }
        }
        shared.recall_damage().await;
        let service = Self { shared, request: None, if_revision: None };
        match service.finish_volumes().await {
            Ok(lines) => report.lines.extend(lines),
            Err(error) => report.postponed("finishing operations on volumes", &error),
        }
        let leaving = SnapshotFilter { leaving: true, ..SnapshotFilter::default() };
        for snapshot in service.shared.store.find_snapshots(&leaving).await? {
            service.shared.removals.note(&snapshot);
        }
        end_plans(&service, &mut report).await?;
        service.shared.spawn(references::keep_releasing(service.shared.clone()));
        service.shared.spawn(removals::keep_removing(service.clone()));
        service.shared.spawn(checkpointing::keep_checkpointing(service.clone()));
        service.shared.spawn(retention::keep_pruning(service.clone()));
        service.shared.spawn(data_disk::watch(service.shared.clone()));
        service.shared.spawn(soundness::keep_scrubbing(service.clone()));
        let flat = service.clone();
        service.shared.spawn(async move { flat.keep_all_flat().await });
        Ok((service, report))
    }
}

/// Finishes or abandons operations on several sandboxes, according to their plans.
async fn end_plans(service: &Service, report: &mut RecoveryReport) -> Result<(), ServiceError> {
    for operation in service.shared.store.open_operations().await? {
        let (kind, id) = (operation.kind.as_str(), operation.id.clone());
        let own = service.clone();
        match (&operation.fork, &operation.promote) {
            (Some(plan), _) => {
                service.shared.removals.begin_use(&plan.snapshot);
                service.shared.spawn(async move { own.end_fork(operation).await });
            }
            (None, Some(plan)) => {
                service.shared.removals.begin_use(&plan.snapshot);
                service.shared.spawn(async move { own.end_promotion(operation).await });
            }
            (None, None) => continue,
        }
        report.lines.push(format!("{kind} {id}: the daemon stopped during the operation"));
    }
    Ok(())
}

/// Closes operations that do not continue: what they wrote is removed first.
async fn close_operations(
    shared: &std::sync::Arc<Shared>,
    living: &[SandboxRecord],
    unreadable: &Unreadable,
    report: &mut RecoveryReport,
) -> Result<(), ServiceError> {
    for operation in shared.store.open_operations().await? {
        let title = format!("closing {} {}", operation.kind.as_str(), operation.id);
        let closed = match operation.kind {
            OperationKind::DeleteSnapshot => finish_deletion(shared, operation, unreadable, report).await,
            OperationKind::Suspend
            | OperationKind::Snapshot
            | OperationKind::Rewind
            | OperationKind::MergeLayers
            | OperationKind::Import => give_up_saved_state(shared, operation, living, unreadable, report).await,
            // These belong to a state, and the actor of the sandbox ends them.
            OperationKind::Create
            | OperationKind::Resume
            | OperationKind::Terminate
            | OperationKind::Attach
            | OperationKind::Detach => Ok(()),
            // The sandboxes that they concern are revived first.
            OperationKind::Fork | OperationKind::Promote => Ok(()),
        };
        match closed {
            Ok(()) => {}
            // If its end is not recorded, the actor of the sandbox would end it, and its files
            // would never be removed.
            Err(error @ ServiceError::Store(_)) => return Err(error),
            // It stays open, and the next start retries.
            Err(error) => report.postponed(&title, &error),
        }
    }
    Ok(())
}

async fn give_up_saved_state(
    shared: &std::sync::Arc<Shared>,
    operation: OperationRecord,
    living: &[SandboxRecord],
    unreadable: &Unreadable,
    report: &mut RecoveryReport,
) -> Result<(), ServiceError> {
    let of_unreadable =
        operation.sandbox.as_ref().is_some_and(|id| unreadable.rows().iter().any(|row| row.may_be_sandbox(id)));
    if of_unreadable {
        report.lines.push(format!(
            "{} {}: it is left as it is, because the record of its sandbox cannot be read",
            operation.kind.as_str(),
            operation.id
        ));
        return Ok(());
    }
    let is_at_work = living.iter().any(|record| record.sandbox.state.operation() == Some(&operation.id));
    let saved_state = match operation.saved_state.clone() {
        Some(saved_state) => saved_state,
        // The actor of the sandbox ends it.
        None if is_at_work => return Ok(()),
        None => return close_as_stopped(shared, operation, Change::default()).await,
    };
    let mut held = living.iter().flat_map(|record| record.sandbox.saved_states());
    if held.any(|held| *held == saved_state) {
        return Ok(());
    }
    let title = format!("{} {}", operation.kind.as_str(), operation.id);
    let mut change = Change::default();
    // Files that cannot be removed now stay on record until they are.
    if unreadable.may_hold_saved_states() {
        report.lines.push(format!("{title}: its files are kept as long as there are records that cannot be read"));
        change.discard.push(saved_state.clone());
    } else if let Err(error) = shared.storage.remove(&saved_state).await {
        report.postponed(&format!("{title}: removing its files"), &error);
        change.discard.push(saved_state.clone());
    } else {
        report.lines.push(format!("{title}: its files were removed"));
    }
    let written = SnapshotFilter { saved_state: Some(saved_state.clone()), ..SnapshotFilter::default() };
    for mut snapshot in shared.store.find_snapshots(&written).await? {
        if snapshot.status == SnapshotStatus::InProgress {
            snapshot.status = SnapshotStatus::Failed(stopped());
            change.snapshots.push(snapshot);
        }
    }
    close_as_stopped(shared, operation, change).await
}

async fn close_as_stopped(
    shared: &std::sync::Arc<Shared>,
    mut operation: OperationRecord,
    mut change: Change,
) -> Result<(), ServiceError> {
    operation.ended = Some((shared.now(), OperationResult::Failed(stopped())));
    change.operations.push(operation);
    // Not with `Shared::commit`, which would discard files: they are discarded later with all
    // others, or kept for now.
    shared.store.commit(change).await?;
    Ok(())
}

async fn finish_deletion(
    shared: &std::sync::Arc<Shared>,
    operation: OperationRecord,
    unreadable: &Unreadable,
    report: &mut RecoveryReport,
) -> Result<(), ServiceError> {
    let Some(saved_state) = &operation.saved_state else { return Ok(()) };
    let deleted = SnapshotFilter { saved_state: Some(saved_state.clone()), ..SnapshotFilter::default() };
    let doomed = shared.store.find_snapshots(&deleted).await?;
    let doomed: Vec<SnapshotId> = doomed.into_iter().map(|snapshot| snapshot.id).collect();
    if unreadable.mention(saved_state) {
        let why = "a record that cannot be read names its files";
        report.lines.extend(doomed.iter().map(|id| format!("snapshot {id}: its deletion is not finished: {why}")));
        return Ok(());
    }
    report.lines.extend(doomed.iter().map(|snapshot| format!("snapshot {snapshot}: its deletion was finished")));
    crate::ops::checkpoint::finish_deletion(shared, operation, doomed).await
}

/// Returns what is still open of the operation that the sandbox is in, which its actor ends: its
/// record names the files that the operation wrote, and the snapshot in progress has failed with
/// it.
async fn left_open(shared: &std::sync::Arc<Shared>, record: &SandboxRecord) -> Result<Open, ServiceError> {
    let Some(id) = record.sandbox.state.operation() else { return Ok(Open::default()) };
    let operation = shared.store.open_operations().await?.into_iter().find(|open| open.id == *id);
    let written = operation.as_ref().and_then(|operation| operation.saved_state.clone());
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

async fn revive(
    shared: &std::sync::Arc<Shared>,
    record: SandboxRecord,
    found: &[(RunId, RunCondition)],
    (open, seat): (Open, Seat),
    report: &mut RecoveryReport,
) {
    let id = record.sandbox.id.clone();
    let first = match recover(&record.sandbox, found) {
        Recovery::Nothing => First::Nothing,
        Recovery::Adopt(run) => First::Adopt(run),
        Recovery::AdoptThen { run, report: observation } => {
            report.lines.push(format!("sandbox {id}: its operation was abandoned; the sandbox continues"));
            First::AdoptThen(run, observation)
        }
        Recovery::GoOn { run, report: observation } => {
            report.lines.push(format!("sandbox {id}: its operation was rolled back; the sandbox continues"));
            First::GoOn(run, observation)
        }
        Recovery::Redo { stop, effect } => {
            report.lines.push(format!("sandbox {id}: its operation starts over"));
            end_all(shared, &record, &stop).await;
            if let Effect::Wake { parked, .. } = &effect
                && found.iter().any(|(run, _)| run == parked && !stop.contains(run))
            {
                park(shared, &record, parked).await;
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
    let parked = matches!(record.sandbox.state, State::Suspended { .. }).then(|| record.sandbox.run_id());
    if let (Some(run), First::Nothing | First::Report(_)) = (&parked, &first)
        && found
            .iter()
            .any(|(found, condition)| found == run && matches!(condition, RunCondition::Parked | RunCondition::Paused))
    {
        park(shared, &record, run).await;
    }
    Actor::spawn_in(seat, shared, record, Initiator::Recovery, first, open);
}

/// Continues with a sandbox whose record is not the one that its actor worked on, as daemon startup
/// would.
pub(crate) async fn take_up(
    shared: &std::sync::Arc<Shared>,
    record: SandboxRecord,
    found: &[(RunId, RunCondition)],
    seat: Seat,
) {
    let mut report = RecoveryReport::default();
    // Without it, the operation is closed at the next start.
    let open = left_open(shared, &record).await.unwrap_or_default();
    revive(shared, record, found, (open, seat), &mut report).await;
    for line in report.lines {
        tracing::warn!("{line}");
    }
}

/// Records that a run is paused, and makes sure that it uses no CPU. A run that cannot be parked is
/// ended.
async fn park(shared: &std::sync::Arc<Shared>, record: &SandboxRecord, run: &RunId) {
    if let Some(memory) = effects::park(&task(shared, record), run).await {
        shared.parking.enter(&record.sandbox.id, shared.now(), memory);
    }
}

async fn end_all(shared: &std::sync::Arc<Shared>, record: &SandboxRecord, runs: &[RunId]) {
    for run in runs {
        effects::end(&task(shared, record), run).await;
    }
}

fn task(shared: &std::sync::Arc<Shared>, record: &SandboxRecord) -> Task {
    Task {
        shared: shared.clone(),
        sandbox: record.sandbox.clone(),
        agent: None,
        saved_state: None,
        kind: SnapshotKind::Memory,
        unwanted: CancellationToken::new(),
    }
}

/// Waits for an engine. An engine that does not answer at all prevents the daemon from starting,
/// with an error.
async fn answered<T>(
    shared: &std::sync::Arc<Shared>,
    call: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, ServiceError> {
    let engine = shared.engine.capabilities().name;
    let silent = |_| EngineError::Unusable {
        engine,
        hint: format!("it did not list its runs within {} s; check its processes", LOOK.as_secs()),
        source: None,
    };
    Ok(tokio::time::timeout(LOOK, call).await.map_err(silent)??)
}
