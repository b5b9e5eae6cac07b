//! Explanations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text::Time;

/// Why a sandbox is where it is, and what happens next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The sandbox.
    pub sandbox: String,
    /// Where it is, as a sentence.
    pub summary: String,
    /// Why it is there, the strongest reason first.
    pub because: Vec<Reason>,
    /// What failed or was refused last, if nothing has succeeded since.
    pub refused: Option<Reason>,
    /// What happens next, the soonest first.
    pub next: Vec<Reason>,
    /// What of it is on disk, and why it is kept.
    pub on_disk: Vec<Reason>,
}

/// One thing that can be said, and what it is based on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// The kind of signal: `event`, `use`, `hold`, `limit`, `operation`, `image`, `policy`, `memory` or `snapshot`.
    pub signal: String,
    /// What it says.
    pub says: String,
    /// When it was, or will be.
    pub at: Option<Time>,
}
