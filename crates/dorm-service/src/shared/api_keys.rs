//! The valid API keys.

use std::sync::{Arc, PoisonError, RwLock};

use dorm_store::{ApiKeyRecord, Store, StoreError};

/// The valid keys, as in the store.
#[derive(Default)]
pub(crate) struct ApiKeys {
    known: RwLock<Arc<Vec<ApiKeyRecord>>>,
    /// Held from deciding about keys until that is recorded.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl ApiKeys {
    /// Reads the keys. A key with an unreadable record permits nothing.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<(), StoreError> {
        let keys = store.api_keys().await?;
        self.set(keys);
        Ok(())
    }

    pub(crate) fn known(&self) -> Arc<Vec<ApiKeyRecord>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, keys: Vec<ApiKeyRecord>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}
