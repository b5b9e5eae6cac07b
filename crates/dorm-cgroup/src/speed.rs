//! I/O limits of a group on one block device.
//!
//! Version 2 charges delayed write-back to the writer. Version 1 charges it to the root of the
//! hierarchy, so the device is limited there, too: only one group may use the device, and it must
//! be released with [`unlimit_device`] before another group uses it.

use std::path::{Path, PathBuf};

use crate::controller::{Controller, Version};
use crate::error::CgroupError;
use crate::file;
use crate::group::Cgroup;
use crate::layout::{Layout, Place};

/// Bytes and operations per second, each for reads and for writes; 0 means unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoLimits {
    /// Bytes read per second.
    pub read_bytes: u64,
    /// Bytes written per second.
    pub write_bytes: u64,
    /// Reads per second, and writes per second.
    pub operations: u64,
}

impl IoLimits {
    /// No limits.
    pub const NONE: Self = Self { read_bytes: 0, write_bytes: 0, operations: 0 };
}

impl Default for IoLimits {
    fn default() -> Self {
        Self { read_bytes: 256 << 20, write_bytes: 256 << 20, operations: 10_000 }
    }
}

/// The I/O of a group. Version 1 does not count delayed write-back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoUsage {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// A block device, identified by its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Cgroup {
    /// Limits the I/O of the group on `device`, which no other group uses. Returns `false` if the
    /// host does not support it.
    ///
    /// # Errors
    /// When the group or the device does not exist.
    pub fn limit_io(&self, device: Device, limits: &IoLimits) -> Result<bool, CgroupError> {
        let Ok(place) = self.place(Controller::Io) else { return Ok(false) };
        match place.version {
            Version::V1 => {
                // Both: each limit applies only to the I/O that is charged to its own group.
                let own = limit_v1(&place.dir, device, limits)?;
                Ok(own & limit_v1(&self.top(place), device, limits)?)
            }
            Version::V2 => {
                let number = |limit: u64| if limit == 0 { "max".to_owned() } else { limit.to_string() };
                let [read, write, operations] = [limits.read_bytes, limits.write_bytes, limits.operations].map(number);
                let text = format!("{device} rbps={read} wbps={write} riops={operations} wiops={operations}");
                file::write_if_there(&place.dir, "io.max", &text)
            }
        }
    }

    /// Returns the bytes the group has read from and written to the device; `None` if the host does
    /// not count them.
    ///
    /// # Errors
    /// When the group does not exist.
    pub fn io_usage(&self, device: Device) -> Result<Option<IoUsage>, CgroupError> {
        let Ok(place) = self.place(Controller::Io) else { return Ok(None) };
        let device = device.to_string();
        let (name, read, written) = match place.version {
            Version::V1 => ("blkio.throttle.io_service_bytes", "Read ", "Write "),
            Version::V2 => ("io.stat", "rbytes=", "wbytes="),
        };
        if !place.dir.join(name).exists() {
            return Ok(None);
        }
        let text = file::read(&place.dir, name)?;
        let of_device = || text.lines().filter_map(|line| line.strip_prefix(&device)?.strip_prefix(' '));
        let number = |key: &str| {
            let part = of_device().find_map(|line| line.split_once(key).map(|(_, rest)| rest));
            part.and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
        };
        Ok(Some(IoUsage { read_bytes: number(read), written_bytes: number(written) }))
    }

    /// Returns the root of the hierarchy that contains `place`.
    fn top(&self, place: &Place) -> PathBuf {
        let levels = self.name().split('/').count();
        place.dir.ancestors().nth(levels).unwrap_or(&place.dir).to_owned()
    }
}

/// Removes the limits that version 1 keeps for a device at the root of its hierarchy.
///
/// # Errors
/// When the kernel refuses. A missing device has no limits.
pub fn unlimit_device(device: Device) -> Result<(), CgroupError> {
    let layout = Layout::of_this_host()?;
    let top = layout.bases.iter().find(|place| place.controller == Controller::Io && place.version == Version::V1);
    match top.map(|place| limit_v1(&place.dir, device, &IoLimits::NONE)) {
        Some(Err(error)) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

fn limit_v1(dir: &Path, device: Device, limits: &IoLimits) -> Result<bool, CgroupError> {
    let rows = [
        ("blkio.throttle.read_bps_device", limits.read_bytes),
        ("blkio.throttle.write_bps_device", limits.write_bytes),
        ("blkio.throttle.read_iops_device", limits.operations),
        ("blkio.throttle.write_iops_device", limits.operations),
    ];
    rows.iter()
        .try_fold(true, |all, (name, limit)| Ok(all & file::write_if_there(dir, name, &format!("{device} {limit}"))?))
}
