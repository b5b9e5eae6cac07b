//! The rows of a sandbox's state.

use dorm_lifecycle::{FirstProgram, OperationId, SavedStateId, SleepImage, SnapshotId};
use serde::{Deserialize, Serialize};

use super::background::BackgroundRow;
use super::sandbox::ResourcesRow;
use crate::codec::word::{Length, Millis, Text, present};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StateRow {
    Pending {
        operation: Text<OperationId>,
        deadline: Millis,
        program: FirstProgramRow,
    },
    Running {
        since: Millis,
        #[serde(deserialize_with = "present")]
        image: Option<SleepImageRow>,
        #[serde(deserialize_with = "present")]
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
        #[serde(deserialize_with = "present")]
        files: Option<Text<SnapshotId>>,
    },
    Suspended {
        image: SleepImageRow,
        #[serde(deserialize_with = "present")]
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
        unleased: bool,
    },
    Terminated {
        cause: CauseRow,
        at: Millis,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FirstProgramRow {
    None,
    OfImage,
}

impl From<FirstProgram> for FirstProgramRow {
    fn from(program: FirstProgram) -> Self {
        match program {
            FirstProgram::None => Self::None,
            FirstProgram::OfImage => Self::OfImage,
        }
    }
}

impl From<FirstProgramRow> for FirstProgram {
    fn from(row: FirstProgramRow) -> Self {
        match row {
            FirstProgramRow::None => Self::None,
            FirstProgramRow::OfImage => Self::OfImage,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SleepImageRow {
    pub(super) saved_state: Text<SavedStateId>,
    pub(super) generation: u64,
    pub(super) taken: Millis,
    pub(super) bytes: u64,
    #[serde(deserialize_with = "present")]
    pub(super) files: Option<Text<SnapshotId>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum CauseRow {
    Requested,
    Timeout,
    Failed { reason: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RewindRow {
    pub(super) to: Text<SnapshotId>,
    #[serde(deserialize_with = "present")]
    pub(super) target: Option<SleepImageRow>,
    #[serde(deserialize_with = "present")]
    pub(super) layer: Option<Text<SavedStateId>>,
    pub(super) resources: ResourcesRow,
    #[serde(deserialize_with = "present")]
    pub(super) future: Option<FutureRow>,
    pub(super) may_hold: bool,
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

impl From<&SleepImage> for SleepImageRow {
    fn from(image: &SleepImage) -> Self {
        let SleepImage { saved_state, generation, taken, bytes, files } = image;
        Self {
            saved_state: Text(saved_state.clone()),
            generation: *generation,
            taken: Millis(*taken),
            bytes: *bytes,
            files: files.clone().map(Text),
        }
    }
}

impl From<SleepImageRow> for SleepImage {
    fn from(row: SleepImageRow) -> Self {
        Self {
            saved_state: row.saved_state.0,
            generation: row.generation,
            taken: row.taken.0,
            bytes: row.bytes,
            files: row.files.map(|files| files.0),
        }
    }
}
