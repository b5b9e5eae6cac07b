//! Records that are older than what runs: a live run takes precedence over them, in one recorded
//! change.

use std::collections::BTreeSet;
use std::sync::Arc;

use dorm_lifecycle::{Initiator, RunCondition, RunId, Sandbox, SavedStateId, prefer_run, preferred_run};
use dorm_storage::StorageError;
use dorm_store::{Change, Code, FailureRecord, NewEvent, OperationResult, SandboxRecord};

use crate::actor::revival::end_all;
use crate::error::ServiceError;
use crate::report::RecoveryReport;
use crate::shared::Shared;

/// Returns the record of a sandbox, and the run that its actor adopts if that differs from the
/// record.
pub(super) async fn prefer(
    shared: &Arc<Shared>,
    record: SandboxRecord,
    found: &[(RunId, RunCondition)],
    report: &mut RecoveryReport,
) -> Result<(SandboxRecord, Option<RunId>), ServiceError> {
    if found.is_empty() {
        return Ok((record, None));
    }
    let gone = gone(shared, &record.sandbox).await;
    let is_gone = |saved_state: &SavedStateId| gone.contains(saved_state);
    let Some(run) = preferred_run(&record.sandbox, found, is_gone) else { return Ok((record, None)) };
    let now = shared.now();
    let step = prefer_run(&record.sandbox, &run, is_gone, now);
    let sandbox = step.next;
    let operation = record.sandbox.state.operation().cloned();
    let event = |(kind, detail)| NewEvent {
        project: sandbox.project.clone(),
        sandbox: sandbox.id.clone(),
        at: now,
        kind,
        initiator: Initiator::Recovery,
        caller: None,
        operation: operation.clone(),
        generation: sandbox.generation,
        detail,
        took: None,
        bytes: None,
    };
    let events = step.events.into_iter().map(event).collect();
    let open = shared.store.open_operations().await?.into_iter();
    let ended = open.filter(|open| Some(&open.id) == operation.as_ref()).map(|mut open| {
        let why = "its record was older than its run".to_owned();
        open.ended = Some((now, OperationResult::Failed(FailureRecord::new(Code::Unavailable, why))));
        open
    });
    let operations = ended.collect();
    let sandboxes = vec![SandboxRecord { sandbox: sandbox.clone(), revision: record.revision }];
    shared.commit(Change { sandboxes, operations, events, ..Change::default() }).await?;
    let id = &sandbox.id;
    tracing::warn!(sandbox = %id, %run, "the record was older than the run, which continues; the database may be a restored backup");
    report.lines.push(format!("sandbox {id}: its record was older than run {run}, which continues"));
    let record = SandboxRecord { sandbox, revision: record.revision + 1 };
    // Each run of a sandbox replaces the one before.
    let older: Vec<_> = found.iter().map(|(older, _)| older.clone()).filter(|older| *older != run).collect();
    end_all(shared, &record, &older).await;
    Ok((record, Some(run)))
}

/// Returns the saved states of a sandbox whose files are known to be gone.
async fn gone(shared: &Shared, sandbox: &Sandbox) -> BTreeSet<SavedStateId> {
    let mut gone = BTreeSet::new();
    for image in sandbox.images() {
        if matches!(shared.storage.saved_state(&image.saved_state).await, Err(StorageError::Missing(_))) {
            gone.insert(image.saved_state.clone());
        }
    }
    gone
}
