//! The rows of version 2: sandboxes that keep several images, can be held awake and tell what they came back with;
//! events that tell how long it took and how much it was; forks; snapshots with labels that may go by themselves. A contract like version 1, whose other rows they are made of.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    Actor, CaptureId, Digest, EventKind, HoldId, Name, OperationId, ProjectId, SandboxId, SnapshotId, WebhookId,
};
use serde::{Deserialize, Serialize};

use super::v1::{EgressRow, EndedRow, OnTimeoutRow, OriginRow, ResourcesRow, SleepImageRow, StateRow, StatusRow};
use super::word::{Length, Millis, Text, Word, present};
use crate::OperationKind;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxRow {
    #[serde(rename = "v")]
    pub(super) _v: u64,
    pub(super) id: Text<SandboxId>,
    pub(super) project: Text<ProjectId>,
    pub(super) spec: SpecRow,
    pub(super) origin: OriginRow,
    pub(super) created: Millis,
    pub(super) generation: u64,
    pub(super) run: u64,
    pub(super) last_active: Millis,
    pub(super) timeouts_set: Millis,
    pub(super) holds: Vec<HoldRow>,
    pub(super) restored: RestoredRow,
    pub(super) older: Vec<SleepImageRow>,
    pub(super) state: StateRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecRow {
    #[serde(deserialize_with = "present")]
    pub(super) name: Option<Text<Name>>,
    pub(super) image: Text<Digest>,
    pub(super) resources: ResourcesRow,
    pub(super) egress: EgressRow,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) on_timeout: OnTimeoutRow,
    pub(super) suspendable: bool,
    pub(super) auto_resume: bool,
    pub(super) timeouts: TimeoutsRow,
    pub(super) keeping: KeepingRow,
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeoutsRow {
    #[serde(deserialize_with = "present")]
    pub(super) total: Option<Length>,
    #[serde(deserialize_with = "present")]
    pub(super) idle: Option<Length>,
    #[serde(deserialize_with = "present")]
    pub(super) max_run: Option<Length>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeepingRow {
    pub(super) generations: u32,
    pub(super) on_unrestorable: OnUnrestorableRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnUnrestorableRow {
    Fail,
    Fresh,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldRow {
    pub(super) id: Text<HoldId>,
    pub(super) reason: String,
    pub(super) until: Millis,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RestoredRow {
    Nothing,
    Memory {
        #[serde(deserialize_with = "present")]
        generation: Option<u64>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventRow {
    pub(super) v: u64,
    pub(super) project: Text<ProjectId>,
    pub(super) sandbox: Text<SandboxId>,
    pub(super) at: Millis,
    pub(super) kind: Word<EventKind>,
    pub(super) actor: Word<Actor>,
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookRow {
    pub(super) v: u64,
    pub(super) id: Text<WebhookId>,
    pub(super) project: Text<ProjectId>,
    pub(super) url: String,
    pub(super) secret: [u8; 32],
    pub(super) kinds: Vec<Word<EventKind>>,
    pub(super) created: Millis,
    pub(super) delivered: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationRow {
    #[serde(rename = "v")]
    pub(super) _v: u64,
    pub(super) id: Text<OperationId>,
    pub(super) kind: Word<OperationKind>,
    #[serde(deserialize_with = "present")]
    pub(super) sandbox: Option<Text<SandboxId>>,
    pub(super) actor: Word<Actor>,
    pub(super) began: Millis,
    pub(super) deadline: Millis,
    #[serde(deserialize_with = "present")]
    pub(super) capture: Option<Text<CaptureId>>,
    #[serde(deserialize_with = "present")]
    pub(super) fork: Option<ForkRow>,
    #[serde(deserialize_with = "present")]
    pub(super) ended: Option<EndedRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkRow {
    pub(super) snapshot: Text<SnapshotId>,
    pub(super) children: Vec<Text<SandboxId>>,
    pub(super) together: TogetherRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TogetherRow {
    AllOrNone,
    Each,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotRow {
    #[serde(rename = "v")]
    pub(super) _v: u64,
    pub(super) id: Text<SnapshotId>,
    pub(super) project: Text<ProjectId>,
    pub(super) source: Text<SandboxId>,
    pub(super) generation: u64,
    #[serde(deserialize_with = "present")]
    pub(super) parent: Option<Text<SnapshotId>>,
    pub(super) capture: Text<CaptureId>,
    pub(super) image: Text<Digest>,
    pub(super) resources: ResourcesRow,
    pub(super) created: Millis,
    pub(super) bytes: u64,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) removal: RemovalRow,
    pub(super) status: StatusRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RemovalRow {
    Asked,
    At(Millis),
    WhenFree,
}
