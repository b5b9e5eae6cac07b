//! Lineage.

use dorm_api_types as wire;
use dorm_service as service;
use dorm_service::TreeId;

use super::{Of, time};

impl Of<service::TreeNode> for wire::TreeNode {
    fn of(node: service::TreeNode) -> Self {
        let service::TreeNode { id, name, state, generation, created, bytes, labels, parent, depth } = node;
        Self {
            kind: match id {
                TreeId::Sandbox(_) => wire::TreeKind::Sandbox,
                TreeId::Snapshot(_) => wire::TreeKind::Snapshot,
            },
            id: id.as_str().to_owned(),
            name,
            state: state.as_str().to_owned(),
            generation,
            created_at: created.map(time),
            bytes,
            labels,
            parent: parent.map(|parent| parent.as_str().to_owned()),
            depth,
        }
    }
}
