//! Lists what is on the disk and why each thing is kept, and deletes what a record marks for
//! deletion.

use std::collections::BTreeMap;

use dorm_lifecycle::SavedStateId;
use dorm_store::{OperationRecord, SandboxRecord, SnapshotRecord, SnapshotStatus};

use super::{images, runs};
use crate::error::ServiceError;
use crate::shared::Service;

/// The kind of a thing on the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CollectorItemKind {
    /// An image that sandboxes start from.
    Image,
    /// A saved state: a sleep image, or the content of a snapshot.
    SavedState,
    /// An incomplete saved state.
    Draft,
    /// A run on this host that no record of this data directory names.
    Run,
    /// The context of a build.
    BuildContext,
}

impl CollectorItemKind {
    /// Returns the word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::SavedState => "saved_state",
            Self::Draft => "draft",
            Self::Run => "run",
            Self::BuildContext => "build_context",
        }
    }
}

/// The decision about a thing on the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// A record needs it.
    Kept,
    /// A record marks it for deletion.
    Freed,
    /// No record knows it. It is kept even so: the lack of a record does not prove that nothing
    /// needs it.
    Unknown,
}

impl Verdict {
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
pub struct CollectorItem {
    /// Its kind.
    pub kind: CollectorItemKind,
    /// Its name or id.
    pub id: String,
    /// Its size in bytes; 0 if unknown.
    pub bytes: u64,
    /// The decision about it.
    pub verdict: Verdict,
    /// The reasons for the decision, one line for each record that needs it.
    pub why: Vec<String>,
}

impl Service {
    /// Returns everything on the disk, in order, with the decision about each thing and the
    /// reasons. Changes nothing. Things that operations change meanwhile are as they were at some
    /// time during the call.
    ///
    /// # Errors
    ///
    /// Fails if records or the disk cannot be read.
    pub async fn items(&self) -> Result<Vec<CollectorItem>, ServiceError> {
        let shared = &self.shared;
        // The disk is read first: what is created meanwhile is recorded before it is on the disk.
        let saved_states = shared.storage.saved_states().await?;
        let drafts = shared.storage.drafts().await?;
        let images = shared.storage.images().await?;
        // Then the records, in the order in which a saved state passes from one holder to the next,
        // so that none is missed in between.
        let operations = shared.store.open_operations().await?;
        let (living, snapshots) = (shared.living().await?, shared.store.snapshots(None).await?);
        let holders = holders(&operations, &living, &snapshots);
        let freed = shared.store.to_discard().await?;
        let unreadable = shared.look_for_unreadable().await?;
        let mut items = Vec::new();
        let ids = saved_states.into_iter().map(|id| (CollectorItemKind::SavedState, id));
        for (kind, id) in ids.chain(drafts.into_iter().map(|id| (CollectorItemKind::Draft, id))) {
            let bytes = shared.storage.saved_state(&id).await.map_or(0, |saved_state| saved_state.bytes());
            let (verdict, why) = match (holders.get(&id), freed.contains(&id)) {
                (_, true) if unreadable.may_hold_saved_states() => (Verdict::Kept, unreadable.holders()),
                (_, true) => (Verdict::Freed, vec!["a record marks it for deletion".to_owned()]),
                (Some(why), false) => (Verdict::Kept, why.clone()),
                (None, false) if unreadable.may_hold_saved_states() => (Verdict::Kept, unreadable.holders()),
                (None, false) => (Verdict::Unknown, vec!["no record knows it: it is left alone".to_owned()]),
            };
            items.push(CollectorItem { kind, id: id.to_string(), bytes, verdict, why });
        }
        for image in images {
            let holders = images::holders(&image.digest, &living, &snapshots);
            let mut why: Vec<_> = holders.into_iter().map(|holder| format!("{holder} is based on it")).collect();
            let foreign = shared.storage.foreign_references(&image.digest).await?;
            why.extend(foreign.iter().map(|foreign| format!("{foreign} refers to it")));
            why.extend(image.tags.iter().map(|tag| format!("it is tagged '{tag}'")));
            if why.is_empty() {
                why.push("it was imported, and is kept until it is removed by name".to_owned());
            }
            let id = image.digest.to_string();
            items.push(CollectorItem {
                kind: CollectorItemKind::Image,
                id,
                bytes: image.bytes,
                verdict: Verdict::Kept,
                why,
            });
        }
        items.extend(runs::items(&shared.left_alone));
        items.extend(self.context_items().await?);
        items.sort();
        Ok(items)
    }

    /// Deletes everything that records mark for deletion; returns what was deleted. Deletion is
    /// attempted as soon as a record is marked, and at every start: this call is for things that
    /// could not be deleted then.
    ///
    /// # Errors
    ///
    /// Fails if records or the disk cannot be read.
    pub async fn collect(&self) -> Result<Vec<CollectorItem>, ServiceError> {
        let before: Vec<_> = self.items().await?.into_iter().filter(|item| item.verdict == Verdict::Freed).collect();
        self.shared.make_room_to_free().await;
        let doomed = self.shared.store.to_discard().await?;
        if !self.shared.look_for_unreadable().await?.may_hold_saved_states() {
            self.shared.discard(doomed).await;
        }
        let left: Vec<_> = self.shared.store.to_discard().await?.iter().map(SavedStateId::to_string).collect();
        Ok(before.into_iter().filter(|item| !left.contains(&item.id)).collect())
    }
}

/// Returns what needs each saved state.
fn holders(
    operations: &[OperationRecord],
    living: &[SandboxRecord],
    snapshots: &[SnapshotRecord],
) -> BTreeMap<SavedStateId, Vec<String>> {
    let mut holders: BTreeMap<SavedStateId, Vec<String>> = BTreeMap::new();
    let mut hold = |saved_state: &SavedStateId, why: String| holders.entry(saved_state.clone()).or_default().push(why);
    for operation in operations {
        if let Some(saved_state) = &operation.saved_state {
            hold(saved_state, format!("operation {} ({}) is in progress", operation.id, operation.kind.as_str()));
        }
    }
    for SandboxRecord { sandbox, .. } in living {
        if let Some(image) = sandbox.state.image() {
            let state = sandbox.state.name();
            let why = format!(
                "sandbox {} ({state}) has it as its sleep image of generation {}",
                sandbox.id, image.generation
            );
            hold(&image.saved_state, why);
        }
        if let Some(rewind) = sandbox.state.rewind() {
            let why =
                format!("sandbox {} is being rewound to snapshot {}, of which it is a copy", sandbox.id, rewind.to);
            if let Some(target) = &rewind.target {
                hold(&target.saved_state, why);
            }
        }
        for layer in sandbox.layers() {
            hold(layer, format!("sandbox {} is based on its files", sandbox.id));
        }
        for image in &sandbox.older {
            let why = format!("sandbox {} keeps it to fall back to generation {}", sandbox.id, image.generation);
            hold(&image.saved_state, why);
        }
    }
    for snapshot in snapshots {
        if snapshot.status == SnapshotStatus::Completed {
            hold(&snapshot.saved_state, format!("it is the content of snapshot {}", snapshot.id));
            if let Some(layer) = &snapshot.layer {
                hold(layer, format!("snapshot {} is based on its files", snapshot.id));
            }
        }
    }
    holders
}
