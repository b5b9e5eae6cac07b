//! Notification that a group is short of memory, before the kernel kills a process.
//!
//! File cache does not count: the kernel drops it when memory is needed, and a guest that only
//! writes files must not lose a process for it. But the kernel watches the sum of both. While the
//! sum is below the level, the kernel's event suffices; while cache keeps the sum above the level,
//! this module polls, the more often the less memory is left. (Dropping the cache instead was
//! tried: it also evicts the sandbox's own program, and the guest stalls.)
//!
//! This module does not know how a shortage is handled.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::fs::inotify;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::controller::{Controller, Version};
use crate::error::CgroupError;
use crate::file;
use crate::group::{Cgroup, memory};
use crate::layout::Place;

/// The fastest expected growth while the kernel's event does not help, in bytes per millisecond.
/// Guests were observed to grow at a quarter of this rate.
const GROWTH_PER_MS: u64 = 1 << 20;
/// The minimum is less than the time in which such growth gets from the level to the hard limit.
const LOOK_AGAIN_MS: std::ops::RangeInclusive<u64> = 20..=200;
/// Above the level, polling only detects that usage has fallen below it, which is not urgent.
const LOOK_AGAIN_ABOVE: Duration = Duration::from_millis(50);

/// A watch on the memory of one group. Dropping it ends the watch.
#[derive(Debug)]
pub struct Threshold {
    place: Place,
    gate: Gate,
    bell: AsyncFd<OwnedFd>,
}

impl Threshold {
    /// Watches for `group` to use `bytes` of memory. Must be called inside a Tokio runtime. A group
    /// can have only one watch at a time: under version 2 the level is a setting of the group.
    ///
    /// Blocks: under version 1, the kernel waits for all CPUs once per level, some milliseconds on
    /// an idle host and tens of milliseconds on a busy one.
    ///
    /// # Errors
    /// When the group does not exist or the kernel refuses.
    pub fn arm(group: &Cgroup, bytes: u64) -> Result<Self, CgroupError> {
        let place = group.place(Controller::Memory)?.clone();
        let gate = Gate::new(bytes, group.memory_limit()?, place.version);
        let bell = match place.version {
            Version::V1 => ring_at(&place, &gate.levels())?,
            Version::V2 => ring_above_high(&place, bytes)?,
        };
        // SAFETY: the registered value owns the descriptor, which is neither replaced nor closed
        // before that value is dropped.
        #[allow(unsafe_code)]
        let bell = unsafe { AsyncFd::register_with_interest(bell, Interest::READABLE) };
        let bell = bell.map_err(|error| CgroupError::file("watch", place.dir.clone(), error.into()))?;
        Ok(Self { place, gate, bell })
    }

    /// Waits until the memory in use, without file cache, has reached the level. Returns the use in
    /// bytes.
    ///
    /// A further call waits for the next time: until the use has fallen below the level and reached
    /// it again, or has grown by another quarter of what remained to the hard limit. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// When the group is removed.
    pub async fn reached(&mut self) -> Result<u64, CgroupError> {
        loop {
            let now = memory(&self.place)?;
            if self.gate.passes(now.working_set()) {
                return Ok(now.working_set());
            }
            if now.charged < self.gate.level {
                self.ring().await?;
            } else if let Ok(rule) = tokio::time::timeout(self.gate.look_again(now.working_set()), self.ring()).await {
                rule?;
            }
        }
    }

    /// Waits for the kernel's event and consumes it.
    async fn ring(&self) -> Result<(), CgroupError> {
        let wrong = |source| CgroupError::file("watch", self.place.dir.clone(), source);
        loop {
            let mut guard = self.bell.readable().await.map_err(wrong)?;
            let mut buffer = [MaybeUninit::<u8>::uninit(); 512];
            let taken = guard.try_io(|bell| Ok(rustix::io::read(bell.get_ref(), &mut buffer[..]).map(drop)?));
            match taken {
                Ok(result) => return result.map_err(wrong),
                Err(_) => continue,
            }
        }
    }
}

/// Creates an event counter that signals whenever memory crosses one of the levels, up or down, and
/// when the group is removed.
fn ring_at(place: &Place, levels: &[u64]) -> Result<OwnedFd, CgroupError> {
    let path = place.dir.join("memory.usage_in_bytes");
    let usage = fs::File::open(&path).map_err(|source| CgroupError::file("open", path.clone(), source))?;
    let bell = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
        .map_err(|source| CgroupError::file("watch", path, source.into()))?;
    for level in levels {
        let order = format!("{} {} {level}", bell.as_raw_fd(), usage.as_raw_fd());
        file::write(&place.dir, "cgroup.event_control", &order)?;
    }
    Ok(bell)
}

/// Sets the level above which the kernel reclaims memory, and watches the file that counts such
/// events.
fn ring_above_high(place: &Place, bytes: u64) -> Result<OwnedFd, CgroupError> {
    let path: PathBuf = place.dir.join("memory.events");
    let wrong = |source: rustix::io::Errno| CgroupError::file("watch", path.clone(), source.into());
    let bell = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).map_err(wrong)?;
    let wanted = inotify::WatchFlags::MODIFY | inotify::WatchFlags::DELETE_SELF;
    inotify::add_watch(bell.as_fd(), &path, wanted).map_err(wrong)?;
    file::write(&place.dir, "memory.high", &bytes.to_string())?;
    Ok(bell)
}

/// Decides which readings count as reaching the level, so that one shortage is reported once.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gate {
    level: u64,
    step: u64,
    next: u64,
}

impl Gate {
    fn new(bytes: u64, limit: u64, version: Version) -> Self {
        let level = match version {
            Version::V1 => bytes,
            // Under version 2 the kernel holds the sum at `bytes` and never reclaims the last bit
            // of cache.
            Version::V2 => bytes - bytes / 16,
        };
        let step = (limit.saturating_sub(bytes) / 4).max(1 << 20);
        Self { level, step, next: level }
    }

    fn levels(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|times| self.level.saturating_add(self.step.saturating_mul(times)))
    }

    /// Returns how long to wait until the next poll.
    fn look_again(&self, used: u64) -> Duration {
        match self.level.checked_sub(used) {
            None | Some(0) => LOOK_AGAIN_ABOVE,
            Some(left) => {
                Duration::from_millis((left / GROWTH_PER_MS).clamp(*LOOK_AGAIN_MS.start(), *LOOK_AGAIN_MS.end()))
            }
        }
    }

    fn passes(&mut self, used: u64) -> bool {
        if used < self.level {
            self.next = self.level;
            return false;
        }
        let passed = used >= self.next;
        if passed {
            self.next = used.saturating_add(self.step);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_less_is_left_the_sooner_it_is_looked_again() {
        let gate = Gate::new(512 * MIB, 576 * MIB, Version::V1);
        for (used_mib, wait_ms) in [(0, 200), (412, 100), (510, 20), (512, 50), (540, 50)] {
            assert_eq!(gate.look_again(used_mib * MIB), Duration::from_millis(wait_ms), "{used_mib} MiB");
        }
    }

    #[test]
    fn one_shortage_is_told_once_until_it_is_over_or_gets_worse() {
        let mut gate = Gate::new(400, 400 + 4 * MIB, Version::V1);
        assert!(!gate.passes(399));
        assert!(gate.passes(400));
        assert!(!gate.passes(401), "told already");
        assert!(gate.passes(400 + MIB), "worse");
        assert!(!gate.passes(400));
        assert!(!gate.passes(100), "over");
        assert!(gate.passes(401), "again");
    }
}
