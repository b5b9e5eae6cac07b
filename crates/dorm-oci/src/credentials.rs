//! The credentials in Docker's configuration.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential};

use crate::blocking::in_place;

/// The credentials for a registry. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    None,
    Password {
        user: String,
        password: String,
    },
    /// Those of the request.
    Given {
        user: String,
        password: String,
    },
    /// An identity token, to be exchanged for an access token.
    Identity(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Credentials {
    /// Returns a description of the credentials for people.
    pub(crate) fn shown(&self) -> &'static str {
        match self {
            Self::None => "no login was sent",
            Self::Given { .. } => "the login of the request was sent",
            Self::Password { .. } | Self::Identity(_) => "the login in Docker's configuration was sent",
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn open(path: &Path) -> std::io::Result<File> {
    in_place(|| File::open(path))
}

/// Finds the credentials under `key`. If they are configured but cannot be read, a warning is
/// logged and none are used.
pub(crate) fn find(directory: Option<&Path>, key: &str) -> Credentials {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".docker"));
    let set = || std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let Some(directory) = directory.map(Path::to_owned).or_else(set).or_else(home) else { return Credentials::None };
    let Ok(file) = open(&directory.join("config.json")) else { return Credentials::None };
    match docker_credential::get_credential_from_reader(file, key) {
        Ok(DockerCredential::UsernamePassword(user, password)) if user == "<token>" => Credentials::Identity(password),
        Ok(DockerCredential::UsernamePassword(user, password)) => Credentials::Password { user, password },
        Ok(DockerCredential::IdentityToken(token)) => Credentials::Identity(token),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Credentials::None,
        // A credential store has none for registries without a login.
        Err(CredentialRetrievalError::HelperFailure { .. }) => Credentials::None,
        Err(error) => {
            tracing::warn!(registry = key, %error, "cannot use the login in Docker's configuration");
            Credentials::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_found_by_registry_and_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"auths":{"localhost:5000":{"auth":"YW5uOmh1bnRlcjI="},"x.y":{"identitytoken":"abc"}}}"#;
        std::fs::write(directory.path().join("config.json"), text).unwrap();
        let found = find(Some(directory.path()), "localhost:5000");
        assert_eq!(found, Credentials::Password { user: "ann".into(), password: "hunter2".into() });
        assert!(!format!("{found:?}").contains("hunter2"));
        assert_eq!(find(Some(directory.path()), "x.y"), Credentials::Identity("abc".into()));
        assert_eq!(find(Some(directory.path()), "other"), Credentials::None);
        std::fs::write(directory.path().join("config.json"), "not JSON").unwrap();
        assert_eq!(find(Some(directory.path()), "x.y"), Credentials::None);
        assert_eq!(find(Some(Path::new("/absent")), "x.y"), Credentials::None);
    }
}
