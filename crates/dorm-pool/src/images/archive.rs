//! Reads a tar archive, which may be compressed with gzip or zstd. The archive may be hostile:
//! parsed values are never trusted, memory is limited, and a truncated archive is an error.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use super::documents::Packing;
use super::import::Sink;
use super::node::{GuestPath, Kind, Node, Refusal};
use super::reader::{self, Reader};
use crate::error::PoolError;

/// The maximum size of one entry's headers, including long names and extended attributes.
const HEADERS_MAX: u64 = 4 << 20;
const PADDING_MAX: u64 = 16 << 20;
/// The maximum window of a zstd frame, 128 MiB, as in the zstd program.
const WINDOW_LOG_MAX: u32 = 27;
const BUFFER: usize = 256 << 10;
const CAPABILITY: &str = "SCHILY.xattr.security.capability";

/// Compressions that are used for archives but not supported here.
const OTHERS: [(&[u8], &str); 2] = [
    (&[0xfd, b'7', b'z', b'X', b'Z'], "it is compressed with xz: unpack it with `xz -d` first"),
    (b"BZh", "it is compressed with bzip2: unpack it with `bzip2 -d` first"),
];

/// Receives the entries of an archive, in order.
pub(super) trait Entries {
    /// Why no more entries are accepted.
    type Error;

    /// Takes an entry, which is called `name` in messages.
    fn entry(&mut self, name: &str, node: Node, content: &mut dyn Read) -> Result<(), Self::Error>;

    /// Skips an entry that images do not contain, with this many bytes of content.
    fn left_out(&mut self, name: &str, bytes: u64) -> Result<(), Self::Error>;
}

/// Why reading an archive stopped.
#[derive(Debug)]
pub(super) enum Wrong<E> {
    /// It is not a valid archive.
    Archive { what: String, source: Option<io::Error> },
    /// An entry cannot be part of an image.
    Entry { name: String, refusal: Refusal },
    /// The receiver failed.
    Taker(E),
}

impl<E> Wrong<E> {
    fn not_tar(error: io::Error) -> Self {
        Self::Archive { what: "it is not a valid tar archive".to_owned(), source: Some(error) }
    }
}

/// Whether an archive needs an end-of-archive marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It must have one, otherwise it is truncated.
    IsMarked,
    /// Its completeness is checked in another way.
    MayBeMissing,
}

/// Reads the archive of a root file system.
pub(super) fn read(sink: &mut Sink<'_, '_>) -> Result<(), PoolError> {
    let cannot = |sink: &Sink<'_, '_>, error| sink.refused("cannot be read", Some(error));
    let mut file = File::open(sink.job.source).map_err(|error| cannot(sink, error))?;
    let mut magic = Vec::new();
    (&mut file).take(5).read_to_end(&mut magic).map_err(|error| cannot(sink, error))?;
    file.rewind().map_err(|error| cannot(sink, error))?;
    if let Some((_, what)) = OTHERS.iter().find(|(start, _)| magic.starts_with(start)) {
        return Err(sink.refused(what, None));
    }
    let packing = Packing::of_content(&magic);
    sink.job.brought.begin(sink.job.bytes_total.filter(|_| packing != Packing::Plain));
    if let Reader::Workers(program) = sink.reader.clone() {
        return reader::rootfs(&program, sink, &file, packing);
    }
    let counted = Counted { inner: file, read: sink.job.read.clone() };
    let unpacked = decompress(packing, counted).map_err(|error| cannot(sink, error))?;
    read_tar(sink, unpacked, End::IsMarked).map_err(|wrong| sink.wrong(wrong))
}

/// Returns a reader of the decompressed content. It reads 256 KiB at a time.
pub(super) fn decompress<'a>(packing: Packing, from: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let from = BufReader::with_capacity(BUFFER, from);
    Ok(match packing {
        Packing::Plain => Box::new(from),
        Packing::Gzip => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(from))),
        Packing::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(from)?;
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(BufReader::with_capacity(BUFFER, decoder))
        }
    })
}

/// Passes all entries of an uncompressed archive to `to`.
pub(super) fn read_tar<T: Entries>(to: &mut T, inner: impl Read, end: End) -> Result<(), Wrong<T::Error>> {
    let gauge = Rc::new(Gauge { allowance: Cell::new(HEADERS_MAX), ended: Cell::new(false) });
    let mut archive = Archive::new(Metered { inner, gauge: gauge.clone() });
    for entry in archive.entries().map_err(Wrong::not_tar)? {
        let mut entry = entry.map_err(Wrong::not_tar)?;
        gauge.allowance.set(u64::MAX);
        add(to, &mut entry)?;
        // The unread rest of an entry is skipped with its padding before the next headers.
        io::copy(&mut entry, &mut io::sink()).map_err(Wrong::not_tar)?;
        gauge.allowance.set(HEADERS_MAX);
    }
    if end == End::IsMarked && gauge.ended.get() {
        return Err(Wrong::Archive {
            what: "it is truncated: the end-of-archive marker is missing".to_owned(),
            source: None,
        });
    }
    // Padding follows the marker. Reading it lets the decompressor check its checksum.
    gauge.allowance.set(PADDING_MAX);
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(Wrong::not_tar)?;
    Ok(())
}

fn add<T: Entries>(to: &mut T, entry: &mut Entry<'_, impl Read>) -> Result<(), Wrong<T::Error>> {
    let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    match understand(entry) {
        Ok(Some(node)) => to.entry(&name, node, entry).map_err(Wrong::Taker),
        Ok(None) => to.left_out(&name, entry.size()).map_err(Wrong::Taker),
        Err(refusal) => Err(Wrong::Entry { name, refusal }),
    }
}

/// Parses an entry. `None` for an entry that is skipped on purpose.
fn understand(entry: &mut Entry<'_, impl Read>) -> Result<Option<Node>, Refusal> {
    let unreadable = |error: io::Error| Refusal::system("has a header that cannot be read", error);
    let capability = extensions(entry)?;
    let path = GuestPath::parse(&entry.path_bytes())?;
    let link = || entry.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default();
    let kind = match entry.header().entry_type() {
        EntryType::Directory => Kind::Directory,
        // An old archive marks a directory only by its name.
        EntryType::Regular if entry.path_bytes().ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File(entry.size()),
        EntryType::Symlink => Kind::Symlink(link_target(link())?),
        EntryType::Link => Kind::HardLink(GuestPath::parse(&link())?),
        EntryType::Fifo => Kind::Fifo,
        // Every sandbox has its own /dev.
        EntryType::Char | EntryType::Block if path.is_below("dev") => return Ok(None),
        EntryType::Char | EntryType::Block => {
            return Err(Refusal::because("is a device outside of /dev: remove it from the archive"));
        }
        EntryType::XGlobalHeader => return Ok(None),
        other => return Err(Refusal::because(format!("has an unknown type ({:#04x})", other.as_byte()))),
    };
    let header = entry.header();
    let id = |id: io::Result<u64>| Ok(u32::try_from(id.map_err(unreadable)?).unwrap_or(u32::MAX));
    Ok(Some(Node {
        kind,
        mode: header.mode().map_err(unreadable)?,
        user: id(header.uid())?,
        group: id(header.gid())?,
        modified: i64::try_from(header.mtime().map_err(unreadable)?).unwrap_or(0),
        capability,
        path,
    }))
}

/// Returns the capabilities of a file. Rejects extensions that the parser misinterprets.
fn extensions(entry: &mut Entry<'_, impl Read>) -> Result<Option<Vec<u8>>, Refusal> {
    let unreadable = |error: io::Error| Refusal::system("has an extended header that cannot be read", error);
    let Some(extensions) = entry.pax_extensions().map_err(unreadable)? else { return Ok(None) };
    let mut capability = None;
    for extension in extensions {
        let extension = extension.map_err(unreadable)?;
        if extension.key_bytes().starts_with(b"GNU.sparse.") {
            return Err(Refusal::because("is sparse in the PAX format: create the archive with `tar --format=gnu`"));
        }
        if extension.key_bytes() == CAPABILITY.as_bytes() {
            capability = Some(extension.value_bytes().to_vec());
        }
    }
    Ok(capability)
}

pub(super) fn link_target(target: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    if target.is_empty() || target.len() > 4095 || target.contains(&0) {
        return Err(Refusal::because("is a link whose target is empty, too long or contains a NUL"));
    }
    Ok(target)
}

/// How much may still be read, and whether the end was reached.
struct Gauge {
    allowance: Cell<u64>,
    ended: Cell<bool>,
}

/// Limits the size of headers, which the parser reads into memory without a limit.
struct Metered<R> {
    inner: R,
    gauge: Rc<Gauge>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let allowance = self.gauge.allowance.get();
        if allowance == 0 {
            return Err(io::Error::other("it has headers of several megabytes, or too much data after its end"));
        }
        let want = usize::try_from(allowance).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..want])?;
        self.gauge.ended.set(read == 0);
        self.gauge.allowance.set(allowance - read as u64);
        Ok(read)
    }
}

/// Counts the bytes read from the file itself.
struct Counted {
    inner: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
