//! Reads the changes a guest made to its files out of a memory image, without running any guest
//! code.
//!
//! ```text
//! checkpoint.img ─► unframe ─► graph (wire) ─► tree ─► walk ─► sink
//! pages_meta.img ─► graph (wire) ─► pages ──────────────┘
//! pages.img ────────────────────────────────────────────┘  contents, piece by piece
//! ```
//!
//! The image itself names its types and fields; `graph` knows no others, and `tree` knows the names
//! that matter. The image was written by a process that its guest may have taken over: anything
//! unexpected is an error, every value is checked against the lengths of the files, and no path
//! leaves the root. This module does not know what the entries are used for.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

mod budget;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod graph;
mod pages;
#[cfg(test)]
mod sample;
mod told;
mod tree;
mod unframe;
mod walk;
mod whole;
mod wire;

use std::fs;
use std::path::Path;

use dorm_engine::{FileSink, LeftOut};
use dorm_worker::Program;

use self::budget::Budget;
pub use self::budget::FilesLimits;
pub(crate) use self::error::FilesError;
use self::graph::{Graph, Part};
use self::pages::{MemoryFiles, Source};
pub use self::told::READERS;
use self::walk::Walk;
pub(crate) use self::whole::written;
use self::wire::Wire;
use crate::boot::IMAGE_FILES;
use crate::error::GvisorError;

const CHECKPOINT: &str = "checkpoint.img";
/// The object that contains the whole state of the sandbox's kernel.
const KERNEL: &str = "pkg/sentry/kernel.Kernel";
/// The maximum size of `pages_meta.img`, which is read at once. It grows with the fragmentation of
/// the memory and stays far below this size.
const META_MAX: u64 = 1 << 30;

/// Like [`read`], but the image is parsed by a worker of `program`.
pub(crate) fn read_by(
    program: &Program,
    image: &Path,
    limits: FilesLimits,
    sink: &mut dyn FileSink,
) -> Result<LeftOut, GvisorError> {
    told::read(program, image, limits, sink).map_err(|source| GvisorError::Files { image: image.to_owned(), source })
}

/// Passes every change of the guest's root file system, and the content of its `/tmp`, to `sink`.
/// Blocks.
pub(crate) fn read(image: &Path, limits: FilesLimits, sink: &mut dyn FileSink) -> Result<LeftOut, GvisorError> {
    let open = |name: &str| {
        let path = image.join(name);
        let file = fs::File::open(&path).map_err(|source| GvisorError::file("open", &path, source))?;
        let facts = file.metadata().map_err(|source| GvisorError::file("read the metadata of", &path, source))?;
        Ok::<_, GvisorError>((file, facts.len()))
    };
    let [first, second, third] = IMAGE_FILES;
    let files = [open(first)?, open(second)?, open(third)?];
    read_open(files, limits, sink).map_err(|source| GvisorError::Files { image: image.to_owned(), source })
}

/// Returns how much of the memory limit reading `image` may take.
pub(crate) fn share(image: &Path, limits: FilesLimits) -> u64 {
    let [state, meta, _] = IMAGE_FILES;
    let length = |name| fs::metadata(image.join(name)).map_or(0, |facts| facts.len());
    limits.share_of(length(state).saturating_add(length(meta)))
}

fn read_open(files: [(fs::File, u64); 3], limits: FilesLimits, sink: &mut dyn FileSink) -> Result<LeftOut, FilesError> {
    let [(mut checkpoint, checkpoint_bytes), (mut meta, meta_bytes), (pages, pages_bytes)] = files;
    if meta_bytes > META_MAX {
        return Err(FilesError::unsound("pages_meta.img is too large"));
    }
    let budget = Budget::new(limits, checkpoint_bytes.saturating_add(meta_bytes));
    budget.take_memory(meta_bytes)?;
    let mut text = Vec::with_capacity(usize::try_from(meta_bytes).unwrap_or(0));
    std::io::Read::read_to_end(&mut meta, &mut text).map_err(FilesError::read("pages_meta.img"))?;
    let memory = MemoryFiles::read(&text, &budget)?;
    if memory.bytes != pages_bytes {
        let [expected, found] = [memory.bytes, pages_bytes];
        return Err(FilesError::unsound(format!("pages.img should have {expected} bytes and has {found}")));
    }
    let content = unframe::unframe(&mut checkpoint, checkpoint_bytes, &budget)?;
    drop(checkpoint);
    let graph = kernel(&content, &budget)?;
    let (upper, tmp) = tree::find(&graph, &memory)?;
    Walk::new(&graph, Source::new(pages, pages_bytes), sink, &budget).run(&upper, tmp.as_ref())
}

/// Returns the saved state of the sandbox's kernel.
fn kernel<'a>(content: &'a [u8], budget: &Budget) -> Result<Graph<'a>, FilesError> {
    let mut wire = Wire::new(content);
    let mut found = None;
    while !wire.is_at_end() {
        match graph::next(CHECKPOINT, &mut wire, budget)? {
            Part::Graph(graph) if graph.kind_of(0) == Some(KERNEL.as_bytes()) => found = Some(graph),
            Part::Graph(_) => {}
            Part::Bytes(_) => return Err(FilesError::different("checkpoint.img contains pages")),
        }
    }
    found.ok_or_else(|| FilesError::different(format!("checkpoint.img contains no {KERNEL}")))
}

#[cfg(test)]
mod tests;
