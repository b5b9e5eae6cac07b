//! API keys: which exist and what each permits. Checking the key of a request is the task of the
//! API: see `dorm-api`.
//!
//! Only hashes are kept, in the store and in memory. A key has at least 160 random bits, so a plain
//! hash reveals nothing about it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dorm_lifecycle::ApiKeyId;
use dorm_store::{ApiKeyRecord, Change, KeyScope, Made};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::error::ServiceError;
use crate::shared::Service;

/// The maximum number of keys: each request is compared with all of them.
pub const API_KEYS_MAX: usize = 1000;
/// The maximum length of a key's name, in characters.
pub const KEY_NAME_MAX: usize = 63;

/// The form of a key. Some clients accept only keys of their own form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyForm {
    /// `dorm_` and 256 random bits. The default.
    #[default]
    Dormouse,
    /// `e2b_` and 40 hexadecimal digits, which are 160 random bits.
    E2b,
}

/// A request for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiKeySpec {
    /// Its name: up to 63 characters, or empty.
    pub name: String,
    /// The requests that it permits.
    pub scope: KeyScope,
    /// How long it is valid; `None` for no limit.
    pub lifetime: Option<Duration>,
    /// Its form.
    pub form: KeyForm,
}

impl Service {
    /// Creates a key. The second part of the result is the key itself, which is shown this once and
    /// not stored.
    ///
    /// # Errors
    ///
    /// `BadKey` for a name that is too long or a lifetime of zero; `TooManyKeys`.
    pub async fn create_key(&self, asked: ApiKeySpec) -> Result<(ApiKeyRecord, String), ServiceError> {
        if let Some(Made::ApiKey(earlier)) = self.earlier() {
            return Err(ServiceError::KeyShown(earlier.clone()));
        }
        if asked.name.chars().count() > KEY_NAME_MAX || asked.name.chars().any(char::is_control) {
            return Err(ServiceError::BadKey("its name has more than 63 characters or contains control characters"));
        }
        if asked.lifetime.is_some_and(|lifetime| lifetime.is_zero()) {
            return Err(ServiceError::BadKey("its lifetime is zero"));
        }
        self.to_the_end(|own| async move { own.create_key_now(asked).await }).await
    }

    async fn create_key_now(&self, asked: ApiKeySpec) -> Result<(ApiKeyRecord, String), ServiceError> {
        let keys = &self.shared.api_keys;
        let _turn = keys.turn.lock().await;
        let known = keys.known();
        if known.len() >= API_KEYS_MAX {
            return Err(ServiceError::TooManyKeys);
        }
        let text = self.key_text(asked.form);
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
        let requests = self.made(Made::ApiKey(record.id.clone()));
        self.shared.commit_known(Change { api_keys: vec![record.clone()], requests, ..Change::default() }).await?;
        keys.set(known.iter().cloned().chain([record.clone()]).collect());
        Ok((self.shared.shown_key(record), text))
    }

    fn key_text(&self, form: KeyForm) -> String {
        let ids = self.shared.ids();
        match form {
            KeyForm::Dormouse => format!("dorm_{}", URL_SAFE_NO_PAD.encode(ids.random::<32>())),
            KeyForm::E2b => {
                let digits: String = ids.random::<20>().iter().map(|byte| format!("{byte:02x}")).collect();
                format!("e2b_{digits}")
            }
        }
    }

    /// Returns every key of this project, expired ones included, in the order of creation.
    pub fn keys(&self) -> Vec<ApiKeyRecord> {
        let known = self.shared.api_keys.known();
        let mut keys: Vec<_> = known.iter().filter(|key| key.project == *self.project()).cloned().collect();
        keys.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        keys.into_iter().map(|key| self.shared.shown_key(key)).collect()
    }

    /// Revokes a key: it permits nothing once this returns. Revoking a key that does not exist is a
    /// success.
    ///
    /// # Errors
    ///
    /// Fails if the store fails; then the key is still valid.
    pub async fn revoke_key(&self, id: &ApiKeyId) -> Result<(), ServiceError> {
        let id = id.clone();
        self.to_the_end(|own| async move { own.revoke_key_now(&id).await }).await
    }

    async fn revoke_key_now(&self, id: &ApiKeyId) -> Result<(), ServiceError> {
        let keys = &self.shared.api_keys;
        let _turn = keys.turn.lock().await;
        if !keys.known().iter().any(|key| key.id == *id && key.project == *self.project()) {
            return Ok(());
        }
        self.shared.commit_known(Change { removed_api_keys: vec![id.clone()], ..Change::default() }).await?;
        let left = keys.known().iter().filter(|key| key.id != *id).cloned().collect();
        keys.set(left);
        Ok(())
    }

    /// Returns the record of a presented key; `None` if the key is unknown, revoked or expired, or
    /// its project does not exist. Every key is compared in constant time, so that the duration
    /// does not reveal where keys differ.
    pub fn presented_key(&self, presented: &[u8]) -> Option<ApiKeyRecord> {
        let (presented, now) = (hash(presented), self.shared.now());
        let known = self.shared.api_keys.known();
        let mut found = None;
        for key in known.iter() {
            let is_same = bool::from(key.hash.ct_eq(&presented));
            if is_same && key.expires.is_none_or(|expires| now < expires) {
                found = Some(key);
            }
        }
        found.filter(|key| self.shared.projects.exists(&key.project)).cloned()
    }
}

fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}
