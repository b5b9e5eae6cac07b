//! Tags: one small file each, which contains a digest and is replaced atomically. A `/` in a tag is
//! `%2F` in the name of its file.

use std::fs;
use std::io;
use std::path::PathBuf;

use dorm_lifecycle::Digest;

use super::{Image, Images};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::steps::Step;

pub(super) const DIRECTORY: &str = "tags";
const NEW: &str = ".new";

impl Images {
    /// Returns all tags whose image exists, sorted.
    pub(super) fn tags(&self) -> Result<Vec<(String, Digest)>, StorageError> {
        let directory = self.tags_directory();
        let mut tags = Vec::new();
        for file in disk::names(&directory)? {
            let name = file.replace("%2F", "/");
            if check(&name).is_err() {
                continue;
            }
            let path = directory.join(&file);
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!(tag = name, %error, "cannot read a tag; it names no image");
                    continue;
                }
            };
            if let Ok(digest) = text.trim_end().parse::<Digest>()
                && self.path(&digest).is_dir()
            {
                tags.push((name, digest));
            }
        }
        tags.sort_unstable();
        Ok(tags)
    }

    /// Assigns `tag` to `digest`. The caller holds the lock.
    pub(super) fn tag(&self, tag: &str, digest: &Digest) -> Result<(), StorageError> {
        check(tag)?;
        let directory = self.tags_directory();
        let new = directory.join(NEW);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &new)(error)),
            _ => {}
        }
        disk::write_new(&new, format!("{digest}\n").as_bytes(), &self.steps)?;
        self.steps.reach(Step::TagWritten)?;
        fs::rename(&new, directory.join(file_name(tag))).map_err(failed("rename the new tag", &new))?;
        disk::sync_directory(&directory, &self.steps)?;
        self.steps.reach(Step::Tagged)
    }

    /// Gives an existing image a tag.
    pub(crate) fn name(&self, digest: &Digest, tag: &str) -> Result<Image, StorageError> {
        check(tag)?;
        let held = self.lock()?;
        let image = self.get(digest)?;
        self.tag(tag, &image.digest)?;
        drop(held);
        self.get(digest)
    }

    /// Removes the tags of an image that begin with `prefix`.
    pub(crate) fn unname(&self, digest: &Digest, prefix: &str) -> Result<(), StorageError> {
        let held = self.lock()?;
        let directory = self.tags_directory();
        for (tag, of) in self.tags()? {
            if of == *digest && tag.starts_with(prefix) {
                let path = directory.join(file_name(&tag));
                fs::remove_file(&path).map_err(failed("remove the tag", &path))?;
            }
        }
        drop(held);
        disk::sync_directory(&directory, &self.steps)
    }

    /// Removes all tags of `digest`. The caller holds the lock.
    pub(super) fn untag(&self, digest: &Digest) -> Result<(), StorageError> {
        let directory = self.tags_directory();
        for (tag, of) in self.tags()? {
            if of == *digest {
                let path = directory.join(file_name(&tag));
                fs::remove_file(&path).map_err(failed("remove the tag", &path))?;
            }
        }
        disk::sync_directory(&directory, &self.steps)
    }

    fn tags_directory(&self) -> PathBuf {
        self.directory.join(DIRECTORY)
    }
}

fn file_name(tag: &str) -> String {
    tag.replace('/', "%2F")
}

/// Rejects invalid tags. A tag has one or more parts separated by `/`.
///
/// # Errors
/// [`StorageError::Tag`].
pub fn check(tag: &str) -> Result<(), StorageError> {
    let legal_part = |part: &str| {
        (1..=128).contains(&part.len())
            && part.as_bytes()[0].is_ascii_alphanumeric()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:@".contains(&byte))
    };
    // A tag of a project is `@PROJECT/TAG`.
    let own = match tag.strip_prefix('@').and_then(|rest| rest.split_once('/')) {
        Some((project, own)) if project.parse::<dorm_lifecycle::ProjectId>().is_ok() => own,
        Some(_) | None => tag,
    };
    if file_name(tag).len() <= 250 && own.split('/').all(legal_part) {
        Ok(())
    } else {
        Err(StorageError::Tag(tag.to_owned()))
    }
}
