//! Time that counts only while the sandbox runs. The kernel's clock may jump across a suspend.
//!
//! A host that has stopped the clock may die before it saves the sandbox. So the clock starts again
//! after many looks at it, which are made only while the sandbox runs.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// How often the clock is looked at while it is stopped.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// After how many such looks it starts again: five minutes.
const LOOKS_MAX: u32 = 600;
/// The same, if a host is there that does not have to start it: 30 seconds. It may take some of
/// them until it does.
const LOOKS_SOON: u32 = 60;

/// The clock.
pub(super) struct Clock(Mutex<State>);

struct State {
    /// The time until `since`.
    counted: Duration,
    /// Since when time counts; `None` while it does not.
    since: Option<Instant>,
    stops: u64,
    /// How often it was looked at since it was stopped, and when for the last time.
    looks: u32,
    looked: Instant,
}

/// A moment of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) at: Duration,
    /// How often the clock was stopped before.
    pub(super) stops: u64,
    pub(super) counts: bool,
}

impl Default for Clock {
    fn default() -> Self {
        let now = Instant::now();
        Self(Mutex::new(State { counted: Duration::ZERO, since: Some(now), stops: 0, looks: 0, looked: now }))
    }
}

impl Clock {
    pub(super) fn now(&self) -> Moment {
        let state = lock(&self.0);
        let running = state.since.map_or(Duration::ZERO, |since| since.elapsed());
        Moment { at: state.counted.saturating_add(running), stops: state.stops, counts: state.since.is_some() }
    }

    pub(super) fn stop(&self) {
        let mut state = lock(&self.0);
        if let Some(since) = state.since.take() {
            state.counted = state.counted.saturating_add(since.elapsed());
            state.stops += 1;
            state.looks = 0;
        }
    }

    /// Notes that a service has waited for [`LOOK`] since the clock was found stopped.
    pub(super) fn look(&self) {
        let mut state = lock(&self.0);
        // Many services may look at the same time.
        if state.since.is_none() && state.looked.elapsed() >= LOOK / 2 {
            (state.looks, state.looked) = (state.looks + 1, Instant::now());
            if state.looks >= LOOKS_MAX {
                state.since = Some(state.looked);
            }
        }
    }

    /// Starts again after fewer looks.
    pub(super) fn give_up_soon(&self) {
        let mut state = lock(&self.0);
        state.looks = state.looks.max(LOOKS_MAX - LOOKS_SOON);
    }

    pub(super) fn resume(&self) {
        lock(&self.0).since.get_or_insert_with(Instant::now);
    }
}

impl Moment {
    pub(super) fn ms(self) -> u64 {
        u64::try_from(self.at.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, LOOKS_MAX, LOOKS_SOON};

    #[test]
    fn time_stands_still_while_the_clock_is_stopped() {
        let clock = Clock::default();
        clock.stop();
        let stopped = clock.now();
        assert!(!stopped.counts && stopped.stops == 1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        clock.stop();
        assert_eq!(clock.now(), stopped);
        clock.resume();
        assert!(clock.now().counts && clock.now().at >= stopped.at && clock.now().stops == 1);
    }

    fn starts_after(clock: &Clock, most: u32) {
        for looks in 0..most {
            assert!(!clock.now().counts, "after {looks} looks");
            let mut state = crate::lock::lock(&clock.0);
            state.looked = state.looked.checked_sub(super::LOOK).unwrap();
            drop(state);
            clock.look();
            clock.look();
        }
        assert!(clock.now().counts);
    }

    #[test]
    fn a_clock_that_is_never_started_again_starts_after_many_looks() {
        let clock = Clock::default();
        clock.stop();
        starts_after(&clock, LOOKS_MAX);
        // A host that only reconnects does not start it.
        clock.stop();
        clock.give_up_soon();
        starts_after(&clock, LOOKS_SOON);
        clock.stop();
        starts_after(&clock, LOOKS_MAX);
    }
}
