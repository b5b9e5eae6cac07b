//! What differs between two moments of files.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text::Text;

/// The paths that differ, in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// Them.
    pub changes: Vec<DiffEntry>,
}

/// A path that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiffEntry {
    /// The absolute path.
    pub path: Text,
    /// What happened to it from the first moment to the second.
    pub change: DiffChange,
    /// Its length at the first moment; only of a file.
    pub before_bytes: Option<u64>,
    /// Its length at the second moment; only of a file.
    pub after_bytes: Option<u64>,
}

/// What happened to a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffChange {
    /// It is only there at the second moment.
    Added,
    /// It is only there at the first moment.
    Removed,
    /// Its kind, content, owner, mode or attributes are others. Times alone do not count.
    Modified,
}
