//! Errors about environments.

use dorm_lifecycle::environment::{KeyError, Way, WorkspaceError};
use dorm_lifecycle::{EnvironmentId, LeaseId, SecretName};
use dorm_store::{AttemptFailure, Code};
use thiserror::Error;

/// The reason why an environment cannot be provided or changed as requested.
#[derive(Debug, Error)]
pub enum EnvironmentProblem {
    /// No environment has this id.
    #[error("there is no environment '{0}'")]
    Missing(String),
    /// The key is invalid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The definition is invalid.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// Parts of the request contradict each other.
    #[error("invalid request for an environment: {0}")]
    Bad(&'static str),
    /// A secret that the request names does not exist or cannot be read.
    #[error("cannot use the secret {name}: {reason}")]
    Secret {
        /// Its name.
        name: SecretName,
        /// The reason.
        reason: String,
    },
    /// A secret of the environment cannot be read.
    #[error("the secret {name} of the environment cannot be read: {reason}")]
    Lost {
        /// The name of its variable.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The project has too many environments.
    #[error("this project has {0} environments, which is the limit")]
    Many(usize),
    /// The definition is not the one that was recorded.
    #[error("the definition of environment {environment} has changed: {}", differences.join(", "))]
    Drift {
        /// The environment.
        environment: EnvironmentId,
        /// The fields that differ.
        differences: Vec<&'static str>,
    },
    /// Something exists for it but cannot be used.
    #[error("{} {environment}: {reason}", broken(*way))]
    Broken {
        /// The environment.
        environment: EnvironmentId,
        /// The way.
        way: Way,
        /// The reason.
        reason: String,
    },
    /// It could not be made.
    #[error(
        "could not set up environment {environment}: {}{}",
        failure.failure.reason,
        failure.kept.as_ref().map_or_else(String::new, |kept| format!(" (sandbox {kept} is kept for inspection)"))
    )]
    Failed {
        /// The environment.
        environment: EnvironmentId,
        /// The failure.
        failure: Box<AttemptFailure>,
    },
    /// Making it was cancelled.
    #[error("the setup of environment {0} was cancelled")]
    Cancelled(EnvironmentId),
    /// It is being removed.
    #[error("environment {0} is being removed")]
    Removed(EnvironmentId),
    /// It has no such lease.
    #[error("environment {environment} has no lease {lease}: it was released, or it has expired")]
    NoLease {
        /// The environment.
        environment: EnvironmentId,
        /// The lease.
        lease: LeaseId,
    },
}

/// Returns what has failed if an environment is broken.
fn broken(way: Way) -> &'static str {
    match way {
        Way::Live => "cannot use the running sandbox of environment",
        Way::Resume => "cannot resume the sandbox of environment",
        Way::OwnSnapshot => "cannot restore the snapshot of environment",
        Way::WorkspaceSnapshot => "cannot restore a snapshot of the same definition for environment",
        Way::Create => "cannot create the sandbox of environment",
    }
}

impl EnvironmentProblem {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Missing(_) => Code::NotFound,
            Self::Key(_) | Self::Workspace(_) | Self::Bad(_) | Self::Secret { .. } => Code::InvalidArgument,
            Self::Many(_) => Code::NoRoom,
            Self::Drift { .. } | Self::Cancelled(_) | Self::Lost { .. } => Code::Conflict,
            Self::Broken { .. } => Code::Damaged,
            Self::Failed { failure, .. } => failure.failure.code,
            Self::Removed(_) | Self::NoLease { .. } => Code::Gone,
        }
    }

    pub(super) fn next_step(&self) -> &'static str {
        match self {
            Self::Missing(_) => "list the environments with `dorm env ls`",
            Self::Key(_) | Self::Workspace(_) | Self::Bad(_) => "correct the definition of the environment",
            Self::Secret { .. } => "set it with `dorm secret set`, or name another one",
            Self::Lost { .. } => {
                "give its value again, or start the daemon with the key that encrypts it (--secrets-key)"
            }
            Self::Many(_) => "remove some with `dorm env rm`",
            Self::Drift { .. } => "set on_drift to keep or rebuild, or use another key",
            Self::Broken { .. } => "set on_broken to next, which tries the next way, or remove it with `dorm env rm`",
            Self::Failed { .. } => "see its log: `dorm env logs`, or GET /v1/environments/{environment}/logs",
            Self::Cancelled(_) | Self::Removed(_) => "repeat the request",
            Self::NoLease { .. } => "request the environment again, with a new lease",
        }
    }
}
