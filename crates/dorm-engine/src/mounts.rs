//! Directories of the host that are mounted in a run: the way volumes get into a guest.

use std::path::PathBuf;

use dorm_lifecycle::{Access, SubPath};

/// The directory in a guest in which every engine puts [`Mount`]s, with one directory per container
/// slot, named by its number. The agent makes them appear at their mount points.
pub const MOUNTS: &str = "/.dorm-volumes";

/// A directory of the host in one of the container slots of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The container slot, below [`dorm_lifecycle::ATTACHMENTS_MAX`].
    pub slot: u8,
    /// The topmost directory that may be visible.
    pub top: PathBuf,
    /// The part of it to mount; never followed out of `top`.
    pub part: SubPath,
    /// The permitted access, which the host enforces regardless of the guest.
    pub access: Access,
}
