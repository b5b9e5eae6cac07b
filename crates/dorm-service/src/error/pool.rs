//! Errors about sandbox pools.

use dorm_lifecycle::Name;
use dorm_store::Code;
use thiserror::Error;

/// The reason why a sandbox pool cannot be used or changed as requested.
#[derive(Debug, Error)]
pub enum PoolProblem {
    /// No pool has this name or id.
    #[error("there is no sandbox pool '{0}'")]
    Missing(String),
    /// The pool cannot be as requested.
    #[error("invalid pool '{pool}': {reason}")]
    Bad {
        /// Its name.
        pool: Name,
        /// The reason.
        reason: String,
    },
}

impl PoolProblem {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Missing(_) => Code::NotFound,
            Self::Bad { .. } => Code::InvalidArgument,
        }
    }

    pub(super) fn next_step(&self) -> &'static str {
        match self {
            Self::Missing(_) => "list the pools with `dorm pool ls`",
            Self::Bad { .. } => "choose another name, or other numbers for --ready and --most",
        }
    }
}
