//! The lineage of sandboxes and snapshots.

use std::collections::{BTreeMap, BTreeSet};

use dorm_lifecycle::{EventKind, SnapshotId};
use dorm_store::{EventFilter, NewEvent, SandboxFilter, SnapshotRecord};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::tree::{TreeFilter, TreeId, TreeNode, TreeState, tree};
use crate::view::SandboxView;

/// How many events are read at once.
const PAGE: usize = 1000;

impl Service {
    /// Who comes from whom, in the order in which it is drawn. Of a snapshot that is deleted, but from which somebody
    /// began, the events tell what is known.
    ///
    /// # Errors
    /// `NoSandbox`; when the store fails.
    pub async fn tree(&self, filter: &TreeFilter) -> Result<Vec<TreeNode>, ServiceError> {
        if let Some(id) = &filter.sandbox {
            self.record(id).await?;
        }
        let mine = SandboxFilter { project: Some(self.project().clone()), ..SandboxFilter::default() };
        let sandboxes = self.list(&mine).await?;
        let snapshots = self.snapshots().await?;
        let known: BTreeSet<_> = snapshots.iter().map(|snapshot| &snapshot.id).collect();
        let gone: BTreeSet<_> = sandboxes
            .iter()
            .filter_map(|view| view.sandbox.origin.snapshot().filter(|snapshot| !known.contains(snapshot)).cloned())
            .collect();
        let mut taken = self.taken(&gone).await?;
        let gone = gone.into_iter().map(|id| deleted(taken.remove(&id), id));
        let nodes = sandboxes.into_iter().map(of_sandbox).chain(snapshots.into_iter().map(of_snapshot)).chain(gone);
        Ok(tree(nodes.collect(), filter))
    }

    /// The events that tell how these snapshots were taken.
    async fn taken(&self, snapshots: &BTreeSet<SnapshotId>) -> Result<BTreeMap<SnapshotId, NewEvent>, ServiceError> {
        let mut taken = BTreeMap::new();
        let mut filter = EventFilter { project: Some(self.project().clone()), limit: PAGE, ..EventFilter::default() };
        while taken.len() < snapshots.len() {
            let page = self.shared.store.events(&filter).await?;
            let Some(last) = page.last() else { break };
            filter.after = last.number;
            for record in page {
                let id = record.event.detail.as_deref().and_then(|detail| detail.parse::<SnapshotId>().ok());
                if let (EventKind::SnapshotTaken, Some(id)) = (record.event.kind, id)
                    && snapshots.contains(&id)
                {
                    taken.insert(id, record.event);
                }
            }
        }
        Ok(taken)
    }
}

fn of_sandbox(view: SandboxView) -> TreeNode {
    let sandbox = view.sandbox;
    TreeNode {
        state: TreeState::Sandbox(sandbox.state.name()),
        generation: Some(sandbox.generation),
        created: Some(sandbox.created),
        bytes: sandbox.state.image().into_iter().chain(&sandbox.older).map(|image| image.bytes).sum(),
        parent: sandbox.origin.snapshot().cloned().map(TreeId::Snapshot),
        id: TreeId::Sandbox(sandbox.id),
        name: sandbox.spec.name.map(|name| name.to_string()),
        labels: sandbox.spec.labels,
        depth: 0,
    }
}

fn of_snapshot(snapshot: SnapshotRecord) -> TreeNode {
    TreeNode {
        id: TreeId::Snapshot(snapshot.id),
        name: None,
        state: TreeState::Snapshot(snapshot.status),
        generation: Some(snapshot.generation),
        created: Some(snapshot.created),
        bytes: snapshot.bytes,
        labels: snapshot.labels,
        parent: Some(TreeId::Sandbox(snapshot.source)),
        depth: 0,
    }
}

fn deleted(taken: Option<NewEvent>, id: SnapshotId) -> TreeNode {
    TreeNode {
        id: TreeId::Snapshot(id),
        name: None,
        state: TreeState::Deleted,
        generation: taken.as_ref().map(|event| event.generation),
        created: taken.as_ref().map(|event| event.at),
        bytes: 0,
        labels: BTreeMap::new(),
        parent: taken.map(|event| TreeId::Sandbox(event.sandbox)),
        depth: 0,
    }
}
