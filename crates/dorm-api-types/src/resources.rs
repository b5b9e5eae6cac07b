//! Resource limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requested resource limits. Fields that are left out use their default, or the limit of the
/// snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourcesRequest {
    /// CPU limit in thousandths of a CPU. Default 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Guest memory in bytes. Default 512 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How much can be written to the root file system, in bytes. Default 4 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Largest number of processes and threads. Default 512.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// Resource limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Resources {
    /// CPU limit in thousandths of a CPU.
    pub cpu_millis: u32,
    /// Guest memory in bytes.
    pub memory_bytes: u64,
    /// How much can be written to the root file system, in bytes.
    pub disk_bytes: u64,
    /// Largest number of processes and threads.
    pub processes: u32,
}
