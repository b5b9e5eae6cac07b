//! Enforces the traffic limits of one sandbox: queues, and equivalent packet rules for a host whose
//! kernel lacks them.
//!
//! ```text
//! sandbox ── inner: shaped towards the sandbox ── gateway ── uplink: shaped towards the host ── the host
//!            packets of the sandbox counted            connections counted
//! ```
//!
//! Shaping delays excess packets, which every program copes with; a packet rule can only drop them.

use dorm_engine::chain;

use crate::layout::{INNER_INTERFACE, SANDBOX_MAC, UPLINK_INTERFACE};
use crate::limits::TrafficLimits;
use crate::links::{End, LinkError, Links, Shape};
use crate::namespace;

/// The burst after a pause: enough for a clock of 100 ticks per second, and for one large packet.
const BURST: (u32, u32) = (128 << 10, 4 << 20);
/// The queue length. It takes memory of the host's kernel, in each direction.
const QUEUE: (u32, u32) = (256 << 10, 1 << 20);

impl TrafficLimits {
    /// Returns the queue of each link of the gateway; none without a limit.
    pub(crate) fn shape(&self) -> Option<Shape> {
        let rate = self.bytes_per_second?.get();
        let within = |bytes: u64, (least, most)| u32::try_from(bytes).unwrap_or(u32::MAX).clamp(least, most);
        Some(Shape { rate, burst: within(rate / 50, BURST), queue: within(rate / 20, QUEUE) })
    }

    /// Returns the equivalent packet rules for `nft`.
    pub(crate) fn policing(&self) -> String {
        let Some(rate) = self.bytes_per_second else { return String::new() };
        let rate = rate.get();
        let burst = (rate / 10).clamp(BURST.0.into(), u32::MAX.into());
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
    let tried = namespace::in_a_new_one(|| -> Result<(), LinkError> {
        let end = |name| End { name, mac: SANDBOX_MAC, mtu: None };
        let mut links = Links::open()?;
        links.add_pair(end("probe0"), end("probe1"), None)?;
        links.shape("probe0", Shape { rate: 1_000_000, burst: BURST.0, queue: QUEUE.0 })
    });
    tried.map_err(|error| format!("no network namespace: {error}"))?.map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn limited(rate: u64) -> TrafficLimits {
        TrafficLimits { bytes_per_second: NonZeroU64::new(rate), ..TrafficLimits::default() }
    }

    #[test]
    fn traffic_is_shaped_with_bounded_memory() {
        let usual = Shape { rate: 128 << 20, burst: 2_684_354, queue: 1 << 20 };
        assert_eq!(limited(128 << 20).shape(), Some(usual));
        assert_eq!(limited(1).shape(), Some(Shape { rate: 1, burst: 128 << 10, queue: 256 << 10 }));
        assert_eq!(limited(u64::MAX).shape(), Some(Shape { rate: u64::MAX, burst: 4 << 20, queue: 1 << 20 }));
        assert!(limited(0).shape().is_none() && limited(0).policing().is_empty());
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
