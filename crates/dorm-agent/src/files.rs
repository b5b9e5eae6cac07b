//! File operations for the host. All are done as root of the sandbox and by path, as by any program
//! inside.

mod make;
mod read;
mod remove;
mod stat;
mod watch;
mod write;

pub(crate) use make::{make_directory, rename};
pub(crate) use read::{list, read};
pub(crate) use remove::remove;
pub(crate) use stat::stat;
pub(crate) use watch::watch;
pub(crate) use write::write;
