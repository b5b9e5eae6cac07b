//! The resources that one worker may use.

use serde::{Deserialize, Serialize};

/// The limits of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Its address space, including that of the program itself.
    pub memory_bytes: u64,
    /// Its CPU time.
    pub cpu_seconds: u64,
    /// How long it may write nothing.
    pub silence_seconds: u64,
}
