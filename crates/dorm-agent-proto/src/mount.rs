//! Volumes inside a sandbox: the engine shows each in a container slot, and the agent mounts it at
//! its path.

use serde::{Deserialize, Serialize};

use crate::guest::GuestPath;

/// A volume to mount.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GuestMount {
    /// The container slot: the directory in which the engine shows the volume.
    pub from: GuestPath,
    /// The mount point; created if it is missing.
    pub path: GuestPath,
    /// A description of the volume, in any form: if it changes, the volume is mounted again.
    pub what: String,
}

/// How to treat a volume that must be unmounted while programs use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// Change nothing and fail with [`crate::Failure::MountBusy`].
    Refuse,
    /// Unmount it lazily: programs keep their open files until they close them.
    Hide,
}
