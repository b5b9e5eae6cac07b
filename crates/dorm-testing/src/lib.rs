//! Real daemons for tests, proof, demo and bench: started as a user would, called over HTTP,
//! cleared away afterwards.
//!
//! This crate does not know the internals of Dormouse: it only uses HTTP and the state of the host.

mod daemon;
pub mod docs;
mod git_server;
mod host;
mod internet;
pub mod matrix;
pub mod project;

pub use daemon::{Answer, Daemon, Prepare, until};
pub use git_server::GitServer;
pub use host::{held_by_kernel, left_overs, loop_device, processes_of, sandbox_process};
pub use internet::{Internet, addresses_of_this_host};

/// Sends a signal to a process of the same user, without a program that a small host may not have.
///
/// # Errors
/// If there is no such process, or no permission.
pub fn signal(pid: u32, signal: rustix::process::Signal) -> std::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| std::io::Error::other("not a process id"))?;
    Ok(rustix::process::kill_process(pid, signal)?)
}
