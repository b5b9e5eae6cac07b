//! What the daemon's process does to itself before anything else: it masks the modes of the files that it makes, and takes
//! as many descriptors as the host gives it.

use rustix::process::{Resource, Rlimit};

/// More descriptors than any daemon uses. Some programs that it starts look at each number below their limit.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Closes every file that this process makes from now on to other users, unless its mode is set afterwards. To be called
/// before the process has a second thread.
pub(crate) fn mask_modes() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Raises the limit of open descriptors to the hard one, and answers it. Programs that the daemon starts inherit it; the
/// ones that need a small one set it themselves.
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
            tracing::warn!(%error, soft, "the limit of open descriptors stays");
            soft
        }
    }
}
