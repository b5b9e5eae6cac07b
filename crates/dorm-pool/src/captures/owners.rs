//! Trees and the host ids of guests: one that was made with others is given to the guests of now before it is read.

use std::path::Path;

use super::tree::ROOT;
use super::{Capture, Captures};
use crate::disk;
use crate::error::PoolError;

const JOURNAL: &str = "owners.journal";

impl Captures {
    /// Sees to it that a tree belongs to guests as they are now. No run with other ids may live.
    pub(super) fn own(&self, capture: &Capture) -> Result<(), PoolError> {
        let wrong = PoolError::owners(&capture.directory);
        let made_with = dorm_disk::recorded(&capture.directory).map_err(wrong)?;
        if made_with == self.ids {
            return Ok(());
        }
        let capture_id = &capture.id;
        tracing::info!(capture = %capture_id, from = %made_with, to = %self.ids, "the files of a capture get the host ids that guests have now");
        self.change(&capture.directory)
    }

    /// Completes what a process had begun that died on the way.
    pub(super) fn complete_changes(&self) -> Result<(), PoolError> {
        for id in self.list()? {
            let directory = self.path(&id, "");
            if directory.join(JOURNAL).exists()
                && let Err(error) = self.change(&directory)
            {
                tracing::warn!(capture = %id, %error, "a capture whose owners were being changed stays unusable for now");
            }
        }
        Ok(())
    }

    fn change(&self, directory: &Path) -> Result<(), PoolError> {
        let (journal, wrong) = (directory.join(JOURNAL), PoolError::owners(directory));
        let from = dorm_disk::recorded(directory).map_err(&wrong)?;
        if from != self.ids || journal.exists() {
            dorm_disk::change_owners(&directory.join(ROOT), &journal, from, self.ids).map_err(&wrong)?;
            dorm_disk::record(directory, self.ids).map_err(&wrong)?;
            disk::sync_directory(directory, &self.steps)?;
        }
        dorm_disk::finish_change(&journal).map_err(wrong)
    }
}
