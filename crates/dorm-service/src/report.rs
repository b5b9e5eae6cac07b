//! The report of a start of the service, for people.

use crate::error::chain;

/// The findings and actions of a start, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// The number of sandboxes on record that are not terminated.
    pub sandboxes: usize,
    /// The number of runs that continued without the daemon.
    pub runs: usize,
    /// One line for everything that was removed, rolled back or started over.
    pub lines: Vec<String>,
}

impl RecoveryReport {
    /// Reports work that failed and does not prevent the start.
    pub(crate) fn postponed(&mut self, what: &str, error: &(dyn std::error::Error + 'static)) {
        let reason = chain(error);
        tracing::warn!(reason, "{what} failed; retrying at the next start");
        self.lines.push(format!("{what} failed and is retried at the next start: {reason}"));
    }
}
