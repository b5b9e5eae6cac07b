//! What a guest has changed in its root filesystem, as an engine reads it out of a memory image.

use std::collections::BTreeMap;
use std::io;

/// One change to a root filesystem, compared with the root filesystem that the run began with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Below the root: components separated by one slash each, none of them empty, `.` or `..`; empty for the root
    /// itself. Any other bytes are allowed.
    pub path: Vec<u8>,
    /// What is there now.
    pub kind: EntryKind,
    /// Permissions, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner, as seen inside.
    pub user: u32,
    /// Group, as seen inside.
    pub group: u32,
    /// When the content was last changed: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Extended attributes by their full names, such as `user.comment`.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What an [`Entry`] says is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A directory.
    Directory {
        /// Nothing of what the root filesystem had at this path shows through.
        replaces: bool,
    },
    /// A file; its content comes with it.
    File {
        /// Its length, holes included.
        bytes: u64,
    },
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// Another name of an entry that came before, under this path. Everything else of the entry is that one's.
    HardLink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// Nothing: what the root filesystem had here is gone. Mode, owner and the like mean nothing.
    Removed,
}

/// What could not be taken along.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Sockets: whoever listened on them is gone.
    pub sockets: u64,
    /// Device nodes: each sandbox has its own.
    pub devices: u64,
}

/// The content of one file, piece by piece.
pub trait Content {
    /// The next piece that is not a hole: where it begins, and its bytes. Pieces come in order and do not overlap.
    ///
    /// # Errors
    /// When the image cannot be read, or is not what it should be.
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>>;
}

/// The content of whatever has none.
#[derive(Clone, Copy, Debug)]
pub struct NoContent;

impl Content for NoContent {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        Ok(None)
    }
}

/// Takes the changes. A directory comes before what is in it, and no path comes twice.
pub trait FileSink: Send {
    /// Takes one.
    ///
    /// # Errors
    /// When it cannot be kept; then no more come.
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()>;
}
