#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! Image builds: the steps, their sources, and the keys under which their results are cached.
//!
//! ```text
//! Dockerfile ─┐
//!             ├─► Plan: from, steps ─► Settings at each step ─► Key of each step
//! arguments ──┘
//! archive ────► Context ─► Selected: what a copy copies, and its hash
//! ```
//!
//! Pure: nothing is executed, read or written here.

pub mod context;
mod dockerfile;
mod key;
mod plan;
mod words;

pub use dockerfile::from_dockerfile;
pub use key::{Key, Keys};
pub use plan::{Command, Copy, Kept, Placed, Plan, Settings, Step, octal_mode};

/// Why a build definition is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// A line of a Dockerfile is not supported.
    #[error("line {line}: {what}")]
    Line {
        /// The line number, starting at 1.
        line: usize,
        /// The problem and an alternative.
        what: String,
    },
    /// A step that was passed as an argument is invalid.
    #[error("{what}")]
    Step {
        /// The problem and an alternative.
        what: String,
    },
}
