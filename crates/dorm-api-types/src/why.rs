//! Explanations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Time;

/// Explains the state of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// ID of the sandbox.
    pub sandbox: String,
    /// The state as a sentence.
    pub summary: String,
    /// Reasons for the state, most important first.
    pub because: Vec<Reason>,
    /// The last failure or refusal, if nothing has succeeded since.
    pub refused: Option<Reason>,
    /// The next expected events, soonest first.
    pub next: Vec<Reason>,
    /// Data that is kept on disk for the sandbox, with the reason.
    pub on_disk: Vec<Reason>,
}

/// A statement and what it is based on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// Kind of the evidence: `event`, `use`, `hold`, `limit`, `operation`, `image`, `policy`,
    /// `memory`, `disk`, `snapshot`, `run` or `pool`.
    pub signal: String,
    /// The statement.
    pub says: String,
    /// When it happened or will happen.
    pub at: Option<Time>,
}
