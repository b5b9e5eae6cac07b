//! The contexts of builds, and logs.

use std::path::Path;

use dorm_lifecycle::{Digest, ProjectId};

use super::Storage;
use crate::builds::{ListedContext, LogId, LogLine, LogPage, StoredContext};
use crate::error::StorageError;

impl Storage {
    /// Makes a build context of an archive, under a key that its uploader has chosen. If there is
    /// one with this key, it stays as it is.
    ///
    /// # Errors
    /// [`StorageError::Source`] or [`StorageError::Entry`] for an archive that is not accepted,
    /// [`StorageError::Reserve`], [`StorageError::Io`]. Nothing is left then.
    pub async fn import_context(
        &self,
        project: &ProjectId,
        key: &Digest,
        archive: &Path,
    ) -> Result<StoredContext, StorageError> {
        let (builds, images) = (self.builds.clone(), self.images.clone());
        let (project, key, archive) = (project.clone(), key.clone(), archive.to_owned());
        self.blocking(move || builds.import(&images, (&project, &key), &archive)).await
    }

    /// Returns a build context, if it exists.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be read.
    pub async fn context(&self, project: &ProjectId, key: &Digest) -> Result<Option<StoredContext>, StorageError> {
        let (builds, project, key) = (self.builds.clone(), project.clone(), key.clone());
        self.blocking(move || builds.context(&project, &key)).await
    }

    /// Returns all build contexts, in order.
    ///
    /// # Errors
    /// [`StorageError::Io`] if they cannot be listed.
    pub async fn contexts(&self) -> Result<Vec<ListedContext>, StorageError> {
        let builds = self.builds.clone();
        self.blocking(move || builds.contexts()).await
    }

    /// Removes a build context. Succeeds if there is none.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be removed.
    pub async fn remove_context(&self, project: &ProjectId, key: &Digest) -> Result<(), StorageError> {
        let (builds, project, key) = (self.builds.clone(), project.clone(), key.clone());
        self.blocking(move || builds.remove_context(&project, &key)).await
    }

    /// Appends lines to a log.
    ///
    /// # Errors
    /// [`StorageError::Io`] if they cannot be written.
    pub async fn append_log(&self, id: &LogId, lines: Vec<LogLine>) -> Result<(), StorageError> {
        let (builds, id) = (self.builds.clone(), id.clone());
        self.blocking(move || builds.append(&id, &lines)).await
    }

    /// Makes the lines of a log durable.
    ///
    /// # Errors
    /// [`StorageError::Io`] if they cannot be synced.
    pub async fn sync_log(&self, id: &LogId) -> Result<(), StorageError> {
        let (builds, id) = (self.builds.clone(), id.clone());
        self.blocking(move || builds.sync_log(&id)).await
    }

    /// Returns at most `most` lines of a log, from an offset on.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be read.
    pub async fn log(&self, id: &LogId, from: u64, most: usize) -> Result<LogPage, StorageError> {
        let (builds, id) = (self.builds.clone(), id.clone());
        self.blocking(move || builds.read_log(&id, from, most)).await
    }

    /// Removes a log. Succeeds if there is none.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be removed.
    pub async fn remove_log(&self, id: &LogId) -> Result<(), StorageError> {
        let (builds, id) = (self.builds.clone(), id.clone());
        self.blocking(move || builds.remove_log(&id)).await
    }
}
