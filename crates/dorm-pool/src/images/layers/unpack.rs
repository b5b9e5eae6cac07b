//! Unpacking one layer: its blob is hashed while it is read, so is what comes out of it, and nothing is believed
//! before both sums are what the manifest and the configuration say.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use super::{ABOUT, Layer, Links, TREE, describe};
use crate::disk;
use crate::error::{PoolError, failed};
use crate::images::documents::{BlobDigest, Packing};
use crate::images::import::{Job, Sink};
use crate::images::tree::Tree;
use crate::images::{Images, archive};
use crate::steps::Step;

const BUFFER: usize = 256 << 10;
/// What a frame of zstd may want of memory: 64 MiB.
const WINDOW_LOG_MAX: u32 = 26;

/// A part of a file.
#[derive(Clone)]
pub(in crate::images) struct Blob {
    pub(in crate::images) file: Arc<File>,
    pub(in crate::images) offset: u64,
    pub(in crate::images) bytes: u64,
}

impl Blob {
    pub(in crate::images) fn whole(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), offset: 0, bytes })
    }

    /// All of it, in memory, when it is no longer than `most`.
    pub(in crate::images) fn read_all(&self, most: u64) -> io::Result<Vec<u8>> {
        if self.bytes > most {
            return Err(io::Error::other(format!("it is longer than {most} bytes")));
        }
        let mut content = vec![0; usize::try_from(self.bytes).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut content, self.offset)?;
        Ok(content)
    }

    pub(in crate::images) fn reader(&self) -> Section {
        Section { file: self.file.clone(), at: self.offset, end: self.offset + self.bytes }
    }
}

/// Reads a part of a file.
pub(in crate::images) struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..want], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A layer that is to be unpacked.
pub(in crate::images) struct LayerBlob {
    /// What comes out of it.
    pub(in crate::images) diff_id: BlobDigest,
    /// What is in the blob, where that is said.
    pub(in crate::images) digest: Option<BlobDigest>,
    /// How it is compressed; found out where it is not said.
    pub(in crate::images) packing: Option<Packing>,
    /// The blob; not there when the layer is here already.
    pub(in crate::images) blob: Option<Blob>,
}

/// Unpacks a layer into a place of its own.
pub(in crate::images) fn unpack(images: &Images, layer: &LayerBlob, job: &mut Job<'_>) -> Result<Layer, PoolError> {
    let Some(blob) = &layer.blob else {
        return Err(job.refused(&format!("the blob of its layer {} is missing", layer.diff_id), None));
    };
    let part = images.part()?;
    images.steps.reach(Step::LayerBegun)?;
    let tree_path = part.path.join(TREE);
    disk::make_directory(&tree_path).map_err(failed("make the directory", &tree_path))?;
    let tree = Tree::open(&tree_path, images.ids).map_err(failed("open", &tree_path))?.for_layer();
    let mut sink = Sink::new(job, tree, &part.path).of_layer();
    let links = fill(&mut sink, layer, blob)?;
    images.steps.reach(Step::LayerFilled)?;
    describe(&part.path, &links, images)?;
    images.steps.reach(Step::LayerUnpacked)?;
    debug_assert!(part.path.join(ABOUT).exists());
    Ok(Layer { diff_id: layer.diff_id.hex().to_owned(), tree: tree_path, links, part: Some(part) })
}

fn fill(sink: &mut Sink<'_, '_>, layer: &LayerBlob, blob: &Blob) -> Result<Links, PoolError> {
    let packing = match layer.packing {
        Some(packing) => packing,
        None => {
            let mut start = Vec::new();
            let read = blob.reader().take(4).read_to_end(&mut start);
            read.map_err(|error| sink.refused("a layer cannot be read", Some(error)))?;
            Packing::of_content(&start)
        }
    };
    let read = Rc::new(Cell::new(sink.job.state.bytes));
    let packed = Rc::new(RefCell::new(Sha256::new()));
    // A blob that is not compressed is what comes out of it: one sum is enough.
    let hashed = layer.digest.is_some() && packing != Packing::Plain;
    let source = Counted { inner: blob.reader(), read: read.clone(), sum: hashed.then(|| packed.clone()) };
    let source = BufReader::with_capacity(BUFFER, source);
    let sum = match packing {
        Packing::Plain => unpack_from(sink, source, &read),
        Packing::Gzip => unpack_from(sink, MultiGzDecoder::new(source), &read),
        Packing::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(source).and_then(|mut decoder| {
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Ok(decoder)
            });
            let decoder = decoder.map_err(|error| sink.refused("a layer cannot be decompressed", Some(error)))?;
            unpack_from(sink, decoder, &read)
        }
    }?;
    let packed = if hashed { BlobDigest::from_bytes(&packed.borrow().clone().finalize()) } else { sum.clone() };
    if let Some(digest) = layer.digest.as_ref().filter(|digest| **digest != packed) {
        return Err(sink.refused(&format!("a layer is not what its manifest says: it is {packed}, not {digest}"), None));
    }
    if sum != layer.diff_id {
        let wanted = &layer.diff_id;
        let what = format!("a layer is not what its configuration says: unpacked it is {sum}, not {wanted}");
        return Err(sink.refused(&what, None));
    }
    Ok(sink.links())
}

fn unpack_from(sink: &mut Sink<'_, '_>, inner: impl Read, read: &Cell<u64>) -> Result<BlobDigest, PoolError> {
    let mut hashing = Hashing { inner: BufReader::with_capacity(BUFFER, inner), sum: Sha256::new() };
    archive::read_tar(sink, &mut hashing, read, archive::End::MayBeMissing)?;
    sink.finish_times();
    Ok(BlobDigest::from_bytes(&hashing.sum.finalize()))
}

/// Counts and hashes what is read of a blob.
struct Counted {
    inner: Section,
    read: Rc<Cell<u64>>,
    sum: Option<Rc<RefCell<Sha256>>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        if let Some(sum) = &self.sum {
            sum.borrow_mut().update(&buffer[..read]);
        }
        Ok(read)
    }
}

struct Hashing<R> {
    inner: R,
    sum: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sum.update(&buffer[..read]);
        Ok(read)
    }
}
