//! Enforces the traffic limits of one sandbox: lines for `tc`, and equivalent packet rules for a
//! host whose kernel lacks the scheduler.
//!
//! ```text
//! sandbox ── inner: shaped towards the sandbox ── gateway ── uplink: shaped towards the host ── the host
//!            packets of the sandbox counted            connections counted
//! ```
//!
//! Shaping delays excess packets, which every program copes with; a packet rule can only drop them.

use crate::command::{CommandError, run_alone};
use crate::layout::{INNER_INTERFACE, UPLINK_INTERFACE};
use crate::limits::TrafficLimits;
use crate::namespace;

/// The burst after a pause: enough for a clock of 100 ticks per second, and for one large packet.
const BURST: (u64, u64) = (128 << 10, 4 << 20);
/// The queue length. It takes memory of the host's kernel, in each direction.
const QUEUE: (u64, u64) = (256 << 10, 1 << 20);

impl TrafficLimits {
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
    use std::num::NonZeroU64;

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
}
