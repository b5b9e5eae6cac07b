//! The lineage of sandboxes and snapshots, as lines in the order in which a tree is drawn.
//!
//! A pure function of the records. It follows the links in the records without relying on them: a
//! node with a missing parent becomes a root, and if links form a cycle, its oldest node becomes
//! one. Nothing is recursive, so a chain can have any length.

use std::collections::{BTreeMap, BTreeSet};

use dorm_lifecycle::{SandboxId, SnapshotId, StateName, Timestamp};
use dorm_store::SnapshotStatus;

/// The id of a sandbox or snapshot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TreeId {
    /// A sandbox.
    Sandbox(SandboxId),
    /// A snapshot.
    Snapshot(SnapshotId),
}

impl TreeId {
    /// Returns the kind as shown in answers.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sandbox(_) => "sandbox",
            Self::Snapshot(_) => "snapshot",
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Sandbox(id) => id.as_str(),
            Self::Snapshot(id) => id.as_str(),
        }
    }
}

/// The state of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeState {
    /// The state of a sandbox.
    Sandbox(StateName),
    /// The status of a snapshot.
    Snapshot(SnapshotStatus),
    /// A deleted snapshot from which something was made.
    Deleted,
}

impl TreeState {
    /// Returns the word for it in answers.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Sandbox(state) => state.as_str(),
            Self::Snapshot(status) => status.as_str(),
            Self::Deleted => "deleted",
        }
    }

    /// Returns whether more than its record is left.
    const fn is_there(&self) -> bool {
        match self {
            Self::Sandbox(StateName::Terminated) | Self::Snapshot(SnapshotStatus::Failed(_)) | Self::Deleted => false,
            Self::Sandbox(_) | Self::Snapshot(_) => true,
        }
    }
}

/// One line of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// The sandbox or snapshot.
    pub id: TreeId,
    /// The name of a sandbox.
    pub name: Option<String>,
    /// The state.
    pub state: TreeState,
    /// The generation of a sandbox, or of the sandbox of which a snapshot was taken.
    pub generation: Option<u64>,
    /// When it was created; unknown for some deleted snapshots.
    pub created: Option<Timestamp>,
    /// Its own size on disk, in bytes: that of a snapshot, or of the sleep images of a sandbox.
    pub bytes: u64,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The sandbox or snapshot it was made from; `None` for a root.
    pub parent: Option<TreeId>,
    /// The number of nodes above it.
    pub depth: usize,
}

/// A selection of the nodes to show.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeFilter {
    /// Only the tree that this sandbox belongs to.
    pub sandbox: Option<SandboxId>,
    /// Also terminated sandboxes and deleted snapshots with nothing left below them.
    pub all: bool,
}

/// Returns `nodes` in the order in which they are drawn: each after its parent, the oldest first.
pub(crate) fn tree(nodes: Vec<TreeNode>, filter: &TreeFilter) -> Vec<TreeNode> {
    let mut placed = place(nodes);
    if let Some(id) = &filter.sandbox {
        let wanted = TreeId::Sandbox(id.clone());
        placed = of_one(placed, &wanted);
    }
    if !filter.all {
        let asked = filter.sandbox.clone().map(TreeId::Sandbox);
        placed = without_what_is_over(placed, asked.as_ref());
    }
    placed
}

fn place(mut nodes: Vec<TreeNode>) -> Vec<TreeNode> {
    nodes.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
    let places: BTreeMap<TreeId, usize> = nodes.iter().enumerate().map(|(at, node)| (node.id.clone(), at)).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut roots = Vec::new();
    for (at, node) in nodes.iter_mut().enumerate() {
        match node.parent.as_ref().and_then(|parent| places.get(parent)) {
            Some(parent) => children[*parent].push(at),
            None => {
                node.parent = None;
                roots.push(at);
            }
        }
    }
    let mut slots: Vec<Option<TreeNode>> = nodes.into_iter().map(Some).collect();
    let mut placed = Vec::with_capacity(slots.len());
    for root in roots {
        take(root, &mut slots, &children, &mut placed);
    }
    // The remaining nodes form cycles.
    for at in 0..slots.len() {
        if let Some(node) = &mut slots[at] {
            node.parent = None;
            take(at, &mut slots, &children, &mut placed);
        }
    }
    placed
}

fn take(root: usize, slots: &mut [Option<TreeNode>], children: &[Vec<usize>], placed: &mut Vec<TreeNode>) {
    let mut next = vec![(root, 0)];
    while let Some((at, depth)) = next.pop() {
        let Some(node) = slots[at].take() else { continue };
        placed.push(TreeNode { depth, ..node });
        next.extend(children[at].iter().rev().map(|child| (*child, depth + 1)));
    }
}

fn of_one(placed: Vec<TreeNode>, wanted: &TreeId) -> Vec<TreeNode> {
    let Some(at) = placed.iter().position(|node| node.id == *wanted) else { return Vec::new() };
    let begin = placed[..=at].iter().rposition(|node| node.depth == 0).unwrap_or(0);
    let length =
        placed[begin + 1..].iter().position(|node| node.depth == 0).map_or(placed.len() - begin, |more| more + 1);
    placed.into_iter().skip(begin).take(length).collect()
}

fn without_what_is_over(placed: Vec<TreeNode>, asked: Option<&TreeId>) -> Vec<TreeNode> {
    let mut kept: BTreeSet<TreeId> = BTreeSet::new();
    for node in placed.iter().rev() {
        if node.state.is_there() || Some(&node.id) == asked || kept.contains(&node.id) {
            kept.insert(node.id.clone());
            kept.extend(node.parent.clone());
        }
    }
    placed.into_iter().filter(|node| kept.contains(&node.id)).collect()
}

#[cfg(test)]
mod tests;
