//! Host processes that outlive the daemon, distinguished from later ones with the same PID.
//!
//! A PID alone is never trusted: an [`Identity`] also contains the process's start time. This
//! module does not know what the processes do.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dorm_guest_ids::GuestIds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One process of this boot of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pid: i32,
    /// Clock ticks since boot, from `/proc/PID/stat`.
    started: u64,
}

impl Identity {
    /// Returns the live process that has the PID `pid` now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let (state, started) = stat(pid)?;
        (!matches!(state, 'Z' | 'X')).then_some(Self { pid, started })
    }

    /// Returns its PID, which may be reused as soon as the process has ended.
    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    /// Returns whether it still runs.
    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Opens a descriptor of the process; `None` if it is dead.
    pub(crate) fn open(self) -> Option<OwnedFd> {
        let fd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::NONBLOCK).ok()?;
        // From here on the PID cannot be reused.
        self.is_alive().then_some(fd)
    }

    /// Kills the process. Killing a dead process succeeds.
    pub(crate) fn kill(self) -> io::Result<()> {
        let Some(fd) = self.open() else { return Ok(()) };
        match pidfd_send_signal(fd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended, and reaps it if it is our child. Returns `false` if it
    /// still runs after `limit`. Blocks.
    pub(crate) fn wait(self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while let Some(fd) = self.open() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            // After an error or a signal the loop checks again.
            let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        }
        reap(self.pid);
        true
    }

    /// Resolves when the process has ended.
    pub(crate) async fn ended(self) {
        let Some(fd) = self.open() else { return };
        // SAFETY: the registered value owns the descriptor, which is neither replaced nor closed
        // before that value is dropped.
        #[allow(unsafe_code)]
        let Ok(fd) = (unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }) else { return };
        // A pidfd is readable once its process has ended, and stays readable.
        let _ = fd.readable().await;
    }
}

fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, including parentheses and spaces.
    let rest = text.get(text.rfind(')')? + 2..)?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn is_dead_child(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

fn reap(pid: i32) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    // If it is not our child (ECHILD) or was reaped before, there is nothing to do.
    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

/// Returns the links to what a process has open, such as `/proc/PID/fd/3`. A process that has ended
/// has none.
pub(crate) fn descriptors(pid: i32) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Reaps our dead children that ran as guests, so that none stays a zombie: when a sentry dies, its
/// children become ours. Our own programs never have the ids of guests. The control group would
/// name the sandbox, but some kernels forget that of a dead process.
pub(crate) fn reap_guests(ids: GuestIds) {
    // Most are alive, and reading the ids of one takes long.
    for pid in children().into_iter().filter(|pid| is_dead_child(*pid)) {
        if user(pid).is_some_and(|user| ids.guest(user).is_some()) {
            reap(pid);
        }
    }
}

/// Returns the real user id of a process, which may be dead.
fn user(pid: i32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

fn children() -> HashSet<i32> {
    let mut found = HashSet::new();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return found };
    for thread in threads.flatten() {
        if let Ok(text) = fs::read_to_string(thread.path().join("children")) {
            found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    found
}

/// Returns whether the kernel excludes this process from the OOM killer. Its children would inherit
/// that.
pub(crate) fn is_spared_from_oom() -> bool {
    let text = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    text.trim().parse::<i32>().is_ok_and(|score| score < 0)
}

/// Makes the calling process an ordinary candidate of the kernel's OOM killer. Allocates nothing
/// and takes no lock, so it may be called in `pre_exec`.
pub(crate) fn be_an_ordinary_oom_victim() -> io::Result<()> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/oom_score_adj", flags, rustix::fs::Mode::empty())?;
    rustix::io::write(file, b"0")?;
    Ok(())
}

/// Returns the ID of this boot of the host.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_itself() {
        let me = Identity::of(std::process::id() as i32).expect("alive");
        assert!(me.is_alive() && me.open().is_some());
    }

    #[test]
    fn a_later_process_of_the_same_number_is_another() {
        let mut other = Identity::of(std::process::id() as i32).expect("alive");
        other.started += 1;
        assert!(!other.is_alive());
        other.kill().expect("nobody is killed");
    }

    #[test]
    #[allow(clippy::zombie_processes)] // That it is reaped all the same is what is tested.
    fn a_killed_child_is_reaped() {
        let child = std::process::Command::new("sleep").arg("1000").spawn().expect("spawn");
        let identity = Identity::of(child.id() as i32).expect("alive");
        identity.kill().expect("kill");
        assert!(identity.wait(Duration::from_secs(60)));
        assert!(!std::path::Path::new(&format!("/proc/{}", child.id())).exists());
    }
}
