//! Searches in the files of a sandbox.

use dorm_api_types as wire;
use reqwest::Method;
use serde::Serialize;

use super::path::sandbox as of;
use super::{Client, ClientError};

/// A search for files.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Find {
    /// Absolute path of the directory.
    pub path: String,
    /// Glob for the name, such as `*.rs`. One with a `/` is compared with the path below the
    /// directory. Default: every name.
    pub name: Option<String>,
    /// Only files of this type. Default: any.
    pub kind: Option<wire::FileKind>,
    /// Ignore the case of letters.
    pub ignore_case: bool,
    /// Levels of directories to search; 1 searches only the entries of the directory. Default: all.
    pub depth: Option<u32>,
    /// Largest number of files to return, 1 to 10,000. Default 1,000.
    pub limit: Option<u32>,
    /// Largest number of files and directories to look at. Default 1,000,000.
    pub max_entries: Option<u64>,
    /// Longest time of the search in seconds, at most 3,600. Default 30.
    pub timeout_secs: Option<f64>,
}

/// A search for lines in files.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Grep {
    /// Absolute path of the directory, or of one file.
    pub path: String,
    /// Regular expression in the syntax of the crate `regex`. It is compared with each line.
    pub pattern: String,
    /// The pattern is the text itself.
    pub literal: bool,
    /// Ignore the case of letters, also in `name`.
    pub ignore_case: bool,
    /// Glob for the names of the files to search. Default: every file.
    pub name: Option<String>,
    /// Also search binary files.
    pub binary: bool,
    /// Levels of directories to search; 1 searches only the files in the directory. Default: all.
    pub depth: Option<u32>,
    /// Largest number of lines to return, 1 to 10,000. Default 1,000.
    pub limit: Option<u32>,
    /// Largest number of files and directories to look at. Default 1,000,000.
    pub max_entries: Option<u64>,
    /// Largest number of bytes to read from files. Default 1 GiB.
    pub max_bytes: Option<u64>,
    /// Longest time of the search in seconds, at most 3,600. Default 30.
    pub timeout_secs: Option<f64>,
}

impl Client {
    /// Finds files below a directory, without following symbolic links. The search ends at the
    /// first limit that it reaches; `search.truncated_by` of the result says at which.
    pub async fn find(&self, sandbox: &str, search: &Find) -> Result<wire::FoundFiles, ClientError> {
        self.read(self.request(Method::GET, &of(sandbox, "files/find")).query(search)).await
    }

    /// Finds lines in the files below a directory, like [`Client::find`].
    pub async fn grep(&self, sandbox: &str, search: &Grep) -> Result<wire::FoundLines, ClientError> {
        self.read(self.request(Method::GET, &of(sandbox, "files/grep")).query(search)).await
    }
}
