//! The port between the proxy that adds headers to requests of sandboxes and the keeper of secrets.

use std::fmt;
use std::sync::{Arc, OnceLock};

use dorm_authority::Authority;
use dorm_lifecycle::{ProjectId, SecretName};
use thiserror::Error;
use tokio::sync::watch;

/// The value of a secret. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// Keeps a value.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// Returns the value itself, which must not be logged.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(..)")
    }
}

/// Why a secret or an authority cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum VaultError {
    /// The project has no such secret.
    #[error("the project '{project}' has no secret '{name}'")]
    Missing {
        /// The project.
        project: ProjectId,
        /// The name.
        name: SecretName,
    },
    /// The secret cannot be decrypted.
    #[error("the secret '{name}' cannot be decrypted: {reason}")]
    Lost {
        /// The name.
        name: SecretName,
        /// The reason.
        reason: String,
    },
    /// The daemon has no key to encrypt secrets with.
    #[error("the daemon has no key for secrets")]
    NoKey,
    /// The daemon is starting.
    #[error("the daemon is starting")]
    NotOpen,
}

/// Keeps the secrets and the certificate authority of each project. It answers from memory.
pub trait Vault: Send + Sync + 'static {
    /// Returns the present value of a secret.
    ///
    /// # Errors
    ///
    /// [`VaultError`].
    fn secret(&self, project: &ProjectId, name: &SecretName) -> Result<SecretValue, VaultError>;

    /// Returns the certificate authority of a project.
    ///
    /// # Errors
    ///
    /// [`VaultError`].
    fn authority(&self, project: &ProjectId) -> Result<Authority, VaultError>;
}

/// A vault that is opened later: the network of sandboxes is there before the records are read.
#[derive(Clone, Default)]
pub struct LateVault(Arc<Late>);

#[derive(Default)]
struct Late {
    vault: OnceLock<Arc<dyn Vault>>,
    is_open: watch::Sender<bool>,
}

impl fmt::Debug for LateVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateVault(..)")
    }
}

impl LateVault {
    /// Opens it. Only the first vault counts.
    pub fn open(&self, vault: Arc<dyn Vault>) {
        let _ = self.0.vault.set(vault);
        self.0.is_open.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn ready(&self) {
        // The sender lives as long as this vault.
        let _ = self.0.is_open.subscribe().wait_for(|is_open| *is_open).await;
    }

    fn opened(&self) -> Result<&Arc<dyn Vault>, VaultError> {
        self.0.vault.get().ok_or(VaultError::NotOpen)
    }
}

impl Vault for LateVault {
    fn secret(&self, project: &ProjectId, name: &SecretName) -> Result<SecretValue, VaultError> {
        self.opened()?.secret(project, name)
    }

    fn authority(&self, project: &ProjectId) -> Result<Authority, VaultError> {
        self.opened()?.authority(project)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_printed() {
        assert_eq!(format!("{:?}", SecretValue::new("hunter2".to_owned())), "SecretValue(..)");
    }

    #[test]
    fn a_vault_that_is_not_open_has_nothing() {
        let name = "TOKEN".parse().unwrap();
        assert_eq!(LateVault::default().secret(&ProjectId::local(), &name), Err(VaultError::NotOpen));
    }
}
