//! Which images the records of this data directory stand on, said where other daemons see it that share the images.
//!
//! ```text
//! refer to the image ─► record what stands on it  …  the last record goes ─► release the image
//! ```
//!
//! What stands on an image already comes by another record on the same image, which has referred to it: only a sandbox
//! that is made from an image, and a snapshot that is imported, refer to one anew. They hold [`Referring`] until they are
//! recorded, and nothing is released meanwhile. An image that is referred to is not removed. A death in between leaves a
//! reference too many, which the next start drops.

use std::collections::BTreeSet;
use std::sync::Arc;

use dorm_lifecycle::Digest;
use dorm_pool::PoolError;
use dorm_store::SnapshotFilter;
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::error::ServiceError;
use crate::shared::{Shared, chain};

/// The references of this data directory.
#[derive(Default)]
pub(crate) struct References {
    /// Held for reading from a reference to what is recorded with it, for writing while references are dropped.
    turn: Arc<RwLock<()>>,
    news: Notify,
}

/// As long as it is held, no reference is dropped.
pub(crate) struct Referring {
    _turn: OwnedRwLockReadGuard<()>,
}

impl References {
    /// A record has gone that may have been the last on its image.
    pub(crate) fn poke(&self) {
        self.news.notify_one();
    }

    /// As long as the answer is held, no record comes to an image that has none.
    async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        self.turn.clone().write_owned().await
    }
}

impl Shared {
    /// Refers to an image on which something is recorded next, which has to be there.
    pub(crate) async fn refer(&self, image: &Digest) -> Result<Referring, PoolError> {
        let turn = self.references.turn.clone().read_owned().await;
        self.pool.refer_to_image(image).await?;
        Ok(Referring { _turn: turn })
    }

    /// Before anything is served: every image that a record stands on is referred to, and no other one, as long as every
    /// record can be read.
    pub(crate) async fn refer_to_all(&self) -> Result<(), ServiceError> {
        let mut needed: BTreeSet<Digest> =
            self.of_living(|sandbox| Some(sandbox.spec.image.clone())).await?.into_iter().collect();
        needed.extend(self.store.snapshots(None).await?.into_iter().map(|snapshot| snapshot.image));
        for image in &needed {
            match self.pool.refer_to_image(image).await {
                Ok(()) => {}
                // Whoever needs it is told so.
                Err(PoolError::NoImage { .. }) => {
                    tracing::error!(%image, "an image is not there that records stand on; import it again");
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.release_unneeded().await
    }

    /// Drops the references to images that no record stands on.
    pub(crate) async fn release_unneeded(&self) -> Result<(), ServiceError> {
        let _alone = self.references.alone().await;
        let referred = self.pool.referred_images().await?;
        // Which image a record needs that cannot be read is not known.
        if referred.is_empty() || !self.unreadable().await?.holders().is_empty() {
            return Ok(());
        }
        // In the order in which an image goes from a sandbox to its snapshot.
        let living: BTreeSet<Digest> =
            self.of_living(|sandbox| Some(sandbox.spec.image.clone())).await?.into_iter().collect();
        for image in referred.iter().filter(|image| !living.contains(image)) {
            let standing = SnapshotFilter { image: Some(image.clone()), limit: 1, ..SnapshotFilter::default() };
            if self.store.find_snapshots(&standing).await?.is_empty() {
                self.pool.release_image(image).await?;
            }
        }
        Ok(())
    }
}

/// Drops references whose last record has gone, until the service stops.
pub(crate) async fn keep_releasing(shared: Arc<Shared>) {
    let mut stops = false;
    while !stops {
        tokio::select! {
            biased;
            // What has gone by then is looked at all the same: this directory may not be used again.
            () = shared.references.news.notified() => {}
            () = shared.stopping.cancelled() => return,
        }
        stops = shared.stopping.is_cancelled();
        if let Err(error) = shared.release_unneeded().await {
            tracing::warn!(error = %chain(&error), "references to images stay until the next record goes, or the next start");
        }
    }
}
