//! The rows of events.

use dorm_lifecycle::{Caller, EventKind, Initiator, OperationId, ProjectId, SandboxId};
use serde::{Deserialize, Serialize};

use super::caller::CallerRow;
use crate::codec::word::{Length, Millis, Text, Word, present};
use crate::{NewEvent, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct EventRow {
    v: u64,
    project: Text<ProjectId>,
    sandbox: Text<SandboxId>,
    at: Millis,
    kind: Word<EventKind>,
    initiator: Word<Initiator>,
    #[serde(deserialize_with = "present")]
    caller: Option<CallerRow>,
    #[serde(deserialize_with = "present")]
    operation: Option<Text<OperationId>>,
    generation: u64,
    #[serde(deserialize_with = "present")]
    detail: Option<String>,
    #[serde(deserialize_with = "present")]
    took: Option<Length>,
    #[serde(deserialize_with = "present")]
    bytes: Option<u64>,
}

impl From<&NewEvent> for EventRow {
    fn from(event: &NewEvent) -> Self {
        let NewEvent { project, sandbox, at, kind, initiator, caller, operation, generation, detail, took, bytes } =
            event;
        Self {
            v: codec::EVENT,
            project: Text(project.clone()),
            sandbox: Text(sandbox.clone()),
            at: Millis(*at),
            kind: Word(*kind),
            initiator: Word(*initiator),
            caller: caller.as_ref().map(CallerRow::from),
            operation: operation.clone().map(Text),
            generation: *generation,
            detail: detail.clone(),
            took: took.map(Length),
            bytes: *bytes,
        }
    }
}

impl From<EventRow> for NewEvent {
    fn from(row: EventRow) -> Self {
        Self {
            project: row.project.0,
            sandbox: row.sandbox.0,
            at: row.at.0,
            kind: row.kind.0,
            initiator: row.initiator.0,
            caller: row.caller.map(Caller::from),
            operation: row.operation.map(|operation| operation.0),
            generation: row.generation,
            detail: row.detail,
            took: row.took.map(|length| length.0),
            bytes: row.bytes,
        }
    }
}
