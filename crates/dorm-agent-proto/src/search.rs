//! Types for a search in the files of a sandbox.

mod matcher;

pub use matcher::Matcher;

use serde::{Deserialize, Serialize};

use crate::file::FileKind;
use crate::guest::{GuestBytes, GuestPath};

/// The longest name pattern or regular expression, in bytes.
pub const PATTERN_MAX: usize = 16 * 1024;

/// The most bytes of a matching line that are sent.
pub const LINE_SHOWN: usize = 1024;

/// A search for files, or for lines in them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SearchSpec {
    /// The directory below which to search, or one file.
    pub path: GuestPath,
    /// The number of levels; 1 searches only the directory's own entries. By default all.
    pub depth: Option<u32>,
    /// A glob that the name of a file matches; if it contains a `/`, its path below the directory.
    pub name: Option<String>,
    /// The type of the files.
    pub kind: Option<FileKind>,
    /// The lines to find. Without them, files are found.
    pub lines: Option<LinePattern>,
    /// Whether letters match in either case, in names and lines.
    pub case: Case,
    /// When the search ends early.
    pub limits: SearchLimits,
}

/// Whether the case of letters counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// It does.
    #[default]
    Counts,
    /// It does not.
    Ignored,
}

/// Lines of regular files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinePattern {
    /// The pattern.
    pub pattern: String,
    /// The meaning of the pattern.
    pub syntax: Syntax,
    /// How files are treated that have a zero byte near their beginning.
    pub binary: BinaryFiles,
}

/// The meaning of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Syntax {
    /// A regular expression, as the crate `regex` knows them.
    #[default]
    Regex,
    /// The text itself.
    Literal,
}

/// The treatment of files with a zero byte in their first 8,192 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BinaryFiles {
    /// They are passed over.
    #[default]
    Skip,
    /// They are searched as text.
    Search,
}

/// The limits of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SearchLimits {
    /// The largest number of results.
    pub results: u32,
    /// The largest number of files and directories to look at.
    pub entries: u64,
    /// The largest number of bytes to read.
    pub bytes: u64,
    /// The longest time, in milliseconds.
    pub time_ms: u64,
}

/// A line that matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LineMatch {
    /// The file.
    pub path: GuestPath,
    /// The number of the line, from 1.
    pub line: u64,
    /// The offset of the match in the line, in bytes.
    pub at: u64,
    /// The line without its end: at most [`LINE_SHOWN`] bytes, with the beginning of the match.
    pub text: GuestBytes,
    /// The offset of the text in the line; 0 unless its beginning was cut off.
    pub text_at: u64,
    /// Whether the line is longer than the text.
    pub cut: bool,
}

/// The end of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SearchSummary {
    /// The limit at which the search ended; `None` if it is complete.
    pub stopped: Option<SearchLimit>,
    /// The number of files and directories that were looked at.
    pub entries: u64,
    /// The number of bytes that were read.
    pub bytes: u64,
    /// The number of binary files that were passed over.
    pub binary: u64,
    /// The number of files and directories that could not be read.
    pub unreadable: u64,
    /// The number of directories that were passed over because they are nested too deeply, or are
    /// of a file system without stored files, such as `/proc`.
    pub skipped: u64,
}

/// A limit of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchLimit {
    /// There are more results.
    Results,
    /// There are more files and directories.
    Entries,
    /// There are more bytes to read.
    Bytes,
    /// The time is over.
    Time,
    /// The results take too many bytes.
    Size,
}
