//! What is known of a run that lives and does not answer, and of a sandbox that could not be suspended.
//!
//! Both are facts of the present run. Neither is a reason to end it: a run ends when its process does, when a command
//! asks for it, or at a limit that somebody has set.

use std::time::Duration;

use crate::time::Timestamp;

/// A run whose agent does not answer, although its process lives.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Unreachable {
    /// Since when, as far as it was noticed.
    pub since: Timestamp,
    /// What was tried and how it failed.
    pub reason: String,
}

/// Suspends that failed in a row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SuspendFailures {
    /// How many.
    pub count: u32,
    /// When the first of them failed.
    pub since: Timestamp,
    /// Why the last one failed.
    pub reason: String,
    /// Before this moment a passed deadline does not suspend the sandbox again.
    pub next: Timestamp,
}

/// How long after the first failure a deadline suspends again; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest time between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// After how many failures in a row a sandbox is terminated whose spec says so: about 17 minutes after the first.
pub const SUSPEND_FAILURES_MAX: u32 = 11;

impl SuspendFailures {
    /// A suspend has failed at `now`, after those `before`.
    pub(crate) fn another(before: Option<&Self>, reason: &str, now: Timestamp) -> Self {
        let count = before.map_or(0, |before| before.count).saturating_add(1);
        let wait = FIRST_WAIT.saturating_mul(1 << (count - 1).min(16)).min(LONGEST_WAIT);
        let since = before.map_or(now, |before| before.since);
        Self { count, since, reason: reason.to_owned(), next: now.after(wait) }
    }

    /// Whether an event tells of this failure, which follows those `before`: the first does, one with another reason,
    /// and of equal ones the 2nd, 4th, 8th and so on.
    pub(crate) fn is_told(&self, before: Option<&Self>) -> bool {
        self.count.is_power_of_two() || before.is_none_or(|before| !alike(&before.reason, &self.reason))
    }

    /// Why the last one failed, and how many there were.
    pub(crate) fn detail(&self) -> String {
        match self.count {
            1 => self.reason.clone(),
            count => format!("{} ({count} attempts have failed)", self.reason),
        }
    }
}

/// Whether two reasons differ in their numbers at most, such as in how much room is left.
fn alike(one: &str, other: &str) -> bool {
    let words = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    words(one) == words(other)
}

#[cfg(test)]
mod tests;
