//! Parked sandboxes, which are suspended and still held in memory, and the order in which they are
//! evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::{SandboxId, Timestamp};

/// Limits on parked sandboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParkLimits {
    /// The largest total of host memory that parked sandboxes may hold, in bytes.
    pub memory_bytes: u64,
    /// The largest number of parked sandboxes.
    pub count: usize,
}

struct Parked {
    since: Timestamp,
    memory_bytes: u64,
}

/// The parked sandboxes of this host.
pub(crate) struct Parking {
    limits: ParkLimits,
    parked: Mutex<BTreeMap<SandboxId, Parked>>,
}

impl Parking {
    pub(crate) fn new(limits: ParkLimits) -> Self {
        Self { limits, parked: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `sandbox` is parked. Returns the sandboxes that have to be evicted for it, the
    /// longest parked first; it may be among them.
    pub(crate) fn enter(&self, sandbox: &SandboxId, since: Timestamp, memory_bytes: u64) -> Vec<SandboxId> {
        let mut parked = self.lock();
        parked.insert(sandbox.clone(), Parked { since, memory_bytes });
        let mut by_age: Vec<_> = parked.iter().map(|(id, held)| (held.since, id.clone(), held.memory_bytes)).collect();
        by_age.sort();
        let mut count = by_age.len();
        let mut memory: u64 = by_age.iter().map(|(_, _, bytes)| bytes).sum();
        let mut leave = Vec::new();
        for (_, id, bytes) in by_age {
            if count <= self.limits.count && memory <= self.limits.memory_bytes {
                break;
            }
            count -= 1;
            memory -= bytes;
            leave.push(id);
        }
        leave
    }

    /// Records how much host memory `sandbox` holds now, in bytes, if it is parked.
    pub(crate) fn shrink(&self, sandbox: &SandboxId, memory_bytes: u64) {
        if let Some(held) = self.lock().get_mut(sandbox) {
            held.memory_bytes = held.memory_bytes.min(memory_bytes);
        }
    }

    /// Records that `sandbox` is no longer parked. Returns whether it was.
    pub(crate) fn leave(&self, sandbox: &SandboxId) -> bool {
        self.lock().remove(sandbox).is_some()
    }

    /// Returns the sandbox that has been parked for the longest time, other than these.
    pub(crate) fn oldest_but(&self, passed_over: &BTreeSet<SandboxId>) -> Option<SandboxId> {
        let parked = self.lock();
        let others = parked.iter().filter(|(id, _)| !passed_over.contains(id));
        others.min_by_key(|(id, held)| (held.since, *id)).map(|(id, _)| id.clone())
    }

    /// Returns how many sandboxes are parked, and the host memory they hold, in bytes.
    pub(crate) fn held(&self) -> (usize, u64) {
        let parked = self.lock();
        (parked.len(), parked.values().map(|held| held.memory_bytes).sum())
    }

    pub(crate) fn holds(&self, sandbox: &SandboxId) -> bool {
        self.lock().contains_key(sandbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seed: u8) -> SandboxId {
        SandboxId::from_random([seed; 20])
    }

    #[test]
    fn the_longest_parked_leaves_first_when_memory_is_short() {
        let parking = Parking::new(ParkLimits { memory_bytes: 100, count: 10 });
        assert!(parking.enter(&id(1), Timestamp::from_millis(1), 60).is_empty());
        assert_eq!(parking.enter(&id(2), Timestamp::from_millis(2), 60), [id(1)]);
        assert!(parking.leave(&id(1)));
        assert!(!parking.leave(&id(1)));
        assert!(parking.holds(&id(2)));
    }

    #[test]
    fn what_has_released_its_memory_makes_room_for_others() {
        let parking = Parking::new(ParkLimits { memory_bytes: 100, count: 10 });
        assert!(parking.enter(&id(1), Timestamp::from_millis(1), 60).is_empty());
        parking.shrink(&id(1), 10);
        parking.shrink(&id(2), 10);
        assert_eq!(parking.held(), (1, 10));
        assert!(parking.enter(&id(2), Timestamp::from_millis(2), 60).is_empty());
    }

    #[test]
    fn a_limit_of_none_parks_nobody() {
        let parking = Parking::new(ParkLimits { memory_bytes: u64::MAX, count: 0 });
        assert_eq!(parking.enter(&id(1), Timestamp::from_millis(1), 1), [id(1)]);
    }
}
