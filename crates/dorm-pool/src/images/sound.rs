//! Whether an image still is what its digest says: found out when it is first used, and whenever somebody looks.
//!
//! An answer holds until the image's directory is another: it is renamed over, mended, or removed and imported again.
//! What changes within a file leaves no trace there, so images are read again in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dorm_guest_ids::{GuestIds, RECORD};
use dorm_lifecycle::Digest;

use super::listing::{self, Damage, NAMED_MAX};
use super::{ABOUT, FILES, Image, Images, ROOTFS};
use crate::disk;
use crate::error::{PoolError, failed};
use crate::stored::in_rootfs;

/// What is known of images since this process began.
#[derive(Default)]
pub(super) struct Known {
    images: Mutex<BTreeMap<Digest, Found>>,
    /// Held while an image is read that somebody waits for.
    reading: Mutex<BTreeMap<Digest, Arc<Mutex<()>>>>,
}

#[derive(Clone)]
struct Found {
    directory: DirectoryId,
    /// Nothing when it is sound.
    damage: Vec<Damage>,
}

/// Tells a directory from another of its name, and from itself with other names in it.
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
    /// The image, which this process has read to its last byte: now, if it has not before.
    pub(crate) fn sound(&self, digest: &Digest) -> Result<Image, PoolError> {
        self.owned(digest)?;
        if let Some(image) = self.known(digest)? {
            return Ok(image);
        }
        // Whoever wants the same waits for the one who reads.
        let one = self.known.reading(digest);
        let _alone = one.lock().unwrap_or_else(PoisonError::into_inner);
        match self.known(digest)? {
            Some(image) => Ok(image),
            None => self.verify(digest),
        }
    }

    /// The image, if it was found to be sound; an error, if it was found to be damaged.
    fn known(&self, digest: &Digest) -> Result<Option<Image>, PoolError> {
        let image = self.get(digest)?;
        let found = self.known.images().get(digest).cloned();
        match found.filter(|found| self.directory_id(digest).is_ok_and(|now| now == found.directory)) {
            None => Ok(None),
            Some(found) => found.damage.first().map_or(Ok(Some(image)), |damage| Err(damaged(digest, damage))),
        }
    }

    /// Whether the image need not be read before it is used.
    pub(crate) fn is_known(&self, digest: &Digest) -> bool {
        !matches!(self.known(digest), Ok(None))
    }

    /// Reads the image to its last byte.
    pub(crate) fn verify(&self, digest: &Digest) -> Result<Image, PoolError> {
        let image = self.get(digest)?;
        let damage = self.read_through(&image)?;
        let first = damage.first().map(|damage| damaged(digest, damage));
        if let Ok(directory) = self.directory_id(digest) {
            self.known.images().insert(digest.clone(), Found { directory, damage });
        }
        let Some(error) = first else { return Ok(image) };
        // The next import or pull must not take what is damaged for a layer that is here.
        if let Err(error) = self.set_aside_damaged(&image.layers) {
            tracing::warn!(image = %digest, %error, "cannot check the layers of a damaged image");
        }
        Err(error)
    }

    /// What was damaged of the image when it was read last.
    pub(crate) fn damage(&self, digest: &Digest) -> Vec<Damage> {
        self.known.images().get(digest).map(|found| found.damage.clone()).unwrap_or_default()
    }

    /// Whether there is such an image, damaged or not.
    pub(crate) fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_dir()
    }

    /// What of an image is not what it was; empty when it is sound.
    fn read_through(&self, image: &Image) -> Result<Vec<Damage>, PoolError> {
        let digest = &image.digest;
        let files = self.path(digest).join(FILES);
        let ids = self.made_with(digest)?;
        let (listing, mut found) = match listing::compare(&image.rootfs, ids, &files) {
            Ok(compared) => compared,
            // Images of earlier versions have no list, and one that cannot be read names nothing.
            Err(PoolError::Io { path, .. }) if path == files => {
                let listing = self.list_anew(digest, ids, &image.rootfs, &files)?;
                let lost = listing.lost.clone();
                (listing, lost)
            }
            Err(error) => return Err(error),
        };
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

    /// The digest of an image that has these files.
    fn digest_now(&self, digest: &Digest, listing: &listing::Listing) -> Result<Digest, PoolError> {
        match self.about(digest)?.config {
            Some(config) => config.digest(&listing.digest).map_err(failed("name", &self.path(digest))),
            None => Ok(listing.digest.clone()),
        }
    }

    /// Lists an image that has no list, and keeps the list if the image is what it was.
    fn list_anew(
        &self,
        digest: &Digest,
        ids: GuestIds,
        rootfs: &Path,
        files: &Path,
    ) -> Result<listing::Listing, PoolError> {
        let part = files.with_extension("part");
        let written = disk::remove_file(&part).and_then(|()| listing::list_into(rootfs, ids, &part));
        let listing = match written {
            Ok(listing) => listing,
            // It is only good for naming files: where it cannot be written, or another daemon writes it at this moment,
            // the image is checked all the same.
            Err(PoolError::Io { path, .. } | PoolError::DiskFull { path, .. }) if path == part => {
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

    /// Makes a damaged image whole again out of `from`, the directory of the same image that was just imported. What is
    /// sound in it stays, so whoever uses it sees nothing but the files that were damaged come right.
    pub(super) fn mend(&self, digest: &Digest, from: &Path) -> Result<(), PoolError> {
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
        // All names of one file are replaced together, or they would be several files.
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
        fs::File::open(&old_root)
            .and_then(|directory| Ok(rustix::fs::syncfs(directory)?))
            .map_err(failed("sync the file system of", &old_root))?;
        tracing::warn!(image = %digest, "repaired a damaged image by importing it again");
        self.verify(digest).map(drop)
    }

    fn directory_id(&self, digest: &Digest) -> Result<DirectoryId, PoolError> {
        let facts = look(&self.path(digest))?;
        Ok(DirectoryId { inode: facts.ino(), changed: (facts.mtime(), facts.mtime_nsec()) })
    }
}

fn damaged(image: &Digest, damage: &Damage) -> PoolError {
    PoolError::DamagedImage { image: image.clone(), file: in_rootfs(&damage.path), what: damage.what.clone() }
}

fn look(path: &Path) -> Result<fs::Metadata, PoolError> {
    path.symlink_metadata().map_err(failed("read the metadata of", path))
}

/// Removes whatever has this name.
fn remove(path: &Path) -> Result<(), PoolError> {
    match path.symlink_metadata() {
        Ok(facts) if facts.is_dir() => disk::remove_tree(path),
        Ok(_) => disk::remove_file(path),
        Err(_) => Ok(()),
    }
}
