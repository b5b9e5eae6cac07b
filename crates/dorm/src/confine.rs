//! Confinement of the daemon. At its start, before it has a second thread, it gives up capabilities
//! and system calls that it never uses, gaining privileges by executing a program, and core dumps.
//!
//! ```text
//! capabilities ─► no new privileges ─► system calls ─► core dumps
//! ```
//!
//! Every program that the daemon starts inherits all of this except the last. Sandboxes are not
//! affected: a user namespace of a sandbox has its own capabilities, and the filter that gVisor
//! installs decides before this one. `packaging/dormouse.service` has the same lists; a test
//! compares them.
//!
//! The daemon also masks the modes of the files that it creates, and raises its limit of
//! descriptors as far as the host allows.
//!
//! Later, when it knows its name, the daemon enters a control group of its own, whose end is not
//! the end of a sandbox.

pub(crate) mod capabilities;
pub(crate) mod syscalls;

use std::io;

use anyhow::Context as _;
use dorm_cgroup::OwnGroup;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use thiserror::Error;

/// Why the daemon could not give something up.
#[derive(Debug, Error)]
pub(crate) enum ConfineError {
    /// The kernel refused.
    #[error("cannot {operation}: run the daemon where prctl and seccomp are allowed")]
    System {
        /// The operation.
        operation: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The system call filter could not be installed.
    #[error("cannot install the system call filter: run the daemon on a kernel with seccomp filters")]
    Filter(#[source] seccompiler::Error),
}

fn system(operation: &'static str) -> impl FnOnce(rustix::io::Errno) -> ConfineError {
    move |source| ConfineError::System { operation, source: source.into() }
}

/// Confines the calling thread, and with it every thread and program that it starts.
///
/// # Errors
///
/// If the kernel refuses. Privileges that were given up before that stay given up.
pub(crate) fn process() -> Result<(), ConfineError> {
    capabilities::reduce()?;
    rustix::thread::set_no_new_privs(true).map_err(system("renounce new privileges"))?;
    syscalls::deny()?;
    forbid_core_dumps()
}

/// More descriptors than any daemon uses. Some programs that it starts inspect each number below
/// their limit.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Denies other users access to every file that this process creates from now on, unless its mode
/// is set afterwards. Must be called before the process has a second thread.
pub(crate) fn mask_modes() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Raises the limit of open descriptors to the hard limit and returns it. Programs that the daemon
/// starts inherit it; those that need a small one set it themselves.
pub(crate) fn raise_descriptors() -> u64 {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    let hard = limits.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    let soft = limits.current.unwrap_or(u64::MAX);
    if soft >= hard {
        return soft.min(DESCRIPTORS_MAX);
    }
    let raised = Rlimit { current: Some(hard), maximum: limits.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, soft, "cannot raise the limit of open descriptors");
            soft
        }
    }
}

/// How many threads and helper programs the daemon may have at once: a limit far above what it
/// uses.
const THREADS: u64 = 32_768;

/// Moves the daemon into a control group of its own, in which it stays as long as the returned
/// value is kept. Returns `None` if `memory_mib` is 0.
pub(crate) fn group(prefix: &str, memory_mib: u64) -> anyhow::Result<Option<OwnGroup>> {
    if memory_mib == 0 {
        return Ok(None);
    }
    let entered = OwnGroup::enter(&format!("dormouse-{prefix}-daemon"), memory_mib.saturating_mul(1 << 20), THREADS);
    let hint =
        || "cannot limit the daemon's own memory; mount the control groups of this host, or use --daemon-memory-mib 0";
    entered.map(Some).with_context(hint)
}

/// A core dump of the daemon contains every secret and key. Programs inherit the limit, but not the
/// dumpable flag.
fn forbid_core_dumps() -> Result<(), ConfineError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(system("forbid core dumps"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(system("forbid core dumps"))
}

#[cfg(test)]
mod tests;
