//! Removing images, which only the service can tell to be unused.

use std::path::Path;

use dorm_lifecycle::{Digest, StateName};
use dorm_pool::{Image, Progress};
use dorm_store::SandboxFilter;

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
        self.prepare(&image.digest);
        Ok(image)
    }

    /// Prepares an image in the background. Nothing depends on it but speed.
    pub fn prepare(&self, image: &Digest) {
        let (shared, image) = (self.shared.clone(), image.clone());
        self.shared.tasks.spawn(async move {
            let work = async {
                let found = shared.pool.image(&image).await.map_err(|error| chain(&error))?;
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

    /// Removes an image that no living sandbox and no snapshot needs.
    ///
    /// # Errors
    /// From the pool, with the list of holders when it is in use.
    pub async fn remove_image(&self, image: &Digest) -> Result<(), ServiceError> {
        let states = StateName::ALL.into_iter().filter(|name| *name != StateName::Terminated).collect();
        let filter = SandboxFilter { states, ..SandboxFilter::default() };
        let mut holders = Vec::new();
        for record in self.shared.store.sandboxes(&filter).await? {
            if record.sandbox.spec.image == *image {
                holders.push(format!("sandbox {}", record.sandbox.id));
            }
        }
        for snapshot in self.shared.store.snapshots(None).await? {
            if snapshot.image == *image {
                holders.push(format!("snapshot {}", snapshot.id));
            }
        }
        Ok(self.shared.pool.remove_image(image, &holders).await?)
    }
}
