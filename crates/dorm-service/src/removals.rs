//! Snapshots that are deleted automatically: at a given time, as soon as nothing uses them, or
//! because deleting them failed before.
//!
//! One task handles all of them. It sleeps until the next one is due, or until a change may have
//! made one unused.

use std::time::Duration;

use dorm_lifecycle::{SnapshotId, Timestamp};

use crate::error::chain;
use crate::ops::snapshots::Due;
use crate::shared::{Service, Shared};

/// The delay before the next attempt after a failure.
const AGAIN: Duration = Duration::from_secs(60);
/// The longest sleep: the host may be suspended meanwhile, which a timer does not count.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Returns the time that decides which deletions are due.
fn today(shared: &Shared) -> Timestamp {
    #[cfg(feature = "planted-bugs")]
    if dorm_steps::planted::is(dorm_steps::planted::Planted::DeletionByWallClock) {
        return shared.clock.wall().max(shared.clock.held_until());
    }
    shared.now()
}

/// Deletes snapshots that are due until the service stops.
pub(crate) async fn keep_removing(service: Service) {
    let shared = &service.shared;
    loop {
        let now = today(shared);
        let held_until = shared.clock.held_until();
        let is_due = |at: &Option<Timestamp>| at.is_none_or(|at| at.max(held_until) <= now);
        let due: Vec<SnapshotId> =
            shared.removals.due().iter().filter(|(_, at)| is_due(at)).map(|(id, _)| id.clone()).collect();
        delete_all(&service, due, now).await;
        if shared.stopping.is_cancelled() {
            return;
        }
        let later = |at: &Timestamp| Some((*at).max(held_until)).filter(|at| *at > now);
        let next = shared.removals.due().values().flatten().filter_map(later).min();
        let wait = next.map_or(LOOK_AGAIN, |at| at.since(now).min(LOOK_AGAIN));
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = shared.removals.news.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Deletes those of these snapshots that nothing needs.
async fn delete_all(service: &Service, due: Vec<SnapshotId>, now: Timestamp) {
    if due.is_empty() {
        return;
    }
    let shared = &service.shared;
    let again = |id: SnapshotId, error: &dyn std::error::Error| {
        tracing::warn!(snapshot = %id, error = %chain(error), "cannot delete a snapshot that is due; retrying");
        shared.removals.due().insert(id, Some(now.after(AGAIN)));
    };
    let needing = match service.needing().await {
        Ok(needing) => needing,
        Err(error) => return due.into_iter().for_each(|id| again(id, &error)),
    };
    for id in due {
        if shared.stopping.is_cancelled() {
            return;
        }
        match service.delete_due(&id, &needing).await {
            Ok(Due::Gone) => _ = shared.removals.due().remove(&id),
            // The operation that needs it reports when it is done.
            Ok(Due::Held) => {}
            Err(error) => again(id, &error),
        }
    }
}

#[cfg(test)]
mod tests;
