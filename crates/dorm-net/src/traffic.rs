//! The traffic limits of one sandbox: lines for `tc`, and equivalent packet rules for a host whose
//! kernel lacks the scheduler.
//!
//! ```text
//! sandbox ── inner: shaped towards the sandbox ── gateway ── uplink: shaped towards the host ── the host
//!            packets of the sandbox counted            connections counted
//! ```
//!
//! Shaping delays excess packets, which every program copes with; a packet rule can only drop them.

use std::num::{NonZeroU32, NonZeroU64};

use crate::command::{CommandError, run_alone};
use crate::layout::{INNER_INTERFACE, UPLINK_INTERFACE};
use crate::namespace;

/// The burst after a pause: enough for a clock of 100 ticks per second, and for one large packet.
const BURST: (u64, u64) = (128 << 10, 4 << 20);
/// The queue length. It takes memory of the host's kernel, in each direction.
const QUEUE: (u64, u64) = (256 << 10, 1 << 20);

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

    /// Returns the lines for `tc -batch` in the gateway; none without a limit.
    pub(crate) fn shaping(&self) -> Vec<String> {
        let Some(rate) = self.bytes_per_second else { return Vec::new() };
        let rate = rate.get();
        let (burst, queue) = ((rate / 50).clamp(BURST.0, BURST.1), (rate / 20).clamp(QUEUE.0, QUEUE.1));
        let line = |device| format!("qdisc replace dev {device} root tbf rate {rate}bps burst {burst} limit {queue}");
        [INNER_INTERFACE, UPLINK_INTERFACE].map(line).to_vec()
    }

    /// Returns the equivalent packet rules for `nft`.
    pub(crate) fn policing(&self) -> String {
        let Some(rate) = self.bytes_per_second else { return String::new() };
        let rate = rate.get();
        let burst = (rate / 10).clamp(BURST.0, u64::from(u32::MAX));
        let rule = |device| {
            format!(
                "add rule ip dorm police oifname \"{device}\" limit rate over {rate} bytes/second burst {burst} bytes drop\n"
            )
        };
        [INNER_INTERFACE, UPLINK_INTERFACE].map(rule).concat()
    }
}

/// Returns whether this host can shape traffic, tested in a temporary network namespace.
///
/// # Errors
/// Why it cannot. Sandboxes have their limits nevertheless, but excess packets are dropped instead
/// of delayed.
pub fn probe_shaping() -> Result<(), String> {
    let tried = namespace::in_a_new_one(|| -> Result<(), CommandError> {
        run_alone("ip", "iproute2", &["-batch", "-"], "link add probe0 type veth peer name probe1\n")?;
        run_alone(
            "tc",
            "iproute2",
            &["-batch", "-"],
            "qdisc replace dev probe0 root tbf rate 1000000bps burst 131072 limit 262144\n",
        )
    });
    tried.map_err(|error| format!("no network namespace: {error}"))?.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(rate: u64) -> TrafficLimits {
        TrafficLimits { bytes_per_second: NonZeroU64::new(rate), ..TrafficLimits::default() }
    }

    #[test]
    fn both_directions_are_shaped_with_bounded_memory() {
        let line =
            |device| format!("qdisc replace dev {device} root tbf rate 134217728bps burst 2684354 limit 1048576");
        assert_eq!(limited(128 << 20).shaping(), ["inner", "uplink"].map(line));
        assert!(limited(1).shaping()[0].ends_with("rate 1bps burst 131072 limit 262144"));
        assert!(limited(u64::MAX).shaping()[0].ends_with("burst 4194304 limit 1048576"));
        assert!(limited(0).shaping().is_empty() && limited(0).policing().is_empty());
    }

    #[test]
    fn rules_drop_what_shaping_would_delay() {
        let rules = limited(1 << 30).policing();
        for device in ["inner", "uplink"] {
            let rule =
                format!("oifname \"{device}\" limit rate over 1073741824 bytes/second burst 107374182 bytes drop");
            assert!(rules.contains(&rule), "{rules}");
        }
    }

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
