//! Volumes of sandboxes: who may mount one, what a run gets mounted, and when a volume is
//! unmounted.
//!
//! Leases follow from the records of sandboxes and are not recorded themselves. A change that takes
//! one is checked and recorded under one lock, so that two sandboxes never get a volume that allows
//! only one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::{GuestMount, GuestPath};
use dorm_engine::{MOUNTS, Mount};
use dorm_lifecycle::{
    Access, Attachment, Lease, Name, RunId, Sandbox, SandboxId, VolumeId, all_leases, grant, has_leases, leases,
};
use dorm_store::{StoreError, VolumeRecord, VolumeStatus};
use tokio::sync::OwnedMutexGuard;

use crate::error::{ServiceError, VolumeProblem, chain};
use crate::shared::Shared;

/// The delays before a volume that is still in use is checked again.
const BUSY: [Duration; 3] = [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(10)];

/// While it exists, no other lease is taken.
pub(crate) type Leasing = OwnedMutexGuard<()>;

impl Shared {
    /// Grants the leases that `next` has and `before` does not have, or returns the conflict. They
    /// are taken by recording `next` before the returned guard is dropped.
    pub(crate) async fn grant_leases(
        &self,
        before: Option<&Sandbox>,
        next: &Sandbox,
    ) -> Result<Option<Leasing>, ServiceError> {
        let had = before.map(leases).unwrap_or_default();
        let has = |lease: &Lease| had.iter().any(|one| one.volume == lease.volume && one.access == lease.access);
        let wanted: Vec<Lease> = leases(next).into_iter().filter(|lease| !has(lease)).collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let leasing = self.leasing.clone().lock_owned().await;
        let volumes = self.volumes_by_id().await?;
        let held = self.held_leases().await?;
        for lease in &wanted {
            let volume = self.usable(&volumes, &lease.volume).await?;
            grant(volume.writers, lease, &held)
                .map_err(|refused| VolumeProblem::Taken { volume: volume.name.clone(), refused })?;
        }
        Ok(Some(leasing))
    }

    /// Checks whether a sandbox that does not exist yet could take the leases of `attachments` now.
    pub(crate) async fn could_lease(&self, attachments: &[Attachment]) -> Result<(), ServiceError> {
        if attachments.is_empty() {
            return Ok(());
        }
        let (volumes, held) = (self.volumes_by_id().await?, self.held_leases().await?);
        let run = RunId { sandbox: self.ids().sandbox(), generation: 1 };
        for Attachment { volume, access, .. } in attachments {
            let record = self.usable(&volumes, volume).await?;
            let wanted = Lease { volume: volume.clone(), run: run.clone(), name: None, access: *access };
            grant(record.writers, &wanted, &held)
                .map_err(|refused| VolumeProblem::Taken { volume: record.name.clone(), refused })?;
        }
        Ok(())
    }

    async fn usable<'a>(
        &self,
        volumes: &'a BTreeMap<VolumeId, VolumeRecord>,
        id: &VolumeId,
    ) -> Result<&'a VolumeRecord, ServiceError> {
        match volumes.get(id) {
            Some(volume) if volume.status == VolumeStatus::Ready => Ok(volume),
            Some(_) => Err(VolumeProblem::NoVolume(id.to_string()).into()),
            None => {
                let unreadable = self.unreadable().await?;
                match unreadable.rows().iter().find(|row| row.id == id.as_str()) {
                    Some(row) => Err(row.error().into()),
                    None => Err(VolumeProblem::NoVolume(id.to_string()).into()),
                }
            }
        }
    }

    async fn volumes_by_id(&self) -> Result<BTreeMap<VolumeId, VolumeRecord>, ServiceError> {
        let volumes = self.store.volumes().await?;
        Ok(volumes.into_iter().map(|volume| (volume.id.clone(), volume)).collect())
    }

    /// Returns every lease that is held, including those of sandboxes whose runs have not been seen
    /// to end.
    pub(crate) async fn held_leases(&self) -> Result<Vec<Lease>, ServiceError> {
        let mut held = self.of_living(|sandbox| self.leases_of(sandbox)).await?;
        held.extend(self.unreadable_leases().await?);
        Ok(held)
    }

    /// Returns the leases that sandboxes with unreadable records may hold: for writing, of every
    /// volume that their records mention.
    async fn unreadable_leases(&self) -> Result<Vec<Lease>, ServiceError> {
        let unreadable = self.unreadable().await?;
        if !unreadable.has_sandboxes() {
            return Ok(Vec::new());
        }
        let volumes = self.store.volumes().await?;
        let rows = unreadable.rows().iter().filter_map(|row| Some((row, row.id.parse::<SandboxId>().ok()?)));
        let leases = rows.flat_map(|(row, sandbox)| {
            let mentioned = volumes.iter().filter(|volume| row.mentions(volume.id.as_str()));
            mentioned.map(move |volume| Lease {
                volume: volume.id.clone(),
                run: RunId { sandbox: sandbox.clone(), generation: 0 },
                name: row.name.clone(),
                access: Access::Write,
            })
        });
        Ok(leases.collect())
    }

    fn leases_of(&self, sandbox: &Sandbox) -> Vec<Lease> {
        let may_run = self.unended().iter().any(|run| run.sandbox == sandbox.id);
        if may_run { all_leases(sandbox) } else { leases(sandbox) }
    }

    /// Returns the mounts for a run of `sandbox`, and makes its volumes accessible on the host.
    pub(crate) async fn mounts(&self, sandbox: &Sandbox) -> Result<Vec<Mount>, ServiceError> {
        if sandbox.spec.attachments.is_empty() {
            return Ok(Vec::new());
        }
        let volumes = self.volumes_by_id().await?;
        let mut mounts = Vec::new();
        for Attachment { volume, path: _, access, subpath, slot } in &sandbox.spec.attachments {
            let record = self.usable(&volumes, volume).await?;
            let part = (*access == Access::Write).then_some(subpath);
            let top = self
                .volumes
                .mount(volume, part)
                .await
                .map_err(|source| VolumeProblem::Broken { volume: record.name.clone(), source })?;
            mounts.push(Mount { slot: *slot, top, part: subpath.clone(), access: *access });
        }
        Ok(mounts)
    }

    /// Unmounts the volumes that no run may use any more, at once or soon.
    pub(crate) fn settle_volumes(self: &Arc<Self>) {
        let shared = self.clone();
        self.spawn(async move {
            for pause in BUSY {
                if shared.settle_volumes_now().await == 0 || shared.stops_within(pause).await {
                    return;
                }
            }
        });
    }

    /// Unmounts the volumes that no run may use any more. Returns how many stay mounted because
    /// they are in use.
    pub(crate) async fn settle_volumes_now(&self) -> usize {
        let _leasing = self.leasing.clone().lock_owned().await;
        // A parked run still has them mounted.
        let uses = |sandbox: &Sandbox| {
            has_leases(&sandbox.state)
                || self.parking.holds(&sandbox.id)
                || self.unended().iter().any(|run| run.sandbox == sandbox.id)
        };
        let used = |sandbox: &Sandbox| -> Vec<VolumeId> {
            let attached = sandbox.attachments().map(|at| at.volume.clone());
            if uses(sandbox) { attached.collect() } else { Vec::new() }
        };
        let found = async { Ok::<_, StoreError>((self.of_living(used).await?, self.unreadable().await?)) };
        match found.await {
            // A run of such a sandbox may have any volume mounted.
            Ok((_, unreadable)) if unreadable.has_sandboxes() => 0,
            Ok((used, _)) => self.volumes.settle(used.into_iter().collect()).await,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot unmount unused volumes; they stay mounted for now");
                0
            }
        }
    }
}

/// While it exists, a volume is used without a sandbox; afterwards it may not be needed any more.
pub struct VolumeUse(pub(crate) Arc<Shared>);

impl Drop for VolumeUse {
    fn drop(&mut self) {
        // Without a runtime the daemon is ending and unmounts volumes itself.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.0.settle_volumes();
        }
    }
}

/// Returns the mounts that the agent is told of.
pub(crate) fn inside(sandbox: &Sandbox) -> Result<Vec<GuestMount>, ServiceError> {
    let inside = |attachment: &Attachment| {
        let Attachment { volume, path, access, subpath, slot } = attachment;
        Ok(GuestMount {
            from: GuestPath::new(format!("{MOUNTS}/{slot}"))?,
            path: GuestPath::new(path.as_str())?,
            what: format!("{} {volume}/{subpath}", access.as_str()),
        })
    };
    let made: Result<Vec<_>, dorm_agent_client::GuestError> = sandbox.spec.attachments.iter().map(inside).collect();
    made.map_err(|error| ServiceError::Agent(dorm_agent_client::AgentError::Invalid(error.to_string())))
}

/// Returns a sandbox that has a volume attached, as text for people.
pub(crate) fn holder(sandbox: &Sandbox, volume: &VolumeId) -> Option<String> {
    let has_it = sandbox.attachments().any(|one| one.volume == *volume);
    has_it.then(|| format!("{} ({})", title(sandbox.spec.name.as_ref(), sandbox), sandbox.state.name()))
}

fn title(name: Option<&Name>, sandbox: &Sandbox) -> String {
    name.map_or_else(|| sandbox.id.to_string(), Name::to_string)
}
