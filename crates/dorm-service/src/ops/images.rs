//! Importing and removing images; only the service can tell which are unused.

use std::path::Path;

use dorm_lifecycle::Digest;
use dorm_storage::{Image, Progress, Stored};
use dorm_store::{PoolSource, SandboxRecord, SnapshotFilter, SnapshotRecord};

use crate::error::{ServiceError, chain};
use crate::shared::Service;

impl Service {
    /// Imports an image and prepares it, so that the first sandbox of it starts fast.
    ///
    /// # Errors
    ///
    /// An error of the storage; nothing is left of an incomplete import.
    pub async fn import_image(
        &self,
        source: &Path,
        tag: Option<&str>,
        progress: impl Fn(Progress) + Send + 'static,
    ) -> Result<Image, ServiceError> {
        self.shared.admit_write("import an image", 0).await?;
        let tag = match tag {
            Some(tag) => Some(self.free_tag(tag).await?),
            None => None,
        };
        let image = self.shared.storage.import(source, tag.as_deref(), progress).await?;
        self.shared.is_sound(&Stored::Image(image.digest.clone())).await;
        self.prepare(&image.digest);
        Ok(self.as_seen(image))
    }

    /// Prepares an image in the background. This only affects speed.
    pub fn prepare(&self, image: &Digest) {
        let (shared, image) = (self.shared.clone(), image.clone());
        self.shared.spawn(async move {
            let work = async {
                let found = shared.storage.owned_image(&image).await.map_err(|error| chain(&error))?;
                shared.engine.prepare(&image, &found.rootfs).await.map_err(|error| error.chain())
            };
            let prepared = tokio::select! {
                biased;
                () = shared.stopping.cancelled() => return,
                prepared = work => prepared,
            };
            if let Err(reason) = prepared {
                tracing::warn!(%image, reason, "cannot prepare an image; sandboxes of it start slower");
            }
        });
    }

    /// Removes an image that no sandbox and no snapshot needs, of this data directory or of another
    /// that shares the images.
    ///
    /// # Errors
    ///
    /// An error of the storage, with the list of holders if it is in use.
    pub async fn remove_image(&self, image: &Digest) -> Result<(), ServiceError> {
        // Remaining references belong to records that are being made.
        self.shared.release_unneeded().await?;
        let standing = SnapshotFilter { image: Some(image.clone()), ..SnapshotFilter::default() };
        let (living, snapshots) = (self.shared.living().await?, self.shared.store.find_snapshots(&standing).await?);
        let mut held_by = holders(image, &living, &snapshots);
        let of_it = PoolSource::Image(image.clone());
        let pools = self.shared.store.pools().await?.into_iter();
        let pools = pools.filter(|pool| !pool.removed && pool.source == of_it);
        held_by.extend(pools.map(|pool| format!("sandbox pool {}", pool.name)));
        held_by.extend(self.shared.build_holders_of_image(image).await?);
        held_by.extend(self.shared.unreadable().await?.holders_of_images());
        self.shared.make_room_to_free().await;
        self.shared.storage.remove_image(image, &held_by).await?;
        self.shared.is_sound(&Stored::Image(image.clone())).await;
        Ok(())
    }
}

/// Returns what is based on an image.
pub(crate) fn holders(image: &Digest, living: &[SandboxRecord], snapshots: &[SnapshotRecord]) -> Vec<String> {
    let sandboxes = living.iter().map(|record| &record.sandbox).filter(|sandbox| sandbox.spec.image == *image);
    let snapshots = snapshots.iter().filter(|snapshot| snapshot.image == *image);
    let snapshots = snapshots.map(|snapshot| format!("snapshot {}", snapshot.id));
    sandboxes.map(|sandbox| format!("sandbox {}", sandbox.id)).chain(snapshots).collect()
}
