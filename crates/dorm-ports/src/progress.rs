//! The progress of an image import.

/// The stages of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Another import fetches the same image.
    Waiting,
    /// Blobs are fetched from a registry.
    Fetching,
    /// Entries are read and written.
    Unpacking,
    /// The digest is computed.
    Hashing,
    /// The image is made durable.
    Syncing,
    /// A sandbox of it is suspended and resumed as a test.
    Trying,
}

/// The progress of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The present stage.
    pub stage: Stage,
    /// Entries written so far.
    pub entries: u64,
    /// Bytes of the archive read so far, or bytes of files of a directory.
    pub bytes: u64,
    /// Bytes of the archive; `None` for a directory.
    pub bytes_total: Option<u64>,
}
