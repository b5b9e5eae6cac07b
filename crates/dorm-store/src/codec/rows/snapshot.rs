//! The rows of snapshots.

use std::collections::BTreeMap;

use dorm_lifecycle::{Digest, ProjectId, SandboxId, SavedStateId, SnapshotId};
use serde::{Deserialize, Serialize};

use super::operation::FailureRow;
use super::sandbox::ResourcesRow;
use crate::codec::word::{Millis, Text, present};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct SnapshotRow {
    pub(super) v: u64,
    pub(super) id: Text<SnapshotId>,
    pub(super) project: Text<ProjectId>,
    pub(super) source: Text<SandboxId>,
    pub(super) generation: u64,
    #[serde(deserialize_with = "present")]
    pub(super) parent: Option<Text<SnapshotId>>,
    pub(super) kind: KindRow,
    pub(super) saved_state: Text<SavedStateId>,
    pub(super) image: Text<Digest>,
    #[serde(deserialize_with = "present")]
    pub(super) layer: Option<Text<SavedStateId>>,
    pub(super) resources: ResourcesRow,
    pub(super) created: Millis,
    pub(super) bytes: u64,
    pub(super) shares_data: bool,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) removal: RemovalRow,
    pub(super) made_by: MakerRow,
    pub(super) status: StatusRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KindRow {
    Filesystem,
    Memory,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RemovalRow {
    Asked,
    At(Millis),
    WhenFree,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MakerRow {
    Request,
    Policy,
    Import,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StatusRow {
    InProgress,
    Completed,
    Failed(FailureRow),
    Deleting,
}
