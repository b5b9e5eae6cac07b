//! Removing images, which only the service can tell to be unused.

use std::path::Path;

use dorm_lifecycle::Digest;
use dorm_pool::{Image, Progress, Stored};
use dorm_store::{SandboxRecord, SnapshotFilter, SnapshotRecord};

use crate::error::ServiceError;
use crate::shared::{Service, chain};

impl Service {
    /// Imports an image and prepares it, so that the first sandbox from it starts fast.
    ///
    /// # Errors
    /// From the pool; nothing half-imported stays.
    pub async fn import_image(
        &self,
        source: &Path,
        tag: Option<&str>,
        progress: impl Fn(Progress) + Send + 'static,
    ) -> Result<Image, ServiceError> {
        self.shared.admit_write("import an image", 0).await?;
        let image = self.shared.pool.import(source, tag, progress).await?;
        self.shared.is_sound(&Stored::Image(image.digest.clone())).await;
        self.prepare(&image.digest);
        Ok(image)
    }

    /// Prepares an image in the background. Nothing depends on it but speed.
    pub fn prepare(&self, image: &Digest) {
        let (shared, image) = (self.shared.clone(), image.clone());
        self.shared.spawn(async move {
            let work = async {
                let found = shared.pool.owned_image(&image).await.map_err(|error| chain(&error))?;
                shared.engine.prepare(&image, &found.rootfs).await.map_err(|error| error.chain())
            };
            let prepared = tokio::select! {
                biased;
                () = shared.stopping.cancelled() => return,
                prepared = work => prepared,
            };
            if let Err(reason) = prepared {
                tracing::warn!(%image, reason, "an image could not be prepared; sandboxes from it start slower");
            }
        });
    }

    /// Removes an image that no living sandbox and no snapshot needs, of this data directory or of another that shares the
    /// images.
    ///
    /// # Errors
    /// From the pool, with the list of holders when it is in use.
    pub async fn remove_image(&self, image: &Digest) -> Result<(), ServiceError> {
        // What is left is of a record that is being made.
        self.shared.release_unneeded().await?;
        let standing = SnapshotFilter { image: Some(image.clone()), ..SnapshotFilter::default() };
        let (living, snapshots) = (self.shared.living().await?, self.shared.store.find_snapshots(&standing).await?);
        let mut held_by = holders(image, &living, &snapshots);
        held_by.extend(self.shared.unreadable().await?.holders());
        self.shared.make_room_to_free().await;
        self.shared.pool.remove_image(image, &held_by).await?;
        self.shared.is_sound(&Stored::Image(image.clone())).await;
        Ok(())
    }
}

/// Who stands on an image.
pub(crate) fn holders(image: &Digest, living: &[SandboxRecord], snapshots: &[SnapshotRecord]) -> Vec<String> {
    let sandboxes = living.iter().map(|record| &record.sandbox).filter(|sandbox| sandbox.spec.image == *image);
    let snapshots = snapshots.iter().filter(|snapshot| snapshot.image == *image);
    let snapshots = snapshots.map(|snapshot| format!("snapshot {}", snapshot.id));
    sandboxes.map(|sandbox| format!("sandbox {}", sandbox.id)).chain(snapshots).collect()
}
