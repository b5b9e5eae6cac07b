//! File operations for the host. All are done as root of the sandbox and by path, as by any program
//! inside.

mod attributes;
mod make;
mod read;
mod remove;
mod search;
mod stat;
mod watch;
mod watchers;
mod write;
mod write_in_place;

pub(crate) use attributes::{attributes, set_attributes};
pub(crate) use make::{make_directory, make_new_directory, move_to, rename};
pub(crate) use read::{detail, list, read};
pub(crate) use remove::remove;
pub(crate) use search::search;
pub(crate) use stat::stat;
pub(crate) use watch::watch;
pub(crate) use watchers::Watchers;
pub(crate) use write::write;
pub(crate) use write_in_place::write_in_place;
