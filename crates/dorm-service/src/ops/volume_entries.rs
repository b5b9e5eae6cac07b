//! The entries of volumes, for doors whose clients name volumes by id and may have no key: their
//! owners, modes and times, and changes to them without a sandbox.

use dorm_lifecycle::VolumeId;
use dorm_store::{RowKind, VolumeRecord};
use dorm_volume::{EntryChange, EntryPath, EntryStat, NewEntry, NewFile};

use super::volumes::{VolumeView, told};
use crate::error::{ServiceError, VolumeProblem};
use crate::shared::Service;
use crate::volumes::VolumeUse;

impl Service {
    /// Returns the service of the project that a volume belongs to.
    ///
    /// # Errors
    ///
    /// `Volume` if there is none in any project.
    pub async fn of_volume(&self, id: &VolumeId) -> Result<Self, ServiceError> {
        let volumes = self.shared.store.volumes().await?;
        match volumes.into_iter().find(|volume| volume.id == *id) {
            Some(volume) => self.for_project(&volume.project),
            None => Err(self.no_volume(id).await?),
        }
    }

    /// Returns one volume. Unlike with [`Service::volume`], its id is not taken for a name.
    ///
    /// # Errors
    ///
    /// `Volume` if there is none.
    pub async fn volume_with_id(&self, id: &VolumeId) -> Result<VolumeView, ServiceError> {
        let volume = self.record_of_volume(id).await?;
        self.view_volume(volume).await
    }

    /// Removes a volume with everything on it. Unlike with [`Service::remove_volume`], its id is
    /// not taken for a name.
    ///
    /// # Errors
    ///
    /// Those of [`Service::remove_volume`].
    pub async fn remove_volume_with_id(&self, id: &VolumeId) -> Result<VolumeRecord, ServiceError> {
        let volume = self.record_of_volume(id).await?;
        self.remove_volume_of(volume).await
    }

    /// Returns an entry of a volume; a symbolic link itself.
    ///
    /// # Errors
    ///
    /// `Volume` if there is no such volume or entry, or the path leads out of the volume.
    pub async fn stat_volume_entry(&self, id: &VolumeId, path: &EntryPath) -> Result<EntryStat, ServiceError> {
        let (volume, _using) = self.ready_with_id(id).await?;
        told(volume.name, self.shared.volumes.stat(id, path).await)
    }

    /// Returns the entries of a directory on a volume, to a depth of `depth` levels.
    ///
    /// # Errors
    ///
    /// Those of [`Service::stat_volume_entry`]; `Volume` for more than [`crate::ENTRIES_MAX`].
    pub async fn list_volume_tree(
        &self,
        id: &VolumeId,
        path: &EntryPath,
        depth: u32,
    ) -> Result<Vec<EntryStat>, ServiceError> {
        let (volume, _using) = self.ready_with_id(id).await?;
        told(volume.name, self.shared.volumes.list_tree(id, path, depth).await)
    }

    /// Creates a directory on a volume.
    ///
    /// # Errors
    ///
    /// Those of [`Service::stat_volume_entry`]; `Volume` if it exists and may not.
    pub async fn make_volume_directory(
        &self,
        id: &VolumeId,
        path: &EntryPath,
        new: NewEntry,
    ) -> Result<EntryStat, ServiceError> {
        let (volume, _using) = self.ready_with_id(id).await?;
        told(volume.name, self.shared.volumes.make_directory(id, path, new).await)
    }

    /// Changes the owner or the mode of an entry of a volume.
    ///
    /// # Errors
    ///
    /// Those of [`Service::stat_volume_entry`].
    pub async fn change_volume_entry(
        &self,
        id: &VolumeId,
        path: &EntryPath,
        change: EntryChange,
    ) -> Result<EntryStat, ServiceError> {
        let (volume, _using) = self.ready_with_id(id).await?;
        told(volume.name, self.shared.volumes.change(id, path, change).await)
    }

    /// Removes an entry of a volume, with everything below it.
    ///
    /// # Errors
    ///
    /// Those of [`Service::stat_volume_entry`].
    pub async fn remove_volume_entry(&self, id: &VolumeId, path: &EntryPath) -> Result<(), ServiceError> {
        let (volume, _using) = self.ready_with_id(id).await?;
        told(volume.name, self.shared.volumes.remove_entry(id, path).await)
    }

    /// Opens a file on a volume for reading, and returns its size; it must be closed before the
    /// last part is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Service::stat_volume_entry`].
    pub async fn read_volume_entry(
        &self,
        id: &VolumeId,
        path: &EntryPath,
    ) -> Result<(std::fs::File, u64, VolumeUse), ServiceError> {
        let (volume, using) = self.ready_with_id(id).await?;
        let (file, bytes) = told(volume.name, self.shared.volumes.read(id, &path.to_string()).await)?;
        Ok((file, bytes, using))
    }

    /// Starts writing a file on a volume; it must be finished before the second part is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Service::make_volume_directory`].
    pub async fn write_volume_entry(
        &self,
        id: &VolumeId,
        path: &EntryPath,
        new: NewEntry,
    ) -> Result<(NewFile, VolumeUse), ServiceError> {
        let (volume, using) = self.ready_with_id(id).await?;
        let file = told(volume.name, self.shared.volumes.write_entry(id, path, new).await)?;
        Ok((file, using))
    }

    async fn ready_with_id(&self, id: &VolumeId) -> Result<(VolumeRecord, VolumeUse), ServiceError> {
        let volume = self.record_of_volume(id).await?;
        self.ready(volume)
    }

    async fn record_of_volume(&self, id: &VolumeId) -> Result<VolumeRecord, ServiceError> {
        let volumes = self.shared.store.volumes().await?;
        match volumes.into_iter().find(|volume| volume.id == *id && volume.project == *self.project()) {
            Some(volume) => Ok(volume),
            None => Err(self.no_volume(id).await?),
        }
    }

    /// Returns the reason why there is no readable record of a volume.
    async fn no_volume(&self, id: &VolumeId) -> Result<ServiceError, ServiceError> {
        let unreadable = self.shared.unreadable().await?;
        let row = unreadable.rows().iter().find(|row| row.kind == RowKind::Volume && row.id == id.as_str());
        Ok(row.map_or_else(|| VolumeProblem::NoVolume(id.to_string()).into(), |row| row.error().into()))
    }
}
