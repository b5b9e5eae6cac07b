//! Compares the files of two snapshots or sandboxes.

use dorm_lifecycle::{CaptureId, Digest, SandboxId, SandboxSpec, SnapshotId, SnapshotKind, State};
use dorm_pool::{Differing, Listed, Lister};
use dorm_store::{Removal, SnapshotRecord};

use crate::actor::SnapshotAsked;
use crate::error::{ServiceError, host_part};
use crate::removals::Using;
use crate::shared::Service;

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
        self.shared.pool.diff(&before.image, before.stack, after.stack).await.map_err(host_part)
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
            return self.files_of(&sandbox.spec, &image.capture).await;
        }
        let passing = self.shared.ids().snapshot();
        let _using = Using::of(&self.shared, &passing);
        let asked = SnapshotAsked::new(passing, SnapshotKind::Filesystem, Removal::WhenFree);
        let taken = self.snapshot_as(id, asked).await?;
        self.files_in(taken).await
    }

    async fn files_in(&self, snapshot: SnapshotRecord) -> Result<Files, ServiceError> {
        let SnapshotRecord { kind, capture, image, layer, .. } = snapshot;
        let mut spec = SandboxSpec::new(image, None);
        match kind {
            SnapshotKind::Memory => {
                spec.layer = layer;
                self.files_of(&spec, &capture).await
            }
            SnapshotKind::Filesystem => Ok(Files { stack: self.listings(Some(&capture)).await?, image: spec.image }),
        }
    }

    /// Returns the files in a memory image of a sandbox like `spec`.
    async fn files_of(&self, spec: &SandboxSpec, memory: &CaptureId) -> Result<Files, ServiceError> {
        let mut stack = self.listings(spec.layer.as_ref()).await?;
        let capture = self.shared.pool.check(memory).await?;
        let lister = Lister::default();
        self.shared.engine.read_files(&capture.directory, lister.sink()).await?;
        stack.push(lister.into_list());
        Ok(Files { image: spec.image.clone(), stack })
    }

    async fn listings(&self, top: Option<&CaptureId>) -> Result<Vec<Vec<Listed>>, ServiceError> {
        let Some(top) = top else { return Ok(Vec::new()) };
        let mut stack = Vec::new();
        for layer in self.shared.pool.layers(top).await?.iter().rev() {
            stack.push(self.shared.pool.listing(&layer.id).await?);
        }
        Ok(stack)
    }
}
