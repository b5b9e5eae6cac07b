//! Comparison of files.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Text;

/// The side that a comparison starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffOrder {
    /// The older side. The current files of a sandbox are newer than any snapshot; two sandboxes
    /// are compared in the order given.
    #[default]
    Time,
    /// The side given as `from`.
    Given,
}

/// The paths that differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// ID of the snapshot or sandbox that the comparison starts from: the first side.
    pub from: String,
    /// ID of the snapshot or sandbox that it goes to: the second side.
    pub to: String,
    /// The paths in order.
    pub changes: Vec<DiffEntry>,
}

/// A path that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiffEntry {
    /// The absolute path.
    pub path: Text,
    /// How the path changed from the first side to the second.
    pub change: DiffChange,
    /// Size on the first side. Only present for a file.
    pub before_bytes: Option<u64>,
    /// Size on the second side. Only present for a file.
    pub after_bytes: Option<u64>,
}

/// How a path changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffChange {
    /// The path exists only on the second side.
    Added,
    /// The path exists only on the first side.
    Removed,
    /// Type, contents, owner, mode or attributes differ. Timestamps are ignored.
    Modified,
}
