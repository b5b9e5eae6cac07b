//! Writes a saved state as one file.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_engine::EntryKind;
use dorm_lifecycle::{Digest, SavedStateId};

use super::{
    BLOCK, CONTENT, ENTRIES_MAX, ExportNote, Exported, ExportedTree, LISTING, LISTING_MAX, MANIFEST, MEMORY,
    PIECE_HEAD, head, manifest, padding, refused,
};
use crate::error::{StorageError, failed};
use crate::saved_states::content::next_data;
use crate::saved_states::draft::open_regular;
use crate::saved_states::flatten::{Merged, open};
use crate::saved_states::{SavedState, SavedStates, TreeFacts, listing};
use crate::steps::Step;

const BUFFER: usize = 256 << 10;

/// A saved state that is ready to be exported. It has been verified, and the content of its file is
/// fixed.
pub struct Export {
    saved_states: Arc<SavedStates>,
    about: Exported,
    manifest: Vec<u8>,
    saved_state: SavedState,
    tree: Option<Merged>,
    bytes: u64,
}

/// The image below the files of a saved state.
pub(crate) struct BaseImage {
    /// Its root file system.
    pub(crate) rootfs: PathBuf,
    /// Its tags, which the manifest names.
    pub(crate) tags: Vec<String>,
}

/// Counts and hashes the written bytes.
#[derive(Default)]
struct Measure {
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Write for Measure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SavedStates {
    /// Reads a saved state to its last byte and determines the manifest of its file.
    pub(crate) fn export(
        self: &Arc<Self>,
        id: &SavedStateId,
        note: ExportNote,
        image: &dyn Fn(&Digest) -> Result<BaseImage, StorageError>,
    ) -> Result<Export, StorageError> {
        let saved_state = self.load(id)?;
        let image = image(&saved_state.facts.image)?;
        let (memory, top) = match saved_state.tree {
            Some(_) => (Vec::new(), Some(&saved_state.id)),
            None => (saved_state.files.clone(), saved_state.facts.layer.as_ref()),
        };
        if saved_state.tree.is_none() {
            self.check_content(&saved_state)?;
        }
        let tree = top.map(|top| self.merged(top, &image.rootfs)).transpose()?;
        let measured = tree.as_ref().map(measure).transpose()?;
        let facts = super::SavedStateFacts { layer: None, parent: None, ..saved_state.facts.clone() };
        let about = Exported {
            note,
            facts,
            image_tags: image.tags,
            tree: measured.as_ref().map(|(tree, _)| tree.clone()),
            memory,
        };
        let manifest = manifest::text(&about)
            .map_err(|error| failed("describe", &saved_state.directory)(io::Error::from(error)))?;
        // An export that could not be imported is refused.
        manifest::read(&manifest)?;
        self.steps().reach(Step::ExportReady)?;
        let memory: u64 = about.memory.iter().map(|file| space(file.bytes)).sum();
        let contents = measured.map_or(0, |(_, bytes)| bytes);
        let bytes = space(manifest.len() as u64) + contents + memory + 2 * BLOCK;
        Ok(Export { saved_states: self.clone(), about, manifest, saved_state, tree, bytes })
    }
}

/// Returns the space of an entry of this length.
const fn space(bytes: u64) -> u64 {
    BLOCK + bytes + padding(bytes)
}

/// Returns the description of a tree, and the space of its entries.
fn measure(tree: &Merged) -> Result<(ExportedTree, u64), StorageError> {
    let mut listing = Measure::default();
    let mut facts = TreeFacts::default();
    let (mut data_bytes, mut contents) = (0, 0);
    for (listed, source) in &tree.entries {
        let root = tree.root(source);
        listing::write(&mut listing, listed).map_err(failed("list what is in", &root))?;
        facts.entries += 1;
        if let EntryKind::File { bytes } = listed.entry.kind {
            facts.bytes += bytes;
            let file = open(&root, &source.1).map_err(failed("open a file of", &root))?;
            let pieces = pieces(&file, bytes).map_err(failed("read a file of", &root))?;
            data_bytes += pieces.iter().map(|(_, bytes)| bytes).sum::<u64>();
            contents += space(pieces.iter().map(|(_, bytes)| PIECE_HEAD + bytes).sum());
        }
    }
    if facts.entries > ENTRIES_MAX || listing.bytes > LISTING_MAX {
        let entries = facts.entries;
        return Err(refused(format!(
            "{entries} files and directories are more than the {ENTRIES_MAX} that go into one"
        )));
    }
    let listing_blake3 = listing.hasher.finalize().to_hex().to_string();
    let contents = contents + space(listing.bytes);
    Ok((ExportedTree { facts, data_bytes, listing_bytes: listing.bytes, listing_blake3 }, contents))
}

/// Returns the position and length of each piece of a file that is not a hole.
fn pieces(file: &File, length: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < length {
        let Some((start, end)) = next_data(file, at)? else { break };
        let end = end.min(length);
        if start >= end {
            break;
        }
        all.push((start, end - start));
        at = end;
    }
    Ok(all)
}

impl Export {
    /// The manifest of its file.
    pub fn about(&self) -> &Exported {
        &self.about
    }

    /// The length of its file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the file. Blocks.
    ///
    /// # Errors
    /// [`StorageError::Io`] if something can no longer be read, or `to` fails.
    pub fn write_to(&self, to: &mut dyn Write) -> Result<(), StorageError> {
        let passing_on = || failed("pass on the file of", &self.saved_state.directory);
        entry(to, MANIFEST, &self.manifest).map_err(passing_on())?;
        if let (Some(tree), Some(about)) = (&self.tree, &self.about.tree) {
            self.write_tree(tree, about, to).map_err(passing_on())?;
        }
        for file in &self.about.memory {
            let path = self.saved_state.directory.join(&file.name);
            self.write_memory(&path, &format!("{MEMORY}/{}", file.name.display()), file.bytes, to)
                .map_err(passing_on())?;
        }
        to.write_all(&[0; 2 * BLOCK as usize]).and_then(|()| to.flush()).map_err(passing_on())?;
        self.saved_states.steps().reach(Step::Exported)
    }

    fn write_memory(&self, path: &Path, name: &str, bytes: u64, to: &mut dyn Write) -> io::Result<()> {
        let file = open_regular(path)?.ok_or(io::ErrorKind::NotFound)?;
        to.write_all(head(name, bytes)?.as_bytes())?;
        copy(&mut BufReader::with_capacity(BUFFER, file.take(bytes)), bytes, to)?;
        pad(to, bytes)
    }

    fn write_tree(&self, tree: &Merged, about: &ExportedTree, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(head(LISTING, about.listing_bytes)?.as_bytes())?;
        let mut buffered = io::BufWriter::with_capacity(BUFFER, &mut *to);
        for (listed, _) in &tree.entries {
            listing::write(&mut buffered, listed)?;
        }
        buffered.flush()?;
        drop(buffered);
        pad(to, about.listing_bytes)?;
        let mut number = 0u64;
        for (listed, source) in &tree.entries {
            let EntryKind::File { bytes } = listed.entry.kind else { continue };
            let file = open(&tree.root(source), &source.1)?;
            let pieces = pieces(&file, bytes)?;
            let length = pieces.iter().map(|(_, bytes)| PIECE_HEAD + bytes).sum();
            to.write_all(head(&format!("{CONTENT}/{number}"), length)?.as_bytes())?;
            for (at, bytes) in pieces {
                to.write_all(&at.to_le_bytes())?;
                to.write_all(&bytes.to_le_bytes())?;
                copy(&mut Piece { file: &file, at }.take(bytes), bytes, to)?;
            }
            pad(to, length)?;
            number += 1;
        }
        Ok(())
    }
}

/// A file from some position on.
struct Piece<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Piece<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = std::os::unix::fs::FileExt::read_at(self.file, buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

fn entry(to: &mut dyn Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    let length = bytes.len() as u64;
    to.write_all(head(name, length)?.as_bytes())?;
    to.write_all(bytes)?;
    pad(to, length)
}

fn copy(from: &mut dyn Read, bytes: u64, to: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut left = bytes;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER);
        let part = buffer.get_mut(..want).unwrap_or_default();
        from.read_exact(part)?;
        to.write_all(part)?;
        left -= want as u64;
    }
    Ok(())
}

fn pad(to: &mut dyn Write, bytes: u64) -> io::Result<()> {
    let zeros = [0; BLOCK as usize];
    to.write_all(zeros.get(..usize::try_from(padding(bytes)).unwrap_or(0)).unwrap_or_default())
}
