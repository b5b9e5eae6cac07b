//! The recorded state of the clocks, from which a restarted daemon continues.

use std::time::Duration;

use dorm_lifecycle::Timestamp;

/// The latest note of the service clock. Every time on record is of the service clock, which runs
/// like the steady clock and does not follow when the wall clock is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockNote {
    /// The time of the service clock.
    pub seen: Timestamp,
    /// The time of the steady clock at the same moment.
    pub steady: Duration,
    /// The boot of the host from which the steady clock counts; none if unknown.
    pub boot: Option<String>,
    /// How far the wall clock was ahead of the service clock; earliest period first.
    pub periods: Vec<ClockPeriod>,
    /// Nothing is deleted because of its age before the service clock reaches this time.
    pub held_until: Timestamp,
}

/// A period in which the wall clock was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockPeriod {
    /// When it began, in time of the service clock.
    pub from: Timestamp,
    /// How far the wall clock was ahead of the service clock, in milliseconds.
    pub ahead_millis: i64,
}
