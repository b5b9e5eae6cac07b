//! The host IDs of images: with which an image was created, and how an image with other IDs is
//! changed to the present ones.
//!
//! Its files may also be files of other images and of layers, by hard links. So no image is changed
//! while another data directory needs any image here, and an interrupted change is completed before
//! anything else.

use std::fs;
use std::path::PathBuf;

use dorm_guest_ids::{GuestIds, RECORD};
use dorm_lifecycle::Digest;

use super::{Image, Images, ROOTFS};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::foreign::Foreign;

const JOURNAL: &str = "owners.journal";

impl Images {
    /// Returns the host IDs with which an image was created.
    pub(crate) fn made_with(&self, digest: &Digest) -> Result<GuestIds, StorageError> {
        let path = self.path(digest);
        dorm_disk::recorded(&path).map_err(StorageError::owners(&path))
    }

    /// Returns the image after changing its owners to the present host IDs if necessary. No run
    /// with other IDs may use images here.
    pub(crate) fn owned(&self, digest: &Digest) -> Result<Image, StorageError> {
        let image = self.get(digest)?;
        if self.made_with(digest)? != self.ids {
            let held = self.lock()?;
            self.give(digest, &held)?;
        }
        Ok(image)
    }

    /// Changes the owners of an image, for a caller that holds the lock.
    pub(super) fn give(&self, digest: &Digest, _held: &fs::File) -> Result<(), StorageError> {
        let made_with = self.made_with(digest)?;
        if made_with == self.ids {
            return Ok(());
        }
        let needed_by = self.needed_by_others()?;
        if !needed_by.is_empty() {
            let (image, ids) = (digest.clone(), self.ids);
            return Err(StorageError::OtherIds { image, made_with, ids, needed_by });
        }
        tracing::info!(image = %digest, from = %made_with, to = %self.ids, "changing the owners of an image's files to the present host IDs");
        self.change(digest)
    }

    /// Returns the other data directories that need any image here.
    pub(super) fn needed_by_others(&self) -> Result<Vec<Foreign>, StorageError> {
        let mut needed_by: Vec<Foreign> = Vec::new();
        for digest in self.digests()? {
            let foreign = self.foreign(&digest)?;
            needed_by.extend(
                foreign.into_iter().filter(|one| needed_by.iter().all(|known| known.id != one.id)).collect::<Vec<_>>(),
            );
        }
        Ok(needed_by)
    }

    /// Completes the changes of a process that died meanwhile. The caller holds the lock.
    pub(super) fn complete_changes(&self, _held: &fs::File) -> Result<(), StorageError> {
        let mut begun = self.digests()?;
        begun.retain(|digest| self.journal(digest).exists());
        begun.iter().try_for_each(|digest| self.change(digest))
    }

    fn change(&self, digest: &Digest) -> Result<(), StorageError> {
        let path = self.path(digest);
        let (journal, wrong) = (self.journal(digest), StorageError::owners(&path));
        let from = dorm_disk::recorded(&path).map_err(&wrong)?;
        if from != self.ids || journal.exists() {
            dorm_disk::change_owners(&path.join(ROOTFS), &journal, from, self.ids).map_err(&wrong)?;
            let (new, record) = (path.join("guest-ids.new"), path.join(RECORD));
            disk::remove_file(&new)?;
            disk::write_new(&new, self.ids.to_record().as_bytes(), &self.steps)?;
            fs::rename(&new, &record).map_err(failed("rename", &new))?;
            disk::let_pass(&path, self.ids.base())?;
            disk::sync_directory(&path, &self.steps)?;
        }
        dorm_disk::finish_change(&journal).map_err(wrong)
    }

    fn journal(&self, digest: &Digest) -> PathBuf {
        self.path(digest).join(JOURNAL)
    }
}
