//! The path of writes from a file system on a loop device to the host's disk: detects failures, and
//! limits the amount of unwritten data.
//!
//! ```text
//! guest ─► page cache of the mounted file system ─► loop device ─► file on the host's disk
//!                                                   └─ fails when the host's disk is full or broken
//! ```
//!
//! The guest does not learn of such a failure: its write succeeded when it reached the page cache.
//! The kernel keeps one error per file and forgets it once it has been reported, so the caller must
//! remember the result.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::{Disk, DiskError, loop_device};

/// The losses that a file system reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LostWrites {
    /// Data written by a program did not reach the disk.
    Data(String),
    /// The file system found this many errors in its own structures.
    Errors(u64),
    /// The kernel made the file system read-only after an error.
    ReadOnly,
}

impl fmt::Display for LostWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(cause) => write!(f, "data could not be written to the host's disk ({cause})"),
            Self::Errors(count) => write!(f, "its file system reports {count} errors"),
            Self::ReadOnly => f.write_str("its file system became read-only after an error"),
        }
    }
}

/// A range past the end of every file: checking it does not wait for any write.
const BEHIND_ALL: i64 = 1 << 60;

impl Disk {
    /// Returns whether the file system or one of the `open` files on it has lost a write. Each lost
    /// write of a file is reported once. Does not wait for writes in progress.
    ///
    /// # Errors
    /// When the host cannot tell.
    pub fn lost_writes(&self, open: &[PathBuf]) -> Result<Option<LostWrites>, DiskError> {
        if !self.is_limited() || !self.is_mounted()? {
            return Ok(None);
        }
        if let Some(lost) = file_system(&self.path())? {
            return Ok(Some(lost));
        }
        let device = fs::metadata(self.path())
            .map_err(|source| DiskError::file("read the metadata of", &self.path(), source))?
            .dev();
        for path in open {
            // A file that has been closed meanwhile does not matter.
            let Ok(file) = File::options().read(true).open(path) else { continue };
            if !file.metadata().is_ok_and(|facts| facts.is_file() && facts.dev() == device) {
                continue;
            }
            if let Some(cause) = reported(&file) {
                return Ok(Some(LostWrites::Data(cause.to_string())));
            }
        }
        Ok(None)
    }
}

/// Returns what a mounted file system itself reports.
pub(crate) fn file_system(mounted: &Path) -> Result<Option<LostWrites>, DiskError> {
    let facts =
        rustix::fs::statvfs(mounted).map_err(|error| DiskError::file("read the metadata of", mounted, error.into()))?;
    if facts.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(Some(LostWrites::ReadOnly));
    }
    let number = loop_device::number_below(mounted)
        .map_err(|source| DiskError::file("read the metadata of", mounted, source))?;
    let Some(number) = number else { return Ok(None) };
    // Missing for file systems other than ext4.
    let count = fs::read_to_string(format!("/sys/fs/ext4/loop{number}/errors_count")).ok();
    let count = count.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    Ok((count > 0).then_some(LostWrites::Errors(count)))
}

/// Returns the error of an earlier write to `file` that has not been reported yet.
fn reported(file: &File) -> Option<io::Error> {
    // SAFETY: the descriptor is open; the call takes only numbers and does not access our memory.
    #[allow(unsafe_code)]
    let answer =
        unsafe { libc::sync_file_range(file.as_raw_fd(), BEHIND_ALL, 4096, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    if answer == 0 {
        return None;
    }
    let error = io::Error::last_os_error();
    // Errors of the call itself say nothing about the file.
    (!matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ESPIPE | libc::EBADF))).then_some(error)
}

/// Tells the disk to begin to write a part of `file`, without waiting for the end. It waits if the
/// disk has much to write.
///
/// # Errors
/// When the part cannot be written.
pub fn begin_writing(file: &File, position: u64, bytes: u64) -> io::Result<()> {
    let number = |of: u64| i64::try_from(of).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (position, bytes) = (number(position)?, number(bytes)?);
    // SAFETY: the descriptor is open; the call takes only numbers and does not access our memory.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::sync_file_range(file.as_raw_fd(), position, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Limits the unwritten data of every loop device whose file is below `directory`, so that all of
/// them together have at most `bytes`; `None` removes the limit. Faster writers are slowed down to
/// the speed of the disk. Returns the number of devices.
pub fn bound_unwritten(directory: &Path, bytes: Option<u64>) -> usize {
    let devices: Vec<u32> = loop_device::below(directory);
    let each = bytes.map(|bytes| (bytes / devices.len().max(1) as u64).max(UNWRITTEN_MIN));
    for number in &devices {
        bound_device(*number, each);
    }
    devices.len()
}

/// The minimum unwritten data of a device: with less, writes would hardly progress.
const UNWRITTEN_MIN: u64 = 1 << 20;

/// Limits one device. Kernels before 6.2 do not support limits in bytes and keep their own.
pub(crate) fn bound_device(number: u32, bytes: Option<u64>) {
    let place = PathBuf::from(format!("/sys/class/bdi/7:{number}"));
    let set = |name: &str, value: &str| fs::write(place.join(name), value);
    let done = match bytes {
        Some(bytes) => set("max_bytes", &bytes.to_string()).and_then(|()| set("strict_limit", "1")),
        None => set("strict_limit", "0").and_then(|()| set("max_ratio", "100")),
    };
    if let Err(error) = done {
        tracing::debug!(device = number, %error, "cannot limit the unwritten data of a device");
    }
}

/// Returns the maximum unwritten data in all page caches of this host before the kernel slows down
/// writers.
pub fn unwritten_max() -> u64 {
    let pages = fs::read_to_string("/proc/vmstat").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold "))?;
        line.trim().parse::<u64>().ok()
    });
    pages.unwrap_or(1 << 18).saturating_mul(page_bytes())
}

fn page_bytes() -> u64 {
    // SAFETY: the call only reads a system constant.
    #[allow(unsafe_code)]
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loop_device::LoopDevice;

    #[test]
    fn a_device_loses_the_limit_of_its_earlier_user() {
        if crate::Disk::probe().is_err() || !rustix::process::geteuid().is_root() {
            dorm_skip::skip("this needs root and loop devices");
            return;
        }
        let place = tempfile::Builder::new().prefix("disk-").tempdir().unwrap();
        let image = place.path().join("disk.img");
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let device = LoopDevice::attach(&image).unwrap();
        let number = device.number().unwrap();
        let limits = PathBuf::from(format!("/sys/class/bdi/7:{number}"));
        if !limits.join("max_bytes").exists() {
            dorm_skip::skip("this kernel cannot bound what is unwritten");
            return;
        }
        let limit = |name: &str| fs::read_to_string(limits.join(name)).unwrap().trim().parse::<u64>().unwrap();
        bound_device(number, Some(1 << 20));
        assert_eq!(limit("strict_limit"), 1);
        crate::bound_when_tight(&image, &device);
        // A host that is nearly full has a limit of its own.
        assert!(limit("strict_limit") == 0 || limit("max_bytes") > 2 << 20);
    }
}
