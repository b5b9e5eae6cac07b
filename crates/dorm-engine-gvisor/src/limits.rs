//! The limits of a guest, as limits of its control group.
//!
//! This module does not know how a shortage is handled.

use dorm_cgroup::{Limits, Precedence};
use dorm_lifecycle::Resources;

/// The memory of the sentry, in addition to the guest's.
const SENTRY_BYTES: u64 = 64 << 20;
/// How far a guest may grow while it is being paused. On a busy host that takes some hundred
/// milliseconds, in which a guest was observed to exceed 64 MiB; the kernel then chose the OOM
/// victim.
pub(crate) const MARGIN_BYTES: u64 = 256 << 20;

/// Returns the host limits for a guest with `resources`: memory for the sentry and for the time in
/// which a shortage is handled, in addition to the guest's; four host threads for each of the
/// guest's (systrap stubs), and 64 more for the sentry itself.
pub(crate) fn for_guest(resources: &Resources) -> Limits {
    Limits {
        cpu_millis: resources.cpu_millis,
        precedence: Precedence::Fair,
        memory_bytes: resources.memory_bytes.saturating_add(SENTRY_BYTES + MARGIN_BYTES),
        threads: u64::from(resources.processes) * 4 + 64,
    }
}

/// Returns the soft threshold for a hard limit, both in bytes: 80 % of the limit without the
/// margin, or 64 MiB below that limit, whichever is more.
pub(crate) fn soft_threshold(limit: u64) -> u64 {
    let limit = limit.saturating_sub(MARGIN_BYTES);
    (limit - limit / 5).max(limit.saturating_sub(64 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn limits_of_a_guest_leave_room_for_the_sentry() {
        let resources = Resources { cpu_millis: 500, memory_bytes: 512 << 20, disk_bytes: 0, processes: 100 };
        let limits = for_guest(&resources);
        assert_eq!(
            limits,
            Limits { cpu_millis: 500, precedence: Precedence::Fair, memory_bytes: 832 << 20, threads: 464 }
        );
    }

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
}
