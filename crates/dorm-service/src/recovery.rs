//! Startup of the service: the records and the runs on the host are reconciled, according to the
//! lifecycle's plan, before any caller is answered.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use dorm_engine::{EngineError, FoundRun};
use dorm_lifecycle::{Effect, Initiator, ProjectId, RunCondition, RunId, Sandbox, SandboxId, SnapshotId};
use dorm_store::{
    Change, OperationKind, OperationRecord, OperationResult, SandboxRecord, SnapshotFilter, SnapshotStatus,
};

use crate::actor::revival::{evict_all, left_open, revive};
use crate::actor::{Actor, First, Open, Seat};
use crate::error::{ServiceError, stopped};
use crate::messages::Manner;
use crate::ops::runs::Belonging;
use crate::report::RecoveryReport;
use crate::shared::{Parts, Service, Shared, Unreadable};
use crate::{
    builds, checkpointing, data_disk, environments, notices, pools, references, removals, retention, sampling,
    soundness, timekeeping,
};

mod living;

/// How long an engine may take to list the runs on the host, or to remove unknown remains.
const LOOK: Duration = Duration::from_secs(300);

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
        shared.projects.load(&*shared.store).await?;
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
        let mut surplus = BTreeSet::new();
        for record in living {
            let found = runs.remove(&record.sandbox.id).unwrap_or_default();
            let (record, preferred) = living::prefer(&shared, record, &found, &mut report).await?;
            match preferred {
                Some(run) => {
                    let first = adopted(&record.sandbox, run);
                    Actor::spawn(&shared, record, Initiator::Recovery.into(), first, Open::default());
                }
                None => {
                    let open = left_open(&shared, &record).await?;
                    let seat = Seat::take(&shared, &record.sandbox);
                    surplus.extend(revive(&shared, record, &found, (open, seat), &mut report).await);
                }
            }
        }
        evict_all(&shared, surplus);
        shared.recall_damage().await;
        let project = ProjectId::local();
        let service = Self {
            shared,
            project,
            request: None,
            caller: None,
            if_revision: None,
            wake: None,
            manner: Manner::default(),
        };
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
        service.shared.spawn(builds::keep_building(service.clone()));
        service.shared.spawn(pools::keep_filling(service.clone()));
        service.shared.spawn(environments::keep_environments(service.clone()));
        service.shared.spawn(data_disk::watch(service.shared.clone()));
        service.shared.spawn(sampling::keep_sampling(service.shared.clone()));
        service.shared.spawn(soundness::keep_scrubbing(service.clone()));
        let flat = service.clone();
        service.shared.spawn(async move { flat.keep_all_flat().await });
        Ok((service, report))
    }
}

/// Returns the first work with a run that is newer than the record of its sandbox: it may have
/// another egress policy than the record says.
fn adopted(sandbox: &Sandbox, run: RunId) -> First {
    let egress = sandbox.spec.egress.clone();
    match egress.has_device() {
        true => First::AdoptRedo(run.clone(), Effect::Egress { run, before: egress.clone(), after: egress }),
        false => First::Adopt(run),
    }
}

/// Finishes or abandons operations on several sandboxes, according to their plans.
async fn end_plans(service: &Service, report: &mut RecoveryReport) -> Result<(), ServiceError> {
    for operation in service.shared.store.open_operations().await? {
        let (kind, id) = (operation.kind.as_str(), operation.id.clone());
        let own = service.of_project(&operation.project);
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
            | OperationKind::Detach
            | OperationKind::Egress
            | OperationKind::Resize => Ok(()),
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
    let at_work = living.iter().find(|record| record.sandbox.state.operation() == Some(&operation.id));
    let saved_state = match operation.saved_state.clone() {
        Some(saved_state) => saved_state,
        // The actor of the sandbox ends it.
        None if at_work.is_some() => return Ok(()),
        None => return close_as_stopped(shared, operation, Change::default()).await,
    };
    let mut held = living.iter().flat_map(|record| record.sandbox.saved_states());
    if held.any(|held| *held == saved_state) {
        return Ok(());
    }
    let title = format!("{} {}", operation.kind.as_str(), operation.id);
    // The held run is saved again.
    if at_work.is_some_and(|record| record.sandbox.state.held().is_some()) {
        if let Err(error) = shared.storage.remove(&saved_state).await {
            report.postponed(&format!("{title}: removing its files"), &error);
        }
        return Ok(());
    }
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
    crate::ops::snapshots::finish_deletion(shared, operation, doomed).await
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
