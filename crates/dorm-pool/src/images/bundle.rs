//! Images in the formats of other tools: OCI layouts, as directories and archives, and docker
//! archives. The content of a source determines its format. Nothing is unpacked here: this module
//! finds the documents and the blobs.

mod docker;
pub(super) mod index;

use std::fs::{self, File};
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use super::documents::{
    BlobDigest, Configuration, DOCUMENT_BYTES_MAX, Descriptor, Document, Manifest, Packing, choose,
};
use super::import::{Job, Staging};
use super::layers::{Blob, LayerBlob};
use super::limits::Brought;
use super::reader::{self, Decompressed, Reader};
use super::settings::{ImageConfig, ImageSource};
use super::{Images, archive};
use crate::error::{PoolError, failed};
use crate::room;
use crate::sparse::{SparseFile, read_full};
use index::Index;

/// The maximum nesting of indexes.
const INDEXES_MAX: usize = 3;
const LAYOUT: &str = "oci-layout";
const INDEX: &str = "index.json";

/// An image as described by its documents.
pub(super) struct Bundle {
    pub(super) config: ImageConfig,
    pub(super) source: ImageSource,
    pub(super) layers: Vec<LayerBlob>,
}

/// The kind of a source.
pub(super) enum Found<'a> {
    /// A root file system, as a directory or an archive.
    Rootfs,
    /// The archive of a root file system, decompressed.
    Spooled(Spooled<'a>),
    /// An image. Its decompressed archive exists as long as this value.
    Image(Box<Bundle>, Option<Spooled<'a>>),
}

/// A decompressed archive; removed when dropped.
pub(super) struct Spooled<'a> {
    path: PathBuf,
    _staging: Staging<'a>,
}

impl Spooled<'_> {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A source of blobs.
trait Blobs {
    /// Opens the file with that name; `None` if it does not exist.
    fn open(&self, name: &str) -> io::Result<Option<Blob>>;
}

/// The files below a directory.
struct In<'a>(&'a Path);

impl Blobs for In<'_> {
    fn open(&self, name: &str) -> io::Result<Option<Blob>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(CWD, self.0.join(name), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match file.metadata()?.is_file() {
            true => Blob::whole(file).map(Some),
            false => Err(io::Error::other("it is not a file")),
        }
    }
}

/// Determines the kind of a source.
pub(super) fn open<'i>(job: &mut Job<'_>, architecture: &str, images: &'i Images) -> Result<Found<'i>, PoolError> {
    let source = job.source;
    let image = |bundle| Found::Image(Box::new(bundle), None);
    let facts = fs::metadata(source).map_err(|error| job.refused("cannot be read", Some(error)))?;
    if facts.is_dir() {
        let is_layout = source.join(LAYOUT).is_file() && source.join(INDEX).is_file();
        return match is_layout {
            true => of_layout(job, &In(source), architecture, images).map(image),
            false => Ok(Found::Rootfs),
        };
    }
    if !facts.is_file() {
        return Ok(Found::Rootfs);
    }
    let file = File::open(source).map_err(|error| job.refused("cannot be read", Some(error)))?;
    let mut start = Vec::new();
    (&file).take(4).read_to_end(&mut start).map_err(|error| job.refused("cannot be read", Some(error)))?;
    (&file).rewind().map_err(|error| job.refused("cannot be read", Some(error)))?;
    match Packing::of_content(&start) {
        Packing::Plain => match read_index(job, file, images)? {
            Some(index) => of_archive(job, &index, architecture, images).map(image),
            None => Ok(Found::Rootfs),
        },
        packing => match begins_like_an_image(job, &file, packing, images)? {
            false => Ok(Found::Rootfs),
            true => {
                let spooled = spool(job, &file, packing, images)?;
                let file = File::open(spooled.path()).map_err(failed("open", spooled.path()))?;
                match read_index(job, file, images)? {
                    Some(index) => of_archive(job, &index, architecture, images)
                        .map(|bundle| Found::Image(Box::new(bundle), Some(spooled))),
                    None => Ok(Found::Spooled(spooled)),
                }
            }
        },
    }
}

/// Returns the image of a manifest in `directory`, which contains blobs as in an OCI layout.
pub(super) fn of_manifest(
    job: &Job<'_>,
    manifest: &BlobDigest,
    source: ImageSource,
    images: &Images,
) -> Result<Bundle, PoolError> {
    let blobs = In(job.source);
    let text = document(job, &blobs, manifest, None)?;
    match Document::parse(&text) {
        Ok(Document::Manifest(found)) => assemble(job, &blobs, &found, source, images),
        Ok(Document::Index(_)) => Err(job.refused("its manifest is an index", None)),
        Err(what) => Err(job.refused(&what, None)),
    }
}

fn read_index(job: &Job<'_>, file: File, images: &Images) -> Result<Option<Index>, PoolError> {
    match &images.reader {
        Reader::InProcess => Ok(index::read(file)),
        Reader::Workers(program) => reader::index(program, job, file),
    }
}

fn begins_like_an_image(job: &Job<'_>, file: &File, packing: Packing, images: &Images) -> Result<bool, PoolError> {
    match &images.reader {
        Reader::InProcess => Ok(unpacked(file, packing).is_ok_and(index::begins_like_one)),
        Reader::Workers(program) => {
            let begins = reader::begins_like_an_image(program, job, file, packing);
            // It is read from its beginning again.
            (&*file).rewind().map_err(|error| job.refused("cannot be read", Some(error)))?;
            begins
        }
    }
}

fn unpacked<'a>(file: &'a File, packing: Packing) -> io::Result<Box<dyn Read + 'a>> {
    let source = file.try_clone().and_then(Blob::whole)?;
    archive::decompress(packing, source.reader())
}

/// Decompresses the archive of an image, whose parts are not read in order.
fn spool<'i>(job: &mut Job<'_>, file: &File, packing: Packing, images: &'i Images) -> Result<Spooled<'i>, PoolError> {
    let staging = images.stage()?;
    let spooled = Spooled { path: staging.path().join("archive.tar"), _staging: staging };
    let to = File::create_new(&spooled.path).map_err(failed("make", &spooled.path))?;
    let bytes = file.metadata().map_err(|error| job.refused("cannot be read", Some(error)))?.len();
    let mut from: Box<dyn Read> = match &images.reader {
        Reader::InProcess => {
            unpacked(file, packing).map_err(|error| job.refused("cannot be decompressed", Some(error)))?
        }
        Reader::Workers(program) => {
            let failed = |source| PoolError::Worker { path: job.source.to_owned(), source };
            Box::new(Decompressed::of(program, file, packing).map_err(failed)?)
        }
    };
    let mut brought = Brought::default();
    brought.begin(Some(bytes));
    let mut meter = images.meter();
    let mut sparse = SparseFile::new(&to);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = read_full(&mut from, &mut buffer);
        let read = read.map_err(|error| job.refused("cannot be decompressed", Some(error)))?;
        if read == 0 {
            break;
        }
        let counted = brought.content(read as u64, &job.limits);
        counted.map_err(|refusal| job.refused(&format!("decompressed, it {}", refusal.what), None))?;
        let added = sparse.add(&buffer[..read], &mut meter);
        added.map_err(|error| not_written(&spooled.path, error))?;
    }
    sparse.finish().map_err(|error| not_written(&spooled.path, error))?;
    Ok(spooled)
}

fn not_written(path: &Path, error: io::Error) -> PoolError {
    room::full("unpack into", path, error).unwrap_or_else(|error| PoolError::io("write", path, error))
}

fn of_archive(job: &mut Job<'_>, index: &Index, architecture: &str, images: &Images) -> Result<Bundle, PoolError> {
    if index.has(LAYOUT) && index.has(INDEX) {
        of_layout(job, index, architecture, images)
    } else {
        docker::read(job, index)
    }
}

fn of_layout(job: &mut Job<'_>, blobs: &dyn Blobs, architecture: &str, images: &Images) -> Result<Bundle, PoolError> {
    let refused = |what: &str| job.refused(what, None);
    let text = named(job, blobs, INDEX)?;
    let mut source = ImageSource::default();
    let mut found = Document::parse(&text).map_err(|what| refused(&what))?;
    for depth in 0..=INDEXES_MAX {
        match found {
            Document::Manifest(manifest) => return assemble(job, blobs, &manifest, source, images),
            Document::Index(list) => {
                if depth == 0 {
                    only_one(&list).map_err(|what| refused(&what))?;
                }
                let chosen = choose(&list, architecture).map_err(|what| refused(&what))?;
                source.reference = source.reference.or_else(|| chosen.name.clone());
                source.manifest = Some(chosen.digest.to_string());
                let text = document(job, blobs, &chosen.digest, Some(chosen.bytes))?;
                found = Document::parse(&text).map_err(|what| refused(&what))?;
            }
        }
    }
    Err(refused("its indexes are nested too deeply"))
}

/// Rejects a layout that contains several images, unless they are one image for several
/// architectures.
fn only_one(list: &[Descriptor]) -> Result<(), String> {
    let unnamed = list.iter().filter(|entry| entry.platform.is_none()).count();
    if list.len() > 1 && unnamed > 1 {
        let names: Vec<_> = list.iter().filter_map(|entry| entry.name.as_deref()).take(20).collect();
        let names = names.join(", ").escape_debug().to_string();
        return Err(format!("it contains several images ({names}): copy one of them, for example with `skopeo copy`"));
    }
    Ok(())
}

fn assemble(
    job: &Job<'_>,
    blobs: &dyn Blobs,
    manifest: &Manifest,
    source: ImageSource,
    images: &Images,
) -> Result<Bundle, PoolError> {
    let refused = |what: &str| job.refused(what, None);
    let text = document(job, blobs, &manifest.config.digest, Some(manifest.config.bytes))?;
    let configuration = Configuration::parse(&text).map_err(|what| refused(&what))?;
    if configuration.diff_ids.len() != manifest.layers.len() {
        let (layers, known) = (manifest.layers.len(), configuration.diff_ids.len());
        return Err(refused(&format!("its manifest has {layers} layers, but its configuration {known}")));
    }
    let mut layers = Vec::new();
    for (descriptor, diff_id) in manifest.layers.iter().zip(configuration.diff_ids) {
        let packing = Packing::of_media_type(&descriptor.media_type).map_err(|what| refused(&what))?;
        let blob = blob(job, blobs, &descriptor.digest)?;
        if let Some(blob) = &blob
            && blob.bytes != descriptor.bytes
        {
            let (found, said) = (blob.bytes, descriptor.bytes);
            return Err(refused(&format!("its layer {} has {found} bytes, not {said}", descriptor.digest)));
        }
        if blob.is_none() && !images.has_layer(diff_id.hex()) {
            return Err(refused(&format!("its layer {} is missing", descriptor.digest)));
        }
        let digest = Some(descriptor.digest.clone());
        layers.push(LayerBlob { diff_id, digest, packing: Some(packing), blob });
    }
    Ok(Bundle { config: configuration.settings, source, layers })
}

/// Returns the text of a document, after checking its digest.
fn document(job: &Job<'_>, blobs: &dyn Blobs, digest: &BlobDigest, bytes: Option<u64>) -> Result<Vec<u8>, PoolError> {
    use sha2::{Digest as _, Sha256};
    let Some(blob) = blob(job, blobs, digest)? else {
        return Err(job.refused(&format!("its document {digest} is missing"), None));
    };
    let text = read_document(job, &blob)?;
    let found = BlobDigest::from_bytes(&Sha256::digest(&text));
    if found != *digest || bytes.is_some_and(|bytes| bytes != blob.bytes) {
        return Err(job.refused(&format!("its document {digest} does not match: its digest is {found}"), None));
    }
    Ok(text)
}

fn blob(job: &Job<'_>, blobs: &dyn Blobs, digest: &BlobDigest) -> Result<Option<Blob>, PoolError> {
    blobs
        .open(&format!("blobs/sha256/{}", digest.hex()))
        .map_err(|error| job.refused("a blob cannot be read", Some(error)))
}

fn named(job: &Job<'_>, blobs: &dyn Blobs, name: &str) -> Result<Vec<u8>, PoolError> {
    let found = blobs.open(name).map_err(|error| job.refused("cannot be read", Some(error)))?;
    match found {
        Some(blob) => read_document(job, &blob),
        None => Err(job.refused(&format!("it has no {}", name.escape_debug()), None)),
    }
}

fn read_document(job: &Job<'_>, blob: &Blob) -> Result<Vec<u8>, PoolError> {
    blob.read_all(DOCUMENT_BYTES_MAX).map_err(|error| job.refused("one of its documents cannot be read", Some(error)))
}
