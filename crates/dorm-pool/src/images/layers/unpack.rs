//! Unpacks one layer. Its blob and the decompressed content are hashed while they are read, and
//! used only if both digests match the manifest and the configuration.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use super::{ABOUT, Layer, Links, TREE, describe};
use crate::disk;
use crate::error::{PoolError, failed};
use crate::images::documents::{BlobDigest, Packing};
use crate::images::import::{Job, Sink};
use crate::images::reader::{self, Reader};
use crate::images::{Images, archive};
use crate::steps::Step;

const BUFFER: usize = 256 << 10;

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

    /// Returns its content, if it is not longer than `most`.
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

/// A layer to unpack.
pub(in crate::images) struct LayerBlob {
    /// The digest of the unpacked layer.
    pub(in crate::images) diff_id: BlobDigest,
    /// The digest of the blob, if specified.
    pub(in crate::images) digest: Option<BlobDigest>,
    /// The compression; detected if not specified.
    pub(in crate::images) packing: Option<Packing>,
    /// The blob; `None` if the layer is already stored.
    pub(in crate::images) blob: Option<Blob>,
}

/// Unpacks a layer into a directory of its own.
pub(in crate::images) fn unpack(images: &Images, layer: &LayerBlob, job: &mut Job<'_>) -> Result<Layer, PoolError> {
    let Some(blob) = &layer.blob else {
        return Err(job.refused(&format!("the blob of its layer {} is missing", layer.diff_id), None));
    };
    let part = images.part()?;
    images.steps.reach(Step::LayerBegun)?;
    let tree_path = part.path.join(TREE);
    disk::make_directory(&tree_path).map_err(failed("create the directory", &tree_path))?;
    let tree = images.tree(&tree_path).map_err(failed("open", &tree_path))?.for_layer();
    let mut sink = Sink::new(job, tree, &part.path).of_layer().read_by(&images.reader);
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
    sink.job.brought.begin(Some(blob.bytes).filter(|_| packing != Packing::Plain));
    let (packed, sum) = match sink.reader.clone() {
        Reader::InProcess => unpack_here(sink, blob, packing)?,
        Reader::Workers(program) => {
            let source = Counted { inner: blob.reader(), read: sink.job.read.clone(), sum: None };
            reader::layer(&program, sink, source, packing)?
        }
    };
    sink.finish_times();
    // An uncompressed blob equals its content: one digest is enough.
    let packed = packed.unwrap_or_else(|| sum.clone());
    if let Some(digest) = layer.digest.as_ref().filter(|digest| **digest != packed) {
        return Err(
            sink.refused(&format!("a layer does not match its manifest: its digest is {packed}, not {digest}"), None)
        );
    }
    if sum != layer.diff_id {
        let wanted = &layer.diff_id;
        let what = format!("a layer does not match its configuration: unpacked, its digest is {sum}, not {wanted}");
        return Err(sink.refused(&what, None));
    }
    Ok(sink.links())
}

/// Unpacks a layer in this process. Returns the digests of its blob, if it is compressed, and of
/// its content.
fn unpack_here(
    sink: &mut Sink<'_, '_>,
    blob: &Blob,
    packing: Packing,
) -> Result<(Option<BlobDigest>, BlobDigest), PoolError> {
    let packed = (packing != Packing::Plain).then(|| Arc::new(Mutex::new(Sha256::new())));
    let source = Counted { inner: blob.reader(), read: sink.job.read.clone(), sum: packed.clone() };
    let unpacked = archive::decompress(packing, source);
    let unpacked = unpacked.map_err(|error| sink.refused("a layer cannot be decompressed", Some(error)))?;
    let mut hashing = Hashing { inner: BufReader::with_capacity(BUFFER, unpacked), sum: Sha256::new() };
    archive::read_tar(sink, &mut hashing, archive::End::MayBeMissing).map_err(|wrong| sink.wrong(wrong))?;
    let packed = packed.map(|sum| {
        let sum = sum.lock().unwrap_or_else(PoisonError::into_inner).clone();
        BlobDigest::from_bytes(&sum.finalize())
    });
    Ok((packed, BlobDigest::from_bytes(&hashing.sum.finalize())))
}

/// Counts and hashes what is read from a blob.
struct Counted {
    inner: Section,
    read: Arc<AtomicU64>,
    sum: Option<Arc<Mutex<Sha256>>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        if let Some(sum) = &self.sum {
            sum.lock().unwrap_or_else(PoisonError::into_inner).update(&buffer[..read]);
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
