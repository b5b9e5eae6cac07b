//! Errors about projects.

use dorm_lifecycle::ProjectId;
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
            Self::Missing(_) => Code::NotFound,
            Self::Taken { .. } | Self::TooMany | Self::InUse { .. } => Code::Conflict,
        }
    }

    pub(super) fn next_step(&self) -> &'static str {
        match self {
            Self::Missing(_) => "list the projects with `dorm project ls`",
            Self::Taken { .. } => "choose another name",
            Self::TooMany => "remove unused projects",
            Self::InUse { .. } => "remove those first",
        }
    }
}
