//! Facts about the host.

use std::fmt::Debug;

/// Facts that only the host knows.
pub trait HostFacts: Debug + Send + Sync + 'static {
    /// Returns the memory that can be used without swapping, in bytes; `None` if unknown.
    fn available_memory(&self) -> Option<u64>;
}

/// The host this runs on.
#[derive(Clone, Copy, Default, Debug)]
pub struct ThisHost;

impl HostFacts for ThisHost {
    #[allow(clippy::disallowed_methods, reason = "the kernel answers from memory, no disk is asked")]
    fn available_memory(&self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_knows_its_memory() {
        assert!(ThisHost.available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
