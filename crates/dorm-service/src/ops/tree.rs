//! The lineage of sandboxes and snapshots.

use std::collections::BTreeMap;

use dorm_lifecycle::{Sandbox, SnapshotId};
use dorm_store::{EventFilter, NewEvent, SandboxFilter, SnapshotFilter, SnapshotRecord};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::tree::{TreeFilter, TreeId, TreeNode, TreeState, tree};
use crate::view::SandboxView;

/// How many sandboxes are read at a time.
const PAGE: usize = 1000;

impl Service {
    /// Returns the lineage of sandboxes and snapshots, in the order in which it is drawn. For a
    /// deleted snapshot from which something was made, the events supply what is known.
    ///
    /// # Errors
    ///
    /// `NoSandbox`; fails if the store fails.
    pub async fn tree(&self, filter: &TreeFilter) -> Result<Vec<TreeNode>, ServiceError> {
        if let Some(id) = &filter.sandbox {
            self.record(id).await?;
        }
        let mut lineage = Lineage::default();
        match (&filter.sandbox, filter.all) {
            (Some(id), _) => self.follow(&mut lineage, vec![TreeId::Sandbox(id.clone())], Way::Both).await?,
            (None, true) => {
                let mine = SandboxFilter { project: Some(self.project().clone()), ..SandboxFilter::default() };
                self.everything(&mut lineage, mine).await?;
            }
            (None, false) => {
                let own = |sandbox: &Sandbox| (sandbox.project == *self.project()).then(|| sandbox.id.clone());
                for id in self.shared.of_living(own).await? {
                    let record = self.record(&id).await?;
                    lineage.add(of_sandbox(self.shared.view(&record)));
                }
                for snapshot in self.snapshots().await? {
                    lineage.add(of_snapshot(snapshot));
                }
                let parents = lineage.nodes.values().filter_map(|node| node.parent.clone()).collect();
                self.follow(&mut lineage, parents, Way::Up).await?;
            }
        }
        Ok(tree(lineage.nodes.into_values().collect(), filter))
    }

    async fn everything(&self, lineage: &mut Lineage, mut filter: SandboxFilter) -> Result<(), ServiceError> {
        for snapshot in self.snapshots().await? {
            lineage.add(of_snapshot(snapshot));
        }
        filter.limit = PAGE;
        loop {
            let page = self.list(&filter).await?;
            let Some(last) = page.last() else { break };
            filter.after = Some(last.sandbox.id.clone());
            let origins = page.iter().filter_map(|view| view.sandbox.origin.snapshot().cloned());
            let origins: Vec<_> = origins.map(TreeId::Snapshot).collect();
            page.into_iter().for_each(|view| lineage.add(of_sandbox(view)));
            // The deleted ones.
            self.follow(lineage, origins, Way::Up).await?;
        }
        Ok(())
    }

    /// Adds `from` and their ancestors, or also the descendants of those.
    async fn follow(&self, lineage: &mut Lineage, from: Vec<TreeId>, way: Way) -> Result<(), ServiceError> {
        let mut open = from;
        while let Some(id) = open.pop() {
            if lineage.nodes.contains_key(&id) {
                continue;
            }
            let Some(node) = self.node(&id).await? else { continue };
            open.extend(node.parent.clone());
            lineage.add(node);
            if way == Way::Both {
                open.extend(self.children(&id).await?);
            }
        }
        Ok(())
    }

    async fn node(&self, id: &TreeId) -> Result<Option<TreeNode>, ServiceError> {
        let shared = &self.shared;
        match id {
            TreeId::Sandbox(id) => match self.describe(id).await {
                Ok(view) => Ok(Some(of_sandbox(view))),
                Err(ServiceError::NoSandbox(_)) => Ok(None),
                Err(error) => Err(error),
            },
            TreeId::Snapshot(id) => match self.snapshot(id).await {
                Ok(snapshot) => Ok(Some(of_snapshot(snapshot))),
                Err(ServiceError::NoSnapshot(_)) => {
                    let project = Some(self.project().clone());
                    let filter = EventFilter {
                        project: project.clone(),
                        taken: Some(id.clone()),
                        limit: 1,
                        ..EventFilter::default()
                    };
                    let taken = shared.store.events(&filter).await?.pop();
                    let mut node = deleted(taken.map(|record| shared.shown_event(record).event), id.clone());
                    if node.parent.is_none() {
                        let born =
                            SandboxFilter { project, origin: Some(id.clone()), limit: 1, ..SandboxFilter::default() };
                        let born = shared.store.sandboxes(&born).await?.pop();
                        let source = born.and_then(|record| record.sandbox.origin.source().cloned());
                        node.parent = source.map(TreeId::Sandbox);
                    }
                    Ok(Some(node))
                }
                Err(error) => Err(error),
            },
        }
    }

    async fn children(&self, id: &TreeId) -> Result<Vec<TreeId>, ServiceError> {
        let store = &self.shared.store;
        Ok(match id {
            TreeId::Sandbox(id) => {
                let filter = SnapshotFilter { source: Some(id.clone()), ..SnapshotFilter::default() };
                let mut children: Vec<_> =
                    store.find_snapshots(&filter).await?.into_iter().map(|one| TreeId::Snapshot(one.id)).collect();
                // Deleted ones are known from the sandboxes that were made from them.
                let filter = SandboxFilter { origin_source: Some(id.clone()), ..SandboxFilter::default() };
                let born = store.sandboxes(&filter).await?.into_iter();
                children.extend(born.filter_map(|one| one.sandbox.origin.snapshot().cloned()).map(TreeId::Snapshot));
                children
            }
            TreeId::Snapshot(id) => {
                let filter = SandboxFilter { origin: Some(id.clone()), ..SandboxFilter::default() };
                store.sandboxes(&filter).await?.into_iter().map(|record| TreeId::Sandbox(record.sandbox.id)).collect()
            }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Both,
}

/// The part of a tree that has been read so far.
#[derive(Default)]
struct Lineage {
    nodes: BTreeMap<TreeId, TreeNode>,
}

impl Lineage {
    fn add(&mut self, node: TreeNode) {
        self.nodes.insert(node.id.clone(), node);
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
