//! Compares the files of two snapshots or sandboxes.

use dorm_lifecycle::{
    Digest, Initiator, Keep, SandboxId, SandboxSpec, SavedStateId, SnapshotId, SnapshotKind, State, Timestamp,
};
use dorm_storage::{Differing, Listed, Lister};
use dorm_store::{Removal, SnapshotRecord};

use crate::error::{ServiceError, host_part};
use crate::messages::SnapshotSpec;
use crate::shared::{Service, Using};

/// One side of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The files in a snapshot.
    Snapshot(SnapshotId),
    /// The present files of a sandbox.
    Sandbox(SandboxId),
}

/// Files on an image: a stack of changes, the lowest first.
struct Files {
    image: Digest,
    stack: Vec<Vec<Listed>>,
}

impl Service {
    /// Returns the paths at which the files of two moments differ, in order. A running sandbox is
    /// paused briefly; a suspended one does not wake.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `NoSandbox`, `SnapshotNotReady`; `NotComparable` if they are not based on the
    /// same image.
    pub async fn diff(&self, first: &Moment, second: &Moment) -> Result<Vec<Differing>, ServiceError> {
        let before = self.files_at(first).await?;
        let after = self.files_at(second).await?;
        if before.image != after.image {
            return Err(ServiceError::NotComparable { first: before.image, second: after.image });
        }
        self.shared.storage.diff(&before.image, before.stack, after.stack).await.map_err(host_part)
    }

    /// Returns two moments, the older one first. The files of a sandbox are those of now, so a
    /// snapshot is older; two sandboxes stay in the order given.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`.
    pub async fn older_first(&self, one: Moment, other: Moment) -> Result<(Moment, Moment), ServiceError> {
        let swap = match (self.taken_at(&one).await?, self.taken_at(&other).await?) {
            (None, Some(_)) => true,
            (Some(one), Some(other)) => other < one,
            (None | Some(_), None) => false,
        };
        Ok(if swap { (other, one) } else { (one, other) })
    }

    /// Returns when the files of a moment were saved: `None` for those of now.
    async fn taken_at(&self, moment: &Moment) -> Result<Option<Timestamp>, ServiceError> {
        match moment {
            Moment::Snapshot(id) => Ok(Some(self.snapshot(id).await?.created)),
            Moment::Sandbox(_) => Ok(None),
        }
    }

    async fn files_at(&self, moment: &Moment) -> Result<Files, ServiceError> {
        let id = match moment {
            Moment::Snapshot(id) => {
                let (_using, snapshot) = self.use_snapshot(id).await?;
                return self.files_in(snapshot).await;
            }
            Moment::Sandbox(id) => id,
        };
        let sandbox = self.record(id).await?.sandbox;
        if let State::Suspended { image, .. } = &sandbox.state {
            if image.keeps() == Keep::Files {
                return Ok(Files { stack: self.listings(Some(&image.saved_state)).await?, image: sandbox.spec.image });
            }
            return self.files_of(&sandbox.spec, &image.saved_state).await;
        }
        let passing = self.shared.ids().snapshot();
        let _using = Using::of(&self.shared, &passing);
        let by = self.asked_by(Initiator::User);
        let asked = SnapshotSpec::new(passing, SnapshotKind::Filesystem, Removal::WhenFree, by);
        let taken = self.snapshot_as(id, asked).await?;
        self.files_in(taken).await
    }

    async fn files_in(&self, snapshot: SnapshotRecord) -> Result<Files, ServiceError> {
        let SnapshotRecord { kind, saved_state, image, layer, .. } = snapshot;
        let mut spec = SandboxSpec::new(image, None);
        match kind {
            SnapshotKind::Memory => {
                spec.layer = layer;
                self.files_of(&spec, &saved_state).await
            }
            SnapshotKind::Filesystem => {
                Ok(Files { stack: self.listings(Some(&saved_state)).await?, image: spec.image })
            }
        }
    }

    /// Returns the files in a memory image of a sandbox like `spec`.
    async fn files_of(&self, spec: &SandboxSpec, memory: &SavedStateId) -> Result<Files, ServiceError> {
        let mut stack = self.listings(spec.layer.as_ref()).await?;
        let saved_state = self.shared.storage.check(memory).await?;
        let lister = Lister::default();
        self.shared.engine.read_files(&saved_state.directory, lister.sink()).await?;
        stack.push(lister.into_list());
        Ok(Files { image: spec.image.clone(), stack })
    }

    async fn listings(&self, top: Option<&SavedStateId>) -> Result<Vec<Vec<Listed>>, ServiceError> {
        let Some(top) = top else { return Ok(Vec::new()) };
        let mut stack = Vec::new();
        for layer in self.shared.storage.layers(top).await?.iter().rev() {
            stack.push(self.shared.storage.listing(&layer.id).await?);
        }
        Ok(stack)
    }
}
