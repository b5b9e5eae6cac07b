//! How much of the host's network one sandbox may use. [`crate::traffic`] and [`crate::ruleset`]
//! enforce it.

use std::num::{NonZeroU32, NonZeroU64};

/// The traffic limits of each sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficLimits {
    /// Bytes per second, in each direction. `None` means unlimited.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Packets per second that a sandbox may send. `None` means unlimited.
    pub packets_per_second: Option<NonZeroU32>,
    /// The maximum number of open connections of a sandbox. It may open half as many in a burst,
    /// and then a twentieth per second, so that the host keeps at most twice as many, including
    /// those recently closed.
    pub connections: NonZeroU32,
}

impl Default for TrafficLimits {
    /// 128 MiB and 100,000 packets per second, 2048 connections.
    fn default() -> Self {
        Self {
            bytes_per_second: NonZeroU64::new(128 << 20),
            packets_per_second: NonZeroU32::new(100_000),
            connections: NonZeroU32::MIN.saturating_add(2047),
        }
    }
}

impl TrafficLimits {
    /// Returns how many connections may be opened in a burst.
    pub(crate) fn connection_burst(&self) -> u32 {
        (self.connections.get() / 2).max(1)
    }

    /// Returns how many connections may be opened per second.
    pub(crate) fn connection_rate(&self) -> u32 {
        (self.connections.get() / 20).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_begun_and_over_are_no_more_than_twice_those_that_may_be_open() {
        for connections in [1, 2, 19, 64, 2048, 65_536] {
            let limits =
                TrafficLimits { connections: NonZeroU32::new(connections).unwrap(), ..TrafficLimits::default() };
            let over = limits.connection_burst() + 10 * limits.connection_rate();
            assert!(over <= connections.max(11), "{connections}");
        }
    }
}
