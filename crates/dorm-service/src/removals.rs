//! Snapshots that go by themselves: at their time, as soon as nobody uses them, or because deleting them failed before.
//!
//! One task for all. It sleeps until the next is due or something has changed that may have set one free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_lifecycle::{CaptureId, SnapshotId, Timestamp};
use dorm_store::{Removal, SnapshotRecord, SnapshotStatus};
use tokio::sync::Notify;

use crate::error::ServiceError;
use crate::shared::{Service, Shared, chain};

/// How long after a failure the next attempt is made.
const AGAIN: Duration = Duration::from_secs(60);
/// How long is slept at most: the host may sleep meanwhile, which a timer does not count.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// What is to go.
#[derive(Default)]
pub(crate) struct Removals {
    /// Each with its time; none for as soon as nobody uses it.
    due: Mutex<BTreeMap<SnapshotId, Option<Timestamp>>>,
    /// Those through which something is being made, and by how many.
    used: Mutex<BTreeMap<SnapshotId, usize>>,
    /// Captures of forks and rewinds that are being made, read to the last byte a moment ago: their many starts need not
    /// do that again.
    verified: Mutex<BTreeSet<CaptureId>>,
    news: Notify,
}

impl Removals {
    /// Takes down when a snapshot goes, if it does.
    pub(crate) fn note(&self, snapshot: &SnapshotRecord) {
        let at = match (&snapshot.status, snapshot.removal) {
            (SnapshotStatus::Deleting, _) | (_, Removal::WhenFree) => None,
            (_, Removal::At(at)) => Some(at),
            (_, Removal::Asked) => return,
        };
        self.expect(&snapshot.id, at);
    }

    pub(crate) fn expect(&self, snapshot: &SnapshotId, at: Option<Timestamp>) {
        self.due().insert(snapshot.clone(), at);
        self.poke();
    }

    /// Something may have become free.
    pub(crate) fn poke(&self) {
        self.news.notify_one();
    }

    pub(crate) fn begin_use(&self, snapshot: &SnapshotId) {
        *self.used().entry(snapshot.clone()).or_default() += 1;
    }

    pub(crate) fn end_use(&self, snapshot: &SnapshotId) {
        let mut used = self.used();
        if let Some(users) = used.get_mut(snapshot) {
            *users -= 1;
            if *users == 0 {
                used.remove(snapshot);
            }
        }
        drop(used);
        self.poke();
    }

    pub(crate) fn note_verified(&self, capture: &CaptureId) {
        self.verified().insert(capture.clone());
    }

    pub(crate) fn forget_verified(&self, capture: &CaptureId) {
        self.verified().remove(capture);
    }

    pub(crate) fn is_verified(&self, capture: &CaptureId) -> bool {
        self.verified().contains(capture)
    }

    /// Whether something is being made through it.
    pub(crate) fn is_used(&self, snapshot: &SnapshotId) -> bool {
        self.used().contains_key(snapshot)
    }

    fn due(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, Option<Timestamp>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verified(&self) -> MutexGuard<'_, BTreeSet<CaptureId>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, usize>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As long as it exists its snapshot does not go.
pub(crate) struct Using {
    shared: Arc<Shared>,
    snapshot: SnapshotId,
}

impl Using {
    pub(crate) fn of(shared: &Arc<Shared>, snapshot: &SnapshotId) -> Self {
        shared.removals.begin_use(snapshot);
        Self { shared: shared.clone(), snapshot: snapshot.clone() }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.shared.removals.end_use(&self.snapshot);
    }
}

/// The moment by which it is decided what is due.
fn today(shared: &Shared) -> Timestamp {
    #[cfg(feature = "planted-bugs")]
    if dorm_steps::planted::is(dorm_steps::planted::Planted::DeletionByWallClock) {
        return shared.clock.wall().max(shared.clock.held_until());
    }
    shared.now()
}

/// Removes what is to go until the service stops.
pub(crate) async fn keep_removing(service: Service) {
    let shared = &service.shared;
    loop {
        let now = today(shared);
        let held_until = shared.clock.held_until();
        let is_due = |at: &Option<Timestamp>| at.is_none_or(|at| at.max(held_until) <= now);
        let due: Vec<SnapshotId> =
            shared.removals.due().iter().filter(|(_, at)| is_due(at)).map(|(id, _)| id.clone()).collect();
        for id in due {
            if shared.stopping.is_cancelled() {
                return;
            }
            match service.delete_now(&id).await {
                Ok(()) | Err(ServiceError::NoSnapshot(_)) => _ = shared.removals.due().remove(&id),
                // Whoever uses it says when that is over.
                Err(ServiceError::SnapshotNotReady { .. } | ServiceError::SnapshotInUse { .. }) => {}
                Err(error) => {
                    tracing::warn!(snapshot = %id, error = %chain(&error), "a snapshot that is to go stays for now");
                    shared.removals.due().insert(id, Some(now.after(AGAIN)));
                }
            }
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
