//! Why a command is refused. Each edge maps these once to its own codes.

use thiserror::Error;

use crate::sandbox::Cause;

/// A refusal: nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Denied {
    /// It is over; an id is never revived.
    #[error("the sandbox is terminated ({0})")]
    Terminated(Cause),
    /// It is ephemeral, or was created as not suspendable.
    #[error("the sandbox has no name, so it cannot be suspended")]
    NotSuspendable,
    /// So many hold it already.
    #[error("{0} hold the sandbox awake already")]
    TooManyHolds(usize),
}

impl Denied {
    /// What the caller can do next.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Terminated(_) => "create a new sandbox, from one of its snapshots if there is one",
            Self::TooManyHolds(_) => "release a hold, or wait until one has ended",
            Self::NotSuspendable => "create the sandbox with a name, or take a snapshot of it",
        }
    }
}
