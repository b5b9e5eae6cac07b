//! Errors of disks.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use thiserror::Error;

/// Why a disk could not be created, changed or removed.
#[derive(Debug, Error)]
pub enum DiskError {
    /// A file, directory, device or mount could not be used.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// `open`, `mount`, …
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// This host has no loop devices.
    #[error(
        "this host has no loop devices ({} cannot be used), so disk sizes cannot be limited: run as root, load the kernel's loop module, or give the container /dev/loop-control and block devices of major 7",
        what.display()
    )]
    NoLoop {
        /// The device that failed.
        what: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The program that formats disks is missing.
    #[error("cannot run mkfs.ext4: install e2fsprogs")]
    NoFormatter(#[source] io::Error),
    /// The program that formats disks failed.
    #[error("cannot format a disk of {bytes} bytes: mkfs.ext4 failed ({status}): {said}")]
    Format {
        /// The size.
        bytes: u64,
        /// Its exit status.
        status: ExitStatus,
        /// Its output.
        said: String,
    },
    /// The directory already contains a disk.
    #[error("{} already contains a disk: remove it first", .0.display())]
    Exists(PathBuf),
    /// The directory contains no disk, or one without a size limit.
    #[error("there is no size-limited disk in {}", .0.display())]
    NoDisk(PathBuf),
    /// The disk has lost writes, now or earlier.
    #[error("it has lost writes: {0}")]
    LostWrites(String),
    /// The size is too small.
    #[error("a disk of {asked} bytes is too small: the minimum is {least} bytes")]
    TooSmall {
        /// The requested size.
        asked: u64,
        /// The minimum size here.
        least: u64,
    },
    /// The kernel requires this capability for resizing a mounted file system.
    #[error("cannot resize the mounted disk in {}: the daemon needs the capability CAP_SYS_RESOURCE", dir.display())]
    MayNotResize {
        /// The disk's directory.
        dir: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl DiskError {
    pub(super) fn file(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { operation, path: path.to_owned(), source }
    }

    /// Returns whether the host's own disk is full.
    pub fn is_no_room(&self) -> bool {
        match self {
            Self::File { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}
