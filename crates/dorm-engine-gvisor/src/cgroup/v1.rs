//! The files of cgroup version 1: one hierarchy per controller.
//!
//! Knows what to write where; does not know which hierarchies there are nor when to do what.

use std::path::Path;

use super::file;
use super::{CPU_PERIOD_MICROS, CgroupError, MemoryUse};

/// CPU time per period, and the weight among groups that all want to run.
pub(super) fn limit_cpu(dir: &Path, cpu_millis: u32, weight_millis: u32) -> Result<(), CgroupError> {
    let shares = (u64::from(weight_millis) * 1024 / 1000).clamp(2, 262_144);
    file::write(dir, "cpu.shares", &shares.to_string())?;
    file::write_if_there(dir, "cpu.cfs_period_us", &CPU_PERIOD_MICROS.to_string())?;
    let quota = u64::from(cpu_millis) * CPU_PERIOD_MICROS / 1000;
    file::write_if_there(dir, "cpu.cfs_quota_us", &quota.to_string()).map(drop)
}

/// Memory, and the same for memory and swap together, so that a guest cannot fill the host's swap but can be paged
/// out whole. The two must never cross, so which goes first depends on the direction.
pub(super) fn limit_memory(dir: &Path, bytes: u64) -> Result<(), CgroupError> {
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

/// The hard memory limit.
pub(super) fn memory_limit(dir: &Path) -> Result<u64, CgroupError> {
    file::number(dir, "memory.limit_in_bytes")
}

/// Asks the kernel to freeze or thaw.
pub(super) fn ask_freezer(dir: &Path, wanted: super::Motion) -> Result<(), CgroupError> {
    let word = match wanted {
        super::Motion::Frozen => "FROZEN",
        super::Motion::Moving => "THAWED",
    };
    file::write(dir, "freezer.state", word)
}

/// Whether every process stands still, or `None` while some do and some do not.
pub(super) fn motion(dir: &Path) -> Result<Option<super::Motion>, CgroupError> {
    Ok(match file::read(dir, "freezer.state")?.trim() {
        "FROZEN" => Some(super::Motion::Frozen),
        "THAWED" => Some(super::Motion::Moving),
        _ => None,
    })
}

/// CPU time used, in microseconds.
pub(super) fn cpu_micros(dir: &Path) -> Result<u64, CgroupError> {
    Ok(file::number(dir, "cpuacct.usage")? / 1000)
}

/// Memory in use, and what of it is file cache.
pub(super) fn memory(dir: &Path) -> Result<MemoryUse, CgroupError> {
    let stat = file::read(dir, "memory.stat")?;
    let charged = file::number(dir, "memory.usage_in_bytes")?;
    let part = |key| file::find(&stat, key).unwrap_or(0);
    Ok(MemoryUse { charged, cache: part("total_inactive_file") + part("total_active_file") })
}

/// Processes killed because memory ran out.
pub(super) fn oom_kills(dir: &Path) -> Result<u64, CgroupError> {
    file::field(dir, "memory.oom_control", "oom_kill")
}
