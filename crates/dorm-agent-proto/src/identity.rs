//! The identity that the agent gets when a run begins, and its report about applying it.

use serde::{Deserialize, Serialize};

use crate::guest::{GuestPath, Variable, as_base64};

/// The identity of a sandbox in one run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The generation of the run.
    pub generation: u64,
    /// The host name.
    pub hostname: String,
    /// The current time, in microseconds since 1970.
    pub unix_time_us: u64,
    /// Fresh random bytes; never the same for two runs.
    #[serde(with = "as_base64")]
    pub entropy: [u8; 32],
    /// The variables with which every process starts. They replace those of the previous identity;
    /// `PATH` and `HOME` have defaults.
    pub variables: Vec<Variable>,
}

impl std::fmt::Debug for Identity {
    /// Shows neither entropy nor values: they may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("generation", &self.generation)
            .field("hostname", &self.hostname)
            .field("unix_time_us", &self.unix_time_us)
            .field("variables", &self.variables.iter().map(Variable::name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Whether one part of the identity took effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// It took effect.
    Yes,
    /// It was in effect already, or this agent does not manage it.
    NotNeeded,
    /// The sandbox's kernel refused, for this reason.
    Refused(String),
}

/// The result of applying a new identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resumed {
    /// The host name.
    pub hostname: Applied,
    /// The clock.
    pub clock: Applied,
    /// Entropy for the kernel's random numbers.
    pub entropy: Applied,
    /// The outcome of each program in `/etc/dormouse/on-resume.d`, in the order in which they ran.
    pub hooks: Vec<Hook>,
}

/// One program that was run on resume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hook {
    /// The program's path.
    pub path: GuestPath,
    /// Its outcome.
    pub outcome: HookOutcome,
}

/// The outcome of a program that was run on resume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// It exited with code 0.
    Done,
    /// It exited otherwise; the code as a shell reports it.
    Failed(i32),
    /// It could not be started, for this reason.
    NotStarted(String),
    /// The time limit was reached: it was killed, or not started at all.
    TimedOut,
}

/// Resource usage of the sandbox, measured from inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// Total memory, in bytes.
    pub memory_total_bytes: u64,
    /// Used memory, in bytes.
    pub memory_used_bytes: u64,
    /// Number of CPUs.
    pub cpus: u32,
    /// CPU time of all live processes and of those that the agent has reaped, in microseconds.
    pub cpu_used_us: u64,
    /// Number of live processes.
    pub processes: u32,
    /// Size of the root filesystem, in bytes. Some engines do not know it and report a huge number.
    pub disk_total_bytes: u64,
    /// Used space of the root filesystem, in bytes.
    pub disk_used_bytes: u64,
}

/// A user of the sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// The user's number.
    pub uid: u32,
    /// The primary group's number.
    pub gid: u32,
    /// The user's name, if the user list has one.
    pub name: Option<String>,
    /// The home directory; `/` if the user list has none.
    pub home: GuestPath,
    /// The login shell, if the user list has one.
    pub shell: Option<GuestPath>,
}
