//! The rows of version 1. They are a contract: a change here that a golden notices needs a version of its own.
//!
//! They have no rules and no behaviour. What is
//! written now is of version 2, and `upgrade` makes rows of that from these.

use std::collections::BTreeMap;

use dorm_lifecycle::{Actor, CaptureId, Digest, EventKind, Name, OperationId, ProjectId, SandboxId, SnapshotId};
use serde::{Deserialize, Serialize};

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
    pub(super) labels: BTreeMap<String, String>,
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
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnTimeoutRow {
    Terminate,
    Suspend,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeoutsRow {
    #[serde(deserialize_with = "present")]
    pub(super) total: Option<Length>,
    #[serde(deserialize_with = "present")]
    pub(super) idle: Option<Length>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum OriginRow {
    Image,
    Snapshot { snapshot: Text<SnapshotId>, capture: Text<CaptureId> },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SleepImageRow {
    pub(super) capture: Text<CaptureId>,
    pub(super) generation: u64,
    pub(super) taken: Millis,
    pub(super) bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum CauseRow {
    Requested,
    Timeout,
    Failed { reason: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StateRow {
    Pending {
        operation: Text<OperationId>,
        deadline: Millis,
    },
    Running {
        since: Millis,
        #[serde(deserialize_with = "present")]
        image: Option<SleepImageRow>,
    },
    Snapshotting {
        operation: Text<OperationId>,
        deadline: Millis,
        snapshot: Text<SnapshotId>,
        since: Millis,
        #[serde(deserialize_with = "present")]
        image: Option<SleepImageRow>,
    },
    Suspending {
        operation: Text<OperationId>,
        deadline: Millis,
        since: Millis,
        #[serde(deserialize_with = "present")]
        image: Option<SleepImageRow>,
    },
    Suspended {
        image: SleepImageRow,
    },
    Resuming {
        operation: Text<OperationId>,
        deadline: Millis,
        image: SleepImageRow,
    },
    Terminating {
        operation: Text<OperationId>,
        deadline: Millis,
        cause: CauseRow,
    },
    Terminated {
        cause: CauseRow,
        at: Millis,
    },
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
    Failed(String),
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
    pub(super) status: StatusRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StatusRow {
    InProgress,
    Completed,
    Failed(String),
    Deleting,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventRow {
    #[serde(rename = "v")]
    pub(super) _v: u64,
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
}
