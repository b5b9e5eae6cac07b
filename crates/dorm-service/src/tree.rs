//! Who comes from whom: sandboxes and the snapshots between them, as lines in the order in which a tree is drawn.
//!
//! A pure function of what is on record. It follows the links that records have and expects nothing of them: a parent
//! that is not there makes a root, and where links lead round in a ring the oldest of it becomes one. Nothing is
//! recursive, so a chain may be as long as it likes.

use std::collections::{BTreeMap, BTreeSet};

use dorm_lifecycle::{SandboxId, SnapshotId, StateName, Timestamp};
use dorm_store::SnapshotStatus;

/// Which of the two, and which one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TreeId {
    /// A sandbox.
    Sandbox(SandboxId),
    /// A snapshot.
    Snapshot(SnapshotId),
}

impl TreeId {
    /// The kind in answers.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sandbox(_) => "sandbox",
            Self::Snapshot(_) => "snapshot",
        }
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Sandbox(id) => id.as_str(),
            Self::Snapshot(id) => id.as_str(),
        }
    }
}

/// In which state it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeState {
    /// A sandbox's.
    Sandbox(StateName),
    /// A snapshot's.
    Snapshot(SnapshotStatus),
    /// A snapshot that is gone, from which somebody began.
    Deleted,
}

impl TreeState {
    /// Its word in answers.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Sandbox(state) => state.as_str(),
            Self::Snapshot(status) => status.as_str(),
            Self::Deleted => "deleted",
        }
    }

    /// Whether there is still something of it besides its record.
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
    /// Who it is.
    pub id: TreeId,
    /// A sandbox's name.
    pub name: Option<String>,
    /// Its state.
    pub state: TreeState,
    /// A sandbox's generation, or that of the sandbox of which a snapshot was taken.
    pub generation: Option<u64>,
    /// Since when it is there; not known of some deleted snapshots.
    pub created: Option<Timestamp>,
    /// What it occupies on disk for itself: a snapshot, or the sleep images of a sandbox.
    pub bytes: u64,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
    /// What it comes from; none of a root.
    pub parent: Option<TreeId>,
    /// How many are above it.
    pub depth: usize,
}

/// What is shown of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeFilter {
    /// Only the tree to which this sandbox belongs.
    pub sandbox: Option<SandboxId>,
    /// Also what is over and has nothing left below it.
    pub all: bool,
}

/// `nodes` in the order in which they are drawn: each after its parent, the oldest first.
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
    // Whoever is left belongs to a ring.
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
