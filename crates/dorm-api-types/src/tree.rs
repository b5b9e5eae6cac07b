//! Lineage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Time;

/// Lineage of sandboxes and snapshots as a flat list in drawing order: each node after its parent,
/// oldest first. It is flat because a chain can be deeper than JSON parsers allow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<TreeNode>,
}

/// A sandbox or snapshot in the tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    /// Whether the node is a sandbox or a snapshot.
    pub kind: TreeKind,
    /// ID of the sandbox or snapshot.
    pub id: String,
    /// Name of the sandbox, if it has one.
    pub name: Option<String>,
    /// State of the sandbox or status of the snapshot; `deleted` for a deleted snapshot that
    /// sandboxes were created from.
    pub state: String,
    /// Generation of the sandbox, or of the sandbox that the snapshot was taken from.
    pub generation: Option<u64>,
    /// When it was created. Not known for every deleted snapshot.
    pub created_at: Option<Time>,
    /// Disk space used by the snapshot, or by the sleep images of the sandbox, in bytes.
    pub bytes: u64,
    /// Labels: arbitrary strings by key.
    pub labels: BTreeMap<String, String>,
    /// ID of the parent: the snapshot that a sandbox was created from, or the sandbox that a
    /// snapshot was taken from.
    pub parent: Option<String>,
    /// Number of ancestors.
    pub depth: usize,
}

/// Kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TreeKind {
    /// A sandbox.
    Sandbox,
    /// A snapshot.
    Snapshot,
}
