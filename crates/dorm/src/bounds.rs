//! Options of `dorm serve` that limit which resources of the host the daemon and its guests use.

use dorm_cgroup::IoLimits;
use dorm_memory_image::FilesLimits;
use dorm_service::Limiting;

/// Limits on the use of host resources.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct BoundOptions {
    /// Memory limit of the daemon itself, in MiB, including the page cache of what it reads and
    /// writes. If it is exceeded, the kernel kills the daemon; sandboxes keep running. 0 for no
    /// limit
    #[arg(long, env = "DORM_DAEMON_MEMORY_MIB", value_name = "MIB", default_value_t = 1024)]
    pub(crate) daemon_memory_mib: u64,
    /// How many changed files a sandbox may have for a filesystem snapshot or a diff of it. Paths
    /// longer than 256 bytes on average count as more
    #[arg(long, env = "DORM_SNAPSHOT_FILES", value_name = "COUNT", default_value_t = FilesLimits::default().entries)]
    snapshot_files: u64,
    /// Memory limit for reading the files of sandboxes for snapshots and diffs, in MiB, for all of
    /// them together
    #[arg(long, env = "DORM_SNAPSHOT_MEMORY_MIB", value_name = "MIB", default_value_t = FilesLimits::default().memory_bytes >> 20, value_parser = clap::value_parser!(u64).range(16..))]
    snapshot_memory_mib: u64,
    /// How many MiB per second a sandbox may read from its disk. 0 for no limit
    #[arg(long, env = "DORM_DISK_READ_MIB_PER_SECOND", value_name = "MIB", default_value_t = IoLimits::default().read_bytes >> 20)]
    disk_read_mib_per_second: u64,
    /// How many MiB per second a sandbox may write to its disk. 0 for no limit
    #[arg(long, env = "DORM_DISK_WRITE_MIB_PER_SECOND", value_name = "MIB", default_value_t = IoLimits::default().write_bytes >> 20)]
    disk_write_mib_per_second: u64,
    /// How many reads per second, and how many writes per second, a sandbox may make on its disk. 0
    /// for no limit
    #[arg(long, env = "DORM_DISK_OPERATIONS_PER_SECOND", value_name = "COUNT", default_value_t = IoLimits::default().operations)]
    disk_operations_per_second: u64,
    /// Start on a host without loop devices, where nothing limits the size of the disks of
    /// sandboxes and volumes. Only for trusted guests: each of them can fill the host's disk
    #[arg(long, env = "DORM_ALLOW_UNLIMITED_DISKS")]
    pub(crate) allow_unlimited_disks: bool,
}

impl BoundOptions {
    /// Returns the limits for reading files out of memory images.
    pub(crate) fn files(&self) -> FilesLimits {
        FilesLimits { entries: self.snapshot_files, memory_bytes: self.snapshot_memory_mib.saturating_mul(1 << 20) }
    }

    /// Returns how fast each sandbox may use its disk.
    pub(crate) fn io(&self) -> IoLimits {
        IoLimits {
            read_bytes: self.disk_read_mib_per_second.saturating_mul(1 << 20),
            write_bytes: self.disk_write_mib_per_second.saturating_mul(1 << 20),
            operations: self.disk_operations_per_second,
        }
    }

    /// Returns whether the sizes of volumes are limited.
    pub(crate) fn limiting(&self) -> Limiting {
        if self.allow_unlimited_disks { Limiting::WherePossible } else { Limiting::Always }
    }
}
