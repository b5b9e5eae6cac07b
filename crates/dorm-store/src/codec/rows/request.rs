//! The rows of requests with an idempotency key, to the domain's types and back.

use dorm_lifecycle::{
    ApiKeyId, BuildId, EnvironmentId, HoldId, OperationId, PoolId, ProjectId, RequestId, SandboxId, SnapshotId,
    VolumeId, WebhookId,
};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Millis, Text};
use crate::{Made, RequestRecord, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct RequestRow {
    v: u64,
    id: Text<RequestId>,
    project: Text<ProjectId>,
    fingerprint: [u8; 32],
    made: MadeRow,
    at: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum MadeRow {
    Sandbox(Text<SandboxId>),
    Snapshot(Text<SnapshotId>),
    Operation(Text<OperationId>),
    Hold(Text<HoldId>),
    Volume(Text<VolumeId>),
    Pool(Text<PoolId>),
    Build(Text<BuildId>),
    Environment(Text<EnvironmentId>),
    Webhook(Text<WebhookId>),
    ApiKey(Text<ApiKeyId>),
}

impl From<&RequestRecord> for RequestRow {
    fn from(record: &RequestRecord) -> Self {
        let RequestRecord { id, project, fingerprint, made, at } = record;
        Self {
            v: codec::REQUEST,
            id: Text(id.clone()),
            project: Text(project.clone()),
            fingerprint: *fingerprint,
            made: made.into(),
            at: Millis(*at),
        }
    }
}

impl From<RequestRow> for RequestRecord {
    fn from(row: RequestRow) -> Self {
        let RequestRow { v: _, id, project, fingerprint, made, at } = row;
        Self { id: id.0, project: project.0, fingerprint, made: made.into(), at: at.0 }
    }
}

impl From<&Made> for MadeRow {
    fn from(made: &Made) -> Self {
        match made {
            Made::Sandbox(id) => Self::Sandbox(Text(id.clone())),
            Made::Snapshot(id) => Self::Snapshot(Text(id.clone())),
            Made::Operation(id) => Self::Operation(Text(id.clone())),
            Made::Hold(id) => Self::Hold(Text(id.clone())),
            Made::Volume(id) => Self::Volume(Text(id.clone())),
            Made::Pool(id) => Self::Pool(Text(id.clone())),
            Made::Build(id) => Self::Build(Text(id.clone())),
            Made::Environment(id) => Self::Environment(Text(id.clone())),
            Made::Webhook(id) => Self::Webhook(Text(id.clone())),
            Made::ApiKey(id) => Self::ApiKey(Text(id.clone())),
        }
    }
}

impl From<MadeRow> for Made {
    fn from(row: MadeRow) -> Self {
        match row {
            MadeRow::Sandbox(id) => Self::Sandbox(id.0),
            MadeRow::Snapshot(id) => Self::Snapshot(id.0),
            MadeRow::Operation(id) => Self::Operation(id.0),
            MadeRow::Hold(id) => Self::Hold(id.0),
            MadeRow::Volume(id) => Self::Volume(id.0),
            MadeRow::Pool(id) => Self::Pool(id.0),
            MadeRow::Build(id) => Self::Build(id.0),
            MadeRow::Environment(id) => Self::Environment(id.0),
            MadeRow::Webhook(id) => Self::Webhook(id.0),
            MadeRow::ApiKey(id) => Self::ApiKey(id.0),
        }
    }
}
