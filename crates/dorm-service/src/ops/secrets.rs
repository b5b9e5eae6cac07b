//! Secrets of a project. Header rules of its sandboxes name them, and the proxy adds their values
//! to requests outside of the sandboxes.
//!
//! No call returns a value. A value is encrypted before it is recorded, and opened for each
//! request.

use std::collections::BTreeMap;

use dorm_lifecycle::{ProjectId, SecretName, Timestamp};
use dorm_ports::{Authority, SecretValue, Vault, VaultError};
use dorm_store::{ProjectRecord, SecretRecord};

use crate::error::{ProjectProblem, ServiceError};
use crate::shared::{Service, Shared};

/// The maximum number of secrets of a project.
pub const SECRETS_MAX: usize = 100;
/// The maximum length of a value, in bytes. Servers refuse longer headers.
pub const SECRET_BYTES_MAX: usize = 8192;

/// A secret, without its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretView {
    /// Its name.
    pub name: SecretName,
    /// When it was created.
    pub created: Timestamp,
    /// When its value was set last.
    pub changed: Timestamp,
    /// The number of sandboxes with a header rule that names it, terminated ones excepted.
    pub used_by: u64,
}

impl Service {
    /// Creates a secret, or replaces its value: the next request through a header rule has the new
    /// one.
    ///
    /// # Errors
    ///
    /// `Project` for a value that no header can have, and for too many secrets.
    pub async fn set_secret(&self, name: &SecretName, value: &SecretValue) -> Result<SecretView, ServiceError> {
        let (name, value) = (name.clone(), value.clone());
        self.to_the_end(|own| async move { own.set_secret_now(&name, &value).await }).await
    }

    async fn set_secret_now(&self, name: &SecretName, value: &SecretValue) -> Result<SecretView, ServiceError> {
        let refuse = |reason| ProjectProblem::BadSecret { name: name.clone(), reason };
        if let Some(reason) = defect(value.expose()) {
            return Err(refuse(reason).into());
        }
        let Some(key) = &self.shared.settings.secrets_key else { return Err(refuse(NO_KEY).into()) };
        let _turn = self.shared.projects.turn.lock().await;
        let mut project = self.project_to_write().await?;
        let now = self.shared.now();
        let created = project.secrets.get(name).map_or(now, |secret| secret.created);
        if !project.secrets.contains_key(name) && project.secrets.len() >= SECRETS_MAX {
            return Err(ProjectProblem::TooManySecrets(SECRETS_MAX).into());
        }
        let sealed = key.seal(&sealed_as(&project.id, name), value.expose(), self.shared.ids().random());
        project.secrets.insert(name.clone(), SecretRecord { sealed, created, changed: now });
        self.write_project(project).await?;
        self.secret(name).await
    }

    /// Returns the secrets of the project, in the order of their names.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn secrets(&self) -> Result<Vec<SecretView>, ServiceError> {
        let used = self.uses_of_secrets().await?;
        let known = self.shared.projects.known();
        let secrets = known.get(self.project()).map(|project| &project.secrets);
        let shown = |time| self.shared.clock.shown(time);
        let view = |(name, secret): (&SecretName, &SecretRecord)| SecretView {
            name: name.clone(),
            created: shown(secret.created),
            changed: shown(secret.changed),
            used_by: used.get(name).copied().unwrap_or_default(),
        };
        Ok(secrets.into_iter().flatten().map(view).collect())
    }

    /// Returns a secret of the project.
    ///
    /// # Errors
    ///
    /// `Project` if there is none.
    pub async fn secret(&self, name: &SecretName) -> Result<SecretView, ServiceError> {
        let found = self.secrets().await?.into_iter().find(|secret| secret.name == *name);
        found.ok_or_else(|| ProjectProblem::NoSecret(name.clone()).into())
    }

    /// Removes a secret. Header rules that name it stay: the requests that they are about are then
    /// refused. Removing one that does not exist is a success.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn remove_secret(&self, name: &SecretName) -> Result<(), ServiceError> {
        let name = name.clone();
        self.to_the_end(|own| async move { own.remove_secret_now(&name).await }).await
    }

    async fn remove_secret_now(&self, name: &SecretName) -> Result<(), ServiceError> {
        let _turn = self.shared.projects.turn.lock().await;
        let mut project = self.project_to_write().await?;
        match project.secrets.remove(name) {
            Some(_) => self.write_project(project).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns what keeps the secrets and authorities of all projects, for the proxy.
    pub fn vault(&self) -> impl Vault + use<> {
        Keeper(self.shared.clone())
    }

    async fn project_to_write(&self) -> Result<ProjectRecord, ServiceError> {
        self.refuse_unreadable(self.project()).await?;
        let project = self.project_record(self.project())?;
        let created = match project.created == Timestamp::default() {
            true => self.shared.now(),
            false => project.created,
        };
        Ok(ProjectRecord { created, ..project })
    }

    async fn uses_of_secrets(&self) -> Result<BTreeMap<SecretName, u64>, ServiceError> {
        let project = self.project();
        let named = self.shared.of_living(|sandbox| {
            let headers = sandbox.spec.egress.headers().iter().filter_map(|header| header.parsed().ok());
            let mut names: Vec<_> = headers.map(|header| header.secret).collect();
            names.sort();
            names.dedup();
            (sandbox.project == *project).then_some(names)
        });
        let mut used = BTreeMap::new();
        for name in named.await?.into_iter().flatten() {
            *used.entry(name).or_default() += 1;
        }
        Ok(used)
    }
}

const NO_KEY: &str = "the daemon has no key to encrypt it with";

/// Returns why a header cannot have this value. The text never contains a part of it.
fn defect(value: &str) -> Option<&'static str> {
    match value {
        "" => Some("it is empty"),
        long if long.len() > SECRET_BYTES_MAX => Some("it has more than 8192 bytes"),
        other if !other.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            Some("it has characters that no header can have: only printable ASCII characters of one line are possible")
        }
        spaced if spaced.trim() != spaced => Some("it begins or ends with a space"),
        _ => None,
    }
}

/// The name under which a secret is encrypted: no record of another project can be exchanged for
/// it.
fn sealed_as(project: &ProjectId, name: &SecretName) -> String {
    format!("{project}/{name}")
}

/// Opens secrets for the proxy.
struct Keeper(std::sync::Arc<Shared>);

impl Vault for Keeper {
    fn secret(&self, project: &ProjectId, name: &SecretName) -> Result<SecretValue, VaultError> {
        let known = self.0.projects.known();
        let found = known.get(project).filter(|known| known.removed.is_none());
        let Some(secret) = found.and_then(|project| project.secrets.get(name)) else {
            return Err(VaultError::Missing { project: project.clone(), name: name.clone() });
        };
        let key = self.0.settings.secrets_key.as_ref().ok_or(VaultError::NoKey)?;
        let opened = key.open(&sealed_as(project, name), &secret.sealed);
        let lost = |error: crate::SealError| VaultError::Lost { name: name.clone(), reason: error.to_string() };
        opened.map(SecretValue::new).map_err(lost)
    }

    fn authority(&self, project: &ProjectId) -> Result<Authority, VaultError> {
        self.0.authority(project).ok_or(VaultError::NoKey)
    }
}

impl Shared {
    /// Returns the certificate authority of a project, if the daemon has a key.
    pub(crate) fn authority(&self, project: &ProjectId) -> Option<Authority> {
        self.settings.secrets_key.as_ref().map(|key| key.authority(project))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_header_can_have_are_refused_without_being_shown() {
        let long = "x".repeat(SECRET_BYTES_MAX + 1);
        for value in ["", "two\nlines", "nul\0", "caf\u{e9}", " spaced", "spaced ", "x\ty", &long] {
            let reason = defect(value).unwrap();
            assert!(value.is_empty() || !reason.contains(value.trim()), "{reason}");
        }
        assert_eq!(defect(&long[1..]), None);
        assert_eq!(defect("sk-live_1234 with {braces}: %"), None);
    }
}
