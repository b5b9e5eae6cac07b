//! The reasons for which a command is refused. Each API maps them to its own codes, in one place.

use thiserror::Error;

use crate::ids::SnapshotId;
use crate::ports::PortRules;
use crate::spec_error::SpecError;
use crate::state::Cause;

/// A refusal. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Denied {
    /// The sandbox is terminated, which is final: an id is never reused.
    #[error("the sandbox is terminated ({0})")]
    Terminated(Cause),
    /// The sandbox is ephemeral, or was created as not suspendable.
    #[error("the sandbox cannot be suspended: it has no name, or was created as not suspendable")]
    NotSuspendable,
    /// The sandbox has no network device.
    #[error("the sandbox has no network device: it was created with the egress 'none'")]
    NoNetworkDevice,
    /// The sandbox has a network device, which stays.
    #[error("the egress cannot become 'none', because the network device of a sandbox cannot be removed")]
    NetworkDeviceStays,
    /// The state that a rewind would turn into a snapshot is one already.
    #[error("the sandbox was suspended in the meantime, and its files are already snapshot {0}")]
    IsSnapshot(SnapshotId),
    /// The properties that it would have are invalid.
    #[error(transparent)]
    Invalid(#[from] SpecError),
    /// The sandbox was suspended without its memory.
    #[error("the sandbox was suspended with its files only: it has no memory to save")]
    NoMemory,
    /// The sandbox is not an unclaimed sandbox of a pool.
    #[error("the sandbox was already claimed, or does not belong to a pool")]
    NotInPool,
    /// The sandbox has the largest permitted number of holds.
    #[error("the sandbox already has {0} holds, the maximum")]
    TooManyHolds(usize),
    /// The sandbox would have more rules for single ports than permitted.
    #[error("the sandbox would have {0} rules for single ports; {max} is the maximum", max = PortRules::MAX)]
    TooManyPortRules(usize),
}

impl Denied {
    /// Returns what the caller can do next.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Terminated(_) => "create a new sandbox, from one of its snapshots if there is one",
            Self::TooManyPortRules(_) => "remove a rule, or set the access of all ports",
            Self::TooManyHolds(_) => "release a hold, or wait until one expires",
            Self::IsSnapshot(_) => "rewind it again",
            Self::Invalid(error) => error.next_step(),
            Self::NoMemory => "take a filesystem snapshot of it, or resume it first",
            Self::NotInPool => "claim a sandbox of the pool by the name of the pool",
            Self::NoNetworkDevice => "create a sandbox with the egress 'closed', which can be opened later",
            Self::NetworkDeviceStays => "set the egress 'closed', which refuses every connection",
            Self::NotSuspendable => "name it with `dorm sbx update ID --name NAME`, or suspend it with `--keep files`",
        }
    }
}
