//! Turns of those who create references to images and of those who drop them.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The references of this data directory.
#[derive(Default)]
pub(crate) struct References {
    /// Held for reading from creating a reference until its record is committed, and for writing
    /// while references are dropped.
    turn: Arc<RwLock<()>>,
    pub(crate) news: Notify,
}

/// While it is held, no reference is dropped.
pub(crate) struct Referring {
    _turn: OwnedRwLockReadGuard<()>,
}

impl References {
    /// Reports that a record was deleted that may have been the last on its image.
    pub(crate) fn poke(&self) {
        self.news.notify_one();
    }

    /// Returns a guard; while it is held, no reference is dropped.
    pub(crate) async fn referring(&self) -> Referring {
        Referring { _turn: self.turn.clone().read_owned().await }
    }

    /// Returns a guard; while it is held, no record can be added to an image without records.
    pub(crate) async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        self.turn.clone().write_owned().await
    }
}
