//! The resource usage of the sandbox, from its own `/proc`.

use std::fs;

use dorm_agent_proto::{Failure, Metrics};

use crate::fault;

/// Returns the present usage.
pub(crate) fn metrics() -> Result<Metrics, Failure> {
    let memory = fs::read_to_string("/proc/meminfo").map_err(|error| fault::other("read", b"/proc/meminfo", error))?;
    let total = memory_line(&memory, "MemTotal:").unwrap_or(0);
    let free = memory_line(&memory, "MemAvailable:").or_else(|| memory_line(&memory, "MemFree:")).unwrap_or(0);
    let mut metrics = Metrics {
        memory_total_bytes: total,
        memory_used_bytes: total.saturating_sub(free),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        ..Metrics::default()
    };
    for pid in processes() {
        metrics.processes += 1;
        let children = if pid == std::process::id() { Children::Counted } else { Children::NotCounted };
        metrics.cpu_used_us += cpu_used_us(pid, children).unwrap_or(0);
    }
    if let Ok(disk) = rustix::fs::statvfs("/") {
        metrics.disk_total_bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        metrics.disk_used_bytes = disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize);
    }
    Ok(metrics)
}

/// Returns the process with the most resident memory, never the agent. Called when memory is short.
pub(crate) fn greediest() -> Option<u32> {
    let own = std::process::id();
    processes()
        .filter(|pid| *pid != own && *pid != 1)
        .filter_map(|pid| {
            let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
            let resident: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
            Some((resident, pid))
        })
        .max()
        .map(|(_, pid)| pid)
}

#[derive(Clone, Copy)]
enum Children {
    Counted,
    NotCounted,
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn memory_line(memory: &str, name: &str) -> Option<u64> {
    let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
}

fn cpu_used_us(pid: u32, children: Children) -> Option<u64> {
    /// The kernel's unit in `/proc`, which is fixed.
    const TICK_US: u64 = 10_000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields after it are numbers, beginning with
    // the third field.
    let mut fields =
        stat.rsplit_once(')')?.1.split_whitespace().skip(11).map(|field| field.parse::<u64>().unwrap_or(0));
    let own = fields.next()? + fields.next()?;
    let buried = fields.next()? + fields.next()?;
    Some(TICK_US.saturating_mul(match children {
        Children::Counted => own + buried,
        Children::NotCounted => own,
    }))
}

#[cfg(test)]
mod tests {
    use super::{greediest, memory_line, metrics};

    #[test]
    fn a_host_has_memory_processes_and_a_disk() {
        let metrics = metrics().unwrap();
        assert!(metrics.memory_total_bytes > metrics.memory_used_bytes && metrics.memory_used_bytes > 0);
        assert!(metrics.processes > 0 && metrics.cpus > 0 && metrics.disk_total_bytes > 0);
    }

    #[test]
    fn the_greediest_is_never_this_process() {
        assert_ne!(greediest(), Some(std::process::id()));
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        assert_eq!(memory_line("MemTotal:  2 kB\nMemFree: 1 kB\n", "MemFree:"), Some(1024));
    }
}
