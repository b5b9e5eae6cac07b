//! Errors about builds and templates.

use dorm_lifecycle::{BuildId, Digest};
use dorm_store::Code;
use thiserror::Error;

/// The reason why a build or a template cannot be used or changed as requested.
#[derive(Debug, Error)]
pub enum BuildProblem {
    /// No build has this id.
    #[error("there is no build '{0}'")]
    Missing(String),
    /// The build cannot be carried out as requested.
    #[error("invalid build: {0}")]
    Bad(String),
    /// The context of the build was not uploaded, or was removed since.
    #[error("there is no build context {0}")]
    NoContext(Digest),
    /// The build has been given its steps already.
    #[error("build {0} has been started already")]
    Started(BuildId),
    /// Too many builds of the project wait.
    #[error("{0} builds of this project wait or are in progress, which is the limit")]
    Many(usize),
    /// Too many contexts of the project wait for a build.
    #[error("{0} build contexts of this project are kept, which is the limit")]
    ManyContexts(usize),
    /// No template has this name, or it has no such tag.
    #[error("there is no template '{0}'")]
    NoTemplate(String),
    /// The template cannot be as requested.
    #[error("invalid template '{template}': {reason}")]
    BadTemplate {
        /// Its name.
        template: String,
        /// The reason.
        reason: String,
    },
}

impl BuildProblem {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Missing(_) | Self::NoContext(_) | Self::NoTemplate(_) => Code::NotFound,
            Self::Bad(_) | Self::BadTemplate { .. } => Code::InvalidArgument,
            Self::Started(_) => Code::Conflict,
            Self::Many(_) | Self::ManyContexts(_) => Code::NoRoom,
        }
    }

    pub(super) fn next_step(&self) -> &'static str {
        match self {
            Self::Missing(_) => "list the builds with `dorm build ls`",
            Self::NoContext(_) => "upload it with PUT /v1/contexts/{hash}, and try again",
            Self::Started(_) => "request another build",
            Self::Many(_) => "wait until some have ended, or cancel them",
            Self::ManyContexts(_) => {
                "request the builds that use them; those without a build are removed after an hour"
            }
            Self::NoTemplate(_) => "list the templates with `dorm template ls`",
            Self::Bad(_) => "correct the steps or the settings, and request another build",
            Self::BadTemplate { .. } => "correct the name or the tags, or give an image or a snapshot instead",
        }
    }
}
