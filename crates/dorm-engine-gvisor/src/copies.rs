//! Copies the pages of a memory image while a sandbox saves the rest of it.
//!
//! The sandbox says on a socket which parts of its memory come where in the file, and waits until
//! the daemon has copied them. So all processors copy, and the page cache of the file is charged to
//! the daemon: a sandbox that is being saved has no room for a copy of its memory. Only these
//! threads can write to the file, so its hash is computed from what they write.
//! `engines/gvisor-mapped/files/pkg/sentry/pgalloc/dorm_copies.go` is the other end, and describes
//! the messages.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt as _};
use dorm_ports::{HostFacts as _, ThisHost};
use rustix::fs::FallocateFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown, SocketFlags,
    SocketType, recvmsg, send, shutdown, socketpair,
};

/// The maximum size of an image that is written through the page cache. A larger one would displace
/// more from there than a faster suspend is worth.
const CACHED_BYTES_MAX: u64 = 1 << 30;
/// An image may take this fraction of the memory that is available on the host.
const CACHED_SHARE: u64 = 8;
/// Memory that is not counted when the length of an image is estimated.
const EXTRA_BYTES: u64 = 16 << 20;

const THREADS_MAX: usize = 8;
const PAGE: u64 = 4096;
/// A thread copies this much before it takes the next part, and tells the disk to write it. A disk
/// that begins only when much has been written lets the writers wait. A power of two, so that each
/// part is a subtree of the hash.
const PART_BYTES: u64 = 4 << 20;
/// So much is read at once for the page cache: it stays in the cache of a processor.
const BUFFER_BYTES: usize = 256 << 10;
/// So much is read at once for direct I/O.
const DIRECT_BUFFER_BYTES: usize = 1 << 20;
/// The number of parts that wait for a thread. The sandbox waits when there are more.
const WAITING_MAX: usize = 256;
/// A part is passed on when it has so many pieces: one for each of its pages.
const PIECES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const NUMBER_BYTES: usize = 8;
/// No file is as long as this.
const POSITION_MAX: u64 = 1 << 62;

const FROM_MEMORY: u64 = 1;
const FROM_IMAGE: u64 = 2;
const END: u64 = 3;

/// The file for the pages.
#[derive(Debug)]
pub(crate) struct Pages {
    cached: File,
    /// The same file with direct I/O.
    direct: Option<File>,
    /// From this position on, pages are written with direct I/O if the file system supports it.
    limit: u64,
    /// Held while a thread writes to the page cache. File systems let one thread do that at a time,
    /// and the others would use up a processor waiting.
    writing: Mutex<()>,
}

impl Pages {
    /// The file for a guest that uses this much memory; `cached` is an empty file, and `direct` the
    /// same one with direct I/O.
    pub(crate) fn new(cached: File, direct: Option<File>, memory_bytes: u64) -> io::Result<Self> {
        let expected = expected_bytes(memory_bytes);
        // Writing into space that the file already has takes two thirds of the time.
        if rustix::fs::fallocate(&cached, FallocateFlags::empty(), 0, expected).is_err() {
            cached.set_len(expected)?;
        }
        let available = ThisHost.available_memory().unwrap_or(0);
        Ok(Self { cached, direct, limit: cached_bytes(expected, available), writing: Mutex::default() })
    }

    /// Returns the file for a part at this position, if it is written with direct I/O.
    fn direct_at(&self, position: u64) -> Option<&File> {
        self.direct.as_ref().filter(|_| position >= self.limit)
    }
}

fn expected_bytes(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_add(EXTRA_BYTES).next_multiple_of(PART_BYTES)
}

/// Returns how much of an image to write through the page cache.
fn cached_bytes(expected: u64, available: u64) -> u64 {
    if expected <= CACHED_BYTES_MAX.min(available / CACHED_SHARE) { expected } else { 0 }
}

/// Copies in progress. Dropping them ends the save: the sandbox gets no answer.
#[derive(Debug)]
pub(crate) struct Copies {
    socket: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<Option<Copied>>>>,
}

/// A file to which everything is copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    /// The hash of its content, if all of it was read and written here, through the page cache and
    /// from its beginning to its end. Direct writes are better checked by reading the disk.
    pub(crate) hash: Option<blake3::Hash>,
}

impl Copies {
    /// Begins to copy, and returns the socket for the sandbox.
    pub(crate) fn begin(pages: Pages) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let socket = Arc::new(ours);
        let serving = socket.clone();
        let thread = thread::Builder::new().name("pages".to_owned()).spawn(move || serve(&serving, &pages))?;
        Ok((Self { socket, thread: Some(thread) }, theirs))
    }

    /// Ends the copies of a save that the sandbox has ended; `None` unless everything was asked for
    /// and copied. A sandbox that has given up has its own error. Does not wait for the sandbox,
    /// which might never close its socket.
    pub(crate) fn end(mut self) -> io::Result<Option<Copied>> {
        self.hang_up();
        let ended = self.thread.take().map(JoinHandle::join);
        ended.unwrap_or(Ok(Ok(None))).unwrap_or_else(|_| Err(panicked()))
    }

    fn hang_up(&self) {
        // It may be closed already.
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// A message of the sandbox.
enum Message {
    /// Copies of one source: from where, to where, and how much.
    Copies(Option<Source>, Vec<[u64; 3]>),
    /// Everything is asked for; the length of the file.
    End(u64),
    /// The sandbox has closed the socket.
    GivenUp,
}

#[derive(Clone)]
struct Source {
    file: Arc<File>,
    /// Whether it is an image on the same file system, which may share its blocks.
    may_share: bool,
}

struct Piece {
    source: Source,
    from: u64,
    to: u64,
    bytes: u64,
}

/// Pieces within one part of the file, in the order in which the sandbox named them.
type Part = Vec<Piece>;

fn serve(socket: &OwnedFd, pages: &Pages) -> io::Result<Option<Copied>> {
    let copied = copy_all(socket, pages);
    // A sandbox that is gone needs no answer, and one that still sends must not wait.
    let _ = send(socket, &[u8::from(!matches!(copied, Ok(Some(_))))], SendFlags::NOSIGNAL);
    let _ = shutdown(socket, Shutdown::Both);
    copied
}

/// Copies everything that the sandbox asks for; `None` if it did not come to the end.
fn copy_all(socket: &OwnedFd, pages: &Pages) -> io::Result<Option<Copied>> {
    let failed = AtomicBool::new(false);
    let (parts, waiting) = sync_channel(WAITING_MAX);
    let waiting = Mutex::new(waiting);
    let (copied, to_write) = channel();
    let hashes = Mutex::default();
    thread::scope(|scope| {
        let work = move || begin_writing(pages, to_write);
        thread::Builder::new().name("pages to disk".to_owned()).spawn_scoped(scope, work)?;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let mut copying = Vec::new();
        for _ in 0..threads {
            let (waiting, failed, copied, hashes) = (&waiting, &failed, copied.clone(), &hashes);
            let work = move || copy_parts(pages, waiting, failed, (&copied, hashes));
            copying.push(thread::Builder::new().name("pages".to_owned()).spawn_scoped(scope, work)?);
        }
        drop(copied);
        let told = receive_all(socket, pages, &parts, &failed);
        drop(parts);
        let mut result = Ok(());
        for thread in copying {
            result = result.and(thread.join().unwrap_or_else(|_| Err(panicked())));
        }
        let Some(bytes) = result.and(told)? else { return Ok(None) };
        pages.cached.set_len(bytes)?;
        let hashes = hashes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(Copied { hash: whole_hash(&hashes, bytes) }))
    })
}

/// The hashes of parts, by number, each with the position where it ends; `None` if it is not known.
type Hashes = BTreeMap<u64, Option<(ChainingValue, u64)>>;

/// Returns the hash of the file; `None` if that of a part is not known.
fn whole_hash(parts: &Hashes, bytes: u64) -> Option<blake3::Hash> {
    let mut subtrees = Vec::new();
    for (expected, (number, part)) in (0..).zip(parts) {
        let (value, end) = (*part)?;
        let is_whole = *number == expected && end == bytes.min((expected + 1) * PART_BYTES);
        subtrees.push(is_whole.then_some(value)?);
    }
    dorm_disk::hash_of_subtrees(&subtrees, bytes, PART_BYTES)
}

fn panicked() -> io::Error {
    io::Error::other("a thread panicked")
}

/// Passes on what the sandbox asks for, and returns the length of the file; `None` if the sandbox
/// did not come to the end.
fn receive_all(
    socket: &OwnedFd,
    pages: &Pages,
    parts: &SyncSender<Part>,
    failed: &AtomicBool,
) -> io::Result<Option<u64>> {
    let device = pages.cached.metadata()?.dev();
    let mut current: Option<Source> = None;
    let mut part = Part::new();
    // The thread has the error.
    let pass_on = |part: Part| !failed.load(Ordering::Relaxed) && parts.send(part).is_ok();
    loop {
        let (source, copies) = match receive(socket, device)? {
            Message::End(bytes) => return Ok((part.is_empty() || pass_on(part)).then_some(bytes)),
            Message::GivenUp => return Ok(None),
            Message::Copies(source, copies) => (source, copies),
        };
        current = source.or(current);
        let source = current.as_ref().ok_or_else(|| invalid("copies without a source"))?;
        for [mut from, mut to, mut left] in copies {
            while left > 0 {
                let bytes = left.min(PART_BYTES - to % PART_BYTES);
                let is_next = part.last().is_none_or(|last| last.to / PART_BYTES == to / PART_BYTES);
                if (!is_next || part.len() >= PIECES_MAX) && !pass_on(mem::take(&mut part)) {
                    return Ok(None);
                }
                part.push(Piece { source: source.clone(), from, to, bytes });
                (from, to, left) = (from + bytes, to + bytes, left - bytes);
            }
        }
    }
}

fn receive(socket: &OwnedFd, device: u64) -> io::Result<Message> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(Message::GivenUp),
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(Message::GivenUp);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(invalid("too long"));
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let numbers = buffer.get(..received.bytes).unwrap_or_default().chunks(NUMBER_BYTES);
    let numbers: Option<Vec<_>> = numbers.map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?))).collect();
    let numbers = numbers.ok_or_else(|| invalid("half a number"))?;
    match numbers.as_slice() {
        [END, bytes] if bytes.is_multiple_of(PAGE) && *bytes < POSITION_MAX => Ok(Message::End(*bytes)),
        [kind @ (FROM_MEMORY | FROM_IMAGE), copies @ ..] if copies.len().is_multiple_of(3) => {
            let source = descriptor.map(|descriptor| source(descriptor, *kind == FROM_IMAGE, device)).transpose()?;
            let copies: Vec<[u64; 3]> = copies.chunks(3).filter_map(|copy| copy.try_into().ok()).collect();
            match copies.iter().flatten().all(|number| number.is_multiple_of(PAGE) && *number < POSITION_MAX / 2) {
                true => Ok(Message::Copies(source, copies)),
                false => Err(invalid("a position outside of every file")),
            }
        }
        _ => Err(invalid("of no known kind")),
    }
}

/// A sandbox can only name what it has open. Reading anything but a file might never end.
fn source(descriptor: OwnedFd, is_image: bool, device: u64) -> io::Result<Source> {
    let file = File::from(descriptor);
    let facts = file.metadata()?;
    match facts.is_file() {
        true => Ok(Source { file: Arc::new(file), may_share: is_image && facts.dev() == device }),
        false => Err(invalid("a source that is not a file")),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the sandbox has sent a message that is {what}"))
}

/// Copies one part after another until there are no more. Once a thread has failed, the rest is
/// only taken.
fn copy_parts(
    pages: &Pages,
    waiting: &Mutex<Receiver<Part>>,
    failed: &AtomicBool,
    (copied, hashes): (&Sender<(u64, u64)>, &Mutex<Hashes>),
) -> io::Result<()> {
    let bytes = if pages.limit == 0 { DIRECT_BUFFER_BYTES } else { BUFFER_BYTES };
    // Direct I/O needs aligned memory.
    let mut space = vec![0; bytes + PAGE as usize];
    let start = space.as_ptr().align_offset(PAGE as usize).min(PAGE as usize);
    let buffer = space.get_mut(start..start + bytes).unwrap_or_default();
    let mut result = Ok(());
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(part) = next else { return result };
        if failed.load(Ordering::Relaxed) {
            continue;
        }
        let mut hash = PartHash::begin(pages, &part);
        match part.iter().try_for_each(|piece| copy(pages, piece, buffer, &mut hash)) {
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                result = Err(error);
                continue;
            }
            Ok(()) => hash.keep(&mut hashes.lock().unwrap_or_else(PoisonError::into_inner)),
        }
        let begin = part.iter().map(|piece| piece.to).min().unwrap_or_default();
        let end = part.iter().map(|piece| piece.to + piece.bytes).max().unwrap_or_default();
        if pages.direct_at(begin).is_none() {
            // Without this message, the disk only begins later.
            let _ = copied.send((begin, end - begin));
        }
    }
}

/// The hash of a part, while it is written from its beginning to its end.
struct PartHash {
    number: u64,
    next: u64,
    hasher: Option<Hasher>,
}

impl PartHash {
    fn begin(pages: &Pages, part: &Part) -> Self {
        let begin = part.first().map_or(0, |piece| piece.to);
        let number = begin / PART_BYTES;
        let hasher = (begin.is_multiple_of(PART_BYTES) && pages.direct_at(begin).is_none()).then(|| {
            let mut hasher = Hasher::new();
            hasher.set_input_offset(begin);
            hasher
        });
        Self { number, next: begin, hasher }
    }

    fn update(&mut self, to: u64, bytes: &[u8]) {
        if to != self.next {
            self.hasher = None;
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.next = to + bytes.len() as u64;
    }

    /// A part that is written twice has no hash.
    fn keep(self, parts: &mut Hashes) {
        let value = self.hasher.map(|hasher| (hasher.finalize_non_root(), self.next));
        parts.entry(self.number).and_modify(|value| *value = None).or_insert(value);
    }
}

fn copy(pages: &Pages, piece: &Piece, buffer: &mut [u8], hash: &mut PartHash) -> io::Result<()> {
    let (direct, end) = (pages.direct_at(piece.to), piece.to + piece.bytes);
    let file = direct.unwrap_or(&pages.cached);
    let (mut from, mut to) = (piece.from, piece.to);
    while piece.source.may_share && to < end {
        hash.hasher = None;
        let left = usize::try_from(end - to).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(&piece.source.file, Some(&mut from), file, Some(&mut to), left) {
            Err(rustix::io::Errno::INTR) => {}
            // The rest is read and written.
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    while to < end {
        let left = usize::try_from(end - to).unwrap_or(usize::MAX).min(buffer.len());
        let content = buffer.get_mut(..left).unwrap_or_default();
        piece.source.file.read_exact_at(content, from)?;
        let turn = direct.is_none().then(|| pages.writing.lock());
        file.write_all_at(content, to)?;
        drop(turn);
        hash.update(to, content);
        (from, to) = (from + left as u64, to + left as u64);
    }
    Ok(())
}

/// Tells the disk to write what is copied. It may wait for the disk, which copying must not.
fn begin_writing(pages: &Pages, copied: Receiver<(u64, u64)>) {
    for (position, bytes) in copied {
        if let Err(error) = dorm_disk::begin_writing(&pages.cached, position, bytes) {
            tracing::debug!(%error, "cannot tell the disk to begin writing pages");
        }
    }
}

#[cfg(test)]
mod tests;
