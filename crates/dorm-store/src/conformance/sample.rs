//! Sample records, with only the values that a check needs as arguments.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    ApiKeyId, Caller, Cause, Credential, EventKind, FirstProgram, Initiator, Name, OnTimeout, OperationId, ProjectId,
    Resources, Sandbox, SandboxId, SandboxSpec, SavedStateId, SleepImage, SnapshotId, SnapshotKind, State, StateName,
    Timestamp,
};

use crate::{
    Change, Maker, NewEvent, OperationKind, OperationRecord, Removal, SandboxRecord, SnapshotRecord, SnapshotStatus,
    Store, StoreError,
};

pub(super) fn bytes(number: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    for (position, byte) in bytes.iter_mut().rev().enumerate().take(7) {
        *byte = u8::try_from((u64::from(number) >> (5 * position)) & 31).unwrap_or_default();
    }
    bytes
}

pub(super) fn sandbox_id(number: u32) -> SandboxId {
    SandboxId::from_random(bytes(number))
}

pub(super) fn project(text: &str) -> ProjectId {
    text.parse().expect("a legal project")
}

pub(super) fn name(text: &str) -> Name {
    text.parse().expect("a legal name")
}

pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn state(state: StateName) -> State {
    let operation = OperationId::from_random([2; 20]);
    let deadline = at(9_000);
    let since = at(2_000);
    let image = SleepImage {
        saved_state: SavedStateId::from_random([3; 20]),
        generation: 1,
        taken: at(3_000),
        bytes: 4_096,
        files: None,
    };
    match state {
        StateName::Pending => State::Pending { operation, deadline, program: FirstProgram::None },
        StateName::Running => State::Running { since, image: None, background: None },
        StateName::Snapshotting => {
            let snapshot = SnapshotId::from_random([4; 20]);
            State::Snapshotting { operation, deadline, snapshot, since, image: Some(image) }
        }
        StateName::Suspending => {
            State::Suspending { operation, deadline, since, image: Some(image), rewind: None, files: None }
        }
        StateName::Suspended => State::Suspended { image, background: None },
        StateName::Resuming => State::Resuming { operation, deadline, image, rewind: None },
        StateName::Terminating => State::Terminating { operation, deadline, cause: Cause::Requested, unleased: false },
        StateName::Terminated => State::Terminated { cause: Cause::Timeout, at: at(5_000) },
    }
}

/// A sandbox of the project `local` that is not yet recorded; suspendable, so that it can be in any
/// state.
pub(super) fn sandbox(number: u32, name: Option<&str>, in_state: StateName) -> SandboxRecord {
    let image = "0123456789abcdef".repeat(4).parse().expect("a legal digest");
    let mut spec = SandboxSpec::new(image, name.map(self::name));
    spec.suspendable = true;
    spec.on_timeout = OnTimeout::Suspend;
    let sandbox = Sandbox {
        last_active: at(2_000),
        created_by: Some(caller()),
        ..Sandbox::new(sandbox_id(number), ProjectId::local(), spec, at(1_000), state(in_state))
    };
    SandboxRecord { sandbox, revision: 0 }
}

/// An API key that came through the native API.
pub(super) fn caller() -> Caller {
    let credential = Credential::ApiKey { id: ApiKeyId::from_random(bytes(7)), name: "ci".to_owned() };
    Caller { door: "api".parse().expect("a legal door"), credential }
}

pub(super) fn event(of: u32, detail: &str) -> NewEvent {
    NewEvent {
        project: ProjectId::local(),
        sandbox: sandbox_id(of),
        at: at(6_000),
        kind: EventKind::Created,
        initiator: Initiator::User,
        caller: Some(caller()),
        operation: Some(OperationId::from_random([2; 20])),
        generation: 1,
        detail: Some(detail.to_owned()),
        took: None,
        bytes: None,
    }
}

pub(super) fn operation(number: u32, began: u64) -> OperationRecord {
    OperationRecord {
        id: OperationId::from_random(bytes(number)),
        kind: OperationKind::Suspend,
        project: ProjectId::local(),
        sandbox: Some(sandbox_id(number)),
        initiator: Initiator::User,
        caller: Some(caller()),
        began: at(began),
        deadline: at(began + 60_000),
        saved_state: Some(SavedStateId::from_random(bytes(number))),
        fork: None,
        promote: None,
        ended: None,
    }
}

pub(super) fn snapshot(number: u32, created: u64) -> SnapshotRecord {
    SnapshotRecord {
        id: SnapshotId::from_random(bytes(number)),
        project: ProjectId::local(),
        name: None,
        source: sandbox_id(number),
        generation: 1,
        parent: None,
        kind: SnapshotKind::Memory,
        layer: None,
        saved_state: SavedStateId::from_random(bytes(number)),
        image: "fedcba9876543210".repeat(4).parse().expect("a legal digest"),
        resources: Resources::default(),
        inherited: None,
        created: at(created),
        bytes: 0,
        shares_data: false,
        labels: BTreeMap::new(),
        removal: Removal::Asked,
        made_by: Maker::Request,
        status: SnapshotStatus::InProgress,
    }
}

pub(super) fn change_of(sandboxes: Vec<SandboxRecord>) -> Change {
    Change { sandboxes, ..Change::default() }
}

/// Commits one sandbox and returns it with its new revision.
pub(super) async fn put(store: &dyn Store, record: SandboxRecord) -> Result<SandboxRecord, StoreError> {
    store.commit(change_of(vec![record.clone()])).await?;
    Ok(SandboxRecord { revision: record.revision + 1, ..record })
}

/// Moves a sandbox to another state in one commit.
pub(super) async fn transition(
    store: &dyn Store,
    mut record: SandboxRecord,
    to: StateName,
) -> Result<SandboxRecord, StoreError> {
    record.sandbox.state = state(to);
    put(store, record).await
}
