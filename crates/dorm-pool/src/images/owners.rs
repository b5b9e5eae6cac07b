//! Images and the host ids of guests: with which an image was made, and how one that was made with others is given to the
//! guests of now.
//!
//! Its files may be files of other images and of layers, too, by hard links. So none is changed while another data
//! directory needs any image here, and what was cut off is completed before anything else is begun.

use std::fs;
use std::path::PathBuf;

use dorm_guest_ids::{GuestIds, RECORD};
use dorm_lifecycle::Digest;

use super::{Foreign, Image, Images, ROOTFS};
use crate::disk;
use crate::error::{PoolError, failed};

const JOURNAL: &str = "owners.journal";

impl Images {
    /// With which host ids an image was made.
    pub(crate) fn made_with(&self, digest: &Digest) -> Result<GuestIds, PoolError> {
        let path = self.path(digest);
        dorm_disk::recorded(&path).map_err(PoolError::owners(&path))
    }

    /// The image, which belongs to guests as they are now. No run with other ids may live that uses images here.
    pub(crate) fn owned(&self, digest: &Digest) -> Result<Image, PoolError> {
        let image = self.get(digest)?;
        if self.made_with(digest)? != self.ids {
            let held = self.lock()?;
            self.give(digest, &held)?;
        }
        Ok(image)
    }

    /// The same, for a caller that holds the lock.
    pub(super) fn give(&self, digest: &Digest, _held: &fs::File) -> Result<(), PoolError> {
        let made_with = self.made_with(digest)?;
        if made_with == self.ids {
            return Ok(());
        }
        let needed_by = self.needed_by_others()?;
        if !needed_by.is_empty() {
            let (image, ids) = (digest.clone(), self.ids);
            return Err(PoolError::OtherIds { image, made_with, ids, needed_by });
        }
        tracing::info!(image = %digest, from = %made_with, to = %self.ids, "changing the owners of an image's files to the present host IDs");
        self.change(digest)
    }

    /// The other data directories that need any image here.
    pub(super) fn needed_by_others(&self) -> Result<Vec<Foreign>, PoolError> {
        let mut needed_by: Vec<Foreign> = Vec::new();
        for digest in self.digests()? {
            let foreign = self.foreign(&digest)?;
            needed_by.extend(
                foreign.into_iter().filter(|one| needed_by.iter().all(|known| known.id != one.id)).collect::<Vec<_>>(),
            );
        }
        Ok(needed_by)
    }

    /// Completes what a process had begun that died on the way. The caller holds the lock.
    pub(super) fn complete_changes(&self, _held: &fs::File) -> Result<(), PoolError> {
        let mut begun = self.digests()?;
        begun.retain(|digest| self.journal(digest).exists());
        begun.iter().try_for_each(|digest| self.change(digest))
    }

    fn change(&self, digest: &Digest) -> Result<(), PoolError> {
        let path = self.path(digest);
        let (journal, wrong) = (self.journal(digest), PoolError::owners(&path));
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
