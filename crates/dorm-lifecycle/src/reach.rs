//! Runs that are alive but do not answer, and sandboxes that could not be suspended.
//!
//! Both are facts about the present run. Neither is a reason to end it: a run ends when its process
//! ends, on a command, or at a limit that a user has set.

use std::time::Duration;

use crate::time::Timestamp;

/// A run whose agent does not answer although its process is alive.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Unreachable {
    /// When it was first noticed.
    pub since: Timestamp,
    /// The attempt that failed, and its error.
    pub reason: String,
}

/// Consecutive failures to suspend.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SuspendFailures {
    /// The number of failures.
    pub count: u32,
    /// When the first of them happened.
    pub since: Timestamp,
    /// The reason of the last one.
    pub reason: String,
    /// Before this time, a passed deadline does not suspend the sandbox again.
    pub next: Timestamp,
}

/// The delay from the first failure to the next attempt by a deadline; it doubles with each further
/// failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest delay between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The number of consecutive failures after which a sandbox is terminated, if its spec says so:
/// about 17 minutes after the first.
pub const SUSPEND_FAILURES_MAX: u32 = 11;

impl SuspendFailures {
    /// Adds a failure at `now` to those in `before`.
    pub(crate) fn another(before: Option<&Self>, reason: &str, now: Timestamp) -> Self {
        let count = before.map_or(0, |before| before.count).saturating_add(1);
        let wait = FIRST_WAIT.saturating_mul(1 << (count - 1).min(16)).min(LONGEST_WAIT);
        let since = before.map_or(now, |before| before.since);
        Self { count, since, reason: reason.to_owned(), next: now.after(wait) }
    }

    /// Returns whether this failure, which follows those in `before`, gets an event: the first
    /// does, one with a different reason does, and of equal ones the 2nd, 4th, 8th and so on.
    pub(crate) fn is_told(&self, before: Option<&Self>) -> bool {
        self.count.is_power_of_two() || before.is_none_or(|before| !alike(&before.reason, &self.reason))
    }

    /// Returns the reason of the last failure, and the number of failures.
    pub(crate) fn detail(&self) -> String {
        match self.count {
            1 => self.reason.clone(),
            count => format!("{} ({count} attempts have failed)", self.reason),
        }
    }
}

/// Returns whether two reasons are equal except for numbers, such as the amount of free space.
fn alike(one: &str, other: &str) -> bool {
    let words = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    words(one) == words(other)
}

#[cfg(test)]
mod tests;
