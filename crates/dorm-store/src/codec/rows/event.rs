//! The rows of events.

use dorm_lifecycle::{EventKind, Initiator, OperationId, ProjectId, SandboxId};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Length, Millis, Text, Word, present};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct EventRow {
    pub(super) v: u64,
    pub(super) project: Text<ProjectId>,
    pub(super) sandbox: Text<SandboxId>,
    pub(super) at: Millis,
    pub(super) kind: Word<EventKind>,
    pub(super) initiator: Word<Initiator>,
    #[serde(deserialize_with = "present")]
    pub(super) operation: Option<Text<OperationId>>,
    pub(super) generation: u64,
    #[serde(deserialize_with = "present")]
    pub(super) detail: Option<String>,
    #[serde(deserialize_with = "present")]
    pub(super) took: Option<Length>,
    #[serde(deserialize_with = "present")]
    pub(super) bytes: Option<u64>,
}
