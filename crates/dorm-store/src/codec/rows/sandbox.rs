//! The rows of sandboxes, all but their state.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    Digest, HoldId, Name, PoolId, PortHost, ProjectId, RetentionPolicy, SandboxId, SavedStateId, SnapshotId, Wake,
};
use serde::{Deserialize, Serialize};

use super::caller::CallerRow;
use super::ports::{PortAccessRow, PortRuleRow};
use super::snapshot::KindRow;
use super::state::{FirstProgramRow, SleepImageRow, StateRow};
use super::volume::AttachmentRow;
use crate::codec::word::{Length, Millis, Text, Word, present};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct SandboxRow {
    pub(super) v: u64,
    pub(super) id: Text<SandboxId>,
    pub(super) project: Text<ProjectId>,
    pub(super) spec: SpecRow,
    pub(super) origin: OriginRow,
    pub(super) created: Millis,
    pub(super) generation: u64,
    pub(super) run: u64,
    pub(super) last_active: Millis,
    pub(super) timeouts_set: Millis,
    #[serde(deserialize_with = "present")]
    pub(super) started: Option<Millis>,
    pub(super) woken: bool,
    pub(super) holds: Vec<HoldRow>,
    pub(super) restored: RestoredRow,
    #[serde(deserialize_with = "present")]
    pub(super) rewound: Option<RewoundRow>,
    pub(super) older: Vec<SleepImageRow>,
    #[serde(deserialize_with = "present")]
    pub(super) unreachable: Option<UnreachableRow>,
    #[serde(deserialize_with = "present")]
    pub(super) suspend_failures: Option<SuspendFailuresRow>,
    #[serde(deserialize_with = "present")]
    pub(super) pool: Option<PoolMemberRow>,
    #[serde(deserialize_with = "present")]
    pub(super) created_by: Option<CallerRow>,
    pub(super) state: StateRow,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnreachableRow {
    pub(super) since: Millis,
    pub(super) reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspendFailuresRow {
    pub(super) count: u32,
    pub(super) since: Millis,
    pub(super) reason: String,
    pub(super) next: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum OriginRow {
    Image,
    Filesystem { snapshot: Text<SnapshotId>, source: Text<SandboxId> },
    Snapshot { snapshot: Text<SnapshotId>, saved_state: Text<SavedStateId>, source: Text<SandboxId> },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecRow {
    #[serde(deserialize_with = "present")]
    pub(super) name: Option<Text<Name>>,
    pub(super) image: Text<Digest>,
    #[serde(deserialize_with = "present")]
    pub(super) layer: Option<Text<SavedStateId>>,
    pub(super) resources: ResourcesRow,
    pub(super) egress: EgressRow,
    pub(super) program: FirstProgramRow,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) secrets: BTreeMap<String, String>,
    pub(super) on_timeout: OnTimeoutRow,
    pub(super) on_suspend_failure: OnSuspendFailureRow,
    pub(super) suspendable: bool,
    pub(super) wake: Word<Wake>,
    pub(super) port_access: PortAccessRow,
    #[serde(deserialize_with = "present")]
    pub(super) port_host: Option<Text<PortHost>>,
    pub(super) port_rules: BTreeMap<u16, PortRuleRow>,
    pub(super) timeouts: TimeoutsRow,
    pub(super) retention: SleepRetentionRow,
    #[serde(deserialize_with = "present")]
    pub(super) checkpoints: Option<CheckpointsRow>,
    pub(super) attachments: Vec<AttachmentRow>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResourcesRow {
    pub(super) cpu_millis: u32,
    pub(super) memory_bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) processes: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EgressRow {
    Public,
    None,
    Allow(Vec<String>),
    Rules(EgressRulesRow),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EgressRulesRow {
    pub(super) rules: Vec<EgressRuleRow>,
    pub(super) default: EgressDefaultRow,
    // Pools and sandboxes of v0.1.0 have no rules at all.
    pub(super) headers: Vec<HeaderRuleRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderRuleRow {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) project: Text<ProjectId>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EgressRuleRow {
    Allow(String),
    Deny(String),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EgressDefaultRow {
    Deny,
    Public,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnTimeoutRow {
    Terminate,
    Suspend,
    SuspendFiles,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnSuspendFailureRow {
    Keep,
    Terminate,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeoutsRow {
    #[serde(deserialize_with = "present")]
    pub(super) total: Option<Length>,
    #[serde(deserialize_with = "present")]
    pub(super) idle: Option<Length>,
    #[serde(deserialize_with = "present")]
    pub(super) after_wake: Option<Length>,
    #[serde(deserialize_with = "present")]
    pub(super) max_run: Option<Length>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SleepRetentionRow {
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
pub(super) struct CheckpointsRow {
    pub(super) every: Length,
    pub(super) kind: KindRow,
    pub(super) keep: Text<RetentionPolicy>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldRow {
    pub(super) id: Text<HoldId>,
    pub(super) reason: String,
    pub(super) until: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RestoredRow {
    Nothing,
    Filesystem,
    Files {
        generation: u64,
    },
    Memory {
        #[serde(deserialize_with = "present")]
        generation: Option<u64>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolMemberRow {
    pub(super) pool: Text<PoolId>,
    pub(super) is_claimed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RewoundRow {
    pub(super) to: Text<SnapshotId>,
    pub(super) generation: u64,
}
