//! Points in time, as whole milliseconds.

use std::fmt;
use std::time::Duration;

/// A point in wall-clock time: whole milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the point `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the point `length` later, or the last representable one if that is earlier.
    pub fn after(self, length: Duration) -> Self {
        Self(self.0.saturating_add(millis(length)))
    }

    /// Returns the point `length` earlier, or the epoch if that is later.
    pub fn before(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(millis(length)))
    }

    /// Returns the same moment as read from a clock that was adjusted by `millis` in between.
    pub fn shifted(self, millis: i64) -> Self {
        Self(self.0.saturating_add_signed(millis))
    }

    /// Returns the time since `earlier`; zero if this is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
