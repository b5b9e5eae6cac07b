//! The rows of version 3: sandboxes that are taken back to snapshots, know of which sandbox theirs was, stand on layers
//! of files, have secrets and policies that take snapshots of them; snapshots of files alone, and those that a policy has taken;
//! operations that put one sandbox in the place of another. A contract like versions 1 and 2, whose other rows they are made of.

use std::collections::BTreeMap;

use dorm_lifecycle::{Actor, CaptureId, Digest, Ladder, Name, OperationId, ProjectId, SandboxId, SnapshotId};
use serde::{Deserialize, Serialize};

use super::background::BackgroundRow;
use super::v1::{CauseRow, EgressRow, EndedRow, OnTimeoutRow, ResourcesRow, SleepImageRow, StatusRow};
use super::v2::{ForkRow, HoldRow, KeepingRow, RemovalRow, TimeoutsRow};
use super::volume::AttachmentRow;
use super::word::{Length, Millis, Text, Word, present};
use crate::{Code, OperationKind};

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
    /// Not there where the run answers, as before anybody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unreachable: Option<UnreachableRow>,
    /// Not there where no suspend has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) suspend_failures: Option<SuspendFailuresRow>,
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
    Filesystem {
        snapshot: Text<SnapshotId>,
        #[serde(deserialize_with = "present")]
        source: Option<Text<SandboxId>>,
    },
    Snapshot {
        snapshot: Text<SnapshotId>,
        capture: Text<CaptureId>,
        #[serde(deserialize_with = "present")]
        source: Option<Text<SandboxId>>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecRow {
    #[serde(deserialize_with = "present")]
    pub(super) name: Option<Text<Name>>,
    pub(super) image: Text<Digest>,
    #[serde(deserialize_with = "present")]
    pub(super) layer: Option<Text<CaptureId>>,
    pub(super) resources: ResourcesRow,
    pub(super) egress: EgressRow,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) secrets: BTreeMap<String, String>,
    pub(super) on_timeout: OnTimeoutRow,
    /// Not there for `keep`.
    #[serde(default, skip_serializing_if = "OnSuspendFailureRow::is_keep")]
    pub(super) on_suspend_failure: OnSuspendFailureRow,
    pub(super) suspendable: bool,
    pub(super) auto_resume: bool,
    /// Not there for `public`.
    #[serde(default, skip_serializing_if = "PortAccessRow::is_public")]
    pub(super) port_access: PortAccessRow,
    pub(super) timeouts: TimeoutsRow,
    pub(super) keeping: KeepingRow,
    #[serde(deserialize_with = "present")]
    pub(super) checkpoints: Option<CheckpointsRow>,
    /// Not there where there are none, as before there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attachments: Vec<AttachmentRow>,
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnSuspendFailureRow {
    #[default]
    Keep,
    Terminate,
}

impl OnSuspendFailureRow {
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PortAccessRow {
    #[default]
    Public,
    Private,
}

impl PortAccessRow {
    fn is_public(&self) -> bool {
        *self == Self::Public
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointsRow {
    pub(super) every: Length,
    pub(super) kind: KindRow,
    pub(super) keep: Text<Ladder>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RestoredRow {
    Nothing,
    Filesystem,
    Memory {
        #[serde(deserialize_with = "present")]
        generation: Option<u64>,
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
    #[serde(deserialize_with = "present")]
    pub(super) target: Option<SleepImageRow>,
    #[serde(deserialize_with = "present")]
    pub(super) layer: Option<Text<CaptureId>>,
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
#[serde(rename_all = "snake_case")]
pub(super) enum FirstProgramRow {
    OfImage,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StateRow {
    Pending {
        operation: Text<OperationId>,
        deadline: Millis,
        /// Not there where nothing is started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<FirstProgramRow>,
    },
    Running {
        since: Millis,
        #[serde(deserialize_with = "present")]
        image: Option<SleepImageRow>,
        /// Not there where there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        background: Option<Box<BackgroundRow>>,
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
        /// Not there where there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        background: Option<Box<BackgroundRow>>,
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
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unleased: bool,
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
    /// The kind of its failure. Not there where it has not failed, or failed before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Word<Code>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromoteRow {
    pub(super) child: Text<SandboxId>,
    pub(super) snapshot: Text<SnapshotId>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotRow {
    pub(super) v: u64,
    pub(super) id: Text<SnapshotId>,
    pub(super) project: Text<ProjectId>,
    pub(super) source: Text<SandboxId>,
    pub(super) generation: u64,
    #[serde(deserialize_with = "present")]
    pub(super) parent: Option<Text<SnapshotId>>,
    pub(super) kind: KindRow,
    pub(super) capture: Text<CaptureId>,
    pub(super) image: Text<Digest>,
    #[serde(deserialize_with = "present")]
    pub(super) layer: Option<Text<CaptureId>>,
    pub(super) resources: ResourcesRow,
    pub(super) created: Millis,
    pub(super) bytes: u64,
    /// Left out where it does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) shares_data: bool,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) removal: RemovalRow,
    pub(super) made_by: MakerRow,
    pub(super) status: StatusRow,
    /// As that of an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Word<Code>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KindRow {
    Filesystem,
    Memory,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MakerRow {
    Request,
    Policy,
    Import,
}
