//! The small files that control groups are made of: reading, writing, and waiting for one to say something.
//!
//! Knows nothing of what the files mean.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::CgroupError;

/// The whole text of `dir/name`.
pub(super) fn read(dir: &Path, name: &str) -> Result<String, CgroupError> {
    let path = dir.join(name);
    fs::read_to_string(&path).map_err(|source| CgroupError::file("read", path, source))
}

/// Writes `text` to `dir/name` in one system call, as the kernel wants it; never creates the file.
pub(super) fn write(dir: &Path, name: &str, text: &str) -> Result<(), CgroupError> {
    use std::io::Write as _;
    let path = dir.join(name);
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| CgroupError::file("write", path, source))
}

/// Like [`write`], but a file that this kernel does not have is `Ok(false)`.
pub(super) fn write_if_there(dir: &Path, name: &str, text: &str) -> Result<bool, CgroupError> {
    match write(dir, name, text) {
        Ok(()) => Ok(true),
        Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The number that `dir/name` consists of.
pub(super) fn number(dir: &Path, name: &str) -> Result<u64, CgroupError> {
    let text = read(dir, name)?;
    text.trim().parse().map_err(|_| CgroupError::Unexpected { path: dir.join(name), text: text.trim().to_owned() })
}

/// The number after `key` in the lines `key number` of `dir/name`.
pub(super) fn field(dir: &Path, name: &str, key: &str) -> Result<u64, CgroupError> {
    let text = read(dir, name)?;
    find(&text, key).ok_or_else(|| CgroupError::Unexpected { path: dir.join(name), text: format!("no {key}") })
}

/// The number after `key` in lines of `key number`.
pub(super) fn find(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The process ids in `dir/cgroup.procs`. Ids that this process cannot see (they read as 0) are left out, since
/// signalling 0 would signal ourselves.
pub(super) fn pids(dir: &Path) -> Result<Vec<u32>, CgroupError> {
    let mut pids: Vec<u32> =
        read(dir, "cgroup.procs")?.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 1).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Asks `done` again and again until it answers true or `limit` is over, at first after fractions of a millisecond.
/// Answers whether it did.
pub(super) fn wait_until(
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
