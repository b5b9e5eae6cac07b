//! Secrets at rest: records contain them encrypted, and only the daemon's key decrypts them.
//!
//! ```text
//! value ── seal ──► sealed:1:KEY-ID:BASE64(nonce, XChaCha20-Poly1305(value; the secret's name)) ── open ──► value
//! ```
//!
//! The key is in a file of its own, so that a copy of the database, of record files or of a backup
//! reveals no secret. The key id in each text identifies the key it needs and reveals nothing about
//! the key.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use dorm_lifecycle::{ProjectId, Variables};
use dorm_ports::Authority;
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};

const SEALED: &str = "sealed:1:";
const NONCE: usize = 24;

/// The action for a sandbox with a secret that the key does not decrypt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LostSecrets {
    /// Its sandbox does not start or resume. The default.
    #[default]
    Refuse,
    /// Its sandbox starts or resumes without it.
    LeaveOut,
}

/// The key that encrypts recorded secrets. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretsKey {
    key: [u8; 32],
    lost: LostSecrets,
}

impl fmt::Debug for SecretsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretsKey({}, {:?})", self.id(), self.lost)
    }
}

/// Why a secret cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// It was encrypted with another key.
    #[error("it was encrypted with key {needed}, and the daemon has key {held}")]
    OtherKey {
        /// The id of the key it needs.
        needed: String,
        /// The id of the daemon's key.
        held: String,
    },
    /// It is not what was encrypted.
    #[error("its record is damaged")]
    Damaged,
}

impl SecretsKey {
    /// Returns a key of 256 random bits.
    pub fn new(key: [u8; 32], lost: LostSecrets) -> Self {
        Self { key, lost }
    }

    /// Returns whether any of `secrets` is encrypted.
    pub fn seals(secrets: &Variables) -> bool {
        secrets.0.values().any(|value| value.starts_with(SEALED))
    }

    /// Returns an id that identifies the key and reveals nothing else about it.
    fn id(&self) -> String {
        let sum = Sha256::new().chain_update(b"dormouse secrets key id").chain_update(self.key).finalize();
        sum.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the recorded form of the secret `name`; `nonce` must never be used twice.
    pub(super) fn seal(&self, name: &str, value: &str, nonce: [u8; NONCE]) -> String {
        let payload = Payload { msg: value.as_bytes(), aad: name.as_bytes() };
        // This fails only for values of 256 GiB.
        let Ok(sealed) = XChaCha20Poly1305::new(&self.key.into()).encrypt(&XNonce::from(nonce), payload) else {
            std::process::abort()
        };
        format!("{SEALED}{}:{}", self.id(), STANDARD_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// Returns the value of the recorded secret `name`. A blanked secret is
    /// empty.
    pub(super) fn open(&self, name: &str, recorded: &str) -> Result<String, SealError> {
        if recorded.is_empty() {
            return Ok(String::new());
        }
        let rest = recorded.strip_prefix(SEALED).ok_or(SealError::Damaged)?;
        let (needed, sealed) = rest.split_once(':').ok_or(SealError::Damaged)?;
        if needed != self.id() {
            return Err(SealError::OtherKey { needed: needed.chars().take(8).collect(), held: self.id() });
        }
        let sealed = STANDARD_NO_PAD.decode(sealed).map_err(|_| SealError::Damaged)?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or(SealError::Damaged)?;
        let payload = Payload { msg: sealed, aad: name.as_bytes() };
        let opened = XChaCha20Poly1305::new(&self.key.into()).decrypt(&XNonce::from(*nonce), payload);
        opened.ok().and_then(|value| String::from_utf8(value).ok()).ok_or(SealError::Damaged)
    }

    /// Returns another secret, derived from this key for one purpose. It reveals nothing about the
    /// key.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        // A key of any length is accepted.
        let Ok(mac) = Hmac::<Sha256>::new_from_slice(&self.key) else { std::process::abort() };
        mac.chain_update(purpose).finalize().into_bytes().into()
    }

    /// Returns the certificate authority of a project.
    pub(super) fn authority(&self, project: &ProjectId) -> Authority {
        Authority::derive(&self.derive("dormouse authorities 1"), project)
    }

    pub(super) fn lost(&self) -> LostSecrets {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SecretsKey {
        SecretsKey::new([byte; 32], LostSecrets::Refuse)
    }

    #[test]
    fn a_secret_comes_back_under_its_name_and_key_alone() {
        let sealed = key(1).seal("TOKEN", "hunter2", [9; NONCE]);
        assert!(sealed.starts_with("sealed:1:") && !sealed.contains("hunter2"), "{sealed}");
        assert_eq!(key(1).open("TOKEN", &sealed), Ok("hunter2".to_owned()));
        assert_eq!(key(1).open("OTHER", &sealed), Err(SealError::Damaged));
        let refusal = key(2).open("TOKEN", &sealed).unwrap_err();
        assert_eq!(refusal, SealError::OtherKey { needed: key(1).id(), held: key(2).id() });
        assert_ne!(sealed, key(1).seal("TOKEN", "hunter2", [8; NONCE]));
    }

    #[test]
    fn a_changed_byte_is_noticed_wherever_it_is() {
        let sealed = key(1).seal("TOKEN", "hunter2", [9; NONCE]);
        for at in SEALED.len()..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(key(1).open("TOKEN", &changed).is_err(), "byte {at}: {changed}");
        }
        for length in SEALED.len()..sealed.len() {
            assert!(key(1).open("TOKEN", &sealed[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_blanked_secret_is_empty_and_one_that_is_not_encrypted_is_damaged() {
        assert_eq!(key(1).open("TOKEN", "hunter2"), Err(SealError::Damaged));
        assert_eq!(key(1).open("TOKEN", ""), Ok(String::new()));
    }

    #[test]
    fn a_value_that_looks_like_an_encrypted_one_comes_back() {
        let looks = key(1).seal("TOKEN", "hunter2", [9; NONCE]);
        let sealed = key(1).seal("TOKEN", &looks, [8; NONCE]);
        assert_eq!(key(1).open("TOKEN", &sealed), Ok(looks));
    }

    #[test]
    fn a_key_does_not_print() {
        let shown = format!("{:?}", key(0xab));
        assert!(!shown.contains("171") && !shown.contains("abab"), "{shown}");
    }
}
