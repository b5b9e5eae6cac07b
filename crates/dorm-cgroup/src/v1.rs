//! The files of cgroup version 1, which has one hierarchy per controller.
//!
//! This module knows what to write where. It does not know which hierarchies exist, nor when to
//! write.

use std::path::Path;

use crate::error::CgroupError;
use crate::file;
use crate::values::{CPU_PERIOD_MICROS, MemoryUse, Motion};

/// Limits the CPU time per period, and sets the weight relative to other runnable groups.
pub(crate) fn limit_cpu(dir: &Path, cpu_millis: u32, weight_millis: u32) -> Result<(), CgroupError> {
    let shares = (u64::from(weight_millis) * 1024 / 1000).clamp(2, 262_144);
    file::write(dir, "cpu.shares", &shares.to_string())?;
    file::write_if_there(dir, "cpu.cfs_period_us", &CPU_PERIOD_MICROS.to_string())?;
    let quota = u64::from(cpu_millis) * CPU_PERIOD_MICROS / 1000;
    file::write_if_there(dir, "cpu.cfs_quota_us", &quota.to_string()).map(drop)
}

/// Limits memory, and memory and swap together to the same value, so that a guest can be swapped
/// out completely but cannot fill the host's swap. The memory limit must never exceed the other, so
/// the order of the writes depends on the direction of the change.
pub(crate) fn limit_memory(dir: &Path, bytes: u64) -> Result<(), CgroupError> {
    const MEMORY: &str = "memory.limit_in_bytes";
    const WITH_SWAP: &str = "memory.memsw.limit_in_bytes";
    let text = bytes.to_string();
    if file::number(dir, MEMORY)? >= bytes {
        file::write(dir, MEMORY, &text)?;
        file::write_if_there(dir, WITH_SWAP, &text).map(drop)
    } else {
        file::write_if_there(dir, WITH_SWAP, &text)?;
        file::write(dir, MEMORY, &text)
    }
}

/// Returns the hard memory limit.
pub(crate) fn memory_limit(dir: &Path) -> Result<u64, CgroupError> {
    file::number(dir, "memory.limit_in_bytes")
}

/// Asks the kernel to freeze or thaw the group.
pub(crate) fn ask_freezer(dir: &Path, wanted: Motion) -> Result<(), CgroupError> {
    let word = match wanted {
        Motion::Frozen => "FROZEN",
        Motion::Moving => "THAWED",
    };
    file::write(dir, "freezer.state", word)
}

/// Returns whether every process is frozen, or `None` while only some are.
pub(crate) fn motion(dir: &Path) -> Result<Option<Motion>, CgroupError> {
    Ok(match file::read(dir, "freezer.state")?.trim() {
        "FROZEN" => Some(Motion::Frozen),
        "THAWED" => Some(Motion::Moving),
        _ => None,
    })
}

/// Returns the CPU time used, in microseconds.
pub(crate) fn cpu_micros(dir: &Path) -> Result<u64, CgroupError> {
    Ok(file::number(dir, "cpuacct.usage")? / 1000)
}

/// Returns the memory in use, and how much of it is file cache.
pub(crate) fn memory(dir: &Path) -> Result<MemoryUse, CgroupError> {
    let stat = file::read(dir, "memory.stat")?;
    let charged = file::number(dir, "memory.usage_in_bytes")?;
    let part = |key| file::find(&stat, key).unwrap_or(0);
    Ok(MemoryUse { charged, cache: part("total_inactive_file") + part("total_active_file") })
}

/// Returns the number of processes killed because memory ran out.
pub(crate) fn oom_kills(dir: &Path) -> Result<u64, CgroupError> {
    file::field(dir, "memory.oom_control", "oom_kill")
}
