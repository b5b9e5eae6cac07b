//! Volumes: creating, listing, describing and removing them, and reading and writing their files
//! without a sandbox.

use std::collections::BTreeMap;

use dorm_lifecycle::{Name, VolumeId, Writers};
use dorm_store::{Change, Made, RowKind, VolumeRecord, VolumeStatus};
use dorm_volume::{FileEntry, Health, NewFile, TopMode, VolumeError};

use crate::error::{ServiceError, VolumeProblem, chain};
use crate::shared::Service;
use crate::view::SandboxView;
use crate::volumes::{VolumeUse, holder};

/// The size of a volume for which the caller names none, in bytes.
pub const VOLUME_BYTES: u64 = 1 << 30;
/// The smallest and the largest size of a volume, in bytes.
const SIZES: (u64, u64) = (16 << 20, 64 << 40);

/// A volume, as callers see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeView {
    /// Its record.
    pub volume: VolumeRecord,
    /// The health of its files.
    pub health: Health,
    /// The sandboxes it is attached to, with their states.
    pub attached_to: Vec<String>,
}

impl Service {
    /// Creates a volume.
    ///
    /// # Errors
    ///
    /// `Volume` for a name that is taken or a size that is out of range; `NotAdmitted`; if the host
    /// refuses, nothing is left.
    pub async fn create_volume(
        &self,
        name: Name,
        size_bytes: u64,
        writers: Writers,
    ) -> Result<VolumeView, ServiceError> {
        self.create_volume_with(name, size_bytes, writers, TopMode::Root).await
    }

    /// Like [`Service::create_volume`], with the permissions of its top.
    ///
    /// # Errors
    ///
    /// Those of [`Service::create_volume`].
    pub async fn create_volume_with(
        &self,
        name: Name,
        size_bytes: u64,
        writers: Writers,
        top: TopMode,
    ) -> Result<VolumeView, ServiceError> {
        if let Some(Made::Volume(earlier)) = self.earlier() {
            let volumes = self.shared.store.volumes().await?;
            let volume = volumes.into_iter().find(|volume| volume.id == *earlier);
            return self.view_volume(volume.ok_or_else(|| ServiceError::made_is_gone("volume", earlier))?).await;
        }
        let (least, most) = SIZES;
        if !(least..=most).contains(&size_bytes) {
            return Err(VolumeProblem::Size { asked: size_bytes, least, most }.into());
        }
        self.shared.admit_write("create a volume", 0).await?;
        self.shared.admit_to_disk_of("create a volume", self.project(), size_bytes).await?;
        let committed = self.shared.ledger.committed(None, None).share.disk_bytes;
        self.shared.admit_disk("create a volume", size_bytes, committed).await?;
        let service = self.clone();
        let made = async move { service.make_volume(name, size_bytes, writers, top).await };
        self.shared.finish(made).await
    }

    async fn make_volume(
        &self,
        name: Name,
        size_bytes: u64,
        writers: Writers,
        top: TopMode,
    ) -> Result<VolumeView, ServiceError> {
        let shared = &self.shared;
        let volume = {
            // The lock keeps two callers from creating volumes of the same name.
            let _leasing = shared.leasing.clone().lock_owned().await;
            self.exists()?;
            if self.shared.store.volumes().await?.iter().any(|one| one.name == name && one.project == *self.project()) {
                return Err(VolumeProblem::NameTaken(name).into());
            }
            let unreadable = shared.unreadable().await?;
            let mut rows = unreadable.rows().iter().filter(|row| row.kind == RowKind::Volume);
            if rows.any(|row| row.mentions(&format!("\"{name}\""))) {
                return Err(VolumeProblem::NameTaken(name).into());
            }
            let volume = VolumeRecord {
                id: shared.ids().volume(),
                project: self.project().clone(),
                name,
                size_bytes,
                writers,
                created: shared.now(),
                status: VolumeStatus::Creating,
            };
            shared.commit(Change { volumes: vec![volume.clone()], ..Change::default() }).await?;
            volume
        };
        let ready = VolumeRecord { status: VolumeStatus::Ready, ..volume.clone() };
        let made = match shared.volumes.make(&volume.id, size_bytes, top).await {
            Ok(()) => shared
                .commit(Change {
                    volumes: vec![ready.clone()],
                    requests: self.made(Made::Volume(ready.id.clone())),
                    ..Change::default()
                })
                .await
                .map(drop)
                .map_err(ServiceError::from),
            Err(source) => Err(VolumeProblem::Broken { volume: volume.name.clone(), source }.into()),
        };
        if let Err(error) = made {
            // It may be on record as ready; the next start finds out.
            if !error.is_unknown() {
                self.give_up_volume(volume).await;
            }
            return Err(error);
        }
        self.view_volume(ready).await
    }

    /// Removes a volume whose creation failed. This is recorded first: the next start completes the
    /// creation of a volume that has its files.
    async fn give_up_volume(&self, volume: VolumeRecord) {
        let volume = VolumeRecord { status: VolumeStatus::Deleting, ..volume };
        let change = Change { volumes: vec![volume.clone()], ..Change::default() };
        if let Err(error) = self.shared.commit(change).await {
            tracing::warn!(volume = %volume.id, error = %chain(&error), "cannot record that a volume is removed");
        }
        self.clear_volume(&volume).await;
    }

    /// Removes the files and the record of a volume that failed or is deleted. The next start
    /// removes whatever cannot be removed now.
    async fn clear_volume(&self, volume: &VolumeRecord) {
        let cleared = async {
            let removed = self.shared.volumes.remove(&volume.id).await;
            removed.map_err(|source| VolumeProblem::Broken { volume: volume.name.clone(), source })?;
            let removed_volumes = vec![volume.id.clone()];
            self.shared.commit(Change { removed_volumes, ..Change::default() }).await?;
            Ok::<_, ServiceError>(())
        };
        if let Err(error) = cleared.await {
            tracing::error!(volume = %volume.id, error = %chain(&error), "cannot remove a volume; retrying at the next start");
        }
    }

    /// Returns every volume, in the order of names.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn volumes(&self) -> Result<Vec<VolumeView>, ServiceError> {
        let mut views = Vec::new();
        for volume in self.shared.store.volumes().await? {
            if volume.project == *self.project() {
                views.push(self.view_volume(volume).await?);
            }
        }
        views.sort_by(|a, b| a.volume.name.cmp(&b.volume.name));
        Ok(views)
    }

    /// Returns at most `limit` volumes in the order of names, starting after the name `after`, and
    /// whether there are more.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn volume_page(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<VolumeView>, bool), ServiceError> {
        let mut volumes = self.shared.store.volumes().await?;
        volumes.retain(|one| one.project == *self.project() && after.is_none_or(|after| one.name > *after));
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        let more = volumes.len() > limit;
        let mut views = Vec::new();
        for volume in volumes.into_iter().take(limit) {
            views.push(self.view_volume(volume).await?);
        }
        Ok((views, more))
    }

    /// Returns one volume, by id or name.
    ///
    /// # Errors
    ///
    /// `Volume` if there is none.
    pub async fn volume(&self, reference: &str) -> Result<VolumeView, ServiceError> {
        let volume = self.volume_record(reference).await?;
        self.view_volume(volume).await
    }

    pub(crate) async fn volume_record(&self, reference: &str) -> Result<VolumeRecord, ServiceError> {
        let volumes = self.shared.store.volumes().await?;
        let own = || volumes.iter().filter(|volume| volume.project == *self.project());
        let found = own()
            .find(|volume| volume.name.as_str() == reference)
            .or_else(|| own().find(|volume| volume.id.as_str() == reference));
        if let Some(found) = found {
            return Ok(found.clone());
        }
        let unreadable = self.shared.unreadable().await?;
        let mut rows = unreadable.rows().iter().filter(|row| row.kind == RowKind::Volume);
        match rows.find(|row| row.id == reference || row.mentions(&format!("\"{reference}\""))) {
            Some(row) => Err(row.error().into()),
            None => Err(VolumeProblem::NoVolume(reference.to_owned()).into()),
        }
    }

    pub(crate) async fn view_volume(&self, volume: VolumeRecord) -> Result<VolumeView, ServiceError> {
        let health = self.shared.volumes.health(&volume.id).await;
        let attached_to = self.shared.of_living(|sandbox| holder(sandbox, &volume.id)).await?;
        Ok(VolumeView { volume: self.shared.shown_volume(volume), health, attached_to })
    }

    /// Removes a volume with everything on it.
    ///
    /// # Errors
    ///
    /// `Volume` if there is none, or while it is attached to sandboxes, which the error names.
    pub async fn remove_volume(&self, reference: &str) -> Result<VolumeRecord, ServiceError> {
        let volume = self.volume_record(reference).await?;
        self.remove_volume_of(volume).await
    }

    pub(crate) async fn remove_volume_of(&self, volume: VolumeRecord) -> Result<VolumeRecord, ServiceError> {
        let service = self.clone();
        let removed = async move {
            {
                // No lease of it is taken in between.
                let _leasing = service.shared.leasing.clone().lock_owned().await;
                let mut held_by = service.shared.of_living(|sandbox| holder(sandbox, &volume.id)).await?;
                // It is not known for certain which volumes are attached to sandboxes with
                // unreadable records.
                held_by.extend(service.shared.unreadable().await?.sandboxes());
                if !held_by.is_empty() {
                    return Err(VolumeProblem::InUse { volume: volume.name.clone(), held_by }.into());
                }
                let deleting = VolumeRecord { status: VolumeStatus::Deleting, ..volume.clone() };
                service.shared.commit(Change { volumes: vec![deleting], ..Change::default() }).await?;
            }
            service.clear_volume(&volume).await;
            Ok(volume)
        };
        self.shared.finish(removed).await
    }

    /// Opens a file on a volume for reading; it must be closed before the second part is dropped.
    ///
    /// # Errors
    ///
    /// `Volume` if there is no such volume or file, or the path leads out of the volume.
    pub async fn read_volume(&self, reference: &str, path: &str) -> Result<(std::fs::File, VolumeUse), ServiceError> {
        let (volume, using) = self.ready_volume(reference).await?;
        let (file, _) = told(volume.name, self.shared.volumes.read(&volume.id, path).await)?;
        Ok((file, using))
    }

    /// Starts writing a file on a volume; it must be finished before the second part is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Service::read_volume`].
    pub async fn write_volume(&self, reference: &str, path: &str) -> Result<(NewFile, VolumeUse), ServiceError> {
        let (volume, using) = self.ready_volume(reference).await?;
        let new = told(volume.name, self.shared.volumes.write(&volume.id, path).await)?;
        Ok((new, using))
    }

    /// Returns the entries of a directory on a volume.
    ///
    /// # Errors
    ///
    /// Those of [`Service::read_volume`].
    pub async fn list_volume(&self, reference: &str, path: &str) -> Result<Vec<FileEntry>, ServiceError> {
        let (volume, _using) = self.ready_volume(reference).await?;
        told(volume.name, self.shared.volumes.list(&volume.id, path).await)
    }

    async fn ready_volume(&self, reference: &str) -> Result<(VolumeRecord, VolumeUse), ServiceError> {
        let volume = self.volume_record(reference).await?;
        self.ready(volume)
    }

    pub(crate) fn ready(&self, volume: VolumeRecord) -> Result<(VolumeRecord, VolumeUse), ServiceError> {
        match volume.status {
            VolumeStatus::Ready => Ok((volume, VolumeUse(self.shared.clone()))),
            VolumeStatus::Creating | VolumeStatus::Deleting => {
                Err(VolumeProblem::NoVolume(volume.name.to_string()).into())
            }
        }
    }

    /// Finishes creations and removals of volumes during which a daemon died. Returns one line for
    /// each.
    pub(crate) async fn finish_volumes(&self) -> Result<Vec<String>, ServiceError> {
        let mut lines = Vec::new();
        let volumes = self.shared.store.volumes().await?;
        for volume in &volumes {
            let what = match volume.status {
                VolumeStatus::Ready => continue,
                VolumeStatus::Creating => "creation",
                VolumeStatus::Deleting => "removal",
            };
            // Its files appear complete, with one rename. After the restore of a backup they may
            // have been in use for long.
            if volume.status == VolumeStatus::Creating && self.shared.volumes.exists(&volume.id).await {
                let ready = VolumeRecord { status: VolumeStatus::Ready, ..volume.clone() };
                self.shared.commit(Change { volumes: vec![ready], ..Change::default() }).await?;
                lines.push(format!("volume {}: the daemon stopped during its creation; it is complete", volume.id));
                continue;
            }
            self.clear_volume(volume).await;
            lines.push(format!("volume {}: the daemon stopped during its {what}; it is removed", volume.id));
        }
        if !volumes.is_empty() {
            self.shared.settle_volumes();
        }
        Ok(lines)
    }

    /// Returns the names of the volumes that these sandboxes have attached, as far as they are
    /// known.
    pub async fn names_of_volumes(&self, sandboxes: &[SandboxView]) -> BTreeMap<VolumeId, Name> {
        if sandboxes.iter().all(|view| view.sandbox.attachments().next().is_none()) {
            return BTreeMap::new();
        }
        let volumes = self.shared.store.volumes().await.unwrap_or_default();
        volumes.into_iter().map(|volume| (volume.id, volume.name)).collect()
    }
}

pub(crate) fn told<T>(volume: Name, result: Result<T, VolumeError>) -> Result<T, ServiceError> {
    result.map_err(|source| VolumeProblem::Broken { volume, source }.into())
}
