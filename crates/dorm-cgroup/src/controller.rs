//! The controllers of the kernel, and the versions of its control groups.

/// The uses of a control group, each provided by one controller of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Controller {
    /// Freezes all processes at once.
    Freezer,
    /// Counts and limits memory.
    Memory,
    /// Limits CPU time.
    Cpu,
    /// Counts CPU time.
    CpuAccounting,
    /// Limits processes and threads.
    Pids,
    /// Limits and counts disk I/O.
    Io,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 6] = [Self::Freezer, Self::Memory, Self::Cpu, Self::CpuAccounting, Self::Pids, Self::Io];

    /// Returns the kernel's name of the controller.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freezer => "freezer",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Pids => "pids",
            // The name in version 1; for version 2 see `v2_name`.
            Self::Io => "blkio",
        }
    }

    /// Returns what does not work without the controller.
    pub fn loss(self) -> &'static str {
        match self {
            Self::Freezer => "sandboxes cannot be parked",
            Self::Memory => "memory is not limited",
            Self::Cpu => "CPU time is not limited",
            Self::CpuAccounting => "CPU time is not counted",
            Self::Pids => "host threads are not limited",
            Self::Io => "disk I/O is not limited",
        }
    }

    /// Returns whether sandboxes cannot run without the controller.
    pub fn is_needed(self) -> bool {
        matches!(self, Self::Freezer | Self::Memory)
    }

    /// Returns the word that delegates the controller in version 2; `None` for features that every
    /// group of that version has.
    pub(crate) fn v2_name(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Cpu => Some("cpu"),
            Self::Pids => Some("pids"),
            Self::Io => Some("io"),
            Self::Freezer | Self::CpuAccounting => None,
        }
    }
}

/// A version of the kernel's control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}
