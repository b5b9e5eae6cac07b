//! Sandboxes as callers see them.

use dorm_lifecycle::{Sandbox, Timestamp};

/// Where the memory of a sandbox is. This is a fact, not a state: a suspended sandbox is durable
/// either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residence {
    /// It is running, or about to.
    Running,
    /// Suspended, and still held in memory without any CPU: a resume is a thaw.
    Parked,
    /// Suspended, and on disk only: a resume is a restore.
    Evicted,
    /// It is terminated, or has not started.
    None,
}

impl Residence {
    /// Returns the word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Evicted => "evicted",
            Self::None => "none",
        }
    }
}

/// Whether a command changed a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// It did.
    Yes,
    /// The sandbox was as requested already, perhaps because of another command.
    No,
}

/// A sandbox as a caller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxView {
    /// Its record.
    pub sandbox: Sandbox,
    /// How often the record has been written: it increases with every change.
    pub revision: u64,
    /// Where its memory is.
    pub residence: Residence,
    /// When its deadline passes, if nothing changes.
    pub expires: Option<Timestamp>,
    /// Whether it is paused until there is room on the host's disk.
    pub paused_for_disk: bool,
    /// Whether the command that this answers changed the sandbox; `None` if it answers none.
    pub changed: Option<Changed>,
}
