//! Use of resources.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resources::Resources;
use crate::text::Time;

/// Resource usage of a sandbox on the host. All values are zero or null while it is only on disk.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// CPU time in seconds since the current run started.
    pub cpu_secs: f64,
    /// Host memory in use.
    pub memory_bytes: u64,
    /// Number of processes on the host.
    pub processes: u64,
    /// Disk space in use. Null if the disk of the sandbox has no size limit of its own on this
    /// host.
    pub disk_bytes: Option<u64>,
    /// Network traffic. Null without a network.
    pub network: Option<NetworkUsage>,
    /// Disk reads and writes. Left out if the host does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_io: Option<DiskIo>,
}

/// Network traffic of a sandbox with other hosts since its current run was prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkUsage {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Limit in bytes per second, separately for sending and receiving. Null for no limit.
    pub limit_bytes_per_second: Option<u64>,
}

/// Disk reads and writes of a sandbox since its current run started, and their limits.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskIo {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written. On a host with control groups version 1, delayed writes are not counted.
    pub written_bytes: u64,
    /// Read limit in bytes per second. Null for no limit.
    pub read_limit: Option<u64>,
    /// Write limit in bytes per second. Null for no limit.
    pub write_limit: Option<u64>,
    /// Limit of reads per second, and of writes per second. Null for no limit.
    pub operations_limit: Option<u64>,
}

/// Resource usage of a sandbox at one time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UsageSample {
    /// When it was measured.
    pub taken_at: Time,
    /// Number of CPUs in use on average since the sample before. Null for the first sample after
    /// the sandbox was started or resumed from disk.
    pub cpus: Option<f64>,
    /// Limits at that time.
    pub resources: Resources,
    /// Resource usage.
    pub usage: Usage,
}

/// Resource usage of a sandbox in the last hour.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UsageHistory {
    /// Seconds between two samples. Null if this daemon takes none.
    pub interval_secs: Option<f64>,
    /// Samples in the order they were taken. There are none of a time at which the sandbox did not
    /// run, and none from before the daemon was started.
    pub samples: Vec<UsageSample>,
}
