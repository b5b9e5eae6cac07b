//! Randomness.

use std::fmt::Debug;

/// A source of random bytes. No two results may ever be equal.
pub trait Randomness: Send + Sync + Debug + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The kernel's generator.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        // The kernel's generator does not fail once the system is up; if it did, no id could be
        // trusted.
        if getrandom::fill(bytes).is_err() {
            std::process::abort();
        }
    }
}
