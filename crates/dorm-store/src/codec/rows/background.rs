//! The rows of background operations, to the domain's types and back.

use dorm_lifecycle::{Attachment, Background, BackgroundWork, OperationId, SnapshotId};
use serde::{Deserialize, Serialize};

use super::sandbox::{EgressRow, ResourcesRow};
use super::state::RewindRow;
use super::volume::AttachmentRow;
use crate::codec::word::{Millis, Text};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackgroundRow {
    operation: Text<OperationId>,
    deadline: Millis,
    work: WorkRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum WorkRow {
    Attach { after: Vec<AttachmentRow> },
    Egress { after: EgressRow },
    Resize { after: ResourcesRow },
    PrepareRewind(RewindRow),
    Snapshot(Text<SnapshotId>),
}

impl From<&Background> for BackgroundRow {
    fn from(background: &Background) -> Self {
        let Background { operation, deadline, work } = background;
        Self {
            operation: Text(operation.clone()),
            deadline: Millis(*deadline),
            work: match work {
                BackgroundWork::Attach { after } => {
                    WorkRow::Attach { after: after.iter().map(AttachmentRow::from).collect() }
                }
                BackgroundWork::Egress { after } => WorkRow::Egress { after: after.into() },
                BackgroundWork::Resize { after } => WorkRow::Resize { after: after.into() },
                BackgroundWork::PrepareRewind(rewind) => WorkRow::PrepareRewind(rewind.into()),
                BackgroundWork::Snapshot(snapshot) => WorkRow::Snapshot(Text(snapshot.clone())),
            },
        }
    }
}

impl From<BackgroundRow> for Background {
    fn from(row: BackgroundRow) -> Self {
        let BackgroundRow { operation, deadline, work } = row;
        Self {
            operation: operation.0,
            deadline: deadline.0,
            work: match work {
                WorkRow::Attach { after } => {
                    BackgroundWork::Attach { after: after.into_iter().map(Attachment::from).collect() }
                }
                WorkRow::Egress { after } => BackgroundWork::Egress { after: after.into() },
                WorkRow::Resize { after } => BackgroundWork::Resize { after: after.into() },
                WorkRow::PrepareRewind(rewind) => BackgroundWork::PrepareRewind(rewind.into()),
                WorkRow::Snapshot(snapshot) => BackgroundWork::Snapshot(snapshot.0),
            },
        }
    }
}
