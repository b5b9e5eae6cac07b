//! Layers: the changes of each layer of an image, unpacked once and shared by all images that
//! contain it.
//!
//! ```text
//! layers/DIFFID/layer.json    the digest of the content of tree/, and links to files of lower layers
//! layers/DIFFID/guest-ids     the host IDs with which it was unpacked; if they differ, it is unpacked again
//! layers/DIFFID/tree/         its files; `.wh.NAME` if NAME is removed, `.wh..wh.opq` if everything below is
//! layers/.part-N/             being unpacked
//! ```
//!
//! A directory that only exists because of its content belongs to the host's root, whom no guest ID
//! maps to: it says nothing about the directory of that name in lower layers. The root file systems
//! of images contain the files of layers as hard links, and directories of their own. Imports share
//! `layers/.lock`; layers that no image names are removed when no import holds it.

mod entries;
mod flatten;
mod unpack;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use dorm_guest_ids::RECORD;
use serde::{Deserialize, Serialize};

use super::{Images, listing};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::steps::{Step, Steps};

pub(super) use entries::LayerEntries;
pub(super) use flatten::{apply, link_all};
pub(super) use unpack::{Blob, LayerBlob, unpack};

pub(super) const DIRECTORY: &str = "layers";
const PART: &str = ".part-";
const GONE: &str = ".gone-";
const LOCK: &str = ".lock";
const TREE: &str = "tree";
const ABOUT: &str = "layer.json";
const FORMAT: u32 = 1;

/// The prefix of a name that marks the removal of an entry of a lower layer.
pub(super) const WHITEOUT: &[u8] = b".wh.";
/// The name in a directory that hides everything in the same directory of lower layers.
pub(super) const OPAQUE: &[u8] = b".wh..wh.opq";

/// Hard links to files of lower layers: new name and target.
pub(super) type Links = Vec<(Vec<u8>, Vec<u8>)>;

/// `layer.json`.
#[derive(Serialize, Deserialize)]
struct AboutLayer {
    format: u32,
    /// The digest of the listing of `tree`.
    tree: String,
    bytes: u64,
    links: Links,
}

/// An unpacked layer, already under its name or not yet.
pub(super) struct Layer {
    pub(super) diff_id: String,
    pub(super) tree: PathBuf,
    links: Links,
    /// `Some` until it gets its name.
    part: Option<Part>,
}

/// A layer that is being unpacked; removed when dropped.
pub(super) struct Part {
    path: PathBuf,
    is_here: bool,
    steps: Steps,
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_here
            && self.steps.alive()
            && let Err(error) = disk::remove_tree(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a partially unpacked layer; the next import removes it");
        }
    }
}

impl Images {
    fn layers_directory(&self) -> PathBuf {
        self.directory.join(DIRECTORY)
    }

    /// Prevents the removal of any layer as long as the returned lock is held.
    pub(super) fn keep_layers(&self) -> Result<File, StorageError> {
        disk::make_directories(&self.layers_directory())?;
        disk::close_directory(&self.layers_directory())?;
        disk::lock_shared(&self.layers_directory().join(LOCK))
    }

    /// Returns the layer with that content, if it exists and is intact. A damaged one is set aside,
    /// and one that the disk cannot read, since the caller has it at hand.
    pub(super) fn layer(&self, diff_id: &str) -> Result<Option<Layer>, StorageError> {
        match self.stored_layer(diff_id) {
            Err(error) if error.is_unread() => {
                tracing::warn!(layer = diff_id, %error, "a layer cannot be read; unpacking it again");
                self.set_aside(diff_id)?;
                Ok(None)
            }
            found => found,
        }
    }

    /// Returns the layer with that content, if it exists and is intact. A damaged one is set aside.
    fn stored_layer(&self, diff_id: &str) -> Result<Option<Layer>, StorageError> {
        let path = self.layers_directory().join(diff_id);
        let about = path.join(ABOUT);
        let text = match fs::read(&about) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &about)(error)),
        };
        let tree = path.join(TREE);
        let sound = serde_json::from_slice::<AboutLayer>(&text).ok().filter(|about| about.format == FORMAT);
        if !self.has_ids(diff_id)? {
            tracing::info!(layer = diff_id, "a layer was unpacked with other host IDs; unpacking it again");
        } else if let Some(about) = sound
            && listing::list(&tree, self.ids)?.complete()?.digest.as_str() == about.tree
        {
            return Ok(Some(Layer { diff_id: diff_id.to_owned(), tree, links: about.links, part: None }));
        } else {
            tracing::warn!(layer = diff_id, "a layer is damaged; unpacking it again");
        }
        self.set_aside(diff_id)?;
        Ok(None)
    }

    fn set_aside(&self, diff_id: &str) -> Result<(), StorageError> {
        let path = self.layers_directory().join(diff_id);
        let gone = self.layers_directory().join(format!("{GONE}{diff_id}"));
        disk::remove_tree(&gone)?;
        fs::rename(&path, &gone).map_err(failed("set aside", &path))?;
        disk::remove_tree(&gone)
    }

    /// Sets aside the damaged ones of these layers, so that they are fetched and unpacked again.
    /// Images keep their files.
    pub(super) fn set_aside_damaged(&self, diff_ids: &[String]) -> Result<(), StorageError> {
        if diff_ids.is_empty() {
            return Ok(());
        }
        let _kept = self.keep_layers()?;
        diff_ids.iter().try_for_each(|diff_id| self.stored_layer(diff_id).map(drop))
    }

    /// Returns the names of the stored layers.
    pub(crate) fn layer_names(&self) -> Result<Vec<String>, StorageError> {
        let directory = self.layers_directory();
        let mut names = if directory.is_dir() { disk::names(&directory)? } else { Vec::new() };
        names.retain(|name| is_diff_id(name));
        names.sort_unstable();
        Ok(names)
    }

    /// Reads a layer completely. Returns its length, and whether it is intact; `None` if it is not
    /// stored. A damaged one is set aside, so that it is fetched again when it is needed.
    pub(crate) fn check_layer(&self, diff_id: &str) -> Result<Option<(u64, bool)>, StorageError> {
        let _kept = self.keep_layers()?;
        let about = self.layers_directory().join(diff_id).join(ABOUT);
        let text = match fs::read(&about) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &about)(error)),
        };
        // It is no longer used, and images keep their files.
        if !self.has_ids(diff_id)? {
            return Ok(None);
        }
        let bytes = serde_json::from_slice::<AboutLayer>(&text).map_or(0, |about| about.bytes);
        Ok(Some((bytes, self.stored_layer(diff_id)?.is_some())))
    }

    /// Returns whether a layer exists, without checking its content.
    pub(crate) fn has_layer(&self, diff_id: &str) -> bool {
        is_diff_id(diff_id)
            && self.layers_directory().join(diff_id).join(ABOUT).is_file()
            && self.has_ids(diff_id).is_ok_and(|has_ids| has_ids)
    }

    /// Returns whether a layer was unpacked with the present host IDs.
    fn has_ids(&self, diff_id: &str) -> Result<bool, StorageError> {
        let path = self.layers_directory().join(diff_id);
        Ok(dorm_disk::recorded(&path).map_err(StorageError::owners(&path))? == self.ids)
    }

    /// Creates an empty directory for a layer.
    fn part(&self) -> Result<Part, StorageError> {
        let mut number = 0u64;
        loop {
            let path = self.layers_directory().join(format!("{PART}{number}"));
            match disk::make_directory(&path) {
                Ok(()) => return Ok(Part { path, is_here: true, steps: self.steps.clone() }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed("create the directory", &path)(error)),
            }
        }
    }

    /// Gives layers their names. All their content must be durable.
    pub(super) fn publish_layers(&self, layers: &mut [Layer]) -> Result<(), StorageError> {
        let directory = self.layers_directory();
        for layer in layers {
            let Some(part) = &mut layer.part else { continue };
            match disk::rename_new(&part.path, &directory.join(&layer.diff_id)) {
                Ok(()) => part.is_here = false,
                // Another import has unpacked the same layer: both are intact.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("rename the complete layer", &part.path)(error)),
            }
            self.steps.reach(Step::LayerNamed)?;
        }
        disk::sync_directory(&directory, &self.steps)?;
        self.steps.reach(Step::LayersNamed)
    }

    /// Removes layers that no image names, and the remains of interrupted imports, unless an import
    /// is in progress.
    pub(super) fn clear_layers(&self) -> Result<(), StorageError> {
        let directory = self.layers_directory();
        if !directory.is_dir() {
            return Ok(());
        }
        let Some(_alone) = disk::try_lock(&directory.join(LOCK))? else { return Ok(()) };
        let mut needed = BTreeSet::new();
        for digest in self.digests()? {
            match self.about(&digest) {
                Ok(about) => needed.extend(about.layers),
                Err(StorageError::NoImage { .. }) => {}
                // An image that cannot be read may need any layer.
                Err(error) => {
                    tracing::warn!(image = %digest, error = %error, "cannot read an image; keeping all layers");
                    return Ok(());
                }
            }
        }
        for name in disk::names(&directory)? {
            let path = directory.join(&name);
            if name.starts_with(PART) || name.starts_with(GONE) {
                disk::remove_tree(&path)?;
            } else if is_diff_id(&name) && !needed.contains(&name) {
                let gone = directory.join(format!("{GONE}{name}"));
                disk::remove_tree(&gone)?;
                fs::rename(&path, &gone).map_err(failed("rename before removing", &path))?;
                self.steps.reach(Step::LayerSetAside)?;
                disk::remove_tree(&gone)?;
            }
        }
        Ok(())
    }
}

/// Returns whether `name` is that of a layer: the SHA-256 of its archive.
pub(super) fn is_diff_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Writes the description of a layer beside it.
fn describe(part: &Path, links: &Links, images: &Images) -> Result<(), StorageError> {
    let found = listing::list(&part.join(TREE), images.ids)?.complete()?;
    let about = AboutLayer { format: FORMAT, tree: found.digest.to_string(), bytes: found.bytes, links: links.clone() };
    disk::write_new(&part.join(RECORD), images.ids.to_record().as_bytes(), &images.steps)?;
    let path = part.join(ABOUT);
    let text = serde_json::to_vec(&about).map_err(|error| failed("assemble", &path)(io::Error::from(error)))?;
    disk::write_new(&path, &text, &images.steps)
}
