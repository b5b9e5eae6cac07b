//! Secrets of sandboxes made from another sandbox: they get the secrets that the request names, and
//! no others; and how secrets are recorded.

use std::collections::BTreeMap;
use std::fmt;

use dorm_lifecycle::{Sandbox, SandboxId, SandboxSpec, Variables};

use crate::error::ServiceError;
use crate::secrets_key::{LostSecrets, SealError};
use crate::shared::Shared;

/// A secret that is named for a clone or a child.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSpec {
    /// Keep the value of the source.
    Kept,
    /// Use this value.
    Value(String),
}

impl fmt::Debug for SecretSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "Kept",
            Self::Value(_) => "Value(..)",
        })
    }
}

/// Secrets by name, as requested for a clone or a child.
pub type SecretSpecs = BTreeMap<String, SecretSpec>;

/// Why secrets of a source cannot be passed on.
pub(crate) enum NotFollowing {
    /// The source has no secret of this name.
    None(String),
    /// The secret cannot be read.
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
    /// Returns the values of the requested secrets for a sandbox made from `source`.
    pub(crate) fn following_secrets(
        &self,
        source: &SandboxSpec,
        asked: &SecretSpecs,
    ) -> Result<Variables, NotFollowing> {
        let value = |name: &String, asked: &SecretSpec| match (asked, source.secrets.0.get(name)) {
            (SecretSpec::Value(value), _) => Ok(value.clone()),
            (SecretSpec::Kept, None) => Err(NotFollowing::None(name.clone())),
            (SecretSpec::Kept, Some(recorded)) => {
                self.open_secret(name, recorded).map_err(|error| NotFollowing::Lost(name.clone(), error))
            }
        };
        asked
            .iter()
            .map(|(name, asked)| Ok((name.clone(), value(name, asked)?)))
            .collect::<Result<_, _>>()
            .map(Variables)
    }

    /// Returns secrets in the form in which they are recorded.
    pub(crate) fn seal_secrets(&self, secrets: Variables) -> Variables {
        let Some(key) = &self.settings.secrets_key else { return secrets };
        let sealed = secrets.0.into_iter().map(|(name, value)| {
            let sealed = key.seal(&name, &value, self.ids().random());
            (name, sealed)
        });
        Variables(sealed.collect())
    }

    /// Returns the values of the recorded secrets of a sandbox.
    ///
    /// # Errors
    ///
    /// `SecretLost`, unless lost secrets are to be left out.
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

    pub(crate) fn open_secret(&self, name: &str, recorded: &str) -> Result<String, SealError> {
        self.settings.secrets_key.as_ref().map_or_else(|| Ok(recorded.to_owned()), |key| key.open(name, recorded))
    }

    fn leaves_out_lost_secrets(&self) -> bool {
        self.settings.secrets_key.as_ref().is_some_and(|key| key.lost() == LostSecrets::LeaveOut)
    }
}
