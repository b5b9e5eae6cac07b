//! The holders of a snapshot: it is not deleted while something needs it.

use dorm_lifecycle::{Sandbox, State};
use dorm_store::{
    BuildRecord, EnvironmentRecord, PoolRecord, PoolSource, SnapshotFilter, SnapshotRecord, SnapshotStatus,
    TemplateRecord, TemplateSource,
};

use super::templates::tags_of;
use super::{builds, environments};
use crate::error::ServiceError;
use crate::shared::Service;

/// The records that may need snapshots, besides those of sandboxes and other snapshots.
pub(crate) struct Needing {
    builds: Vec<BuildRecord>,
    templates: Vec<TemplateRecord>,
    pools: Vec<PoolRecord>,
    environments: Vec<EnvironmentRecord>,
}

impl Needing {
    fn of(&self, snapshot: &SnapshotRecord) -> Vec<String> {
        let id = &snapshot.id;
        let of_it = PoolSource::Snapshot(id.clone());
        let pools = self.pools.iter().filter(|pool| !pool.removed && pool.source == of_it);
        let builds_of_it = self.builds.iter().filter(|build| builds::needs_snapshot(build, id));
        let environments_of_it =
            self.environments.iter().filter(|record| environments::leases::needs_snapshot(record, id));
        let mut holders: Vec<String> = pools.map(|pool| format!("sandbox pool {}", pool.name)).collect();
        holders.extend(builds_of_it.map(|build| format!("build {}", build.id)));
        holders.extend(tags_of(&self.templates, &TemplateSource::Snapshot(id.clone())));
        holders.extend(environments_of_it.map(|record| format!("environment {}", record.id)));
        holders
    }
}

impl Service {
    /// Reads the records that may need snapshots, once for any number of snapshots.
    pub(crate) async fn needing(&self) -> Result<Needing, ServiceError> {
        let store = &self.shared.store;
        Ok(Needing {
            pools: store.pools().await?,
            // Before the templates: a build that ends meanwhile hands its snapshot to one.
            builds: store.builds().await?,
            templates: store.templates().await?,
            environments: store.environments().await?,
        })
    }

    /// Returns what needs a snapshot: operations that use it, sandboxes that are starting from it
    /// and, for a filesystem snapshot, sandboxes and snapshots that are based on its files.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn holders(&self, snapshot: &SnapshotRecord) -> Result<Vec<String>, ServiceError> {
        let mut holders = self.users_of(snapshot).await?;
        holders.extend(self.needing().await?.of(snapshot));
        holders.extend(self.shared.unreadable().await?.holders_of(snapshot));
        Ok(holders)
    }

    /// Returns whether something needs a snapshot, judging by records that were read before.
    pub(crate) async fn seems_held(&self, snapshot: &SnapshotRecord, needing: &Needing) -> Result<bool, ServiceError> {
        Ok(!needing.of(snapshot).is_empty() || !self.users_of(snapshot).await?.is_empty())
    }

    /// Returns the operations, sandboxes and snapshots that need a snapshot.
    async fn users_of(&self, snapshot: &SnapshotRecord) -> Result<Vec<String>, ServiceError> {
        let mut holders = Vec::new();
        if self.shared.removals.is_used(&snapshot.id) {
            holders.push("a create, fork, rewind, promotion or comparison in progress".to_owned());
        }
        let needs = |sandbox: &Sandbox| {
            let is_starting = matches!(sandbox.state, State::Pending { .. });
            if is_starting && sandbox.origin.snapshot() == Some(&snapshot.id) {
                return Some(format!("sandbox {}, which is starting from it", sandbox.id));
            }
            // That it stands on the files is seen a moment after the snapshot is complete.
            let is_becoming =
                matches!(&sandbox.state, State::Suspending { files: Some(files), .. } if *files == snapshot.id);
            let stands_on_it = sandbox.layers().any(|layer| *layer == snapshot.saved_state);
            (stands_on_it || is_becoming).then(|| format!("sandbox {}", sandbox.id))
        };
        holders.extend(self.shared.of_living(needs).await?);
        let above = SnapshotFilter { layer: Some(snapshot.saved_state.clone()), ..SnapshotFilter::default() };
        for other in self.shared.store.find_snapshots(&above).await? {
            if !matches!(other.status, SnapshotStatus::Failed(_)) {
                holders.push(format!("snapshot {}", other.id));
            }
        }
        Ok(holders)
    }
}
