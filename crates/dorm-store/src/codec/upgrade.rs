//! Rows of one version as rows of the next: what did not exist yet gets the value that means what was meant then.

use std::collections::BTreeMap;

use super::word::Millis;
use super::{v1, v2, v3};

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
            (_, _) => v2::RestoredRow::Memory { generation: None },
        };
        Self {
            _v: 2,
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
            _v: 2,
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
            _v: 2,
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

impl From<v2::SandboxRow> for v3::SandboxRow {
    fn from(row: v2::SandboxRow) -> Self {
        Self {
            v: 3,
            id: row.id,
            project: row.project,
            spec: row.spec.into(),
            origin: match row.origin {
                v1::OriginRow::Image => v3::OriginRow::Image,
                v1::OriginRow::Snapshot { snapshot, capture } => {
                    v3::OriginRow::Snapshot { snapshot, capture, source: None }
                }
            },
            created: row.created,
            generation: row.generation,
            run: row.run,
            last_active: row.last_active,
            timeouts_set: row.timeouts_set,
            holds: row.holds,
            restored: row.restored.into(),
            rewound: None,
            older: row.older,
            unreachable: None,
            suspend_failures: None,
            state: row.state.into(),
        }
    }
}

impl From<v1::StateRow> for v3::StateRow {
    fn from(row: v1::StateRow) -> Self {
        match row {
            v1::StateRow::Pending { operation, deadline } => Self::Pending { operation, deadline, program: None },
            v1::StateRow::Running { since, image } => Self::Running { since, image, background: None },
            v1::StateRow::Snapshotting { operation, deadline, snapshot, since, image } => {
                Self::Snapshotting { operation, deadline, snapshot, since, image }
            }
            v1::StateRow::Suspending { operation, deadline, since, image } => {
                Self::Suspending { operation, deadline, since, image, rewind: None }
            }
            v1::StateRow::Suspended { image } => Self::Suspended { image, background: None },
            v1::StateRow::Resuming { operation, deadline, image } => {
                Self::Resuming { operation, deadline, image, rewind: None }
            }
            v1::StateRow::Terminating { operation, deadline, cause } => {
                Self::Terminating { operation, deadline, cause, unleased: false }
            }
            v1::StateRow::Terminated { cause, at } => Self::Terminated { cause, at },
        }
    }
}

impl From<v2::OperationRow> for v3::OperationRow {
    fn from(row: v2::OperationRow) -> Self {
        Self {
            v: 3,
            id: row.id,
            kind: row.kind,
            sandbox: row.sandbox,
            actor: row.actor,
            began: row.began,
            deadline: row.deadline,
            capture: row.capture,
            fork: row.fork,
            promote: None,
            ended: row.ended,
            failure: None,
        }
    }
}

impl From<v2::SpecRow> for v3::SpecRow {
    fn from(row: v2::SpecRow) -> Self {
        Self {
            name: row.name,
            image: row.image,
            layer: None,
            resources: row.resources,
            egress: row.egress,
            variables: row.variables,
            secrets: BTreeMap::new(),
            on_timeout: row.on_timeout,
            on_suspend_failure: v3::OnSuspendFailureRow::Keep,
            suspendable: row.suspendable,
            auto_resume: row.auto_resume,
            port_access: v3::PortAccessRow::Public,
            timeouts: row.timeouts,
            keeping: row.keeping,
            checkpoints: None,
            attachments: Vec::new(),
            labels: row.labels,
        }
    }
}

impl From<v2::RestoredRow> for v3::RestoredRow {
    fn from(row: v2::RestoredRow) -> Self {
        match row {
            v2::RestoredRow::Nothing => Self::Nothing,
            v2::RestoredRow::Memory { generation } => Self::Memory { generation },
        }
    }
}

impl From<v2::SnapshotRow> for v3::SnapshotRow {
    fn from(row: v2::SnapshotRow) -> Self {
        Self {
            v: 3,
            id: row.id,
            project: row.project,
            source: row.source,
            generation: row.generation,
            parent: row.parent,
            kind: v3::KindRow::Memory,
            capture: row.capture,
            image: row.image,
            layer: None,
            resources: row.resources,
            created: row.created,
            bytes: row.bytes,
            shares_data: false,
            labels: row.labels,
            removal: row.removal,
            made_by: v3::MakerRow::Request,
            status: row.status,
            failure: None,
        }
    }
}
