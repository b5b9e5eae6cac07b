//! Whether an image still matches its digest: checked at its first use, and on demand.
//!
//! A result holds until the image's directory is replaced: by renaming another over it, by a
//! repair, or by removing and importing it again. Changes within a file cannot be detected that
//! way, so images are read again in the background.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dorm_guest_ids::{GuestIds, RECORD};
use dorm_lifecycle::Digest;

use super::import::Staging;
use super::listing::{self, Damage, NAMED_MAX};
use super::{ABOUT, FILES, Image, Images, ROOTFS, in_rootfs};
use crate::disk;
use crate::error::{StorageError, failed};

/// The results of the checks of images since this process started.
#[derive(Default)]
pub(super) struct Known {
    images: Mutex<BTreeMap<Digest, Found>>,
    /// Held while an image is read for a waiting caller.
    reading: Mutex<BTreeMap<Digest, Arc<Mutex<()>>>>,
}

#[derive(Clone)]
struct Found {
    directory: DirectoryId,
    /// Empty if it is intact.
    damage: Vec<Damage>,
}

/// Distinguishes a directory from another of the same name, and from itself with other entries.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DirectoryId {
    inode: u64,
    changed: (i64, i64),
}

impl Known {
    fn images(&self) -> MutexGuard<'_, BTreeMap<Digest, Found>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self, digest: &Digest) -> Arc<Mutex<()>> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.retain(|_, held| Arc::strong_count(held) > 1);
        reading.entry(digest.clone()).or_default().clone()
    }
}

impl Images {
    /// Returns the image, which is read completely first unless this process has done so.
    pub(crate) fn sound(&self, digest: &Digest) -> Result<Image, StorageError> {
        self.owned(digest)?;
        if let Some(image) = self.known(digest)? {
            return Ok(image);
        }
        // Callers that need the same image wait for the one that reads it.
        let one = self.known.reading(digest);
        let _alone = one.lock().unwrap_or_else(PoisonError::into_inner);
        match self.known(digest)? {
            Some(image) => Ok(image),
            None => self.verify(digest),
        }
    }

    /// Returns the image if it is known to be intact; an error if it is known to be damaged.
    fn known(&self, digest: &Digest) -> Result<Option<Image>, StorageError> {
        let image = self.get(digest)?;
        let found = self.known.images().get(digest).cloned();
        match found.filter(|found| self.directory_id(digest).is_ok_and(|now| now == found.directory)) {
            None => Ok(None),
            Some(found) => found.damage.first().map_or(Ok(Some(image)), |damage| Err(damaged(digest, damage))),
        }
    }

    /// Returns whether the image need not be read before it is used.
    pub(crate) fn is_known(&self, digest: &Digest) -> bool {
        !matches!(self.known(digest), Ok(None))
    }

    /// Reads the image completely.
    pub(crate) fn verify(&self, digest: &Digest) -> Result<Image, StorageError> {
        let image = self.get(digest)?;
        let damage = self.read_through(&image)?;
        let first = damage.first().map(|damage| damaged(digest, damage));
        if let Ok(directory) = self.directory_id(digest) {
            self.known.images().insert(digest.clone(), Found { directory, damage });
        }
        let Some(error) = first else { return Ok(image) };
        // The next import or pull must not use a damaged layer.
        if let Err(error) = self.set_aside_damaged(&image.layers) {
            tracing::warn!(image = %digest, %error, "cannot check the layers of a damaged image");
        }
        Err(error)
    }

    /// Returns the damage found when the image was last read.
    pub(crate) fn damage(&self, digest: &Digest) -> Vec<Damage> {
        self.known.images().get(digest).map(|found| found.damage.clone()).unwrap_or_default()
    }

    /// Returns whether the image exists, damaged or not.
    pub(crate) fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_dir()
    }

    /// Returns the damage of an image; empty if it is intact.
    fn read_through(&self, image: &Image) -> Result<Vec<Damage>, StorageError> {
        let digest = &image.digest;
        let files = self.path(digest).join(FILES);
        let ids = self.made_with(digest)?;
        let (listing, mut found) = match listing::compare(&image.rootfs, ids, &files) {
            Ok(compared) => compared,
            // A lost or unreadable list names no files.
            Err(StorageError::Io { path, .. }) if path == files => {
                let listing = self.list_anew(digest, ids, &image.rootfs, &files)?;
                let lost = listing.lost.clone();
                (listing, lost)
            }
            Err(error) => return Err(error),
        };
        let listing = listing.complete()?;
        let digest_now = self.digest_now(digest, &listing)?;
        if digest_now == *digest {
            return Ok(Vec::new());
        }
        if found.is_empty() {
            let what = format!("does not match the imported files: its digest is now {digest_now}");
            found.push(Damage { path: PathBuf::new(), what });
        }
        found.truncate(NAMED_MAX);
        Ok(found)
    }

    /// Returns the digest of an image with these files.
    fn digest_now(&self, digest: &Digest, listing: &listing::Listing) -> Result<Digest, StorageError> {
        match self.about(digest)?.config {
            Some(config) => config.digest(&listing.digest).map_err(failed("name", &self.path(digest))),
            None => Ok(listing.digest.clone()),
        }
    }

    /// Lists an image whose list is lost, and keeps the list if the image is what it was.
    fn list_anew(
        &self,
        digest: &Digest,
        ids: GuestIds,
        rootfs: &Path,
        files: &Path,
    ) -> Result<listing::Listing, StorageError> {
        let part = files.with_extension("part");
        let written = disk::remove_file(&part).and_then(|()| listing::list_into(rootfs, ids, &part));
        let listing = match written {
            Ok(listing) => listing,
            // The list is only good for naming files: if it cannot be written, or another daemon is
            // writing it, the image is checked anyway.
            Err(StorageError::Io { path, .. } | StorageError::DiskFull { path, .. }) if path == part => {
                listing::list(rootfs, ids)?
            }
            Err(error) => return Err(error),
        };
        let kept = match self.digest_now(digest, &listing)? == *digest {
            true => fs::rename(&part, files).map_err(failed("rename the list", files)),
            false => disk::remove_file(&part),
        };
        if let Err(error) = kept {
            tracing::warn!(image = %digest, %error, "cannot record the files of an image; reports of damage will not name files");
        }
        Ok(listing)
    }

    /// Repairs a damaged image from `made`, the directory of the same image that was just imported.
    /// Intact files stay in place, so users of the image only see that damaged files become intact.
    pub(super) fn mend(&self, digest: &Digest, made: &Staging<'_>) -> Result<(), StorageError> {
        let from = made.path();
        let (old_root, new_root) = (self.path(digest).join(ROOTFS), from.join(ROOTFS));
        let mut old = BTreeMap::new();
        let mut take = |path: &Path, print: &str| {
            old.insert(path.to_owned(), print.to_owned());
            Ok(())
        };
        listing::list_each(&old_root, self.ids, &mut take)?;
        let mut list = listing::FilesList::open(&from.join(FILES))?;
        let new: Vec<_> = list.by_ref().collect();
        if !list.is_whole {
            return Err(failed("read", &from.join(FILES))(io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        let is_another = |path: &Path, print: &str| old.get(path).is_none_or(|known| known != print);
        // All names of one file are replaced together, otherwise they would become several files.
        let mut again = BTreeSet::new();
        for (path, print) in &new {
            let facts = look(&new_root.join(path))?;
            if is_another(path, print) && !facts.is_dir() {
                again.insert(facts.ino());
            }
        }
        let names: BTreeSet<&Path> = new.iter().map(|(path, _)| path.as_path()).collect();
        for path in old.keys().rev().filter(|path| !names.contains(path.as_path())) {
            remove(&old_root.join(path))?;
        }
        for (path, print) in &new {
            let (source, target) = (new_root.join(path), old_root.join(path));
            let facts = look(&source)?;
            if facts.is_dir() {
                if !is_another(path, print) {
                    continue;
                }
                if !look(&target).is_ok_and(|now| now.is_dir()) {
                    remove(&target)?;
                    disk::make_directory(&target).map_err(failed("create the directory", &target))?;
                }
                lchown(&target, Some(facts.uid()), Some(facts.gid())).map_err(failed("set the owner of", &target))?;
                let mode = fs::Permissions::from_mode(facts.mode());
                fs::set_permissions(&target, mode).map_err(failed("set the mode of", &target))?;
            } else if again.contains(&facts.ino()) {
                if look(&target).is_ok_and(|now| now.is_dir()) {
                    remove(&target)?;
                }
                fs::rename(&source, &target).map_err(failed("mend", &target))?;
            }
        }
        for name in [FILES, ABOUT, RECORD] {
            let target = self.path(digest).join(name);
            fs::rename(from.join(name), &target).map_err(failed("mend", &target))?;
        }
        made.sync()?;
        tracing::warn!(image = %digest, "repaired a damaged image by importing it again");
        self.verify(digest).map(drop)
    }

    /// Refuses a new image, which has just been listed, if the disk has lost one of its files, or
    /// if a file that it shares with `below` differs from what was imported.
    pub(super) fn check_new(
        &self,
        made: &Path,
        listing: listing::Listing,
        below: Option<&Image>,
    ) -> Result<listing::Listing, StorageError> {
        let listing = listing.complete()?;
        if let Some(below) = below
            && let Some(damage) = self.shared_damage(below, made)?
        {
            // Finds all of it.
            self.verify(&below.digest)?;
            return Err(damaged(&below.digest, &damage));
        }
        let Some(lost) = listing.lost.first() else { return Ok(listing) };
        let path = made.join(ROOTFS).join(&lost.path);
        Err(failed("read back", &path)(io::Error::other(lost.what.clone())))
    }

    /// Returns a difference between `below` as it was imported and the files that `made` has of it.
    fn shared_damage(&self, below: &Image, made: &Path) -> Result<Option<Damage>, StorageError> {
        let files = self.path(&below.digest).join(FILES);
        let Ok(mut list) = listing::FilesList::open(&files) else {
            return self.verify(&below.digest).map(|_| None);
        };
        // By file: among the names of one, the first has the print of its content.
        let mut prints = HashMap::new();
        for (path, print) in list.by_ref() {
            match below.rootfs.join(&path).symlink_metadata() {
                Ok(facts) if facts.is_dir() => {}
                Ok(facts) => drop(prints.entry((facts.dev(), facts.ino())).or_insert(print)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Some(Damage { path, what: "is missing".to_owned() }));
                }
                Err(error) => return Err(failed("read the metadata of", &below.rootfs.join(path))(error)),
            }
        }
        if !list.is_whole {
            return self.verify(&below.digest).map(|_| None);
        }
        for (path, print) in listing::FilesList::open(&made.join(FILES))? {
            let facts = look(&made.join(ROOTFS).join(&path))?;
            if prints.remove(&(facts.dev(), facts.ino())).is_some_and(|known| known != print) {
                return Ok(Some(Damage { path, what: "differs from the imported file".to_owned() }));
            }
        }
        Ok(None)
    }

    fn directory_id(&self, digest: &Digest) -> Result<DirectoryId, StorageError> {
        let facts = look(&self.path(digest))?;
        Ok(DirectoryId { inode: facts.ino(), changed: (facts.mtime(), facts.mtime_nsec()) })
    }
}

fn damaged(image: &Digest, damage: &Damage) -> StorageError {
    StorageError::DamagedImage { image: image.clone(), file: in_rootfs(&damage.path), what: damage.what.clone() }
}

fn look(path: &Path) -> Result<fs::Metadata, StorageError> {
    path.symlink_metadata().map_err(failed("read the metadata of", path))
}

/// Removes the file or directory at `path`.
fn remove(path: &Path) -> Result<(), StorageError> {
    match path.symlink_metadata() {
        Ok(facts) if facts.is_dir() => disk::remove_tree(path),
        Ok(_) => disk::remove_file(path),
        Err(_) => Ok(()),
    }
}
