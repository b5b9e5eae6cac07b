//! What the agent is told when a sandbox begins a run, and what it answers.

use serde::{Deserialize, Serialize};

use crate::guest::{GuestPath, Variable, as_base64};

/// Who the sandbox is in this run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its generation.
    pub generation: u64,
    /// Its host name.
    pub hostname: String,
    /// The time now, in microseconds since 1970.
    pub unix_time_us: u64,
    /// Fresh random bytes; never the same for two runs.
    #[serde(with = "as_base64")]
    pub entropy: [u8; 32],
    /// The variables every process starts with. They replace those given before; `PATH` and `HOME` get a default.
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

/// Whether something took effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// It did.
    Yes,
    /// It was so already, or is none of this agent's business.
    NotNeeded,
    /// The sandbox's kernel refused; the reason.
    Refused(String),
}

/// What the agent did about its new identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resumed {
    /// The host name.
    pub hostname: Applied,
    /// The clock.
    pub clock: Applied,
    /// Entropy for the kernel's random numbers.
    pub entropy: Applied,
    /// What became of each program in `/etc/dormouse/on-resume.d`, in order.
    pub hooks: Vec<Hook>,
}

/// One program that was run on resume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hook {
    /// Which.
    pub path: GuestPath,
    /// How it went.
    pub outcome: HookOutcome,
}

/// How a program that was run on resume went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// It ended with code 0.
    Done,
    /// It ended otherwise; the code as a shell gives it.
    Failed(i32),
    /// It could not be started; the reason.
    NotStarted(String),
    /// Time was up: it was killed, or not started at all.
    TimedOut,
}

/// What the sandbox uses, as it sees it itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// Memory there is, in bytes.
    pub memory_total_bytes: u64,
    /// Memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// CPUs there are.
    pub cpus: u32,
    /// CPU time used by all processes that live, and by those the agent has buried, in microseconds.
    pub cpu_used_us: u64,
    /// Processes that live.
    pub processes: u32,
    /// The size of the root filesystem, in bytes. Some engines cannot tell and report a huge number.
    pub disk_total_bytes: u64,
    /// What is used of it, in bytes.
    pub disk_used_bytes: u64,
}

/// A user of the sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// The number.
    pub uid: u32,
    /// The main group's number.
    pub gid: u32,
    /// The name, where the user list has one.
    pub name: Option<String>,
    /// The home directory; `/` where the user list has none.
    pub home: GuestPath,
    /// The login shell, where the user list has one.
    pub shell: Option<GuestPath>,
}
