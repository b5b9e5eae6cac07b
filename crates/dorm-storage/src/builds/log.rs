//! The log of a build or a setup: one line of JSON for each line of output, appended as it arrives.
//!
//! The oldest lines are kept. Once a log has [`OUTPUT_BYTES_MAX`], lines of commands are left out,
//! and one line says so; lines about steps and the end are always written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;

use dorm_lifecycle::{BuildId, OperationId, Timestamp};
use serde::{Deserialize, Serialize};

use super::Builds;
use crate::error::{StorageError, failed};
use crate::steps::Step;

/// How many bytes of a log the output of commands can fill.
const OUTPUT_BYTES_MAX: u64 = 8 << 20;

/// The id of a log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogId(String);

impl LogId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The log of a build.
impl From<&BuildId> for LogId {
    fn from(build: &BuildId) -> Self {
        Self(build.to_string())
    }
}

/// The log of an attempt to set up a sandbox of an environment.
impl From<&OperationId> for LogId {
    fn from(attempt: &OperationId) -> Self {
        Self(attempt.to_string())
    }
}

/// The origin of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// The daemon.
    Build,
    /// The standard output of a step.
    Stdout,
    /// The standard error of a step.
    Stderr,
}

/// A line of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    /// When it was written, in milliseconds since 1970.
    pub at_ms: u64,
    /// The position of the step, starting at 0.
    pub step: Option<u64>,
    /// Its origin.
    pub stream: LogStream,
    /// The text, without the end of the line.
    pub text: String,
}

impl LogLine {
    /// When it was written.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.at_ms)
    }
}

/// Lines of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogPage {
    /// The lines, in order.
    pub lines: Vec<LogLine>,
    /// The offset of the line after them.
    pub next: u64,
}

impl Builds {
    /// Appends lines to a log, which is created if it is missing.
    pub(crate) fn append(&self, id: &LogId, lines: &[LogLine]) -> Result<(), StorageError> {
        let path = self.log_path(id);
        let wrong = |error| failed("write to the log", &path)(error);
        let mut file = self.open_log(id)?;
        let mut bytes = file.seek(SeekFrom::End(0)).map_err(wrong)?;
        let mut text = Vec::new();
        for line in lines {
            let is_output = line.stream != LogStream::Build;
            if is_output && bytes >= OUTPUT_BYTES_MAX {
                continue;
            }
            let begin = text.len();
            put(&mut text, line).map_err(wrong)?;
            bytes += (text.len() - begin) as u64;
            if is_output && bytes >= OUTPUT_BYTES_MAX {
                let what = format!("the output is larger than {} MiB: the rest is left out", OUTPUT_BYTES_MAX >> 20);
                put(&mut text, &LogLine { stream: LogStream::Build, text: what, ..line.clone() }).map_err(wrong)?;
            }
        }
        file.write_all(&text).map_err(wrong)
    }

    /// Makes the lines of a log durable.
    pub(crate) fn sync_log(&self, id: &LogId) -> Result<(), StorageError> {
        let path = self.log_path(id);
        self.open_log(id)?.sync_all().map_err(failed("sync the log", &path))?;
        self.steps.durable(&path);
        self.steps.reach(Step::LogSynced)
    }

    /// Opens a log, and removes a line that a dead daemon has not completed.
    fn open_log(&self, id: &LogId) -> Result<File, StorageError> {
        let path = self.log_path(id);
        let open = || -> io::Result<File> {
            let options = OpenOptions::new().read(true).append(true).create(true).mode(0o600).clone();
            let mut file = options.open(&path)?;
            let length = file.metadata()?.len();
            if length == 0 {
                return Ok(file);
            }
            let mut last = [0];
            file.seek(SeekFrom::Start(length - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                let whole = fs::read(&path)?;
                let end = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                file.set_len(end as u64)?;
            }
            Ok(file)
        };
        open().map_err(failed("open the log", &path))
    }

    /// Returns at most `most` lines from an offset on. A log that is missing is empty.
    pub(crate) fn read_log(&self, id: &LogId, from: u64, most: usize) -> Result<LogPage, StorageError> {
        let path = self.log_path(id);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("read the log", &path)(error)),
        };
        let end = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        let mut page = LogPage { lines: Vec::new(), next: from };
        let whole = text.get(..end).unwrap_or_default();
        for line in whole.split(|byte| *byte == b'\n').skip(skipped).take(most) {
            if line.is_empty() {
                break;
            }
            page.lines.push(serde_json::from_slice(line).unwrap_or_else(|_| LogLine {
                at_ms: 0,
                step: None,
                stream: LogStream::Build,
                text: "this line of the log cannot be read".to_owned(),
            }));
        }
        page.next = from + page.lines.len() as u64;
        Ok(page)
    }

    /// Removes a log. Succeeds if there is none.
    pub(crate) fn remove_log(&self, id: &LogId) -> Result<(), StorageError> {
        crate::disk::remove_file(&self.log_path(id))
    }
}

fn put(text: &mut Vec<u8>, line: &LogLine) -> io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}
