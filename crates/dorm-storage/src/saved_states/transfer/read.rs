//! Reads an export file, which may be hostile. All content is compared with what the file declared
//! before. Everything is written into a draft, and no more than was declared.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use dorm_engine::{Content, EntryKind, FileSink, NoContent};

use super::{
    BLOCK, CONTENT, Exported, ExportedTree, ImportAs, Imported, LISTING, MANIFEST, MANIFEST_MAX, MEMORY, PIECE_HEAD,
    head, manifest, padding, refused,
};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::room::{self, Meter};
use crate::saved_states::{
    Below, Listed, SavedState, SavedStateDraft, SavedStateFacts, SavedStateFile, SavedStates, TreeWriter, WrittenFile,
    listing,
};
use crate::steps::Step;

const BUFFER: usize = 256 << 10;
/// The maximum length of a line of a listing, more than any path with attributes has.
const LINE_MAX: u64 = 16 << 20;

/// An export file of which only the manifest has been read.
pub struct Incoming {
    about: Exported,
    from: Source,
}

impl Incoming {
    /// Reads the manifest.
    ///
    /// # Errors
    /// [`StorageError::Export`] if it is no valid manifest, [`StorageError::Format`] if it is of a
    /// newer version.
    pub(crate) fn open(from: Box<dyn Read + Send>) -> Result<Self, StorageError> {
        let mut from = Source(BufReader::with_capacity(BUFFER, from));
        let bytes = from.head(MANIFEST)?;
        if bytes > MANIFEST_MAX {
            return Err(refused("its manifest is too long"));
        }
        let mut text = Vec::new();
        from.copy(MANIFEST, bytes, &mut |piece| {
            text.extend_from_slice(piece);
            Ok(())
        })?;
        from.pad(MANIFEST, bytes)?;
        Ok(Self { about: manifest::read(&text)?, from })
    }

    /// The manifest of the file. Its claims are checked only when the file is unpacked.
    pub fn about(&self) -> &Exported {
        &self.about
    }
}

impl SavedStates {
    /// Unpacks a file into saved states. If this fails, there are none.
    pub(crate) fn import(self: &Arc<Self>, incoming: Incoming, name: &ImportAs) -> Result<Imported, StorageError> {
        let Incoming { about, mut from } = incoming;
        let top = about.memory.is_empty();
        let mut layer = None;
        if let Some(tree) = &about.tree {
            let id = if top { &name.saved_state } else { &name.layer };
            let draft = self.begin(id, tree.data_bytes.saturating_add(tree.listing_bytes))?;
            layer = Some(unpack_tree(draft, &about.facts, tree, &mut from)?);
        }
        let unpacked = match (layer, top) {
            (Some(saved_state), true) => from.end().and_then(|()| self.compare(saved_state, &about)),
            (layer, _) => {
                self.unpack_memory(name, &about, layer.clone(), &mut from).map(|saved_state| (saved_state, layer))
            }
        };
        let checked = unpacked.and_then(|(saved_state, layer)| {
            self.steps().reach(Step::Imported)?;
            Ok(Imported { saved_state, layer })
        });
        if checked.is_err() && self.steps().alive() {
            self.remove(&name.saved_state)?;
            self.remove(&name.layer)?;
        }
        checked
    }

    /// Checks that the tree on the disk matches the file, to the last byte.
    fn compare(
        &self,
        saved_state: SavedState,
        about: &Exported,
    ) -> Result<(SavedState, Option<SavedState>), StorageError> {
        let said = about.tree.as_ref().map(|tree| (tree.facts, tree.listing_bytes, &tree.listing_blake3[..]));
        let listed = saved_state.files.first().map(|file| (file.bytes, &file.blake3[..]));
        let found = saved_state.tree.zip(listed).map(|(facts, (bytes, blake3))| (facts, bytes, blake3));
        if said.is_none() || said != found {
            return Err(refused("its files do not match its manifest"));
        }
        match self.check_content(&saved_state) {
            Ok(()) => Ok((saved_state, None)),
            Err(StorageError::Damaged { file, what, .. }) => {
                Err(refused(format!("its list of files is invalid: {} {what}", file.display())))
            }
            Err(error) => Err(error),
        }
    }

    fn unpack_memory(
        self: &Arc<Self>,
        name: &ImportAs,
        about: &Exported,
        layer: Option<SavedState>,
        from: &mut Source,
    ) -> Result<SavedState, StorageError> {
        let layer = match layer {
            Some(layer) => Some(self.compare(layer, about)?.0.id),
            None => None,
        };
        let need = about.memory.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let draft = self.begin(&name.saved_state, need)?;
        let mut meter = self.meter();
        for file in &about.memory {
            unpack_file(draft.directory(), file, from, &mut meter)?;
        }
        from.end()?;
        let files = about.memory.iter().map(|file| WrittenFile {
            name: file.name.clone(),
            bytes: file.bytes,
            shared_with: None,
            blake3: None,
        });
        let files: Vec<_> = files.collect();
        let saved_state = draft.commit_now(&SavedStateFacts { layer, ..about.facts.clone() }, &files)?;
        let mut said = about.memory.clone();
        said.sort_by(|a, b| a.name.cmp(&b.name));
        if saved_state.files != said {
            return Err(refused("its memory does not match its manifest"));
        }
        Ok(saved_state)
    }
}

fn unpack_file(
    directory: &Path,
    file: &SavedStateFile,
    from: &mut Source,
    meter: &mut Meter,
) -> Result<(), StorageError> {
    meter.charge_inode()?;
    let name = format!("{MEMORY}/{}", file.name.display());
    if from.head(&name)? != file.bytes {
        return Err(refused(format!("the length of its entry '{name}' does not match its manifest")));
    }
    let path = directory.join(&file.name);
    if let Some(above) = path.parent() {
        disk::make_directories(above)?;
    }
    let mut to = create(&path)?;
    let mut hasher = blake3::Hasher::new();
    from.copy(&name, file.bytes, &mut |piece| {
        hasher.update(piece);
        meter.charge_bytes(piece.len() as u64)?;
        to.write_all(piece).map_err(failed("write", &path))
    })?;
    from.pad(&name, file.bytes)?;
    match hasher.finalize().to_hex().as_str() == file.blake3 {
        true => Ok(()),
        false => Err(refused(format!("the hash of its entry '{name}' does not match its manifest"))),
    }
}

fn unpack_tree(
    draft: SavedStateDraft,
    facts: &SavedStateFacts,
    about: &ExportedTree,
    from: &mut Source,
) -> Result<SavedState, StorageError> {
    let path = draft.memory()?.join(LISTING);
    take_listing(&path, about, from, &mut draft.meter())?;
    let mut lines = BufReader::with_capacity(64 << 10, File::open(&path).map_err(failed("open", &path))?);
    let mut tree = draft.tree(Below::default())?;
    let mut left = Left { entries: about.facts.entries, files: about.facts.bytes, data: about.data_bytes };
    let mut number = 0u64;
    while let Some(listed) = next_line(&mut lines, &path)? {
        left.entries =
            left.entries.checked_sub(1).ok_or_else(|| refused("its listing has more lines than its manifest says"))?;
        match listed.entry.kind {
            EntryKind::File { bytes } => {
                left.files = left
                    .files
                    .checked_sub(bytes)
                    .ok_or_else(|| refused("its files are longer than its manifest says"))?;
                take_content(&mut tree, &listed, &format!("{CONTENT}/{number}"), &mut left, from)?;
                number += 1;
            }
            EntryKind::Directory { .. }
            | EntryKind::Symlink(_)
            | EntryKind::HardLink(_)
            | EntryKind::Fifo
            | EntryKind::Removed => tree.take(&listed.entry, &mut NoContent).map_err(|error| kept(error, &path))?,
        }
    }
    if (left.entries, left.files) != (0, 0) {
        return Err(refused("its listing is shorter than its manifest says"));
    }
    tree.settle().map_err(|error| kept(error, &path))?;
    draft.commit_tree_now(facts, &tree)
}

/// The amounts that may still follow.
struct Left {
    entries: u64,
    files: u64,
    data: u64,
}

fn take_listing(path: &Path, about: &ExportedTree, from: &mut Source, meter: &mut Meter) -> Result<(), StorageError> {
    if from.head(LISTING)? != about.listing_bytes {
        return Err(refused("the length of its listing does not match its manifest"));
    }
    let mut to = create(path)?;
    let mut hasher = blake3::Hasher::new();
    from.copy(LISTING, about.listing_bytes, &mut |piece| {
        hasher.update(piece);
        meter.charge_bytes(piece.len() as u64)?;
        to.write_all(piece).map_err(failed("write", path))
    })?;
    from.pad(LISTING, about.listing_bytes)?;
    match hasher.finalize().to_hex().as_str() == about.listing_blake3 {
        true => Ok(()),
        false => Err(refused("the hash of its listing does not match its manifest")),
    }
}

fn next_line(from: &mut impl BufRead, path: &Path) -> Result<Option<Listed>, StorageError> {
    let mut line = Vec::new();
    let read = from.take(LINE_MAX).read_until(b'\n', &mut line).map_err(failed("read", path))?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(refused("the last line of its listing is incomplete"));
    }
    let listed = listing::read(&line[..]).map_err(|what| refused(format!("its listing {what}")))?;
    match listed.into_iter().next() {
        Some(listed) => Ok(Some(listed)),
        None => Err(refused("its listing has an empty line")),
    }
}

fn take_content(
    tree: &mut TreeWriter,
    listed: &Listed,
    name: &str,
    left: &mut Left,
    from: &mut Source,
) -> Result<(), StorageError> {
    let bytes = from.head(name)?;
    let mut content = Pieces { from, name, entry: bytes, piece: (0, 0), buffer: vec![0; BUFFER], left, failed: None };
    let taken = tree.take(&listed.entry, &mut content);
    let failure = content.failed.take();
    let rest = content.entry;
    match (failure, taken) {
        (Some(failure), _) => return Err(failure),
        (None, Err(error)) => return Err(kept(error, Path::new(name))),
        (None, Ok(())) => {}
    }
    if rest != 0 {
        return Err(refused(format!("its entry '{name}' is longer than its content")));
    }
    from.pad(name, bytes)
}

/// Converts an error of writing: the disk or the file may be at fault.
fn kept(error: io::Error, path: &Path) -> StorageError {
    let error = match room::full("unpack", path, error) {
        Ok(full) => return full,
        Err(error) => error,
    };
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::IO) => failed("unpack", path)(error),
        _ => StorageError::Export { what: "one of its files cannot be written".to_owned(), source: Some(error) },
    }
}

fn create(path: &Path) -> Result<File, StorageError> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed("make", path))
}

/// The content of one file, as it arrives.
struct Pieces<'a> {
    from: &'a mut Source,
    name: &'a str,
    /// The bytes of the entry that have yet to be read.
    entry: u64,
    /// The bytes of the piece that have yet to be read, and their position in the file.
    piece: (u64, u64),
    buffer: Vec<u8>,
    left: &'a mut Left,
    /// Why it ended early. An I/O error would not tell whether the disk or the file is at fault.
    failed: Option<StorageError>,
}

impl Pieces<'_> {
    fn advance(&mut self) -> Result<Option<(u64, usize)>, StorageError> {
        let wrong = |what: &str| Err(refused(format!("its entry '{}' {what}", self.name)));
        if self.piece.1 == 0 {
            if self.entry == 0 {
                return Ok(None);
            }
            let Some(rest) = self.entry.checked_sub(PIECE_HEAD) else { return wrong("ends within a piece") };
            let (mut at, mut bytes) = ([0; 8], [0; 8]);
            self.from.exact(self.name, &mut at)?;
            self.from.exact(self.name, &mut bytes)?;
            let (at, bytes) = (u64::from_le_bytes(at), u64::from_le_bytes(bytes));
            if bytes == 0 || bytes > rest || at.checked_add(bytes).is_none() {
                return wrong("has an invalid piece");
            }
            let Some(data) = self.left.data.checked_sub(bytes) else {
                return wrong("has more data than its manifest says");
            };
            (self.left.data, self.entry, self.piece) = (data, rest, (at, bytes));
        }
        let (at, bytes) = self.piece;
        let want = usize::try_from(bytes).unwrap_or(usize::MAX).min(BUFFER);
        let part = self.buffer.get_mut(..want).unwrap_or_default();
        self.from.exact(self.name, part)?;
        self.entry -= want as u64;
        self.piece = (at + want as u64, bytes - want as u64);
        Ok(Some((at, want)))
    }
}

impl Content for Pieces<'_> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        match self.advance() {
            Ok(None) => Ok(None),
            Ok(Some((at, bytes))) => Ok(Some((at, self.buffer.get(..bytes).unwrap_or_default()))),
            Err(error) => {
                self.failed = Some(error);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }
}

/// The input.
struct Source(BufReader<Box<dyn Read + Send>>);

impl Source {
    /// Reads the header of the next entry, which must have this name, and returns its length.
    fn head(&mut self, name: &str) -> Result<u64, StorageError> {
        let mut block = [0; BLOCK as usize];
        self.exact(name, &mut block)?;
        let not = || refused(format!("there is something else where its entry '{name}' belongs"));
        let bytes = tar::Header::from_byte_slice(&block).entry_size().map_err(|_| not())?;
        let expected = head(name, bytes).map_err(|_| not())?;
        match expected.as_bytes() == &block {
            true => Ok(bytes),
            false => Err(not()),
        }
    }

    /// Passes the content of an entry to `to`, piece by piece.
    fn copy(
        &mut self,
        name: &str,
        bytes: u64,
        to: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut left = bytes;
        while left > 0 {
            let piece = self.0.fill_buf().map_err(|error| broken(name, error))?;
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            if want == 0 {
                return Err(short(name));
            }
            to(piece.get(..want).unwrap_or_default())?;
            self.0.consume(want);
            left -= want as u64;
        }
        Ok(())
    }

    fn exact(&mut self, name: &str, into: &mut [u8]) -> Result<(), StorageError> {
        self.0.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => short(name),
            _ => broken(name, error),
        })
    }

    /// Reads the zeros after an entry.
    fn pad(&mut self, name: &str, bytes: u64) -> Result<(), StorageError> {
        let mut zeros = [0; BLOCK as usize];
        let zeros = zeros.get_mut(..usize::try_from(padding(bytes)).unwrap_or(0)).unwrap_or_default();
        self.exact(name, zeros)?;
        match zeros.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(refused(format!("there is something after its entry '{name}'"))),
        }
    }

    /// Reads the end-of-archive marker; nothing may follow.
    fn end(&mut self) -> Result<(), StorageError> {
        let mut mark = [0; 2 * BLOCK as usize];
        self.exact("the mark at its end", &mut mark)?;
        let mut more = [0];
        let is_over = self.0.read(&mut more).map_err(|error| broken("the mark at its end", error))? == 0;
        match is_over && mark.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(refused("there is something where it should end")),
        }
    }
}

fn short(name: &str) -> StorageError {
    refused(format!("it is cut short, at '{name}'"))
}

fn broken(name: &str, source: io::Error) -> StorageError {
    StorageError::Export { what: format!("it cannot be read, at '{name}'"), source: Some(source) }
}
