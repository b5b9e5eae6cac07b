#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! How an image is built: steps, where they come from, and the keys under which what they made is found again.
//!
//! ```text
//! Dockerfile ─┐
//!             ├─► Plan: from, steps ─► Settings at each step ─► Key of each step
//! arguments ──┘
//! ```
//!
//! Pure: nothing is run, read or written here.

mod dockerfile;
mod key;
mod plan;
mod words;

pub use dockerfile::from_dockerfile;
pub use key::{Key, Keys};
pub use plan::{Command, Copy, Kept, Placed, Plan, Settings, Step};

/// Why something cannot be built from.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// A line of a Dockerfile is not understood.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what to write instead.
        what: String,
    },
    /// A step that was given as an argument is not understood.
    #[error("{what}")]
    Step {
        /// What is wrong, and what to write instead.
        what: String,
    },
}
