//! Explains why a sandbox is in its state.

use dorm_lifecycle::{Facts, PastEvent, SandboxId, Why};
use dorm_store::{EventFilter, SnapshotFilter, SnapshotStatus};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::Residence;

/// How many of the newest events an explanation considers.
const EVENTS: usize = 64;

impl Service {
    /// Explains why a sandbox is in its state, what happens next and when, and what of it is on
    /// disk.
    ///
    /// # Errors
    ///
    /// `NoSandbox`.
    pub async fn why(&self, id: &SandboxId) -> Result<Why, ServiceError> {
        let shared = &self.shared;
        // Times are of the service clock, like all recorded times, until they are shown.
        let mut sandbox = self.record(id).await?.sandbox;
        let filter = EventFilter { sandbox: Some(id.clone()), newest: EVENTS, ..EventFilter::default() };
        let events = shared.store.events(&filter).await?.into_iter().map(|record| PastEvent {
            at: record.event.at,
            kind: record.event.kind,
            initiator: record.event.initiator,
            caller: record.event.caller,
            detail: record.event.detail,
        });
        let filter = SnapshotFilter { source: Some(id.clone()), ..SnapshotFilter::default() };
        let snapshots = shared.store.find_snapshots(&filter).await?;
        let snapshots = snapshots
            .into_iter()
            .filter(|snapshot| snapshot.status == SnapshotStatus::Completed)
            .map(|snapshot| (snapshot.id, snapshot.bytes));
        let activity = shared.actor(id).map(|handle| handle.activity);
        if let Some(activity) = &activity {
            sandbox.last_active = sandbox.last_active.max(activity.last());
        }
        let facts = Facts {
            now: shared.now(),
            parked: shared.residence(&sandbox) == Residence::Parked,
            open: activity.as_ref().map_or_else(Vec::new, |activity| {
                activity.open().into_iter().map(|(what, count)| (what.as_str(), count)).collect()
            }),
            last_use: activity.and_then(|activity| activity.last_use()).map(|what| what.as_str()),
            events: events.collect(),
            snapshots: snapshots.collect(),
            waits_for_disk: shared.paused_for_disk.holds(id).then(|| shared.continues_at_bytes()),
            max_unreachable: shared.settings.max_unreachable,
            damaged: shared.soundness.of(&sandbox),
        };
        Ok(shared.shown_why(dorm_lifecycle::why(&sandbox, &facts)))
    }
}
