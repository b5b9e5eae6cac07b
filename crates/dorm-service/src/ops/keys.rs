//! API keys: which there are and what each opens. Who presents a key is an edge: see `dorm-api`.
//!
//! Only hashes are kept, in the store and in memory. A key has 256 random bits, so a plain hash of it tells nothing.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dorm_lifecycle::ApiKeyId;
use dorm_store::{ApiKeyRecord, Change, KeyScope, Store, StoreError};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::error::ServiceError;
use crate::shared::Service;

/// How many keys there may be: each call is compared with all of them.
pub const API_KEYS_MAX: usize = 1000;
/// How long the name of a key may be, in characters.
pub const KEY_NAME_MAX: usize = 63;

/// A key that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiKeySpec {
    /// What its owner calls it: up to 63 characters, perhaps none.
    pub name: String,
    /// What it opens.
    pub scope: KeyScope,
    /// After how long it opens nothing any more; never when none.
    pub lifetime: Option<Duration>,
}

/// The keys that open something, as the store has them.
#[derive(Default)]
pub(crate) struct ApiKeys {
    known: RwLock<Arc<Vec<ApiKeyRecord>>>,
    /// Held from deciding about keys to recording that.
    turn: tokio::sync::Mutex<()>,
}

impl ApiKeys {
    /// Reads them. One that is unreadable opens nothing.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<(), StoreError> {
        let keys = store.api_keys().await?;
        self.set(keys);
        Ok(())
    }

    fn known(&self) -> Arc<Vec<ApiKeyRecord>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, keys: Vec<ApiKeyRecord>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

impl Service {
    /// Makes a key. The second part is the key itself, which is shown this once and kept nowhere.
    ///
    /// # Errors
    /// `BadKey` for a name that is too long or a lifetime of nothing; `TooManyKeys`.
    pub async fn create_key(&self, asked: ApiKeySpec) -> Result<(ApiKeyRecord, String), ServiceError> {
        if asked.name.chars().count() > KEY_NAME_MAX || asked.name.chars().any(char::is_control) {
            return Err(ServiceError::BadKey("its name has more than 63 characters, or control characters"));
        }
        if asked.lifetime.is_some_and(|lifetime| lifetime.is_zero()) {
            return Err(ServiceError::BadKey("it would have expired at once"));
        }
        let keys = &self.shared.api_keys;
        let _turn = keys.turn.lock().await;
        let known = keys.known();
        if known.len() >= API_KEYS_MAX {
            return Err(ServiceError::TooManyKeys);
        }
        let text = format!("dorm_{}", URL_SAFE_NO_PAD.encode(self.shared.ids().random::<32>()));
        let now = self.shared.now();
        let record = ApiKeyRecord {
            id: ApiKeyId::from_random(self.shared.ids().random()),
            project: self.project().clone(),
            name: asked.name,
            scope: asked.scope,
            hash: hash(text.as_bytes()),
            created: now,
            expires: asked.lifetime.map(|lifetime| now.after(lifetime)),
        };
        self.shared.commit_known(Change { api_keys: vec![record.clone()], ..Change::default() }).await?;
        keys.set(known.iter().cloned().chain([record.clone()]).collect());
        Ok((self.shared.shown_key(record), text))
    }

    /// Every key, expired ones included, in the order in which they were made.
    pub fn keys(&self) -> Vec<ApiKeyRecord> {
        let mut keys: Vec<_> = self.shared.api_keys.known().iter().cloned().collect();
        keys.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        keys.into_iter().map(|key| self.shared.shown_key(key)).collect()
    }

    /// Revokes a key: it opens nothing as soon as this returns. One that is not there is a success.
    ///
    /// # Errors
    /// When the store fails; then the key still opens what it did.
    pub async fn revoke_key(&self, id: &ApiKeyId) -> Result<(), ServiceError> {
        let keys = &self.shared.api_keys;
        let _turn = keys.turn.lock().await;
        self.shared.commit_known(Change { removed_api_keys: vec![id.clone()], ..Change::default() }).await?;
        let left = keys.known().iter().filter(|key| key.id != *id).cloned().collect();
        keys.set(left);
        Ok(())
    }

    /// What a presented key opens; none when it is unknown, revoked or expired. Every key is compared whole, so that time
    /// says nothing about where they differ.
    pub fn scope_of_key(&self, presented: &[u8]) -> Option<KeyScope> {
        let (presented, now) = (hash(presented), self.shared.now());
        let known = self.shared.api_keys.known();
        let mut found = None;
        for key in known.iter() {
            let is_same = bool::from(key.hash.ct_eq(&presented));
            if is_same && key.expires.is_none_or(|expires| now < expires) {
                found = Some(key.scope.clone());
            }
        }
        found
    }
}

fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}
