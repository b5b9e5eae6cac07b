//! One entry of an image between a source and the disk, and its path inside.

use std::io;

/// The maximum path length of Linux.
const PATH_MAX: usize = 4095;
const NAME_MAX: usize = 255;

/// A path inside an image: relative to its root, without `.` and `..`. The empty path is the root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct GuestPath(Vec<u8>);

impl GuestPath {
    /// Parses a path of an archive. A leading `/` or `./` means the root of the image.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, Refusal> {
        let mut path = Vec::with_capacity(raw.len());
        for part in raw.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err(Refusal::because("leads out of the image with '..'")),
                _ if part.contains(&0) => return Err(Refusal::because("has a NUL in its name")),
                _ if part.len() > NAME_MAX => return Err(Refusal::because("has a name of more than 255 bytes")),
                _ => {}
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        if path.len() > PATH_MAX {
            return Err(Refusal::because("has a path of more than 4095 bytes"));
        }
        Ok(Self(path))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns its directory and its name there; `None` for the root.
    pub(super) fn split(&self) -> Option<(&[u8], &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (b"", &self.0),
        })
    }

    /// Returns whether it is below the directory `above`.
    pub(super) fn is_below(&self, above: &str) -> bool {
        self.0.strip_prefix(above.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
    }
}

/// The kind of an entry.
pub(super) enum Kind {
    Directory,
    /// With its length; the content is separate.
    File(u64),
    Symlink(Vec<u8>),
    HardLink(GuestPath),
    Fifo,
}

/// One entry, with its owner inside.
pub(super) struct Node {
    pub(super) path: GuestPath,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Seconds since 1970.
    pub(super) modified: i64,
    /// The value of `security.capability`.
    pub(super) capability: Option<Vec<u8>>,
}

/// Why one entry cannot be imported. The text is a phrase whose subject is the entry.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) what: String,
    pub(super) source: Option<io::Error>,
}

impl Refusal {
    pub(super) fn because(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    pub(super) fn system(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self { what: what.to_owned(), source: Some(source.into()) }
    }
}
