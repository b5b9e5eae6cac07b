//! Lists what is on the disk and why each thing is kept, and deletes what a record marks for
//! deletion.

use std::collections::BTreeMap;

use dorm_lifecycle::CaptureId;
use dorm_store::{OperationRecord, SandboxRecord, SnapshotRecord, SnapshotStatus};

use super::images;
use crate::error::ServiceError;
use crate::shared::Service;

/// The kind of a thing on the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ArtefactKind {
    /// An image that sandboxes start from.
    Image,
    /// A saved state: a sleep image, or the content of a snapshot.
    Capture,
    /// An incomplete saved state.
    Draft,
    /// A run on this host that no record of this data directory names.
    Run,
}

impl ArtefactKind {
    /// Returns the word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Capture => "capture",
            Self::Draft => "draft",
            Self::Run => "run",
        }
    }
}

/// What happens to a thing on the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// A record needs it.
    Kept,
    /// A record marks it for deletion.
    Freed,
    /// No record knows it. It is kept even so: the lack of a record does not prove that nothing
    /// needs it.
    Unknown,
}

impl Fate {
    /// Returns the word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Freed => "freed",
            Self::Unknown => "unknown",
        }
    }
}

/// A thing on the disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Artefact {
    /// Its kind.
    pub kind: ArtefactKind,
    /// Its name or id.
    pub id: String,
    /// Its size in bytes; 0 if unknown.
    pub bytes: u64,
    /// What happens to it.
    pub fate: Fate,
    /// Why, one line for each record that needs it.
    pub why: Vec<String>,
}

impl Service {
    /// Returns everything on the disk, in order, with what happens to it and why. Changes nothing.
    /// What is read during operations is as it was at some time during the call.
    ///
    /// # Errors
    ///
    /// Fails if records or the disk cannot be read.
    pub async fn artefacts(&self) -> Result<Vec<Artefact>, ServiceError> {
        let shared = &self.shared;
        // The disk is read first: what is created meanwhile is recorded before it is on the disk.
        let captures = shared.pool.captures().await?;
        let drafts = shared.pool.drafts().await?;
        let images = shared.pool.images().await?;
        // Then the records, in the order in which a saved state passes from one holder to the next,
        // so that none is missed in between.
        let operations = shared.store.open_operations().await?;
        let (living, snapshots) = (shared.living().await?, shared.store.snapshots(None).await?);
        let holders = holders(&operations, &living, &snapshots);
        let freed = shared.store.to_discard().await?;
        let unreadable = shared.look_for_unreadable().await?;
        let mut artefacts = Vec::new();
        let ids = captures.into_iter().map(|id| (ArtefactKind::Capture, id));
        for (kind, id) in ids.chain(drafts.into_iter().map(|id| (ArtefactKind::Draft, id))) {
            let bytes = shared.pool.capture(&id).await.map_or(0, |capture| capture.bytes());
            let (fate, why) = match (holders.get(&id), freed.contains(&id)) {
                (_, true) if unreadable.may_hold_captures() => (Fate::Kept, unreadable.holders()),
                (_, true) => (Fate::Freed, vec!["a record marks it for deletion".to_owned()]),
                (Some(why), false) => (Fate::Kept, why.clone()),
                (None, false) if unreadable.may_hold_captures() => (Fate::Kept, unreadable.holders()),
                (None, false) => (Fate::Unknown, vec!["no record knows it: it is left alone".to_owned()]),
            };
            artefacts.push(Artefact { kind, id: id.to_string(), bytes, fate, why });
        }
        for image in images {
            let holders = images::holders(&image.digest, &living, &snapshots);
            let mut why: Vec<_> = holders.into_iter().map(|holder| format!("{holder} is based on it")).collect();
            let foreign = shared.pool.foreign_references(&image.digest).await?;
            why.extend(foreign.iter().map(|foreign| format!("{foreign} refers to it")));
            why.extend(image.tags.iter().map(|tag| format!("it is tagged '{tag}'")));
            if why.is_empty() {
                why.push("it was imported, and is kept until it is removed by name".to_owned());
            }
            let id = image.digest.to_string();
            artefacts.push(Artefact { kind: ArtefactKind::Image, id, bytes: image.bytes, fate: Fate::Kept, why });
        }
        artefacts.extend(shared.left_alone.artefacts());
        artefacts.sort();
        Ok(artefacts)
    }

    /// Deletes what records mark for deletion; returns what was deleted. Deletion is attempted as
    /// soon as a record is marked, and at every start: this is for what could not be deleted then.
    ///
    /// # Errors
    ///
    /// Fails if records or the disk cannot be read.
    pub async fn collect(&self) -> Result<Vec<Artefact>, ServiceError> {
        let before: Vec<_> =
            self.artefacts().await?.into_iter().filter(|artefact| artefact.fate == Fate::Freed).collect();
        self.shared.make_room_to_free().await;
        let doomed = self.shared.store.to_discard().await?;
        if !self.shared.look_for_unreadable().await?.may_hold_captures() {
            self.shared.discard(doomed).await;
        }
        let left: Vec<_> = self.shared.store.to_discard().await?.iter().map(CaptureId::to_string).collect();
        Ok(before.into_iter().filter(|artefact| !left.contains(&artefact.id)).collect())
    }
}

/// Returns what needs each saved state.
fn holders(
    operations: &[OperationRecord],
    living: &[SandboxRecord],
    snapshots: &[SnapshotRecord],
) -> BTreeMap<CaptureId, Vec<String>> {
    let mut holders: BTreeMap<CaptureId, Vec<String>> = BTreeMap::new();
    let mut hold = |capture: &CaptureId, why: String| holders.entry(capture.clone()).or_default().push(why);
    for operation in operations {
        if let Some(capture) = &operation.capture {
            hold(capture, format!("operation {} ({}) is in progress", operation.id, operation.kind.as_str()));
        }
    }
    for SandboxRecord { sandbox, .. } in living {
        if let Some(image) = sandbox.state.image() {
            let state = sandbox.state.name();
            let why = format!(
                "sandbox {} ({state}) has it as its sleep image of generation {}",
                sandbox.id, image.generation
            );
            hold(&image.capture, why);
        }
        if let Some(rewind) = sandbox.state.rewind() {
            let why =
                format!("sandbox {} is being rewound to snapshot {}, of which it is a copy", sandbox.id, rewind.to);
            if let Some(target) = &rewind.target {
                hold(&target.capture, why);
            }
        }
        for layer in sandbox.layers() {
            hold(layer, format!("sandbox {} is based on its files", sandbox.id));
        }
        for image in &sandbox.older {
            let why = format!("sandbox {} keeps it to fall back to generation {}", sandbox.id, image.generation);
            hold(&image.capture, why);
        }
    }
    for snapshot in snapshots {
        if snapshot.status == SnapshotStatus::Completed {
            hold(&snapshot.capture, format!("it is the content of snapshot {}", snapshot.id));
            if let Some(layer) = &snapshot.layer {
                hold(layer, format!("snapshot {} is based on its files", snapshot.id));
            }
        }
    }
    holders
}
