//! Files of a tree that are not written yet. Creating a small file is mostly waiting for the file
//! system, so several threads write them, and the listing keeps the order in which they arrived.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use dorm_engine::{Content, Entry};
use dorm_guest_ids::GuestIds;
use rustix::fs::{Mode, OFlags};

use super::content::ContentHasher;
use super::listing::{Listed, text};
use super::tree::{set_metadata, times};
use crate::error::StorageError;

/// A longer file is written as it arrives.
const SMALL: u64 = 256 << 10;
/// How many bytes of content a batch holds before it is written.
const BYTES: usize = 16 << 20;
const ENTRIES: usize = 1024;
/// How many directories a batch holds open.
const DIRECTORIES: usize = 64;
const THREADS: usize = 4;

/// Entries in the order of the listing, some of them not written yet.
pub(super) struct Batch {
    ids: GuestIds,
    entries: Vec<(Entry, Made)>,
    bytes: usize,
    directories: Vec<Arc<OwnedFd>>,
}

enum Made {
    /// Already on the disk; for a file, with the hash of its content.
    Already(Option<String>),
    Later(Later),
}

/// A file to write.
struct Later {
    parent: Arc<OwnedFd>,
    name: Vec<u8>,
    length: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Batch {
    pub(super) fn new(ids: GuestIds) -> Self {
        Self { ids, entries: Vec::new(), bytes: 0, directories: Vec::new() }
    }

    /// Adds an entry that is on the disk.
    pub(super) fn made(&mut self, entry: &Entry, hash: Option<String>) {
        self.entries.push((entry.clone(), Made::Already(hash)));
    }

    /// Adds a file of `length` bytes. A long file is written now, others with the batch.
    pub(super) fn file(
        &mut self,
        entry: &Entry,
        (parent, name): (&Arc<OwnedFd>, &[u8]),
        length: u64,
        content: &mut dyn Content,
    ) -> io::Result<()> {
        if length > SMALL {
            let hash = write((parent, name), entry, self.ids, length, content)?;
            self.made(entry, Some(hash));
            return Ok(());
        }
        let (mut pieces, mut end) = (Vec::new(), 0);
        while let Some((at, piece)) = content.next()? {
            end = ends(at, piece, end, length)?;
            pieces.push((at, piece.to_vec()));
            self.bytes += piece.len();
        }
        if self.directories.last().is_none_or(|last| !Arc::ptr_eq(last, parent)) {
            self.directories.push(parent.clone());
        }
        let later = Later { parent: parent.clone(), name: name.to_owned(), length, pieces };
        self.entries.push((entry.clone(), Made::Later(later)));
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES || self.bytes >= BYTES || self.directories.len() >= DIRECTORIES
    }

    /// Writes the pending files and returns all entries, in order.
    pub(super) fn write(&mut self) -> io::Result<Vec<Listed>> {
        let ids = self.ids;
        let mut entries = std::mem::replace(self, Self::new(ids)).entries;
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
        // Neighbours stay together: they are in one directory, which only one thread at a time can
        // change.
        let share = entries.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let shares = entries
                .chunks_mut(share)
                .map(|share| scope.spawn(|| share.iter_mut().try_for_each(|one| settle(one, ids))));
            let shares: Vec<_> = shares.collect();
            shares.into_iter().try_for_each(|share| {
                share.join().unwrap_or_else(|_| Err(io::Error::other("a thread that writes files panicked")))
            })
        })?;
        let listed = entries.into_iter().map(|(entry, made)| match made {
            Made::Already(hash) => Ok(Listed { entry, hash }),
            Made::Later(_) => Err(io::Error::other("a file was not written")),
        });
        listed.collect()
    }
}

fn settle((entry, made): &mut (Entry, Made), ids: GuestIds) -> io::Result<()> {
    let Made::Later(later) = made else { return Ok(()) };
    let mut pieces = Pieces(&later.pieces);
    let hash = write((&later.parent, &later.name), entry, ids, later.length, &mut pieces);
    *made = Made::Already(Some(hash.map_err(|error| kept(entry, error))?));
    Ok(())
}

/// An error that names the entry it is about.
pub(super) fn kept(entry: &Entry, error: io::Error) -> io::Error {
    // A refusal because of the disk's reserve does not concern the entry.
    if error.get_ref().is_some_and(|source| source.is::<StorageError>()) {
        return error;
    }
    io::Error::new(error.kind(), format!("cannot keep '/{}': {error}", text(&entry.path)))
}

struct Pieces<'a>(&'a [(u64, Vec<u8>)]);

impl Content for Pieces<'_> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let Some(((at, piece), rest)) = self.0.split_first() else { return Ok(None) };
        self.0 = rest;
        Ok(Some((*at, piece)))
    }
}

fn write(
    (parent, name): (&OwnedFd, &[u8]),
    entry: &Entry,
    ids: GuestIds,
    length: u64,
    content: &mut dyn Content,
) -> io::Result<String> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?);
    let hash = fill(&file, length, content)?;
    set_metadata(&file, entry, ids)?;
    rustix::fs::futimens(&file, &times(entry))?;
    Ok(hash)
}

fn fill(file: &File, bytes: u64, content: &mut dyn Content) -> io::Result<String> {
    let mut hasher = ContentHasher::new();
    let mut end = 0;
    while let Some((at, piece)) = content.next()? {
        end = ends(at, piece, end, bytes)?;
        file.write_all_at(piece, at)?;
        hasher.update(at, piece);
    }
    if end < bytes {
        file.set_len(bytes)?;
    }
    Ok(hasher.finish(bytes))
}

/// Returns the end of a piece, which must begin at or after the `last` end and be within the
/// length.
fn ends(at: u64, piece: &[u8], last: u64, length: u64) -> io::Result<u64> {
    let end = at.checked_add(piece.len() as u64).filter(|end| at >= last && *end <= length);
    end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its content does not fit its length"))
}
