//! Options of `dorm serve` that bound how much the daemon and its guests take of the host.

use dorm_engine_gvisor::FilesLimits;
use dorm_engine_gvisor::cgroup::IoLimits;
use dorm_service::Limiting;

/// How much of the host may be taken.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct BoundOptions {
    /// How much memory the daemon itself may take, in MiB, with the file cache of what it reads and writes. Past it the
    /// kernel ends the daemon; sandboxes run on. 0 for no limit
    #[arg(long, env = "DORM_DAEMON_MEMORY_MIB", value_name = "MIB", default_value_t = 1024)]
    pub(crate) daemon_memory_mib: u64,
    /// How many files a sandbox may have changed for a filesystem snapshot or a diff of it. Paths that are longer than 256
    /// bytes on average count as more
    #[arg(long, env = "DORM_SNAPSHOT_FILES", value_name = "COUNT", default_value_t = FilesLimits::default().entries)]
    snapshot_files: u64,
    /// How much memory reading the files of sandboxes for snapshots and diffs may take, in MiB, for all of them together
    #[arg(long, env = "DORM_SNAPSHOT_MEMORY_MIB", value_name = "MIB", default_value_t = FilesLimits::default().memory_bytes >> 20, value_parser = clap::value_parser!(u64).range(16..))]
    snapshot_memory_mib: u64,
    /// How many MiB a second a sandbox may read from its disk. 0 for any number
    #[arg(long, env = "DORM_DISK_READ_MIB_PER_SECOND", value_name = "MIB", default_value_t = IoLimits::default().read_bytes >> 20)]
    disk_read_mib_per_second: u64,
    /// How many MiB a second a sandbox may write to its disk. 0 for any number
    #[arg(long, env = "DORM_DISK_WRITE_MIB_PER_SECOND", value_name = "MIB", default_value_t = IoLimits::default().write_bytes >> 20)]
    disk_write_mib_per_second: u64,
    /// How many reads a second, and how many writes a second, a sandbox may make on its disk. 0 for any number
    #[arg(long, env = "DORM_DISK_OPERATIONS_PER_SECOND", value_name = "COUNT", default_value_t = IoLimits::default().operations)]
    disk_operations_per_second: u64,
    /// Start on a host without loop devices, where nothing limits the disks of sandboxes and volumes. Only for guests that
    /// are trusted: each of them can fill the host's disk
    #[arg(long, env = "DORM_ALLOW_UNLIMITED_DISKS")]
    pub(crate) allow_unlimited_disks: bool,
}

impl BoundOptions {
    /// The limits for reading files out of memory images.
    pub(crate) fn files(&self) -> FilesLimits {
        FilesLimits { entries: self.snapshot_files, memory_bytes: self.snapshot_memory_mib.saturating_mul(1 << 20) }
    }

    /// How fast each sandbox may use its disk.
    pub(crate) fn io(&self) -> IoLimits {
        IoLimits {
            read_bytes: self.disk_read_mib_per_second.saturating_mul(1 << 20),
            write_bytes: self.disk_write_mib_per_second.saturating_mul(1 << 20),
            operations: self.disk_operations_per_second,
        }
    }

    /// Whether the sizes of volumes are limited.
    pub(crate) fn limiting(&self) -> Limiting {
        if self.allow_unlimited_disks { Limiting::WherePossible } else { Limiting::Always }
    }
}
