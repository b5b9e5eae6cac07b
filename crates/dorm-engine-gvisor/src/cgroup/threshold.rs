//! Being told that a group's memory runs short before the kernel kills for it.
//!
//! File cache does not count: the kernel drops it when memory is needed, and a guest that only writes files must not
//! lose a process for it. But the kernel watches the sum of both. So while the sum is below the level its event is
//! enough, and while cache keeps the sum above it we look ourselves, the more often the less is left. (Dropping the
//! cache instead was tried: it throws out the sandbox's own program with it, and the guest stands still.)
//!
//! Does not know what is done about it.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::fs::inotify;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Cgroup, CgroupError, Controller, MARGIN_BYTES, Place, Version, file, memory};

/// The fastest growth reckoned with while the kernel's event does not help, in bytes per millisecond. Guests were
/// seen to grow by a quarter of it.
const GROWTH_PER_MS: u64 = 1 << 20;
/// The least is less than what such growth needs from the level to the hard limit.
const LOOK_AGAIN_MS: std::ops::RangeInclusive<u64> = 20..=200;
/// Above the level looking is about the fall below it, which nobody waits for.
const LOOK_AGAIN_ABOVE: Duration = Duration::from_millis(50);

/// Where the soft threshold lies below a hard limit, both in bytes: of what is left without the margin at 80 %, or
/// 64 MiB below, whichever is more.
pub fn soft_threshold(limit: u64) -> u64 {
    let limit = limit.saturating_sub(MARGIN_BYTES);
    (limit - limit / 5).max(limit.saturating_sub(64 << 20))
}

/// A watch on the memory of one group. Dropping it ends the watch.
#[derive(Debug)]
pub struct Threshold {
    place: Place,
    gate: Gate,
    bell: AsyncFd<OwnedFd>,
}

impl Threshold {
    /// Watches `group` for `bytes` of memory in use. Must be called inside a tokio runtime. One watch per group at
    /// a time: under version 2 the level is a setting of the group.
    ///
    /// # Errors
    /// When the group is gone or the kernel refuses.
    pub fn arm(group: &Cgroup, bytes: u64) -> Result<Self, CgroupError> {
        let place = group.place(Controller::Memory)?.clone();
        let gate = Gate::new(bytes, group.memory_limit()?, place.version);
        let bell = match place.version {
            Version::V1 => ring_at(&place, &gate.levels())?,
            Version::V2 => ring_above_high(&place, bytes)?,
        };
        // SAFETY: the descriptor is owned by what is registered, and neither replaced nor closed before it.
        #[allow(unsafe_code)]
        let bell = unsafe { AsyncFd::register_with_interest(bell, Interest::READABLE) };
        let bell = bell.map_err(|error| CgroupError::file("watch", place.dir.clone(), error.into()))?;
        Ok(Self { place, gate, bell })
    }

    /// Waits until the memory in use, without file cache, has reached the level, and answers how much it is, in bytes.
    ///
    /// Called again it waits for the next time: until the use has fallen below the level and come back, or has
    /// gone up by a further quarter of what is left to the hard limit. Dropping the future loses nothing.
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
            } else if let Ok(rung) = tokio::time::timeout(self.gate.look_again(now.working_set()), self.ring()).await {
                rung?;
            }
        }
    }

    /// Waits for the kernel's event and takes it off.
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

/// An event counter that rings whenever memory passes one of the levels, up or down, and when the group goes.
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

/// Sets the level above which the kernel reclaims, and a watch on the file in which it counts each time.
fn ring_above_high(place: &Place, bytes: u64) -> Result<OwnedFd, CgroupError> {
    let path: PathBuf = place.dir.join("memory.events");
    let wrong = |source: rustix::io::Errno| CgroupError::file("watch", path.clone(), source.into());
    let bell = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).map_err(wrong)?;
    let wanted = inotify::WatchFlags::MODIFY | inotify::WatchFlags::DELETE_SELF;
    inotify::add_watch(bell.as_fd(), &path, wanted).map_err(wrong)?;
    file::write(&place.dir, "memory.high", &bytes.to_string())?;
    Ok(bell)
}

/// Decides which readings count as reaching the level, so that one shortage is told once.
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
            // There the kernel holds the sum at `bytes`, and never gets rid of the last bit of cache.
            Version::V2 => bytes - bytes / 16,
        };
        let step = (limit.saturating_sub(bytes) / 4).max(1 << 20);
        Self { level, step, next: level }
    }

    fn levels(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|times| self.level.saturating_add(self.step.saturating_mul(times)))
    }

    /// How long to wait before looking again when only looking tells.
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
    fn the_soft_threshold_is_near_the_limit_for_large_sandboxes_and_a_fifth_below_for_small_ones() {
        let below = |limit_mib: u64| soft_threshold(limit_mib * MIB + MARGIN_BYTES);
        assert_eq!(below(100), 80 * MIB);
        assert_eq!(below(320), 256 * MIB);
        assert_eq!(below(576), 512 * MIB);
        assert_eq!(below(4096), 4032 * MIB);
        assert_eq!(soft_threshold(0), 0);
        assert!(soft_threshold(u64::MAX) < u64::MAX);
    }

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
