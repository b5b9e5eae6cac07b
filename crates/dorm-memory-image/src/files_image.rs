//! Reads an image that has only files: what `dorm-runsc` writes for a filesystem snapshot
//! (`engines/gvisor-mapped/files/pkg/sentry/fsimpl/tmpfs/dorm_files.go`).
//!
//! ```text
//! files.img    "dormfil1" RECORD… 0 ENTRIES BYTES "dormfend"
//! content.img  the pieces of all files, one after the other
//!
//! RECORD       KIND DEPTH NAME MODE USER GROUP MODIFIED DETAILS
//! DETAILS      hard link: the path of the first name
//!              symbolic link: TARGET ATTRIBUTES
//!              file: BYTES COUNT (GAP LENGTH)… ATTRIBUTES
//!              directory, named pipe: ATTRIBUTES
//!              removed entry, socket, device: nothing
//! ATTRIBUTES   COUNT (NAME VALUE)…
//! ```
//!
//! `ENTRIES` and `BYTES` have 8 bytes, the lowest first. All other numbers are in groups of 7
//! bits, the lowest first; the modification time, in nanoseconds, has its sign in the lowest bit.
//! A string is its length and its bytes. A directory precedes its entries, which are in ascending
//! order.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use dorm_engine::{Content, Entry, EntryKind, FileSink, LeftOut, NoContent};

use crate::budget::{Budget, FilesLimits};
use crate::error::MemoryImageError;
use crate::map::OpenFile;
use crate::tree::{TARGET_MAX, insert_attribute};
use crate::walk::{PATH_MAX, blank, is_component};
use crate::wire::{Fault, Wire};

/// The files of an image that has only files.
pub const FILES_IMAGE: [&str; 2] = [LIST, CONTENT];

pub(crate) const LIST: &str = "files.img";
const CONTENT: &str = "content.img";

const MAGIC: &[u8; 8] = b"dormfil1";
const END_MAGIC: &[u8; 8] = b"dormfend";
/// The length of what follows the last record.
const END_BYTES: usize = 1 + 8 + 8 + END_MAGIC.len();
/// The minimum length of a record.
pub(crate) const RECORD_BYTES_MIN: u64 = 7;
const PIECE_BYTES: u64 = 1 << 20;
const MODE_MAX: u64 = 0o7777;

const DIRECTORY: u64 = 1;
const REPLACING: u64 = 2;
const FILE: u64 = 3;
const SYMLINK: u64 = 4;
const HARD_LINK: u64 = 5;
const FIFO: u64 = 6;
const REMOVED: u64 = 7;
const SOCKET: u64 = 8;
const DEVICE: u64 = 9;

/// Returns whether the image in `directory` has only files.
pub fn has_only_files(directory: &Path) -> bool {
    directory.join(LIST).exists()
}

/// Passes every entry to `sink`. `files` are those of [`FILES_IMAGE`], in that order.
///
/// # Errors
/// When the image is invalid, or the sink fails.
pub fn read_files_image(
    files: [OpenFile; 2],
    limits: FilesLimits,
    sink: &mut dyn FileSink,
) -> Result<LeftOut, MemoryImageError> {
    let [(mut list, list_bytes), (content, content_bytes)] = files;
    let budget = Budget::new(limits, list_bytes);
    budget.take_memory(list_bytes)?;
    let mut text = Vec::with_capacity(usize::try_from(list_bytes).unwrap_or(0));
    list.read_to_end(&mut text).map_err(MemoryImageError::read(LIST))?;
    let (records, end) = split(&text)?;
    check_content(end, content_bytes)?;
    let mut source = Source { content, left: end.bytes, at: 0, buffer: Vec::new() };
    let (count, left) = Reader::new(records, &budget).run(&mut source, sink)?;
    if count != end.entries || source.left != 0 {
        return Err(MemoryImageError::unsound(format!("{LIST} does not have as much as it says at its end")));
    }
    Ok(left)
}

/// Returns the lengths that the files of [`FILES_IMAGE`] should have, in that order.
///
/// # Errors
/// When the image is shorter than it should be.
pub fn written_files_image(files: [OpenFile; 2]) -> Result<[u64; 2], MemoryImageError> {
    let [(list, list_bytes), (_, content_bytes)] = files;
    let mut tail = [0; END_BYTES];
    let Some(at) = list_bytes.checked_sub(END_BYTES as u64) else { return Err(cut(0)) };
    list.read_exact_at(&mut tail, at).map_err(MemoryImageError::read(LIST))?;
    let end = End::of(&tail).ok_or_else(|| cut(usize::try_from(at).unwrap_or(usize::MAX)))?;
    check_content(end, content_bytes)?;
    Ok([list_bytes, end.bytes])
}

fn check_content(end: End, found: u64) -> Result<(), MemoryImageError> {
    let expected = end.bytes;
    if expected == found {
        return Ok(());
    }
    Err(MemoryImageError::unsound(format!("{CONTENT} should have {expected} bytes and has {found}")))
}

/// The end of a list.
#[derive(Clone, Copy)]
struct End {
    entries: u64,
    bytes: u64,
}

impl End {
    fn of(tail: &[u8; END_BYTES]) -> Option<Self> {
        let ([0], rest) = tail.split_first_chunk::<1>()? else { return None };
        let (numbers, magic) = rest.split_last_chunk::<8>()?;
        let ([entries, bytes], []) = numbers.as_chunks::<8>() else { return None };
        (magic == END_MAGIC).then(|| Self { entries: u64::from_le_bytes(*entries), bytes: u64::from_le_bytes(*bytes) })
    }
}

fn cut(at: usize) -> MemoryImageError {
    MemoryImageError::Damaged { file: LIST, what: "it has no end", at }
}

/// Returns the records in a list, and its end.
fn split(text: &[u8]) -> Result<(&[u8], End), MemoryImageError> {
    let (rest, tail) = text.split_last_chunk::<END_BYTES>().ok_or_else(|| cut(text.len()))?;
    let end = End::of(tail).ok_or_else(|| cut(rest.len()))?;
    let (magic, records) = rest.split_first_chunk::<8>().ok_or_else(|| cut(rest.len()))?;
    if magic != MAGIC {
        return Err(MemoryImageError::different(format!("{LIST} does not begin with {}", MAGIC.escape_ascii())));
    }
    Ok((records, end))
}

/// A directory whose entries are being read.
struct Level {
    path_length: usize,
    last: Option<Vec<u8>>,
}

struct Reader<'a, 's> {
    wire: Wire<'a>,
    budget: &'s Budget,
    levels: Vec<Level>,
    entry: Entry,
    left: LeftOut,
}

impl<'a, 's> Reader<'a, 's> {
    fn new(records: &'a [u8], budget: &'s Budget) -> Self {
        Self { wire: Wire::new(records), budget, levels: Vec::new(), entry: blank(), left: LeftOut::default() }
    }

    /// Returns the number of entries, and what was left out.
    fn run(mut self, source: &mut Source, sink: &mut dyn FileSink) -> Result<(u64, LeftOut), MemoryImageError> {
        let mut count = 0;
        while !self.wire.is_at_end() {
            let pieces = self.record(count == 0)?;
            count += 1;
            let mut content;
            let content: &mut dyn Content = match (&self.entry.kind, pieces) {
                (EntryKind::File { .. }, Some(pieces)) => {
                    content = source.file(pieces)?;
                    &mut content
                }
                _ => &mut NoContent,
            };
            sink.take(&self.entry, content).map_err(|source| MemoryImageError::Sink {
                path: self.entry.path.escape_ascii().to_string(),
                source,
            })?;
        }
        Ok((count, self.left))
    }

    /// Reads a record into the entry. Returns the pieces of a file.
    fn record(&mut self, is_root: bool) -> Result<Option<Pieces<'a>>, MemoryImageError> {
        let kind = self.wire.uint().map_err(damaged)?;
        let depth = self.wire.uint().map_err(damaged)?;
        let name = self.wire.text().map_err(damaged)?;
        self.enter(is_root, depth, name)?;
        let mode = self.wire.uint().map_err(damaged)?;
        if mode > MODE_MAX {
            return self.wire.fault("a mode has other bits than permissions").map_err(damaged);
        }
        self.entry.mode = u32::try_from(mode).unwrap_or_default();
        self.entry.user = self.small()?;
        self.entry.group = self.small()?;
        let modified = self.wire.int().map_err(damaged)?;
        let nanoseconds = u32::try_from(modified.rem_euclid(1_000_000_000)).unwrap_or_default();
        self.entry.modified = (modified.div_euclid(1_000_000_000), nanoseconds);
        self.entry.attributes.clear();
        let mut pieces = None;
        self.entry.kind = match kind {
            DIRECTORY => EntryKind::Directory { replaces: false },
            REPLACING => EntryKind::Directory { replaces: true },
            FILE => {
                let found = Pieces::read(&mut self.wire)?;
                let bytes = found.bytes;
                pieces = Some(found);
                EntryKind::File { bytes }
            }
            SYMLINK => EntryKind::Symlink(self.target()?),
            HARD_LINK => EntryKind::HardLink(self.link()?),
            FIFO => EntryKind::Fifo,
            REMOVED => EntryKind::Removed,
            SOCKET => {
                self.left.sockets += 1;
                EntryKind::Removed
            }
            DEVICE => {
                self.left.devices += 1;
                EntryKind::Removed
            }
            _ => return self.wire.fault("a record has an unknown kind").map_err(damaged),
        };
        match self.entry.kind {
            EntryKind::Removed => (self.entry.mode, self.entry.modified) = (0, (0, 0)),
            EntryKind::HardLink(_) => {}
            EntryKind::Directory { .. } => {
                self.attributes()?;
                self.levels.push(Level { path_length: self.entry.path.len(), last: None });
            }
            _ => self.attributes()?,
        }
        if is_root && self.levels.is_empty() {
            return Err(MemoryImageError::unsound("the root is not a directory"));
        }
        Ok(pieces)
    }

    /// Makes `name`, `depth` directories below the root, the path of the entry.
    fn enter(&mut self, is_root: bool, depth: u64, name: &[u8]) -> Result<(), MemoryImageError> {
        if is_root {
            return match (depth, name) {
                (0, b"") => Ok(()),
                _ => Err(MemoryImageError::unsound("the first entry is not the root")),
            };
        }
        let depth = usize::try_from(depth).unwrap_or(usize::MAX);
        if depth == 0 || depth > self.levels.len() {
            return Err(MemoryImageError::unsound("an entry is in no directory"));
        }
        self.levels.truncate(depth);
        let Some(level) = self.levels.last_mut() else { return Err(MemoryImageError::unsound("there is no root")) };
        if !is_component(name) {
            return Err(MemoryImageError::unsound(format!("'{}' is not a valid file name", name.escape_ascii())));
        }
        if level.last.as_deref().is_some_and(|last| last >= name) {
            return Err(MemoryImageError::unsound("the entries of a directory are not in ascending order"));
        }
        let last = level.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(name);
        let path = &mut self.entry.path;
        path.truncate(level.path_length);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        if path.len() > PATH_MAX {
            return Err(MemoryImageError::unsound("a path is longer than the maximum path length"));
        }
        self.budget.take_entry(path)
    }

    fn small(&mut self) -> Result<u32, MemoryImageError> {
        let number = self.wire.uint().map_err(damaged)?;
        u32::try_from(number).or_else(|_| self.wire.fault("an owner is too large").map_err(damaged))
    }

    fn target(&mut self) -> Result<Vec<u8>, MemoryImageError> {
        let target = self.wire.text().map_err(damaged)?;
        if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
            return Err(MemoryImageError::unsound("the target of a symbolic link is not a valid path"));
        }
        Ok(target.to_vec())
    }

    fn link(&mut self) -> Result<Vec<u8>, MemoryImageError> {
        let path = self.wire.text().map_err(damaged)?;
        if path.len() > PATH_MAX || !path.split(|byte| *byte == b'/').all(is_component) {
            return Err(MemoryImageError::unsound("the path of a hard link is invalid"));
        }
        Ok(path.to_vec())
    }

    fn attributes(&mut self) -> Result<(), MemoryImageError> {
        for _ in 0..self.wire.count().map_err(damaged)? {
            let name = self.wire.text().map_err(damaged)?;
            let value = self.wire.text().map_err(damaged)?;
            insert_attribute(&mut self.entry.attributes, name, value)?;
        }
        Ok(())
    }
}

fn damaged(fault: Fault) -> MemoryImageError {
    MemoryImageError::Damaged { file: LIST, what: fault.what, at: fault.at.saturating_add(MAGIC.len()) }
}

/// The pieces of a file's content.
struct Pieces<'a> {
    /// The length of the file.
    bytes: u64,
    /// The length of all pieces.
    content: u64,
    left: u64,
    at: Wire<'a>,
}

impl<'a> Pieces<'a> {
    fn read(wire: &mut Wire<'a>) -> Result<Self, MemoryImageError> {
        let bytes = wire.uint().map_err(damaged)?;
        let left = wire.count().map_err(damaged)?;
        let at = *wire;
        let (mut end, mut content) = (0_u64, 0_u64);
        for _ in 0..left {
            let (gap, length) = (wire.uint().map_err(damaged)?, wire.uint().map_err(damaged)?);
            let start = end.checked_add(gap);
            match start.and_then(|start| start.checked_add(length)) {
                Some(after) if length > 0 && after <= bytes => end = after,
                _ => return Err(MemoryImageError::unsound("a piece of a file is empty or beyond its end")),
            }
            // Cannot overflow: the pieces do not overlap, and end within the file.
            content += length;
        }
        if i64::try_from(bytes).is_err() {
            return Err(MemoryImageError::unsound("a file is larger than the maximum file size"));
        }
        Ok(Self { bytes, content, left, at })
    }
}

/// The content of all files.
struct Source {
    content: File,
    /// How much of it belongs to files that were not read yet.
    left: u64,
    at: u64,
    buffer: Vec<u8>,
}

impl Source {
    fn file<'a, 's>(&'s mut self, pieces: Pieces<'a>) -> Result<FileContent<'a, 's>, MemoryImageError> {
        let Some(left) = self.left.checked_sub(pieces.content) else {
            return Err(MemoryImageError::unsound(format!("the files have more content than {CONTENT}")));
        };
        let offset = self.at;
        self.left = left;
        self.at += pieces.content;
        Ok(FileContent { source: self, pieces, offset, at: 0, rest: 0 })
    }
}

struct FileContent<'a, 's> {
    source: &'s mut Source,
    pieces: Pieces<'a>,
    /// The position of the next piece in the content of all files.
    offset: u64,
    /// Its position in the file.
    at: u64,
    /// The rest of the current piece.
    rest: u64,
}

impl Content for FileContent<'_, '_> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        if self.rest == 0 {
            let Some(left) = self.pieces.left.checked_sub(1) else { return Ok(None) };
            self.pieces.left = left;
            let mut number = || self.pieces.at.uint().map_err(|fault| io::Error::other(damaged(fault)));
            let (gap, length) = (number()?, number()?);
            self.at += gap;
            self.rest = length;
        }
        let length = self.rest.min(PIECE_BYTES);
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let buffer = &mut self.source.buffer;
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        let Some(piece) = buffer.get_mut(..bytes) else { return Ok(None) };
        self.source.content.read_exact_at(piece, self.offset)?;
        let at = self.at;
        self.offset += length;
        self.at += length;
        self.rest -= length;
        Ok(Some((at, piece)))
    }
}

#[cfg(test)]
mod tests;
