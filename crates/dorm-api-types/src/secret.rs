//! Secrets of a project.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::{Secret, Time};

/// Sets a secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Value: 1 to 8192 printable ASCII characters.
    pub value: Secret,
}

/// A secret of a project. Its value is never returned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectSecret {
    /// Name.
    pub name: String,
    /// When the secret was created.
    pub created_at: Time,
    /// When its value was set last.
    pub changed_at: Time,
    /// Number of sandboxes with a header rule that names the secret.
    pub used_by: u64,
}

/// A page of secrets, ordered by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SecretList {
    /// The secrets.
    pub secrets: Vec<ProjectSecret>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}
