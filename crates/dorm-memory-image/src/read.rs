//! Reads an image whose files are open.

use std::io::Read as _;

use dorm_engine::{FileSink, LeftOut};

use crate::budget::{Budget, FilesLimits};
use crate::error::MemoryImageError;
use crate::graph::{self, Graph, Part};
use crate::map::{OpenFile, PagesMap};
use crate::pages::{MemoryFiles, Source};
use crate::walk::Walk;
use crate::wire::Wire;
use crate::{tree, unframe};

/// The files of a memory image.
pub const IMAGE_FILES: [&str; 3] = ["checkpoint.img", "pages_meta.img", "pages.img"];

const CHECKPOINT: &str = "checkpoint.img";
/// The object that contains the whole state of the sandbox's kernel.
const KERNEL: &str = "pkg/sentry/kernel.Kernel";
/// The maximum size of `pages_meta.img`, which is read at once. It grows with the fragmentation of
/// the memory and stays far below this size.
const META_MAX: u64 = 1 << 30;

/// Passes every change of the guest's root file system, and the content of its `/tmp`, to `sink`.
/// `files` are those of [`IMAGE_FILES`], in that order; `map` is
/// [`crate::PAGES_MAP`], if the image has one.
///
/// # Errors
/// When the image is invalid, or the sink fails.
pub fn read(
    files: [OpenFile; 3],
    map: Option<OpenFile>,
    limits: FilesLimits,
    sink: &mut dyn FileSink,
) -> Result<LeftOut, MemoryImageError> {
    let [(mut checkpoint, checkpoint_bytes), (mut meta, meta_bytes), (pages, pages_bytes)] = files;
    if meta_bytes > META_MAX {
        return Err(MemoryImageError::unsound("pages_meta.img is too large"));
    }
    let map_bytes = map.as_ref().map_or(0, |(_, bytes)| *bytes);
    let budget = Budget::new(limits, checkpoint_bytes.saturating_add(meta_bytes).saturating_add(map_bytes));
    // The map is parsed into parts that are a third larger.
    budget.take_memory(meta_bytes.saturating_add(map_bytes.saturating_mul(3)))?;
    let map = map.map(PagesMap::read).transpose()?.unwrap_or_default();
    let mut text = Vec::with_capacity(usize::try_from(meta_bytes).unwrap_or(0));
    meta.read_to_end(&mut text).map_err(MemoryImageError::read("pages_meta.img"))?;
    let memory = MemoryFiles::read(&text, &budget)?;
    let found = pages_bytes.saturating_add(map.left_out_bytes());
    if memory.bytes != found {
        let expected = memory.bytes;
        return Err(MemoryImageError::unsound(format!("pages.img should have {expected} bytes and has {found}")));
    }
    let content = unframe::unframe(&mut checkpoint, checkpoint_bytes, &budget)?;
    drop(checkpoint);
    let graph = kernel(&content, &budget)?;
    let (upper, tmp) = tree::find(&graph, &memory)?;
    Walk::new(&graph, Source::new(pages, memory.bytes, map), sink, &budget).run(&upper, tmp.as_ref())
}

/// Returns the saved state of the sandbox's kernel.
pub(crate) fn kernel<'a>(content: &'a [u8], budget: &Budget) -> Result<Graph<'a>, MemoryImageError> {
    let mut wire = Wire::new(content);
    let mut found = None;
    while !wire.is_at_end() {
        match graph::next(CHECKPOINT, &mut wire, budget)? {
            Part::Graph(graph) if graph.kind_of(0) == Some(KERNEL.as_bytes()) => found = Some(graph),
            Part::Graph(_) => {}
            Part::Bytes(_) => return Err(MemoryImageError::different("checkpoint.img contains pages")),
        }
    }
    found.ok_or_else(|| MemoryImageError::different(format!("checkpoint.img contains no {KERNEL}")))
}
