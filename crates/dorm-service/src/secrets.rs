//! Which secrets follow to a sandbox that goes on from another: those that are named, and no others; and how they are
//! recorded.

mod key;

use std::collections::BTreeMap;
use std::fmt;

use dorm_lifecycle::{Sandbox, SandboxId, SandboxSpec, Variables};

pub use key::{LostSecrets, SealError, SecretsKey};

use crate::error::ServiceError;
use crate::shared::Shared;

/// A secret that is named for a clone or a child.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretAsked {
    /// With the value that the source has.
    Kept,
    /// With this value.
    Value(String),
}

impl fmt::Debug for SecretAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "Kept",
            Self::Value(_) => "Value(..)",
        })
    }
}

/// Secrets by name, as they are named for a clone or a child.
pub type SecretsAsked = BTreeMap<String, SecretAsked>;

/// Why the secrets of a source do not follow.
pub(crate) enum NotFollowing {
    /// The source has none of this name.
    None(String),
    /// It cannot be read.
    Lost(String, SealError),
}

impl NotFollowing {
    pub(crate) fn of(self, sandbox: &SandboxId) -> ServiceError {
        let sandbox = sandbox.clone();
        match self {
            Self::None(name) => ServiceError::NoSecret { sandbox, name },
            Self::Lost(name, source) => ServiceError::SecretLost { sandbox, name, source },
        }
    }
}

impl Shared {
    /// The values of the secrets of whoever goes on from `source`.
    pub(crate) fn following_secrets(
        &self,
        source: &SandboxSpec,
        asked: &SecretsAsked,
    ) -> Result<Variables, NotFollowing> {
        let value = |name: &String, asked: &SecretAsked| match (asked, source.secrets.0.get(name)) {
            (SecretAsked::Value(value), _) => Ok(value.clone()),
            (SecretAsked::Kept, None) => Err(NotFollowing::None(name.clone())),
            (SecretAsked::Kept, Some(recorded)) => {
                self.open_secret(name, recorded).map_err(|error| NotFollowing::Lost(name.clone(), error))
            }
        };
        asked
            .iter()
            .map(|(name, asked)| Ok((name.clone(), value(name, asked)?)))
            .collect::<Result<_, _>>()
            .map(Variables)
    }

    /// What is recorded of secrets.
    pub(crate) fn seal_secrets(&self, secrets: Variables) -> Variables {
        let Some(key) = &self.settings.secrets_key else { return secrets };
        let sealed = secrets.0.into_iter().map(|(name, value)| {
            let sealed = key.seal(&name, &value, self.ids().random());
            (name, sealed)
        });
        Variables(sealed.collect())
    }

    /// The values of the secrets that are recorded of a sandbox.
    ///
    /// # Errors
    /// `SecretLost`, unless such are to be left out.
    pub(crate) fn secrets_of(&self, sandbox: &Sandbox) -> Result<Variables, ServiceError> {
        let mut values = Variables::default();
        for (name, recorded) in &sandbox.spec.secrets.0 {
            match self.open_secret(name, recorded) {
                Ok(value) => drop(values.0.insert(name.clone(), value)),
                Err(error) if self.leaves_out_lost_secrets() => {
                    tracing::warn!(sandbox = %sandbox.id, secret = name, %error, "a secret is left out");
                }
                Err(source) => {
                    return Err(ServiceError::SecretLost { sandbox: sandbox.id.clone(), name: name.clone(), source });
                }
            }
        }
        Ok(values)
    }

    fn open_secret(&self, name: &str, recorded: &str) -> Result<String, SealError> {
        self.settings.secrets_key.as_ref().map_or_else(|| Ok(recorded.to_owned()), |key| key.open(name, recorded))
    }

    fn leaves_out_lost_secrets(&self) -> bool {
        self.settings.secrets_key.as_ref().is_some_and(|key| key.lost() == LostSecrets::LeaveOut)
    }
}
