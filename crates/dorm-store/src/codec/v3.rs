//! The rows of version 3: sandboxes that are taken back to snapshots and know of which sandbox theirs was, and operations
//! that put one sandbox in the place of another. A contract like versions 1 and 2, whose other rows they are made of.

use dorm_lifecycle::{Actor, CaptureId, OperationId, ProjectId, SandboxId, SnapshotId};
use serde::{Deserialize, Serialize};

use super::v1::{CauseRow, EndedRow, ResourcesRow, SleepImageRow};
use super::v2::{ForkRow, HoldRow, RestoredRow, SpecRow};
use super::word::{Length, Millis, Text, Word, present};
use crate::OperationKind;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxRow {
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
    pub(super) holds: Vec<HoldRow>,
    pub(super) restored: RestoredRow,
    #[serde(deserialize_with = "present")]
    pub(super) rewound: Option<RewoundRow>,
    pub(super) older: Vec<SleepImageRow>,
    pub(super) state: StateRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum OriginRow {
    Image,
    Snapshot {
        snapshot: Text<SnapshotId>,
        capture: Text<CaptureId>,
        #[serde(deserialize_with = "present")]
        source: Option<Text<SandboxId>>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RewoundRow {
    pub(super) to: Text<SnapshotId>,
    pub(super) generation: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RewindRow {
    pub(super) to: Text<SnapshotId>,
    pub(super) target: SleepImageRow,
    pub(super) resources: ResourcesRow,
    #[serde(deserialize_with = "present")]
    pub(super) future: Option<FutureRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FutureRow {
    pub(super) snapshot: Text<SnapshotId>,
    #[serde(deserialize_with = "present")]
    pub(super) keep: Option<Length>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RewindingRow {
    pub(super) rewind: RewindRow,
    pub(super) from: RewindFromRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RewindFromRow {
    Running,
    Suspended,
}

#[derive(Serialize, Deserialize)]
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
        #[serde(deserialize_with = "present")]
        rewind: Option<Box<RewindRow>>,
    },
    Suspended {
        image: SleepImageRow,
    },
    Resuming {
        operation: Text<OperationId>,
        deadline: Millis,
        image: SleepImageRow,
        #[serde(deserialize_with = "present")]
        rewind: Option<Box<RewindingRow>>,
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationRow {
    pub(super) v: u64,
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
    pub(super) promote: Option<PromoteRow>,
    #[serde(deserialize_with = "present")]
    pub(super) ended: Option<EndedRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromoteRow {
    pub(super) child: Text<SandboxId>,
    pub(super) snapshot: Text<SnapshotId>,
}
