//! Conversions between the rows and the domain's types. Every conversion is total: rows hold parsed
//! values.
//!
//! Domain values are taken apart field by field, without `..`: a new field stops the build here
//! until it has a place in the text.

use dorm_lifecycle::{
    Annotations, Attachment, Background, Caller, Cause, Checkpoints, Future, Hold, OnSuspendFailure, OnTimeout,
    OnUnrestorable, Origin, PoolMember, PortRules, Resources, Restored, Rewind, RewindFrom, Rewinding, Rewound,
    Sandbox, SandboxSpec, SleepImage, SleepRetention, SnapshotKind, State, SuspendFailures, Timeouts, Unreachable,
    Variables,
};

use super::background::BackgroundRow;
use super::caller::CallerRow;
use super::operation::{EndedRow, FailureRow, ForkRow, OnPartialFailureRow, OperationRow, PromoteRow, ResultRow};
use super::ports::PortRuleRow;
use super::sandbox::{
    CheckpointsRow, HoldRow, OnSuspendFailureRow, OnTimeoutRow, OnUnrestorableRow, OriginRow, PoolMemberRow,
    ResourcesRow, RestoredRow, RewoundRow, SandboxRow, SleepRetentionRow, SpecRow, SuspendFailuresRow, TimeoutsRow,
    UnreachableRow,
};
use super::snapshot::KindRow;
use super::state::{CauseRow, FutureRow, RewindFromRow, RewindRow, RewindingRow, SleepImageRow, StateRow};
use super::volume::AttachmentRow;
use crate::codec::word::{Length, Millis, Text, Word};
use crate::{FailureRecord, ForkPlan, OnPartialFailure, OperationRecord, OperationResult, PromotePlan, codec};

fn text<T: Clone>(value: &T) -> Text<T> {
    Text(value.clone())
}

impl From<&Sandbox> for SandboxRow {
    fn from(sandbox: &Sandbox) -> Self {
        let Sandbox {
            id,
            project,
            spec,
            origin,
            created,
            generation,
            run,
            last_active,
            timeouts_set,
            started,
            woken,
            holds,
            restored,
            rewound,
            older,
            unreachable,
            suspend_failures,
            pool,
            created_by,
            state,
        } = sandbox;
        Self {
            v: codec::SANDBOX,
            id: text(id),
            project: text(project),
            spec: spec.into(),
            origin: origin.into(),
            created: Millis(*created),
            generation: *generation,
            run: *run,
            last_active: Millis(*last_active),
            timeouts_set: Millis(*timeouts_set),
            started: started.map(Millis),
            woken: *woken,
            holds: holds.iter().map(HoldRow::from).collect(),
            restored: restored.into(),
            rewound: rewound.as_ref().map(RewoundRow::from),
            older: older.iter().map(SleepImageRow::from).collect(),
            unreachable: unreachable.as_ref().map(UnreachableRow::from),
            suspend_failures: suspend_failures.as_ref().map(SuspendFailuresRow::from),
            pool: pool.as_ref().map(PoolMemberRow::from),
            created_by: created_by.as_ref().map(CallerRow::from),
            state: state.into(),
        }
    }
}

impl From<SandboxRow> for Sandbox {
    fn from(row: SandboxRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            spec: row.spec.into(),
            origin: row.origin.into(),
            created: row.created.0,
            generation: row.generation,
            run: row.run,
            last_active: row.last_active.0,
            timeouts_set: row.timeouts_set.0,
            started: row.started.map(|started| started.0),
            woken: row.woken,
            holds: row.holds.into_iter().map(Hold::from).collect(),
            restored: row.restored.into(),
            rewound: row.rewound.map(Rewound::from),
            older: row.older.into_iter().map(SleepImage::from).collect(),
            unreachable: row.unreachable.map(Unreachable::from),
            suspend_failures: row.suspend_failures.map(SuspendFailures::from),
            pool: row.pool.map(PoolMember::from),
            created_by: row.created_by.map(Caller::from),
            state: row.state.into(),
        }
    }
}

impl From<&Unreachable> for UnreachableRow {
    fn from(unreachable: &Unreachable) -> Self {
        let Unreachable { since, reason } = unreachable;
        Self { since: Millis(*since), reason: reason.clone() }
    }
}

impl From<UnreachableRow> for Unreachable {
    fn from(row: UnreachableRow) -> Self {
        Self { since: row.since.0, reason: row.reason }
    }
}

impl From<&SuspendFailures> for SuspendFailuresRow {
    fn from(failures: &SuspendFailures) -> Self {
        let SuspendFailures { count, since, reason, next } = failures;
        Self { count: *count, since: Millis(*since), reason: reason.clone(), next: Millis(*next) }
    }
}

impl From<SuspendFailuresRow> for SuspendFailures {
    fn from(row: SuspendFailuresRow) -> Self {
        Self { count: row.count, since: row.since.0, reason: row.reason, next: row.next.0 }
    }
}

impl From<&SandboxSpec> for SpecRow {
    fn from(spec: &SandboxSpec) -> Self {
        let SandboxSpec {
            name,
            image,
            layer,
            resources,
            egress,
            program,
            variables,
            secrets,
            on_timeout,
            on_suspend_failure,
            suspendable,
            wake,
            port_access,
            port_host,
            port_rules,
            timeouts: Timeouts { total, idle, after_wake, max_run },
            retention,
            checkpoints,
            attachments,
            labels,
            annotations,
        } = spec;
        Self {
            name: name.as_ref().map(text),
            image: text(image),
            layer: layer.as_ref().map(text),
            resources: resources.into(),
            egress: egress.into(),
            program: (*program).into(),
            variables: variables.0.clone(),
            secrets: secrets.0.clone(),
            on_timeout: match on_timeout {
                OnTimeout::Terminate => OnTimeoutRow::Terminate,
                OnTimeout::Suspend => OnTimeoutRow::Suspend,
                OnTimeout::SuspendFiles => OnTimeoutRow::SuspendFiles,
            },
            on_suspend_failure: match on_suspend_failure {
                OnSuspendFailure::Keep => OnSuspendFailureRow::Keep,
                OnSuspendFailure::Terminate => OnSuspendFailureRow::Terminate,
            },
            suspendable: *suspendable,
            wake: Word(*wake),
            port_access: (*port_access).into(),
            port_host: port_host.as_ref().map(text),
            port_rules: port_rules.0.iter().map(|(port, rule)| (*port, PortRuleRow::from(rule))).collect(),
            timeouts: TimeoutsRow {
                total: total.map(Length),
                idle: idle.map(Length),
                after_wake: after_wake.map(Length),
                max_run: max_run.map(Length),
            },
            retention: SleepRetentionRow {
                generations: retention.generations,
                on_unrestorable: match retention.on_unrestorable {
                    OnUnrestorable::Fail => OnUnrestorableRow::Fail,
                    OnUnrestorable::Fresh => OnUnrestorableRow::Fresh,
                },
            },
            checkpoints: checkpoints.as_ref().map(CheckpointsRow::from),
            attachments: attachments.iter().map(AttachmentRow::from).collect(),
            labels: labels.clone(),
            annotations: annotations.0.clone(),
        }
    }
}

impl From<SpecRow> for SandboxSpec {
    fn from(row: SpecRow) -> Self {
        Self {
            name: row.name.map(|name| name.0),
            image: row.image.0,
            layer: row.layer.map(|layer| layer.0),
            resources: row.resources.into(),
            egress: row.egress.into(),
            program: row.program.into(),
            variables: Variables(row.variables),
            secrets: Variables(row.secrets),
            on_timeout: match row.on_timeout {
                OnTimeoutRow::Terminate => OnTimeout::Terminate,
                OnTimeoutRow::Suspend => OnTimeout::Suspend,
                OnTimeoutRow::SuspendFiles => OnTimeout::SuspendFiles,
            },
            on_suspend_failure: match row.on_suspend_failure {
                OnSuspendFailureRow::Keep => OnSuspendFailure::Keep,
                OnSuspendFailureRow::Terminate => OnSuspendFailure::Terminate,
            },
            suspendable: row.suspendable,
            wake: row.wake.0,
            port_access: row.port_access.into(),
            port_host: row.port_host.map(|host| host.0),
            port_rules: PortRules(row.port_rules.into_iter().map(|(port, rule)| (port, rule.into())).collect()),
            timeouts: Timeouts {
                total: row.timeouts.total.map(|length| length.0),
                idle: row.timeouts.idle.map(|length| length.0),
                after_wake: row.timeouts.after_wake.map(|length| length.0),
                max_run: row.timeouts.max_run.map(|length| length.0),
            },
            retention: SleepRetention {
                generations: row.retention.generations,
                on_unrestorable: match row.retention.on_unrestorable {
                    OnUnrestorableRow::Fail => OnUnrestorable::Fail,
                    OnUnrestorableRow::Fresh => OnUnrestorable::Fresh,
                },
            },
            checkpoints: row.checkpoints.map(Checkpoints::from),
            attachments: row.attachments.into_iter().map(Attachment::from).collect(),
            labels: row.labels,
            annotations: Annotations(row.annotations),
        }
    }
}

impl From<&Checkpoints> for CheckpointsRow {
    fn from(checkpoints: &Checkpoints) -> Self {
        let Checkpoints { every, kind, keep } = checkpoints;
        Self { every: Length(*every), kind: (*kind).into(), keep: text(keep) }
    }
}

impl From<CheckpointsRow> for Checkpoints {
    fn from(row: CheckpointsRow) -> Self {
        let CheckpointsRow { every, kind, keep } = row;
        Self { every: every.0, kind: kind.into(), keep: keep.0 }
    }
}

impl From<SnapshotKind> for KindRow {
    fn from(kind: SnapshotKind) -> Self {
        match kind {
            SnapshotKind::Filesystem => Self::Filesystem,
            SnapshotKind::Memory => Self::Memory,
        }
    }
}

impl From<KindRow> for SnapshotKind {
    fn from(row: KindRow) -> Self {
        match row {
            KindRow::Filesystem => Self::Filesystem,
            KindRow::Memory => Self::Memory,
        }
    }
}

impl From<&Hold> for HoldRow {
    fn from(hold: &Hold) -> Self {
        let Hold { id, reason, until } = hold;
        Self { id: text(id), reason: reason.clone(), until: Millis(*until) }
    }
}

impl From<HoldRow> for Hold {
    fn from(row: HoldRow) -> Self {
        Self { id: row.id.0, reason: row.reason, until: row.until.0 }
    }
}

impl From<&Restored> for RestoredRow {
    fn from(restored: &Restored) -> Self {
        match restored {
            Restored::Nothing => Self::Nothing,
            Restored::Filesystem => Self::Filesystem,
            Restored::Files { generation } => Self::Files { generation: *generation },
            Restored::Memory { generation } => Self::Memory { generation: *generation },
        }
    }
}

impl From<RestoredRow> for Restored {
    fn from(row: RestoredRow) -> Self {
        match row {
            RestoredRow::Nothing => Self::Nothing,
            RestoredRow::Filesystem => Self::Filesystem,
            RestoredRow::Files { generation } => Self::Files { generation },
            RestoredRow::Memory { generation } => Self::Memory { generation },
        }
    }
}

impl From<&Resources> for ResourcesRow {
    fn from(resources: &Resources) -> Self {
        let Resources { cpu_millis, memory_bytes, disk_bytes, processes } = *resources;
        Self { cpu_millis, memory_bytes, disk_bytes, processes }
    }
}

impl From<ResourcesRow> for Resources {
    fn from(row: ResourcesRow) -> Self {
        let ResourcesRow { cpu_millis, memory_bytes, disk_bytes, processes } = row;
        Self { cpu_millis, memory_bytes, disk_bytes, processes }
    }
}

impl From<&Origin> for OriginRow {
    fn from(origin: &Origin) -> Self {
        match origin {
            Origin::Image => Self::Image,
            Origin::Filesystem { snapshot, source } => {
                Self::Filesystem { snapshot: text(snapshot), source: text(source) }
            }
            Origin::Snapshot { snapshot, saved_state, source } => {
                Self::Snapshot { snapshot: text(snapshot), saved_state: text(saved_state), source: text(source) }
            }
        }
    }
}

impl From<OriginRow> for Origin {
    fn from(row: OriginRow) -> Self {
        match row {
            OriginRow::Image => Self::Image,
            OriginRow::Filesystem { snapshot, source } => Self::Filesystem { snapshot: snapshot.0, source: source.0 },
            OriginRow::Snapshot { snapshot, saved_state, source } => {
                Self::Snapshot { snapshot: snapshot.0, saved_state: saved_state.0, source: source.0 }
            }
        }
    }
}

impl From<&Cause> for CauseRow {
    fn from(cause: &Cause) -> Self {
        match cause {
            Cause::Requested => Self::Requested,
            Cause::Timeout => Self::Timeout,
            Cause::Failed { reason } => Self::Failed { reason: reason.clone() },
        }
    }
}

impl From<CauseRow> for Cause {
    fn from(row: CauseRow) -> Self {
        match row {
            CauseRow::Requested => Self::Requested,
            CauseRow::Timeout => Self::Timeout,
            CauseRow::Failed { reason } => Self::Failed { reason },
        }
    }
}

impl From<&State> for StateRow {
    fn from(state: &State) -> Self {
        let image_row = |image: &Option<SleepImage>| image.as_ref().map(SleepImageRow::from);
        let background_row = |background: &Option<Box<Background>>| {
            background.as_deref().map(|background| Box::new(BackgroundRow::from(background)))
        };
        match state {
            State::Pending { operation, deadline, program } => {
                Self::Pending { operation: text(operation), deadline: Millis(*deadline), program: (*program).into() }
            }
            State::Running { since, image, background } => {
                Self::Running { since: Millis(*since), image: image_row(image), background: background_row(background) }
            }
            State::Snapshotting { operation, deadline, snapshot, since, image } => Self::Snapshotting {
                operation: text(operation),
                deadline: Millis(*deadline),
                snapshot: text(snapshot),
                since: Millis(*since),
                image: image_row(image),
            },
            State::Suspending { operation, deadline, since, image, rewind, files } => Self::Suspending {
                operation: text(operation),
                deadline: Millis(*deadline),
                since: Millis(*since),
                image: image_row(image),
                rewind: rewind.as_deref().map(|rewind| Box::new(rewind.into())),
                files: files.as_ref().map(text),
            },
            State::Suspended { image, background } => {
                Self::Suspended { image: image.into(), background: background_row(background) }
            }
            State::Resuming { operation, deadline, image, rewind } => Self::Resuming {
                operation: text(operation),
                deadline: Millis(*deadline),
                image: image.into(),
                rewind: rewind.as_deref().map(|rewinding| Box::new(rewinding.into())),
            },
            State::Terminating { operation, deadline, cause, unleased } => Self::Terminating {
                operation: text(operation),
                deadline: Millis(*deadline),
                cause: cause.into(),
                unleased: *unleased,
            },
            State::Terminated { cause, at } => Self::Terminated { cause: cause.into(), at: Millis(*at) },
        }
    }
}

impl From<StateRow> for State {
    fn from(row: StateRow) -> Self {
        let image_of = |image: Option<SleepImageRow>| image.map(SleepImage::from);
        let background_of =
            |background: Option<Box<BackgroundRow>>| background.map(|background| Box::new((*background).into()));
        match row {
            StateRow::Pending { operation, deadline, program } => {
                Self::Pending { operation: operation.0, deadline: deadline.0, program: program.into() }
            }
            StateRow::Running { since, image, background } => {
                Self::Running { since: since.0, image: image_of(image), background: background_of(background) }
            }
            StateRow::Snapshotting { operation, deadline, snapshot, since, image } => Self::Snapshotting {
                operation: operation.0,
                deadline: deadline.0,
                snapshot: snapshot.0,
                since: since.0,
                image: image_of(image),
            },
            StateRow::Suspending { operation, deadline, since, image, rewind, files } => Self::Suspending {
                operation: operation.0,
                deadline: deadline.0,
                since: since.0,
                image: image_of(image),
                rewind: rewind.map(|rewind| Box::new((*rewind).into())),
                files: files.map(|files| files.0),
            },
            StateRow::Suspended { image, background } => {
                Self::Suspended { image: image.into(), background: background_of(background) }
            }
            StateRow::Resuming { operation, deadline, image, rewind } => Self::Resuming {
                operation: operation.0,
                deadline: deadline.0,
                image: image.into(),
                rewind: rewind.map(|rewinding| Box::new((*rewinding).into())),
            },
            StateRow::Terminating { operation, deadline, cause, unleased } => {
                Self::Terminating { operation: operation.0, deadline: deadline.0, cause: cause.into(), unleased }
            }
            StateRow::Terminated { cause, at } => Self::Terminated { cause: cause.into(), at: at.0 },
        }
    }
}

impl From<&OperationRecord> for OperationRow {
    fn from(operation: &OperationRecord) -> Self {
        let OperationRecord {
            id,
            kind,
            project,
            sandbox,
            initiator,
            caller,
            began,
            deadline,
            saved_state,
            fork,
            promote,
            ended,
        } = operation;
        Self {
            v: codec::OPERATION,
            id: text(id),
            kind: Word(*kind),
            project: text(project),
            sandbox: sandbox.as_ref().map(text),
            initiator: Word(*initiator),
            caller: caller.as_ref().map(CallerRow::from),
            began: Millis(*began),
            deadline: Millis(*deadline),
            saved_state: saved_state.as_ref().map(text),
            fork: fork.as_ref().map(ForkRow::from),
            promote: promote.as_ref().map(PromoteRow::from),
            ended: ended.as_ref().map(|(at, result)| EndedRow {
                at: Millis(*at),
                result: match result {
                    OperationResult::Done => ResultRow::Done,
                    OperationResult::Failed(failure) => ResultRow::Failed(failure.into()),
                },
            }),
        }
    }
}

impl From<OperationRow> for OperationRecord {
    fn from(row: OperationRow) -> Self {
        Self {
            id: row.id.0,
            kind: row.kind.0,
            project: row.project.0,
            sandbox: row.sandbox.map(|sandbox| sandbox.0),
            initiator: row.initiator.0,
            caller: row.caller.map(Caller::from),
            began: row.began.0,
            deadline: row.deadline.0,
            saved_state: row.saved_state.map(|saved_state| saved_state.0),
            fork: row.fork.map(ForkPlan::from),
            promote: row.promote.map(PromotePlan::from),
            ended: row.ended.map(|EndedRow { at, result }| match result {
                ResultRow::Done => (at.0, OperationResult::Done),
                ResultRow::Failed(failure) => (at.0, OperationResult::Failed(failure.into())),
            }),
        }
    }
}

impl From<&FailureRecord> for FailureRow {
    fn from(failure: &FailureRecord) -> Self {
        let FailureRecord { code, reason } = failure;
        Self { code: Word(*code), reason: reason.clone() }
    }
}

impl From<FailureRow> for FailureRecord {
    fn from(row: FailureRow) -> Self {
        Self { code: row.code.0, reason: row.reason }
    }
}

impl From<&Rewound> for RewoundRow {
    fn from(rewound: &Rewound) -> Self {
        let Rewound { to, generation } = rewound;
        Self { to: text(to), generation: *generation }
    }
}

impl From<RewoundRow> for Rewound {
    fn from(row: RewoundRow) -> Self {
        Self { to: row.to.0, generation: row.generation }
    }
}

impl From<&Rewind> for RewindRow {
    fn from(rewind: &Rewind) -> Self {
        let Rewind { to, target, layer, resources, future, may_hold } = rewind;
        Self {
            to: text(to),
            target: target.as_ref().map(SleepImageRow::from),
            layer: layer.as_ref().map(text),
            resources: resources.into(),
            future: future.as_ref().map(FutureRow::from),
            may_hold: *may_hold,
        }
    }
}

impl From<RewindRow> for Rewind {
    fn from(row: RewindRow) -> Self {
        Self {
            to: row.to.0,
            target: row.target.map(SleepImage::from),
            layer: row.layer.map(|layer| layer.0),
            resources: row.resources.into(),
            future: row.future.map(Future::from),
            may_hold: row.may_hold,
        }
    }
}

impl From<&Future> for FutureRow {
    fn from(future: &Future) -> Self {
        let Future { snapshot, keep } = future;
        Self { snapshot: text(snapshot), keep: keep.map(Length) }
    }
}

impl From<FutureRow> for Future {
    fn from(row: FutureRow) -> Self {
        Self { snapshot: row.snapshot.0, keep: row.keep.map(|keep| keep.0) }
    }
}

impl From<&Rewinding> for RewindingRow {
    fn from(rewinding: &Rewinding) -> Self {
        let Rewinding { rewind, from } = rewinding;
        let from = match from {
            RewindFrom::Running => RewindFromRow::Running,
            RewindFrom::Suspended => RewindFromRow::Suspended,
        };
        Self { rewind: rewind.into(), from }
    }
}

impl From<RewindingRow> for Rewinding {
    fn from(row: RewindingRow) -> Self {
        let from = match row.from {
            RewindFromRow::Running => RewindFrom::Running,
            RewindFromRow::Suspended => RewindFrom::Suspended,
        };
        Self { rewind: row.rewind.into(), from }
    }
}

impl From<&PromotePlan> for PromoteRow {
    fn from(plan: &PromotePlan) -> Self {
        let PromotePlan { child, snapshot } = plan;
        Self { child: text(child), snapshot: text(snapshot) }
    }
}

impl From<PromoteRow> for PromotePlan {
    fn from(row: PromoteRow) -> Self {
        Self { child: row.child.0, snapshot: row.snapshot.0 }
    }
}

impl From<&ForkPlan> for ForkRow {
    fn from(plan: &ForkPlan) -> Self {
        let ForkPlan { snapshot, children, on_partial_failure } = plan;
        Self {
            snapshot: text(snapshot),
            children: children.iter().map(text).collect(),
            on_partial_failure: match on_partial_failure {
                OnPartialFailure::RollBack => OnPartialFailureRow::RollBack,
                OnPartialFailure::Keep => OnPartialFailureRow::Keep,
            },
        }
    }
}

impl From<ForkRow> for ForkPlan {
    fn from(row: ForkRow) -> Self {
        Self {
            snapshot: row.snapshot.0,
            children: row.children.into_iter().map(|child| child.0).collect(),
            on_partial_failure: match row.on_partial_failure {
                OnPartialFailureRow::RollBack => OnPartialFailure::RollBack,
                OnPartialFailureRow::Keep => OnPartialFailure::Keep,
            },
        }
    }
}
