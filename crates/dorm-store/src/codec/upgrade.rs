//! Rows of version 1 as rows of version 2: what did not exist yet gets the value that means what was meant then.

use std::collections::BTreeMap;

use super::word::Millis;
use super::{v1, v2};

impl From<v1::SandboxRow> for v2::SandboxRow {
    fn from(row: v1::SandboxRow) -> Self {
        let timeouts_set = match &row.state {
            v1::StateRow::Running { since, .. }
            | v1::StateRow::Snapshotting { since, .. }
            | v1::StateRow::Suspending { since, .. } => since.0,
            v1::StateRow::Pending { .. }
            | v1::StateRow::Suspended { .. }
            | v1::StateRow::Resuming { .. }
            | v1::StateRow::Terminating { .. }
            | v1::StateRow::Terminated { .. } => row.created.0,
        };
        // Only its first run can have begun with nothing.
        let restored = match (&row.origin, row.generation) {
            (v1::OriginRow::Image, 1) => v2::RestoredRow::Nothing,
            (v1::OriginRow::Image | v1::OriginRow::Snapshot { .. }, _) => v2::RestoredRow::Memory { generation: None },
        };
        Self {
            v: 2,
            id: row.id,
            project: row.project,
            spec: row.spec.into(),
            origin: row.origin,
            created: row.created,
            generation: row.generation,
            run: row.run,
            last_active: row.last_active,
            timeouts_set: Millis(timeouts_set),
            holds: Vec::new(),
            restored,
            older: Vec::new(),
            state: row.state,
        }
    }
}

impl From<v1::SpecRow> for v2::SpecRow {
    fn from(row: v1::SpecRow) -> Self {
        Self {
            name: row.name,
            image: row.image,
            resources: row.resources,
            egress: row.egress,
            variables: row.variables,
            secrets: BTreeMap::new(),
            on_timeout: row.on_timeout,
            suspendable: row.suspendable,
            auto_resume: row.auto_resume,
            timeouts: v2::TimeoutsRow { total: row.timeouts.total, idle: row.timeouts.idle, max_run: None },
            keeping: v2::KeepingRow { generations: 1, on_unrestorable: v2::OnUnrestorableRow::Fail },
            labels: row.labels,
        }
    }
}

impl From<v1::EventRow> for v2::EventRow {
    fn from(row: v1::EventRow) -> Self {
        Self {
            v: 2,
            project: row.project,
            sandbox: row.sandbox,
            at: row.at,
            kind: row.kind,
            actor: row.actor,
            operation: row.operation,
            generation: row.generation,
            detail: row.detail,
            took: None,
            bytes: None,
        }
    }
}

impl From<v1::OperationRow> for v2::OperationRow {
    fn from(row: v1::OperationRow) -> Self {
        Self {
            v: 2,
            id: row.id,
            kind: row.kind,
            sandbox: row.sandbox,
            actor: row.actor,
            began: row.began,
            deadline: row.deadline,
            capture: row.capture,
            fork: None,
            ended: row.ended,
        }
    }
}

impl From<v1::SnapshotRow> for v2::SnapshotRow {
    fn from(row: v1::SnapshotRow) -> Self {
        Self {
            v: 2,
            id: row.id,
            project: row.project,
            source: row.source,
            generation: row.generation,
            parent: row.parent,
            capture: row.capture,
            image: row.image,
            resources: row.resources,
            created: row.created,
            bytes: row.bytes,
            labels: BTreeMap::new(),
            removal: v2::RemovalRow::Asked,
            status: row.status,
        }
    }
}
