//! Explaining a sandbox.

use dorm_lifecycle::{Facts, Happening, SandboxId, Why};
use dorm_store::{EventFilter, SnapshotStatus};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::Residence;

/// How many events back an explanation looks.
const EVENTS: usize = 64;

impl Service {
    /// Why a sandbox is where it is, what happens next and when, and what of it is on disk.
    ///
    /// # Errors
    /// `NoSandbox`.
    pub async fn why(&self, id: &SandboxId) -> Result<Why, ServiceError> {
        let shared = &self.shared;
        let view = self.describe(id).await?;
        let filter = EventFilter { sandbox: Some(id.clone()), newest: EVENTS, ..EventFilter::default() };
        let events = shared.store.events(&filter).await?.into_iter().map(|record| Happening {
            at: record.event.at,
            kind: record.event.kind,
            actor: record.event.actor,
            detail: record.event.detail,
        });
        let snapshots = shared.store.snapshots(Some(self.project())).await?;
        let snapshots = snapshots
            .into_iter()
            .filter(|snapshot| snapshot.source == *id && snapshot.status == SnapshotStatus::Completed)
            .map(|snapshot| (snapshot.id, snapshot.bytes));
        let activity = shared.actor(id).map(|handle| handle.activity);
        let facts = Facts {
            now: shared.now(),
            parked: view.residence == Residence::Parked,
            open: activity.as_ref().map_or_else(Vec::new, |activity| {
                activity.open().into_iter().map(|(what, count)| (what.as_str(), count)).collect()
            }),
            last_use: activity.and_then(|activity| activity.last_use()).map(|what| what.as_str()),
            events: events.collect(),
            snapshots: snapshots.collect(),
        };
        Ok(dorm_lifecycle::why(&view.sandbox, &facts))
    }
}
