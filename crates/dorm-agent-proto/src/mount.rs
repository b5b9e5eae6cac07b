//! Volumes inside: the engine shows each in a slot, the agent makes it appear where it is wanted.

use serde::{Deserialize, Serialize};

use crate::guest::GuestPath;

/// A volume that is to appear somewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GuestMount {
    /// The directory in which the engine shows it.
    pub from: GuestPath,
    /// Where it is to appear; made where it is missing.
    pub path: GuestPath,
    /// What it is, in any words: when they change it is mounted anew.
    pub what: String,
}

/// What to do about a volume that goes while programs use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// Leave everything as it is and say so: [`crate::Failure::MountBusy`].
    Refuse,
    /// Take it out of sight; what they have open they keep until they close it.
    Hide,
}
