//! What a caller is told of a sandbox.

use dorm_lifecycle::{Sandbox, Timestamp};

/// Where the memory of a sandbox is. A fact, not a state: a suspended sandbox is durable either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residence {
    /// It runs, or is on its way there.
    Running,
    /// Suspended, and still held in memory without any CPU: resume is a thaw.
    Parked,
    /// Suspended, and only on disk: resume is a restore.
    Evicted,
    /// It is over, or has not begun.
    None,
}

impl Residence {
    /// Its word in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Evicted => "evicted",
            Self::None => "none",
        }
    }
}

/// A sandbox as a caller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxView {
    /// Its record.
    pub sandbox: Sandbox,
    /// Where its memory is.
    pub residence: Residence,
    /// When its time is over, as things stand.
    pub expires: Option<Timestamp>,
    /// Whether it is paused until there is room on the host's disk.
    pub paused_for_disk: bool,
}
