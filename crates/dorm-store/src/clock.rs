//! What is remembered of the clocks, so that a daemon knows after a start what the one before it knew.

use std::time::Duration;

use dorm_lifecycle::Timestamp;

/// The service clock as it was last noted. Every moment on record is of the service clock, which runs like the steady
/// clock and does not follow a wall clock that is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockNote {
    /// What the service clock showed.
    pub seen: Timestamp,
    /// What the steady clock showed at the same moment.
    pub steady: Duration,
    /// The boot of the host from which the steady clock counts; none where it is not known.
    pub boot: Option<String>,
    /// How far the wall clock was ahead of the service clock, the earliest period first.
    pub periods: Vec<ClockPeriod>,
    /// Nothing is deleted because of its age before the service clock shows this.
    pub held_until: Timestamp,
}

/// A period in which the wall clock was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockPeriod {
    /// When it began, by the service clock.
    pub from: Timestamp,
    /// How far the wall clock was ahead of the service clock, in milliseconds.
    pub ahead_millis: i64,
}
