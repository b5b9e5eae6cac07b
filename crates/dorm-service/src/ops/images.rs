//! Removing images, which only the service can tell to be unused.

use dorm_lifecycle::{Digest, StateName};
use dorm_store::SandboxFilter;

use crate::error::ServiceError;
use crate::shared::Service;

impl Service {
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
