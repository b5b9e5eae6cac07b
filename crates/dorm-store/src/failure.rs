//! Failures on record.

use crate::Code;

/// Why something failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureRecord {
    /// The kind of failure.
    pub code: Code,
    /// The reason, as a sentence.
    pub reason: String,
}

impl FailureRecord {
    /// A failure of the given kind.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}
