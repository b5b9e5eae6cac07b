//! Records that cannot be read: they are left as they are, and so is everything that they may need.
//!
//! The store omits such rows from its lists, so a decision based on a list alone would take what
//! they need for unused. Every decision to end, unmount or delete something therefore checks here
//! after it has read its lists. Rows are repaired by `dorm repair`, while no daemon runs.

use std::time::Duration;

use dorm_store::{SandboxRecord, StoreError, UnreadableRow};

use crate::error::ServiceError;
use crate::shared::{Service, Shared, Unreadable};

/// How long the result of a check is used.
const LOOK: Duration = Duration::from_secs(60);

impl Shared {
    /// Returns the unreadable records, as of a check that is at most a minute old: rows are damaged
    /// between two starts, hardly ever between two checks. Call this after reading the lists that a
    /// decision is based on.
    pub(crate) async fn unreadable(&self) -> Result<Unreadable, StoreError> {
        let (at, last) = self.quarantined.looked();
        match at.is_some_and(|at| at.elapsed() < LOOK) {
            true => Ok(last),
            false => self.look_for_unreadable().await,
        }
    }

    /// Checks which records cannot be read. This reads every record except history.
    pub(crate) async fn look_for_unreadable(&self) -> Result<Unreadable, StoreError> {
        Ok(self.quarantined.set(self.store.unreadable().await?))
    }

    /// Reads the records of sandboxes that are not terminated, and the unreadable ones, before
    /// anything is served.
    pub(crate) async fn read_all(&self) -> Result<(Vec<SandboxRecord>, Unreadable), StoreError> {
        let unreadable = self.quarantined.set(self.living.read(&*self.store).await?);
        Ok((self.living().await?, unreadable))
    }
}

impl Service {
    /// Returns the records that cannot be read. They are left as they are, with everything that
    /// they may need.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn unreadable(&self) -> Result<Vec<UnreadableRow>, ServiceError> {
        Ok(self.shared.look_for_unreadable().await?.rows().to_vec())
    }
}
