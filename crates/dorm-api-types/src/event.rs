//! Events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::text::Time;

/// Something that happened to a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Increases with every event, so it serves as a cursor. Numbers may have gaps.
    pub number: u64,
    /// When it happened.
    pub at: Time,
    /// Project of the sandbox.
    pub project: String,
    /// ID of the sandbox.
    pub sandbox: String,
    /// Kind of the event, such as `created`, `suspended` or `resume_failed`.
    pub kind: String,
    /// Who caused the event: `user`, `timer`, `traffic`, `host` or `recovery`.
    pub initiator: String,
    /// Caller that asked for it. Null if no request did, and for events of version 0.1.0.
    #[serde(default)]
    pub caller: Option<Caller>,
    /// ID of the operation that the event belongs to.
    pub operation: Option<String>,
    /// Generation of the sandbox at the time of the event.
    pub generation: u64,
    /// Details as a sentence, if there are any.
    pub detail: Option<String>,
    /// Duration of the operation that the event ends, in milliseconds.
    pub took_ms: Option<u64>,
    /// Number of bytes that the operation wrote to disk.
    pub bytes: Option<u64>,
}

/// A page of events, ordered by number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// Cursor: `after` of the next page.
    pub next: u64,
    /// Number of the oldest event that is kept. Older events were removed because of their age.
    #[serde(default)]
    pub oldest: u64,
}
