//! Searches in the files of a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::file::FileStat;
use crate::text::Text;

/// The files that a search has found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FoundFiles {
    /// The files.
    pub files: Vec<FileStat>,
    /// How the search ended.
    pub search: SearchEnd,
}

/// The lines that a search has found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FoundLines {
    /// The lines.
    pub lines: Vec<FoundLine>,
    /// How the search ended.
    pub search: SearchEnd,
}

/// A line that matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FoundLine {
    /// Absolute path of the file.
    pub path: Text,
    /// Number of the line, from 1.
    pub line: u64,
    /// Position of the match in the line, in bytes.
    pub offset: u64,
    /// The line: at most 1,024 bytes of it, with the beginning of the match.
    pub text: Text,
    /// Position of the text in the line, in bytes; 0 unless the beginning of the line is cut off.
    pub text_offset: u64,
    /// Whether the line is longer than the text.
    pub cut: bool,
}

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SearchEnd {
    /// Limit at which the search ended before all was searched. Null if it is complete.
    pub truncated_by: Option<SearchLimit>,
    /// Number of files and directories that were looked at.
    pub entries: u64,
    /// Number of bytes that were read from files.
    pub read_bytes: u64,
    /// Number of binary files that were skipped.
    pub binary_files: u64,
    /// Number of files and directories that could not be read.
    pub unreadable: u64,
    /// Number of directories that were skipped because they are nested more than 256 deep, or
    /// belong to a file system such as `/proc`.
    pub skipped_directories: u64,
}

/// Limit of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchLimit {
    /// There are more results than `limit`.
    Results,
    /// There are more files and directories than `max_entries`.
    Entries,
    /// There are more bytes to read than `max_bytes`.
    Bytes,
    /// The search took longer than `timeout_secs`.
    Time,
    /// The results take more than 4 MiB.
    Size,
}
