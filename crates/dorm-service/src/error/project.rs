//! Errors about projects.

use dorm_lifecycle::{ProjectId, SecretName};
use dorm_store::Code;
use thiserror::Error;

/// The reason why a project cannot be used or changed as requested.
#[derive(Debug, Error)]
pub enum ProjectProblem {
    /// No project has this name.
    #[error("there is no project '{0}'")]
    Missing(String),
    /// The name of the new project is taken.
    #[error(
        "cannot create the project '{project}': {}",
        if *is_removed { "a project of this name was removed, and names are not used again" } else { "it exists" }
    )]
    Taken {
        /// The name.
        project: ProjectId,
        /// Whether the project with this name was removed.
        is_removed: bool,
    },
    /// The limit on the number of projects is reached.
    #[error("the limit of 1000 projects is reached")]
    TooMany,
    /// The project has no such secret.
    #[error("there is no secret '{0}' in this project")]
    NoSecret(SecretName),
    /// The limit on the number of secrets is reached.
    #[error("the limit of {0} secrets per project is reached")]
    TooManySecrets(usize),
    /// A secret cannot have this value, which the error does not contain.
    #[error("cannot set the secret '{name}': {reason}")]
    BadSecret {
        /// Its name.
        name: SecretName,
        /// The reason.
        reason: &'static str,
    },
    /// The project cannot be removed.
    #[error("cannot remove the project '{project}': it is in use by {}", users.join(", "))]
    InUse {
        /// The project.
        project: ProjectId,
        /// A few words for each kind of object in it.
        users: Vec<String>,
    },
}

impl ProjectProblem {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Missing(_) | Self::NoSecret(_) => Code::NotFound,
            Self::BadSecret { .. } => Code::InvalidArgument,
            Self::Taken { .. } | Self::TooMany | Self::TooManySecrets(_) | Self::InUse { .. } => Code::Conflict,
        }
    }

    pub(super) fn next_step(&self) -> &'static str {
        match self {
            Self::Missing(_) => "list the projects with `dorm project ls`",
            Self::Taken { .. } => "choose another name",
            Self::TooMany => "remove unused projects",
            Self::NoSecret(_) => "list the secrets with `dorm secret ls`",
            Self::TooManySecrets(_) => "remove unused secrets",
            Self::BadSecret { .. } => "set another value; encode one of several lines, such as with base64",
            Self::InUse { .. } => "remove those first",
        }
    }
}
