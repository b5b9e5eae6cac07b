//! A temporary directory for one file beside the images, such as an archive being imported or
//! exported. If a process dies, it is removed like an interrupted import.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::Images;
use crate::blocking::elsewhere;
use crate::disk;
use crate::error::StorageError;
use crate::steps::Steps;

const FILE: &str = "archive.tar";

/// The directory of a file that does not exist yet. It is removed with this value.
pub struct Spool {
    directory: PathBuf,
    file: PathBuf,
    steps: Steps,
    /// Held until the directory is gone: another import may not clear it or take its name before.
    lock: Option<File>,
}

impl Images {
    pub(crate) fn spool(&self) -> Result<Spool, StorageError> {
        let (directory, lock) = self.claim()?;
        let file = directory.join(FILE);
        Ok(Spool { directory, file, steps: self.steps.clone(), lock: Some(lock) })
    }
}

impl Spool {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if !self.steps.alive() {
            return;
        }
        let directory = std::mem::take(&mut self.directory);
        let lock = self.lock.take();
        elsewhere(&self.steps, move || {
            if let Err(error) = disk::remove_tree(&directory) {
                tracing::warn!(path = %directory.display(), %error, "cannot remove an archive; the next import removes it");
            }
            drop(lock);
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::Storage;

    /// The removal of a dropped archive runs on another thread.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_removal_of_an_archive_takes_no_later_one_with_it() {
        let home = tempfile::tempdir().unwrap();
        let storage = Storage::open(&home.path().join("data"), &home.path().join("images")).unwrap();
        for _ in 0..500 {
            let spool = storage.spool().await.unwrap();
            std::fs::write(spool.path(), "archive").unwrap();
            tokio::task::yield_now().await;
            assert!(spool.path().is_file());
        }
    }
}
