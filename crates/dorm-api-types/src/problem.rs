//! Errors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error in the format of RFC 9457. Every response that is not a success has this body, and
/// errors inside streams and other responses have the same members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `/errors/` followed by the code: a stable identifier, which cannot be fetched.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// The failure and its reason, as a sentence for people.
    pub detail: String,
    /// The code, for programs. It has the same meaning in every response; docs/reference/errors.md
    /// lists all codes.
    pub code: String,
    /// The next step for the caller, for people. Empty if `detail` says everything.
    pub next_step: String,
}
