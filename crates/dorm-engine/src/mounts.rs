//! Directories of the host that a run sees: how volumes get into a guest.

use std::path::PathBuf;

use dorm_lifecycle::{Access, SubPath};

/// Where in a guest every engine puts [`Mount`]s: a directory with one directory for each slot, named by its number. The
/// agent makes them appear where they are wanted.
pub const MOUNTS: &str = "/.dorm-volumes";

/// A directory of the host in one of the slots of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Which slot, below [`dorm_lifecycle::ATTACHMENTS_MAX`].
    pub slot: u8,
    /// The top of what may be seen.
    pub top: PathBuf,
    /// Which part of it; never followed out of `top`.
    pub part: SubPath,
    /// What may be done with it: the host sees to it, whatever the guest believes.
    pub access: Access,
}
