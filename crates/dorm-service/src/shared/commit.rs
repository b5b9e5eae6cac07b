//! Commits of changes, and the deletion of the saved states that they discard.

use std::io;
use std::sync::Arc;

use dorm_lifecycle::State;
use dorm_ports::HeldBack;
use dorm_store::{Change, EventRecord, OperationKind, OperationRecord, SandboxRecord, StoreError};

use super::Shared;
use super::pools::concerns_pool;
use crate::error::chain;

impl Shared {
    /// Commits a change, notifies followers of events, and deletes the saved states that the change
    /// discards.
    pub(crate) async fn commit(self: &Arc<Self>, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        let discard = change.discard.clone();
        let concerns_pool = change.sandboxes.iter().any(|record| concerns_pool(&record.sandbox));
        if frees(&change) {
            self.make_room_to_free().await;
        }
        let events = self.commit_known(change).await?;
        if let Some(last) = events.last() {
            self.news.send_if_modified(|newest| {
                let newer = last.number > *newest;
                *newest = (*newest).max(last.number);
                newer
            });
            self.committed.notify_waiters();
        }
        if concerns_pool {
            self.pools.news.notify_waiters();
        }
        if !discard.is_empty() {
            let shared = self.clone();
            self.spawn(async move { shared.discard(discard).await });
        }
        Ok(events)
    }

    /// Deletes saved states that a record marks for deletion, then the record of that.
    pub(crate) async fn discard(&self, saved_states: Vec<dorm_lifecycle::SavedStateId>) {
        let unreadable = self.quarantined.last();
        for saved_state in saved_states {
            if unreadable.mention(&saved_state) {
                tracing::warn!(%saved_state, "a discarded saved state is kept: a record that cannot be read names it");
                continue;
            }
            if let Err(error) = self.storage.remove(&saved_state).await {
                tracing::error!(%saved_state, error = %chain(&error), "cannot delete a discarded saved state; retrying at the next start");
                continue;
            }
            let change = Change { discarded: vec![saved_state.clone()], ..Change::default() };
            self.make_room_to_free().await;
            if let Err(error) = self.commit_known(change).await {
                tracing::error!(%saved_state, error = %chain(&error), "cannot record the deletion of a saved state; retrying at the next start");
            }
        }
    }

    /// Before an operation that frees space: on a full disk, gives it the space of the reserve. If
    /// this fails, the operation's own writes report it.
    pub(crate) async fn make_room_to_free(&self) {
        let Some(disk) = self.settings.data_disk.clone() else { return };
        let released = blocking(move || {
            if disk.free_bytes()? >= disk.part_bytes() {
                return Ok(());
            }
            disk.release(HeldBack::Freeing)
        });
        if let Err(error) = released.await {
            tracing::warn!(%error, "the disk is full, and the space held back for freeing cannot be used");
        }
    }
}

/// Returns whether a change frees space on the disk, so that it may use the reserve.
fn frees(change: &Change) -> bool {
    let is_ending =
        |record: &SandboxRecord| matches!(record.sandbox.state, State::Terminating { .. } | State::Terminated { .. });
    let is_deletion = |operation: &OperationRecord| operation.kind == OperationKind::DeleteSnapshot;
    change.sandboxes.iter().any(is_ending)
        || change.operations.iter().any(is_deletion)
        || !(change.discard.is_empty() && change.discarded.is_empty() && change.forgotten.is_empty())
        || !change.removed_volumes.is_empty()
}

/// Runs work that waits for a disk on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
