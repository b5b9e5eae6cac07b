//! Limits on the memory that reading an image takes, and on the number of files read out of it. The
//! guest controls both: it can create as many files, and as long names, as it likes.

use std::cell::Cell;

use crate::error::MemoryImageError;

/// The maximum average length of a path.
const NAME_BYTES: u64 = 256;
/// Reading an image may take at most this many times its size. An image that needs more is forged.
const FACTOR: u64 = 4;
/// The memory that the smallest image may take.
const LEAST: u64 = 16 << 20;

/// The limits for reading files out of memory images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilesLimits {
    /// How many files, directories and links a guest may have changed.
    pub entries: u64,
    /// The memory in bytes that all concurrent readings together may take.
    pub memory_bytes: u64,
}

impl Default for FilesLimits {
    fn default() -> Self {
        Self { entries: 1_000_000, memory_bytes: 512 << 20 }
    }
}

impl FilesLimits {
    /// Returns the memory that reading an image with `bytes` bytes of state may take.
    pub fn share_of(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(FACTOR).max(LEAST).min(self.memory_bytes)
    }
}

/// The rest of the limits, for one reading.
pub(crate) struct Budget {
    limits: FilesLimits,
    memory: Cell<u64>,
    is_exceeded: Cell<bool>,
    entries: Cell<u64>,
    names: Cell<u64>,
}

impl Budget {
    /// Creates the budget for an image with `bytes` bytes of state.
    pub(crate) fn new(limits: FilesLimits, bytes: u64) -> Self {
        Self {
            limits,
            memory: Cell::new(limits.share_of(bytes)),
            is_exceeded: Cell::new(false),
            entries: Cell::new(limits.entries),
            names: Cell::new(limits.entries.saturating_mul(NAME_BYTES)),
        }
    }

    /// Takes `bytes` of memory. Returns `false` if they exceed what is left.
    pub(crate) fn has_memory(&self, bytes: u64) -> bool {
        match self.memory.get().checked_sub(bytes) {
            Some(left) => self.memory.set(left),
            None => self.is_exceeded.set(true),
        }
        !self.is_exceeded.get()
    }

    /// Takes `bytes` of memory.
    pub(crate) fn take_memory(&self, bytes: u64) -> Result<(), MemoryImageError> {
        if self.has_memory(bytes) { Ok(()) } else { Err(self.exceeded()) }
    }

    /// Returns the error if more memory was requested than allowed.
    pub(crate) fn memory_error(&self) -> Option<MemoryImageError> {
        self.is_exceeded.get().then(|| self.exceeded())
    }

    fn exceeded(&self) -> MemoryImageError {
        let limit = self.limits.memory_bytes >> 20;
        MemoryImageError::TooMuch {
            what: format!("reading its files takes more memory than --snapshot-memory-mib {limit} allows"),
        }
    }

    /// Counts an entry and its path.
    pub(crate) fn take_entry(&self, path: &[u8]) -> Result<(), MemoryImageError> {
        let left = (self.entries.get().checked_sub(1), self.names.get().checked_sub(path.len() as u64));
        let (Some(entries), Some(names)) = left else {
            let limit = self.limits.entries;
            let what = match left.0 {
                None => format!("it has changed more files than --snapshot-files {limit} allows"),
                Some(_) => format!(
                    "the paths of its files are longer than --snapshot-files {limit} allows ({NAME_BYTES} bytes a file)"
                ),
            };
            return Err(MemoryImageError::TooMuch { what });
        };
        self.entries.set(entries);
        self.names.set(names);
        Ok(())
    }
}
