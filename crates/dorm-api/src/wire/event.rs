//! Events: what happened.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text::Time;

/// Something that happened to a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Rises with every event, so it serves as a cursor; gaps mean nothing.
    pub number: u64,
    /// When.
    pub at: Time,
    /// Of which project.
    pub project: String,
    /// To which sandbox.
    pub sandbox: String,
    /// What: `created`, `suspended`, `resume_failed`, …
    pub kind: String,
    /// Who caused it: `user`, `timer`, `traffic`, `host` or `recovery`.
    pub actor: String,
    /// As part of which operation.
    pub operation: Option<String>,
    /// In which generation of the sandbox.
    pub generation: u64,
    /// A sentence, where there is more to say.
    pub detail: Option<String>,
    /// How long the operation took that it ends, in milliseconds.
    pub took_ms: Option<u64>,
    /// How many bytes that wrote to the disk.
    pub bytes: Option<u64>,
}

/// Some events, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// `after` for what follows them.
    pub next: u64,
    /// The number of the oldest event that is kept: older ones were removed because of their age.
    #[serde(default)]
    pub oldest: u64,
}
