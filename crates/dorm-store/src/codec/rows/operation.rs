//! The rows of operations.

use dorm_lifecycle::{Initiator, OperationId, ProjectId, SandboxId, SavedStateId, SnapshotId};
use serde::{Deserialize, Serialize};

use super::caller::CallerRow;
use crate::codec::word::{Millis, Text, Word, present};
use crate::{Code, OperationKind};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct OperationRow {
    pub(super) v: u64,
    pub(super) id: Text<OperationId>,
    pub(super) kind: Word<OperationKind>,
    pub(super) project: Text<ProjectId>,
    #[serde(deserialize_with = "present")]
    pub(super) sandbox: Option<Text<SandboxId>>,
    pub(super) initiator: Word<Initiator>,
    #[serde(deserialize_with = "present")]
    pub(super) caller: Option<CallerRow>,
    pub(super) began: Millis,
    pub(super) deadline: Millis,
    #[serde(deserialize_with = "present")]
    pub(super) saved_state: Option<Text<SavedStateId>>,
    #[serde(deserialize_with = "present")]
    pub(super) fork: Option<ForkRow>,
    #[serde(deserialize_with = "present")]
    pub(super) promote: Option<PromoteRow>,
    #[serde(deserialize_with = "present")]
    pub(super) ended: Option<EndedRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndedRow {
    pub(super) at: Millis,
    pub(super) result: ResultRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResultRow {
    Done,
    Failed(FailureRow),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailureRow {
    pub(super) code: Word<Code>,
    pub(super) reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkRow {
    pub(super) snapshot: Text<SnapshotId>,
    pub(super) children: Vec<Text<SandboxId>>,
    pub(super) on_partial_failure: OnPartialFailureRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnPartialFailureRow {
    RollBack,
    Keep,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromoteRow {
    pub(super) child: Text<SandboxId>,
    pub(super) snapshot: Text<SnapshotId>,
}
