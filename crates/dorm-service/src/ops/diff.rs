//! What differs between two moments of files.

use std::collections::BTreeMap;

use dorm_lifecycle::{Actor as By, CaptureId, Digest, SandboxId, SandboxSpec, SnapshotId, SnapshotKind, State};
use dorm_pool::{Differing, Listed, Lister};
use dorm_store::{Maker, Removal, SnapshotRecord, SnapshotStatus};

use crate::actor::SnapshotAsked;
use crate::error::ServiceError;
use crate::shared::{Service, Shared};

/// One side of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The files in a snapshot.
    Snapshot(SnapshotId),
    /// The files of a sandbox as they are now.
    Sandbox(SandboxId),
}

/// Files on an image: several sets of changes, the lowest first.
struct Files {
    image: Digest,
    stack: Vec<Vec<Listed>>,
}

/// As long as it exists the snapshot does not go.
struct Held<'a>(&'a Shared, SnapshotId);

impl<'a> Held<'a> {
    fn new(shared: &'a Shared, snapshot: &SnapshotId) -> Self {
        shared.removals.begin_use(snapshot);
        Self(shared, snapshot.clone())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.removals.end_use(&self.1);
    }
}

impl Service {
    /// The paths at which the files of two moments differ, in order. A running sandbox stands still for a moment; nothing
    /// wakes.
    ///
    /// # Errors
    /// `NoSnapshot`, `NoSandbox`, `SnapshotNotReady`; `NotComparable` when they do not stand on the same image.
    pub async fn diff(&self, first: &Moment, second: &Moment) -> Result<Vec<Differing>, ServiceError> {
        let before = self.files_at(first).await?;
        let after = self.files_at(second).await?;
        if before.image != after.image {
            return Err(ServiceError::NotComparable { first: before.image, second: after.image });
        }
        Ok(self.shared.pool.diff(&before.image, before.stack, after.stack).await?)
    }

    async fn files_at(&self, moment: &Moment) -> Result<Files, ServiceError> {
        let id = match moment {
            Moment::Snapshot(id) => {
                let _held = Held::new(&self.shared, id);
                return self.files_in(self.snapshot(id).await?).await;
            }
            Moment::Sandbox(id) => id,
        };
        let sandbox = self.record(id).await?.sandbox;
        if let State::Suspended { image } = &sandbox.state {
            return self.files_of(&sandbox.spec, &image.capture).await;
        }
        let asked = SnapshotAsked {
            id: self.shared.ids().snapshot(),
            kind: SnapshotKind::Filesystem,
            labels: BTreeMap::new(),
            removal: Removal::WhenFree,
            made_by: Maker::Request,
            by: By::User,
            begun: None,
        };
        let _held = Held::new(&self.shared, &asked.id);
        let taken = self.snapshot_as(id, asked).await?;
        self.files_in(taken).await
    }

    async fn files_in(&self, snapshot: SnapshotRecord) -> Result<Files, ServiceError> {
        let SnapshotRecord { id, kind, capture, image, layer, status, .. } = snapshot;
        if status != SnapshotStatus::Completed {
            let status = status.as_str().to_owned();
            return Err(ServiceError::SnapshotNotReady { snapshot: id, status });
        }
        let mut spec = SandboxSpec::new(image, None);
        match kind {
            SnapshotKind::Memory => {
                spec.layer = layer;
                self.files_of(&spec, &capture).await
            }
            SnapshotKind::Filesystem => Ok(Files { stack: self.listings(Some(&capture)).await?, image: spec.image }),
        }
    }

    /// The files in a memory image of a sandbox like `spec`.
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
