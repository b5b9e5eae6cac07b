//! The files of control groups: reading, writing, and waiting for a value.
//!
//! This module does not know what the files mean.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::CgroupError;

/// Returns the whole text of `dir/name`.
pub(crate) fn read(dir: &Path, name: &str) -> Result<String, CgroupError> {
    let path = dir.join(name);
    fs::read_to_string(&path).map_err(|source| CgroupError::file("read", path, source))
}

/// Writes `text` to `dir/name` in one system call, as the kernel requires. Never creates the file.
pub(crate) fn write(dir: &Path, name: &str, text: &str) -> Result<(), CgroupError> {
    use std::io::Write as _;
    let path = dir.join(name);
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| CgroupError::file("write", path, source))
}

/// Like [`write()`], but returns `Ok(false)` for a file that this kernel does not have.
pub(crate) fn write_if_there(dir: &Path, name: &str, text: &str) -> Result<bool, CgroupError> {
    match write(dir, name, text) {
        Ok(()) => Ok(true),
        Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Parses the whole text of `dir/name` as a number.
pub(crate) fn number(dir: &Path, name: &str) -> Result<u64, CgroupError> {
    let text = read(dir, name)?;
    text.trim().parse().map_err(|_| CgroupError::Unexpected { path: dir.join(name), text: text.trim().to_owned() })
}

/// Returns the number after `key` in the lines `key number` of `dir/name`.
pub(crate) fn field(dir: &Path, name: &str, key: &str) -> Result<u64, CgroupError> {
    let text = read(dir, name)?;
    find(&text, key).ok_or_else(|| CgroupError::Unexpected { path: dir.join(name), text: format!("no {key}") })
}

/// Returns the number after `key` in lines of the form `key number`.
pub(crate) fn find(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns the process IDs in `dir/cgroup.procs`. IDs that are not visible to this process read as
/// 0 and are omitted, since a signal to 0 would be sent to our own process group.
pub(crate) fn pids(dir: &Path) -> Result<Vec<u32>, CgroupError> {
    let mut pids: Vec<u32> =
        read(dir, "cgroup.procs")?.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 1).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Calls `done` repeatedly until it returns true or `limit` has passed, at first after fractions of
/// a millisecond. Returns whether it returned true.
pub(crate) fn wait_until(
    limit: Duration,
    mut done: impl FnMut() -> Result<bool, CgroupError>,
) -> Result<bool, CgroupError> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(100);
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(5));
    }
}
