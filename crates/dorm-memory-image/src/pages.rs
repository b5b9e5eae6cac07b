//! The positions of the pages of memory files, and the content of a file that is stored in such
//! pages.
//!
//! For each memory file, `pages_meta.img` has sets that describe which ranges of it are in use,
//! followed by the lengths of the ranges that were written to `pages.img` one after the other. The
//! first memory file is the guest's memory; then come the names of the others, and then these
//! themselves.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use dorm_engine::Content;

use crate::budget::Budget;
use crate::error::MemoryImageError;
use crate::graph::{self, Graph, Part};
use crate::map::PagesMap;
use crate::wire::{Items, Value, Wire};

const FILE: &str = "pages_meta.img";
const SET: &str = "pkg/sentry/pgalloc.memAcctSet";
const SEGMENT: &str = "pkg/sentry/pgalloc.memAcctFlatSegment";
const INFO: &str = "pkg/sentry/pgalloc.memAcctInfo";
const OWNERS: &str = "pkg/sentry/kernel.privateMemoryFileMetadata";
const FILE_SEGMENT: &str = "pkg/sentry/fsutil.FileRangeFlatSegment";
/// The maximum number of memory files. A sandbox has a few of them.
const FILES_MAX: usize = 1024;
/// The maximum size of a piece of content.
const PIECE_BYTES: u64 = 1 << 20;

/// The memory files of an image, by name.
pub(crate) struct MemoryFiles {
    files: Vec<(Vec<u8>, MemoryFile)>,
    /// The total number of bytes of pages.
    pub(crate) bytes: u64,
}

/// The ranges of one memory file that are in `pages.img`, in order.
#[derive(Default)]
pub(crate) struct MemoryFile {
    parts: Vec<PagePart>,
}

#[derive(Clone, Copy)]
struct PagePart {
    start: u64,
    end: u64,
    /// The position in the stream of pages: in `pages.img`, unless the image leaves out memory.
    offset: u64,
}

impl MemoryFiles {
    /// Reads `pages_meta.img`.
    pub(crate) fn read(bytes: &[u8], budget: &Budget) -> Result<Self, MemoryImageError> {
        let mut wire = Wire::new(bytes);
        let mut files = vec![(Vec::new(), MemoryFile::default())];
        let mut offset = 0_u64;
        let mut sets = 0;
        let mut written = 0;
        let mut owners_seen = false;
        while !wire.is_at_end() {
            match graph::next(FILE, &mut wire, budget)? {
                Part::Bytes(length) => {
                    let at = wire.position();
                    let wrong =
                        MemoryImageError::Damaged { file: FILE, what: "the pages are not where the index says", at };
                    let current = files.get_mut(sets - usize::from(sets > 0));
                    let part = current.and_then(|(_, file)| file.parts.get_mut(written)).filter(|_| sets > 0);
                    match part {
                        Some(part) if part.end - part.start == length => part.offset = offset,
                        _ => return Err(wrong),
                    }
                    written += 1;
                    offset = offset.checked_add(length).ok_or(wrong)?;
                }
                Part::Graph(graph) if graph.kind_of(0) == Some(SET.as_bytes()) => {
                    Self::is_written(&files, sets, written)?;
                    let Some((_, file)) = files.get_mut(sets) else {
                        return Err(MemoryImageError::different("there are more memory files than names"));
                    };
                    file.parts = committed(&graph, budget)?;
                    (sets, written) = (sets + 1, 0);
                }
                Part::Graph(graph) if graph.kind_of(0) == Some(OWNERS.as_bytes()) => {
                    if owners_seen || sets != 1 {
                        return Err(MemoryImageError::different(
                            "the names of the memory files do not follow the first memory file",
                        ));
                    }
                    owners_seen = true;
                    let names = owners(&graph)?;
                    files.extend(names.into_iter().map(|name| (name, MemoryFile::default())));
                }
                // The allocator's division of the memory does not matter here.
                Part::Graph(_) => {}
            }
        }
        Self::is_written(&files, sets, written)?;
        if !owners_seen {
            return Err(MemoryImageError::different(format!("pages_meta.img has no {OWNERS}")));
        }
        if sets != files.len() {
            return Err(MemoryImageError::Damaged {
                file: FILE,
                what: "it names memory files that are missing",
                at: bytes.len(),
            });
        }
        Ok(Self { files, bytes: offset })
    }

    /// Checks that all ranges of the previous memory file have been read.
    fn is_written(files: &[(Vec<u8>, MemoryFile)], sets: usize, written: usize) -> Result<(), MemoryImageError> {
        let expected = sets.checked_sub(1).and_then(|last| files.get(last)).map_or(0, |(_, file)| file.parts.len());
        if expected == written {
            return Ok(());
        }
        Err(MemoryImageError::Damaged { file: FILE, what: "some of the pages are missing", at: 0 })
    }

    /// Returns the memory file `name`; the guest's memory has the empty name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&MemoryFile> {
        self.files.iter().find(|(found, _)| found == name).map(|(_, file)| file)
    }
}

/// Returns the ranges whose pages were written, with their positions not yet set.
fn committed(graph: &Graph<'_>, budget: &Budget) -> Result<Vec<PagePart>, MemoryImageError> {
    let [root] = graph.fields(graph.root()?.value, SET, ["root"])?;
    let mut parts: Vec<PagePart> = Vec::new();
    let Some((_, mut items)) = graph.items(root)? else { return Ok(parts) };
    let mut last = 0;
    while let Some(segment) = graph.item(&mut items)? {
        let [start, end, value] = graph.fields(segment, SEGMENT, ["Start", "End", "Value"])?;
        let [is_committed] = graph.fields(graph.value(value)?, INFO, ["knownCommitted"])?;
        let (start, end) = (graph.unsigned(start)?, graph.unsigned(end)?);
        if start < last || end <= start {
            return Err(MemoryImageError::unsound("ranges of a memory file overlap"));
        }
        last = end;
        if graph.truth(is_committed)? {
            // A vector grows to twice its length.
            budget.take_memory(2 * size_of::<PagePart>() as u64)?;
            parts.push(PagePart { start, end, offset: 0 });
        }
    }
    Ok(parts)
}

fn owners(graph: &Graph<'_>) -> Result<Vec<Vec<u8>>, MemoryImageError> {
    let [owners] = graph.fields(graph.root()?.value, OWNERS, ["owners"])?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let Some((_, mut items)) = graph.items(owners)? else { return Ok(names) };
    while let Some(name) = graph.item(&mut items)? {
        let Value::Text(name) = name else {
            return Err(MemoryImageError::different(format!(
                "the field owners of {OWNERS} contains a value that is not a string"
            )));
        };
        if name.is_empty() || names.iter().any(|other| other == name) {
            return Err(MemoryImageError::unsound("two memory files have the same name"));
        }
        if names.len() >= FILES_MAX {
            return Err(MemoryImageError::unsound(format!("there are more than {FILES_MAX} memory files")));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

impl MemoryFile {
    /// Returns the first range that ends after `offset`.
    fn part_behind(&self, offset: u64) -> Option<PagePart> {
        let index = self.parts.partition_point(|part| part.end <= offset);
        self.parts.get(index).copied()
    }
}

/// The state for reading contents: the file of pages, a buffer for one piece, and how much may
/// still be read.
pub(crate) struct Source {
    pages: File,
    map: PagesMap,
    buffer: Vec<u8>,
    /// No page belongs to two files, so there is never more content than pages.
    left: u64,
}

impl Source {
    pub(crate) fn new(pages: File, bytes: u64, map: PagesMap) -> Self {
        Self { pages, map, buffer: Vec::new(), left: bytes }
    }
}

/// The content of one file.
pub(crate) struct FileContent<'a, 's> {
    pub(crate) graph: &'s Graph<'a>,
    pub(crate) memory: &'s MemoryFile,
    pub(crate) source: &'s mut Source,
    /// The ranges of the file, with their positions in the memory file.
    pub(crate) segments: Option<Items<'a>>,
    pub(crate) bytes: u64,
    span: Span,
}

/// The rest of the segment that is being returned.
#[derive(Clone, Copy, Default)]
struct Span {
    at: u64,
    end: u64,
    memory: u64,
}

impl<'a, 's> FileContent<'a, 's> {
    pub(crate) fn new(
        graph: &'s Graph<'a>,
        memory: &'s MemoryFile,
        source: &'s mut Source,
        segments: Option<Items<'a>>,
        bytes: u64,
    ) -> Self {
        Self { graph, memory, source, segments, bytes, span: Span::default() }
    }

    /// Advances to the next segment; returns `false` if there is none within the file.
    fn advance(&mut self) -> Result<bool, MemoryImageError> {
        let Some(segments) = &mut self.segments else { return Ok(false) };
        let Some(segment) = self.graph.item(segments)? else { return Ok(false) };
        let [start, end, value] = self.graph.fields(segment, FILE_SEGMENT, ["Start", "End", "Value"])?;
        let [start, end, memory] = [start, end, value].map(|field| self.graph.unsigned(field));
        let (start, end, memory) = (start?, end?, memory?);
        if start < self.span.end || end <= start || memory.checked_add(end - start).is_none() {
            return Err(MemoryImageError::unsound("ranges of a file overlap"));
        }
        if start >= self.bytes {
            return Ok(false);
        }
        self.span = Span { at: start, end: end.min(self.bytes), memory };
        Ok(true)
    }

    /// Returns the next piece: its position in the file, its position in the stream of pages, and
    /// its length.
    fn find(&mut self) -> Result<Option<(u64, u64, u64)>, MemoryImageError> {
        loop {
            let left = self.span.end - self.span.at;
            if left == 0 {
                if self.advance()? {
                    continue;
                }
                return Ok(None);
            }
            let part = self.memory.part_behind(self.span.memory);
            let hole = part.map_or(left, |part| part.start.saturating_sub(self.span.memory).min(left));
            self.pass(hole);
            let Some(part) = part.filter(|_| hole < left) else { continue };
            let length = (part.end - self.span.memory).min(left - hole).min(PIECE_BYTES);
            // Cannot overflow: the sum of the ranges was checked when they were read.
            let offset = part.offset + (self.span.memory - part.start);
            let found = (self.span.at, offset, length);
            self.pass(length);
            return Ok(Some(found));
        }
    }

    fn pass(&mut self, length: u64) {
        self.span.at += length;
        self.span.memory += length;
    }
}

impl Content for FileContent<'_, '_> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let Some((at, offset, length)) = self.find().map_err(io::Error::other)? else { return Ok(None) };
        let source = &mut *self.source;
        let Some(left) = source.left.checked_sub(length) else {
            return Err(io::Error::other(MemoryImageError::unsound("several files share pages")));
        };
        source.left = left;
        let part = source.map.find(offset);
        if part.in_base || part.bytes < length {
            return Err(io::Error::other(MemoryImageError::unsound("content of a file is left out of the image")));
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        if source.buffer.len() < length {
            source.buffer.resize(length, 0);
        }
        let Some(piece) = source.buffer.get_mut(..length) else { return Ok(None) };
        source.pages.read_exact_at(piece, part.offset)?;
        Ok(Some((at, piece)))
    }
}
