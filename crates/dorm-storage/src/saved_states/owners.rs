//! Host ids of the files in trees: a tree made for other ids is changed to the present ones before
//! it is read.

use std::path::Path;

use super::tree::ROOT;
use super::{SavedState, SavedStates};
use crate::disk;
use crate::error::StorageError;

const JOURNAL: &str = "owners.journal";

impl SavedStates {
    /// Ensures that a tree belongs to the present host ids of guests. No run with other ids may be
    /// alive.
    pub(super) fn own(&self, saved_state: &SavedState) -> Result<(), StorageError> {
        let wrong = StorageError::owners(&saved_state.directory);
        let made_with = dorm_disk::recorded(&saved_state.directory).map_err(wrong)?;
        if made_with == self.ids {
            return Ok(());
        }
        let saved_state_id = &saved_state.id;
        tracing::info!(saved_state = %saved_state_id, from = %made_with, to = %self.ids, "the files of a saved state get the host ids that guests have now");
        self.change(&saved_state.directory)
    }

    /// Completes the changes that a process had begun before it died.
    pub(super) fn complete_changes(&self) -> Result<(), StorageError> {
        for id in self.list()? {
            let directory = self.path(&id, "");
            if directory.join(JOURNAL).exists()
                && let Err(error) = self.change(&directory)
            {
                tracing::warn!(saved_state = %id, %error, "a saved state whose owners were being changed stays unusable for now");
            }
        }
        Ok(())
    }

    fn change(&self, directory: &Path) -> Result<(), StorageError> {
        let (journal, wrong) = (directory.join(JOURNAL), StorageError::owners(directory));
        let from = dorm_disk::recorded(directory).map_err(&wrong)?;
        if from != self.ids || journal.exists() {
            dorm_disk::change_owners(&directory.join(ROOT), &journal, from, self.ids).map_err(&wrong)?;
            dorm_disk::record(directory, self.ids).map_err(&wrong)?;
            disk::sync_directory(directory, &self.steps)?;
        }
        dorm_disk::finish_change(&journal).map_err(wrong)
    }
}
