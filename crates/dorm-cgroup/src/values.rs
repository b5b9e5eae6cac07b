//! The values that are read from and written to control groups, the same for both versions.

/// The period of CPU limits.
pub(crate) const CPU_PERIOD_MICROS: u64 = 100_000;

/// The limits of one group, as the host counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// CPU time per second of wall time, in thousandths of one CPU; at least 10.
    pub cpu_millis: u32,
    /// The share of the group when all CPUs are busy.
    pub precedence: Precedence,
    /// Memory in bytes, including file cache. Above this limit the kernel kills processes.
    pub memory_bytes: u64,
    /// The maximum number of host processes and threads.
    pub threads: u64,
}

/// The share of a group when all CPUs are busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precedence {
    /// In proportion to its CPU limit.
    Fair,
    /// Only what the other groups leave.
    Last,
}

impl Limits {
    /// Returns the weight of the group relative to others, in thousandths of a CPU.
    pub(crate) fn weight_millis(&self) -> u32 {
        match self.precedence {
            Precedence::Fair => self.cpu_millis,
            Precedence::Last => 0,
        }
    }
}

/// The current resource usage of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupUsage {
    /// CPU time since the group was created, in microseconds. `None` if the host does not count it.
    pub cpu_micros: Option<u64>,
    /// Memory in bytes, without file cache.
    pub memory_bytes: u64,
    /// File cache in bytes, which the kernel drops when memory is needed.
    pub cache_bytes: u64,
    /// The number of host processes.
    pub processes: u64,
}

/// The memory that a group is charged for, and how much of it is file cache, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryUse {
    pub(crate) charged: u64,
    pub(crate) cache: u64,
}

impl MemoryUse {
    /// Returns the memory that cannot be reclaimed without ending or swapping out a process.
    pub(crate) fn working_set(self) -> u64 {
        self.charged.saturating_sub(self.cache)
    }
}

/// Whether the processes of a group may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Motion {
    Frozen,
    Moving,
}
