//! Operations that were in progress when a backup was made. They have ended since, and the files
//! that they wrote may be all that is left of a sandbox, but a start removes the files of an
//! operation that it finds interrupted. Restored operations therefore name files that do not exist.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use dorm_lifecycle::SavedStateId;
use dorm_store::{Change, OperationKind, SandboxFilter, SnapshotFilter, SnapshotRecord, SnapshotStatus, Store};

use super::{BackupError, io_error};

/// Gives operations in progress other files to write than those that they may have written.
pub(super) async fn let_go(store: &dyn Store) -> Result<(), BackupError> {
    let living = store.sandboxes(&SandboxFilter::living()).await?;
    // A start removes nothing that a sandbox needs.
    let held: BTreeSet<_> = living.iter().flat_map(|record| record.sandbox.saved_states()).collect();
    let mut change = Change::default();
    for mut operation in store.open_operations().await? {
        let written = operation.saved_state.clone().filter(|written| !held.contains(written));
        let Some(written) = written.filter(|_| operation.kind != OperationKind::DeleteSnapshot) else { continue };
        let other = random_id()?;
        let made = SnapshotFilter { saved_state: Some(written), ..SnapshotFilter::default() };
        let made = store.find_snapshots(&made).await?.into_iter();
        let made = made.filter(|snapshot| snapshot.status == SnapshotStatus::InProgress);
        change.snapshots.extend(made.map(|snapshot| SnapshotRecord { saved_state: other.clone(), ..snapshot }));
        operation.saved_state = Some(other);
        change.operations.push(operation);
    }
    if !change.operations.is_empty() {
        store.commit(change).await?;
    }
    Ok(())
}

fn random_id() -> Result<SavedStateId, BackupError> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| {
        io_error("choose an id for", Path::new(super::SAVED_STATES))(io::Error::other(error.to_string()))
    })?;
    Ok(SavedStateId::from_random(bytes))
}
