//! The rows of requests with an idempotency key, to the domain's types and back.

use dorm_lifecycle::{ProjectId, RequestId};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Millis, Text};
use crate::{RequestRecord, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct RequestRow {
    v: u64,
    id: Text<RequestId>,
    project: Text<ProjectId>,
    fingerprint: [u8; 32],
    reserved: [u8; 20],
    began: Millis,
}

impl From<&RequestRecord> for RequestRow {
    fn from(record: &RequestRecord) -> Self {
        let RequestRecord { id, project, fingerprint, reserved, began } = record;
        Self {
            v: codec::REQUEST,
            id: Text(id.clone()),
            project: Text(project.clone()),
            fingerprint: *fingerprint,
            reserved: *reserved,
            began: Millis(*began),
        }
    }
}

impl From<RequestRow> for RequestRecord {
    fn from(row: RequestRow) -> Self {
        let RequestRow { v: _, id, project, fingerprint, reserved, began } = row;
        Self { id: id.0, project: project.0, fingerprint, reserved, began: began.0 }
    }
}
