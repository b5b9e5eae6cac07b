//! Lineage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text::Time;

/// Who comes from whom, line by line as it is drawn: each after its parent, the oldest first. Flat, since a chain may be
/// longer than readers of nested JSON allow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Tree {
    /// The lines.
    pub nodes: Vec<TreeNode>,
}

/// A sandbox or a snapshot in a tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    /// Which of the two.
    pub kind: TreeKind,
    /// Its id.
    pub id: String,
    /// A sandbox's name, if it has one.
    pub name: Option<String>,
    /// A sandbox's state, a snapshot's status, or `deleted` for a snapshot that is gone, but from which somebody began.
    pub state: String,
    /// A sandbox's generation, or that of the sandbox of which a snapshot was taken.
    pub generation: Option<u64>,
    /// Since when it is there; not known of every deleted snapshot.
    pub created_at: Option<Time>,
    /// What it occupies on disk for itself: a snapshot, or the sleep images of a sandbox.
    pub bytes: u64,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
    /// The id of what it comes from: a sandbox began from a snapshot, a snapshot was taken of a sandbox.
    pub parent: Option<String>,
    /// How many are above it.
    pub depth: usize,
}

/// What a line of a tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TreeKind {
    /// A sandbox.
    Sandbox,
    /// A snapshot.
    Snapshot,
}
