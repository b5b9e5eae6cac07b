//! References: which images the records of this data directory are based on, stored where other
//! daemons that share the images see it.
//!
//! ```text
//! refer to the image ─► record what is based on it  …  the last record is deleted ─► release the image
//! ```
//!
//! A record that derives from another record on the same image is covered by that record's
//! reference: only a sandbox that is created from an image, and a snapshot that is imported, refer
//! to the image anew. They hold [`Referring`] until they are recorded, and nothing is released
//! meanwhile. An image with a reference is not removed. A crash in between leaves a superfluous
//! reference, which the next start drops.

use std::collections::BTreeSet;
use std::sync::Arc;

use dorm_lifecycle::Digest;
use dorm_storage::StorageError;
use dorm_store::SnapshotFilter;

use crate::error::{ServiceError, chain};
use crate::shared::{Referring, Shared};

impl Shared {
    /// Creates a reference to an existing image on which a record will be based.
    pub(crate) async fn refer(&self, image: &Digest) -> Result<Referring, StorageError> {
        let referring = self.references.referring().await;
        self.storage.refer_to_image(image).await?;
        Ok(referring)
    }

    /// Called before anything is served: creates references to every image that a record is based
    /// on and, if every record can be read, drops all others.
    pub(crate) async fn refer_to_all(&self) -> Result<(), ServiceError> {
        let mut needed: BTreeSet<Digest> =
            self.of_living(|sandbox| Some(sandbox.spec.image.clone())).await?.into_iter().collect();
        needed.extend(self.store.snapshots(None).await?.into_iter().map(|snapshot| snapshot.image));
        for image in &needed {
            match self.storage.refer_to_image(image).await {
                Ok(()) => {}
                // Requests that need it get an error.
                Err(StorageError::NoImage { .. }) => {
                    tracing::error!(%image, "an image that records are based on is missing; import it again");
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.release_unneeded().await
    }

    /// Drops the references to images that no record is based on.
    pub(crate) async fn release_unneeded(&self) -> Result<(), ServiceError> {
        let _alone = self.references.alone().await;
        let referred = self.storage.referred_images().await?;
        // It is unknown which image an unreadable record needs.
        if referred.is_empty() || !self.unreadable().await?.holders().is_empty() {
            return Ok(());
        }
        // In the order in which a reference passes from a sandbox to its snapshot.
        let living: BTreeSet<Digest> =
            self.of_living(|sandbox| Some(sandbox.spec.image.clone())).await?.into_iter().collect();
        for image in referred.iter().filter(|image| !living.contains(image)) {
            let standing = SnapshotFilter { image: Some(image.clone()), limit: 1, ..SnapshotFilter::default() };
            if self.store.find_snapshots(&standing).await?.is_empty() {
                self.storage.release_image(image).await?;
            }
        }
        Ok(())
    }
}

/// Drops references whose last record was deleted, until the service stops.
pub(crate) async fn keep_releasing(shared: Arc<Shared>) {
    let mut stops = false;
    while !stops {
        tokio::select! {
            biased;
            // Deletions up to now are still handled: this directory may not be used again.
            () = shared.references.news.notified() => {}
            () = shared.stopping.cancelled() => return,
        }
        stops = shared.stopping.is_cancelled();
        if let Err(error) = shared.release_unneeded().await {
            tracing::warn!(error = %chain(&error), "cannot drop references to images; retrying at the next deletion, or at the next start");
        }
    }
}
