//! A guest's changes to its root file system, as an engine reads them out of a memory image.

use std::collections::BTreeMap;
use std::io;

/// One change to a root file system, relative to the root file system that the run started with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The path below the root: components separated by single slashes, none of them empty, `.` or
    /// `..`; empty for the root itself. Any other bytes are allowed.
    pub path: Vec<u8>,
    /// The kind of file at the path now.
    pub kind: EntryKind,
    /// The permissions, including set-user-id, set-group-id and sticky bits.
    pub mode: u32,
    /// The owner, as seen inside.
    pub user: u32,
    /// The group, as seen inside.
    pub group: u32,
    /// The time of the last change of the content: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Extended attributes by their full names, such as `user.comment`.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The kind of an [`Entry`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A directory.
    Directory {
        /// Whether the directory hides everything that the root file system has at this path.
        replaces: bool,
    },
    /// A regular file; its content is passed along.
    File {
        /// Its length in bytes, holes included.
        bytes: u64,
    },
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// Another name of an earlier entry, whose path this is. All other fields are those of that
    /// entry.
    HardLink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A removed entry of the root file system. Mode, owner and the like have no meaning.
    Removed,
}

/// The number of entries that could not be transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Sockets: the programs that listened on them are gone.
    pub sockets: u64,
    /// Device nodes: each sandbox has its own.
    pub devices: u64,
}

/// The content of one file, as a sequence of pieces.
pub trait Content {
    /// Returns the next piece that is not a hole: its offset and its bytes. Pieces come in order
    /// and do not overlap.
    ///
    /// # Errors
    ///
    /// Fails if the image cannot be read, or is malformed.
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>>;
}

/// The content of entries without content.
#[derive(Clone, Copy, Debug)]
pub struct NoContent;

impl Content for NoContent {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        Ok(None)
    }
}

/// Receives the changes. A directory comes before its entries, and no path comes twice.
pub trait FileSink: Send {
    /// Receives one change.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be stored; then no more follow.
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()>;
}
