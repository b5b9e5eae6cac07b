//! Paths of entries on a volume.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The longest path, in bytes, which is the limit of the kernel.
const PATH_MAX: usize = 4095;
/// The longest name of an entry, in bytes.
const NAME_MAX: usize = 255;

/// A path from the top of a volume. It has no `.`, no `..` and no empty names: those are resolved
/// as text, before any link is followed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EntryPath(String);

/// Why a text is not a path on a volume.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadPath {
    /// It is empty.
    #[error("the path is empty: name an entry of the volume, or '/' for its top")]
    Empty,
    /// It contains the byte 0.
    #[error("the path contains a NUL byte")]
    Nul,
    /// It or one of its names is too long.
    #[error("the path is too long: at most {PATH_MAX} bytes, and {NAME_MAX} in each name")]
    Long,
    /// It has more `..` than names before them.
    #[error("the path '{0}' leads out of the volume")]
    Outside(String),
}

impl EntryPath {
    /// The path relative to the top of the volume, without a slash at either end; empty for the
    /// top.
    pub fn relative(&self) -> &str {
        &self.0
    }

    /// Whether this is the top of the volume.
    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    /// The relative path of the directory above, and the name of the entry in it; `None` for the
    /// top.
    pub fn split(&self) -> Option<(&str, &str)> {
        match self.0.rsplit_once('/') {
            Some(parts) => Some(parts),
            None if self.is_top() => None,
            None => Some(("", &self.0)),
        }
    }
}

impl FromStr for EntryPath {
    type Err = BadPath;

    /// Parses a path, with or without a slash at its beginning.
    fn from_str(text: &str) -> Result<Self, BadPath> {
        if text.is_empty() {
            return Err(BadPath::Empty);
        }
        if text.contains('\0') {
            return Err(BadPath::Nul);
        }
        if text.len() > PATH_MAX {
            return Err(BadPath::Long);
        }
        let mut names = Vec::new();
        for name in text.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop().ok_or_else(|| BadPath::Outside(text.to_owned()))?;
                }
                name if name.len() > NAME_MAX => return Err(BadPath::Long),
                name => names.push(name),
            }
        }
        Ok(Self(names.join("/")))
    }
}

impl fmt::Display for EntryPath {
    /// Writes the path with a slash at its beginning.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_slashes_are_resolved_as_text() {
        for (text, expected) in
            [("/", "/"), ("a", "/a"), ("/a//b/", "/a/b"), ("./a/../b", "/b"), ("/a/..", "/"), ("/...", "/...")]
        {
            assert_eq!(text.parse::<EntryPath>().unwrap().to_string(), expected, "{text}");
        }
        let path: EntryPath = "/a/b/c".parse().unwrap();
        assert_eq!(path.split(), Some(("a/b", "c")));
        assert_eq!("c".parse::<EntryPath>().unwrap().split(), Some(("", "c")));
        assert_eq!("/".parse::<EntryPath>().unwrap().split(), None);
    }

    #[test]
    fn a_path_that_cannot_be_on_a_volume_is_refused() {
        let parsed = |text: &str| text.parse::<EntryPath>().unwrap_err();
        assert_eq!(parsed(""), BadPath::Empty);
        assert_eq!(parsed("a\0b"), BadPath::Nul);
        assert_eq!(parsed(&"n".repeat(256)), BadPath::Long);
        assert_eq!(parsed(&"/n".repeat(2048)), BadPath::Long);
        for text in ["..", "/..", "a/../../b", "/../secret"] {
            assert_eq!(parsed(text), BadPath::Outside(text.to_owned()));
        }
    }
}
