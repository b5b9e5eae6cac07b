//! The rows of background operations, to the domain's types and back.

use dorm_lifecycle::{
    Attachment, Background, BackgroundWork, Future, Held, OperationId, SavedStateId, SleepImage, SnapshotId,
};
use serde::{Deserialize, Serialize};

use super::sandbox::{EgressRow, ResourcesRow};
use super::state::{FutureRow, RewindRow, SleepImageRow};
use super::volume::AttachmentRow;
use crate::codec::word::{Millis, Text, present};

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
    SaveHeld(HeldRow),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldRow {
    run: u64,
    generation: u64,
    since: Millis,
    rewound_to: Text<SnapshotId>,
    #[serde(deserialize_with = "present")]
    future: Option<FutureRow>,
    #[serde(deserialize_with = "present")]
    image: Option<SleepImageRow>,
    #[serde(deserialize_with = "present")]
    layer: Option<Text<SavedStateId>>,
    resources: ResourcesRow,
    failures: u32,
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
                BackgroundWork::SaveHeld(held) => WorkRow::SaveHeld(held.into()),
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
                WorkRow::SaveHeld(held) => BackgroundWork::SaveHeld(held.into()),
            },
        }
    }
}

impl From<&Held> for HeldRow {
    fn from(held: &Held) -> Self {
        let Held { run, generation, since, rewound_to, future, image, layer, resources, failures } = held;
        Self {
            run: *run,
            generation: *generation,
            since: Millis(*since),
            rewound_to: Text(rewound_to.clone()),
            future: future.as_ref().map(FutureRow::from),
            image: image.as_ref().map(SleepImageRow::from),
            layer: layer.clone().map(Text),
            resources: resources.into(),
            failures: *failures,
        }
    }
}

impl From<HeldRow> for Held {
    fn from(row: HeldRow) -> Self {
        Self {
            run: row.run,
            generation: row.generation,
            since: row.since.0,
            rewound_to: row.rewound_to.0,
            future: row.future.map(Future::from),
            image: row.image.map(SleepImage::from),
            layer: row.layer.map(|layer| layer.0),
            resources: row.resources.into(),
            failures: row.failures,
        }
    }
}
