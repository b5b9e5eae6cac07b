//! Recording: a change of state, its operation, its events and the saved states it discards are one
//! transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{
    BackgroundWork, Effect, EventKind, Input, Keep, Observation, Outcome, Sandbox, SavedStateId, SnapshotId,
    SnapshotKind, State, Step, Timestamp,
};
use dorm_store::{
    Change, Made, Maker, NewEvent, OperationKind, OperationRecord, OperationResult, Removal, RequestRecord,
    SandboxRecord, SnapshotRecord, SnapshotStatus,
};

use super::answers;
use super::conflict::{Belongs, is_conflict};
use super::rewind::{fall_back, future_record, held_record};
use super::{Actor, Waiting};
use crate::asked_by::AskedBy;
use crate::backoff::Backoff;
use crate::effects::Written;
use crate::error::{Failure, ServiceError, chain};
use crate::keyed::KeyedRequest;
use crate::messages::{Carries, Message, Reply, SnapshotSpec};
use crate::shared::Shared;

/// The delays before recording an observation is retried after a failure, first and longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// The measurements of an operation that has ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Measured {
    took: Option<Duration>,
    bytes: Option<u64>,
}

/// An observation that was recorded.
pub(super) struct Recorded {
    pub(super) observation: Observation,
    /// Why the operation failed, if it did.
    pub(super) failure: Option<Failure>,
    /// The effect to carry out next.
    pub(super) effect: Option<Effect>,
}

impl Actor {
    /// Records what a command leads to, before anything is done. If this fails, nothing has
    /// changed.
    pub(super) async fn record_command(
        &mut self,
        made: Step,
        by: AskedBy,
        request: Option<RequestRecord>,
    ) -> Result<(), ServiceError> {
        // Recording the run also takes its leases.
        let _leasing = self.shared.grant_leases(Some(&self.record.sandbox), &made.next).await?;
        self.record_operation(made, by, None, request).await
    }

    async fn record_operation(
        &mut self,
        made: Step,
        by: AskedBy,
        asked: Option<&SnapshotSpec>,
        request: Option<RequestRecord>,
    ) -> Result<(), ServiceError> {
        let discard = discarded(&self.record.sandbox, &made.next);
        let mut change = Change { discard, requests: request.into_iter().collect(), ..Change::default() };
        #[cfg(feature = "planted-bugs")]
        if dorm_steps::planted::is(dorm_steps::planted::Planted::ImageReleasedEarly)
            && let State::Suspending { image: Some(image), .. } = &made.next.state
        {
            change.discard.push(image.saved_state.clone());
        }
        // Without an effect no operation begins, and one in progress continues unchanged.
        if made.effect.is_none() {
            return self.commit(made, change, by, Measured::default()).await;
        }
        self.by = by.clone();
        let saved_state = to_write(&self.shared, &made.next.state);
        let operation = operation(&made.next, &by, self.shared.now(), saved_state.as_ref());
        let files = files_of_suspend(&made.next, &by);
        let snapshot = match (asked.or(files.as_ref()), &saved_state) {
            (Some(asked), Some(saved_state)) => Some(snapshot_record(&self.shared, &made.next, asked, saved_state)),
            _ => None,
        };
        change.operations.extend(operation.clone());
        change.snapshots.extend(snapshot.clone());
        self.commit(made, change, by, Measured::default()).await?;
        (self.saved_state, self.operation, self.snapshot) = (saved_state, operation, snapshot);
        Ok(())
    }

    /// Records an observation, and the failure if there is one; returns what was recorded and the
    /// next effect, or `None` if the observation came late. Retries until it is recorded or the
    /// daemon stops, because the world has changed already. A new sleep image that cannot be
    /// recorded is discarded instead, and its guest continues.
    pub(super) async fn record_observation(
        &mut self,
        mut observation: Observation,
        mut failure: Option<Failure>,
        written: Written,
    ) -> Option<Recorded> {
        let mut again = Backoff::new(AGAIN);
        loop {
            failure = answers::failure(&observation, failure);
            let input = Input::Observation(observation.clone());
            let made = self.ask(input).ok()?;
            if made.outcome != Outcome::Changed {
                return None;
            }
            let change = self.over(&made, failure.as_ref(), written);
            let took = change.operations.first().and_then(|ended| Some(ended.ended.as_ref()?.0.since(ended.began)));
            let measured = Measured { took, bytes: (written.bytes > 0).then_some(written.bytes) };
            let effect = made.effect.clone();
            let of_suspend = match &self.record.sandbox.state {
                State::Suspending { files: Some(_), .. } => change.snapshots.last().cloned(),
                _ => None,
            };
            let going = change.operations.last().filter(|last| last.ended.is_none()).cloned();
            let is_of_held = self.record.sandbox.state.held().is_some();
            let future = (made.abandoned.is_some() || is_of_held).then(|| change.snapshots.last().cloned()).flatten();
            let future = future.filter(|future| future.status == SnapshotStatus::Completed);
            let begun = made.next.state.held().and_then(|_| change.snapshots.last().cloned());
            match self.commit(made, change, self.by.clone(), measured).await {
                Ok(()) => {
                    self.saved_state = going.as_ref().and_then(|going| going.saved_state.clone());
                    self.operation = going;
                    if of_suspend.is_some() || is_of_held {
                        self.snapshot = None;
                    }
                    if begun.is_some() {
                        self.snapshot = begun;
                    }
                    for snapshot in future.iter().chain(&of_suspend) {
                        self.shared.removals.note(snapshot);
                    }
                    return Some(Recorded { observation, failure, effect });
                }
                Err(_) if self.belongs != Belongs::Yes => return None,
                // It is decided again from the record that holds.
                Err(error) if is_conflict(&error) => {
                    if self.shared.stops_within(again.wait()).await {
                        return None;
                    }
                }
                Err(error) => {
                    let failed_before = answers::failure(&observation, None).is_some();
                    observation = self.instead_of(observation, &error).await?;
                    if !failed_before {
                        failure = Some(error.into());
                    }
                    if self.shared.stops_within(again.wait()).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Returns what ends with `next`: the operation, its snapshot's record, and the images that are
    /// no longer needed.
    fn over(&mut self, made: &Step, failure: Option<&Failure>, written: Written) -> Change {
        let next = &made.next;
        let mut change = Change { discard: discarded(&self.record.sandbox, next), ..Change::default() };
        // One time for all of it: a retry finds the state that a rewind abandoned by the times of
        // the rewind.
        let now = self.shared.now();
        let result = match failure {
            Some(failure) => OperationResult::Failed(failure.record()),
            None => OperationResult::Done,
        };
        let open = self
            .operation
            .clone()
            .or_else(|| operation(&self.record.sandbox, &self.by, self.shared.now(), self.saved_state.as_ref()));
        let was = self.record.sandbox.state.operation();
        if let Some(now) = next.state.operation()
            && was == Some(now)
        {
            // It continues with what it has written, which now belongs to the sandbox.
            let saved_state = to_write(&self.shared, &next.state);
            let going = operation(next, &self.by, self.shared.now(), saved_state.as_ref());
            if next.state.held().is_some() {
                // Nothing was written, and another attempt writes something else.
                change.discard.extend(self.saved_state.clone());
                if let (Some(snapshot), Some(saved_state)) = (&self.snapshot, saved_state) {
                    change.snapshots.push(SnapshotRecord { saved_state, ..snapshot.clone() });
                }
            }
            // After a restart of the daemon it is still the operation of the one who asked for it.
            change.operations.extend(going.map(|going| match open {
                Some(OperationRecord { initiator, caller, began, .. }) => {
                    OperationRecord { initiator, caller, began, ..going }
                }
                None => going,
            }));
            return change;
        }
        if let Some(mut ended) = open {
            ended.ended = Some((now, result.clone()));
            measure(&ended, &result);
            change.operations.push(ended);
        }
        // Files of it that cannot be removed stay on record until they are.
        if let (OperationResult::Failed(_), Some(saved_state)) = (&result, &self.saved_state) {
            change.discard.push(saved_state.clone());
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.status = match &result {
                OperationResult::Done => SnapshotStatus::Completed,
                OperationResult::Failed(failure) => SnapshotStatus::Failed(failure.clone()),
            };
            if written.is_flat {
                snapshot.layer = None;
            }
            snapshot.bytes = written.bytes;
            snapshot.shares_data = written.shares_data;
            change.snapshots.push(snapshot.clone());
        }
        if let Some(abandoned) = &made.abandoned {
            change.discard.retain(|saved_state| *saved_state != abandoned.image.saved_state);
            match change.snapshots.iter_mut().find(|snapshot| snapshot.id == abandoned.future.snapshot) {
                Some(snapshot) => fall_back(snapshot, &abandoned.image),
                None => change.snapshots.push(future_record(&self.record.sandbox, abandoned, now)),
            }
        }
        if made.effect.is_some() {
            self.add_next_operation(next, now, &mut change);
        }
        change
    }

    /// Adds the operation that follows at once, and the snapshot of a run that is held.
    fn add_next_operation(&self, next: &Sandbox, now: Timestamp, change: &mut Change) {
        let saved_state = next.state.held().and_then(|_| to_write(&self.shared, &next.state));
        change.operations.extend(operation(next, &self.by, now, saved_state.as_ref()));
        if let (Some(held), Some(saved_state)) = (next.state.held(), &saved_state) {
            change.snapshots.extend(held_record(&self.record.sandbox, held, saved_state, now));
        }
    }

    /// Returns what `observation` changes, if anything.
    pub(super) fn changes(&mut self, observation: Observation) -> Option<Step> {
        self.ask(Input::Observation(observation)).ok().filter(|made| made.outcome == Outcome::Changed)
    }

    pub(super) async fn commit(
        &mut self,
        made: Step,
        mut change: Change,
        by: AskedBy,
        measured: Measured,
    ) -> Result<(), ServiceError> {
        let operation = made.next.state.operation().or(self.record.sandbox.state.operation()).cloned();
        for (kind, detail) in made.events {
            change.events.push(NewEvent {
                project: made.next.project.clone(),
                sandbox: made.next.id.clone(),
                at: self.shared.now(),
                kind,
                initiator: by.initiator,
                caller: by.caller(),
                operation: operation.clone(),
                generation: made.next.generation,
                detail,
                took: measured.took,
                bytes: measured.bytes,
            });
        }
        change.sandboxes.push(SandboxRecord { sandbox: made.next.clone(), revision: self.record.revision });
        let committed = self.shared.commit(change).await.map_err(ServiceError::from);
        if let Err(error) = committed {
            if is_conflict(&error) {
                self.read_again().await;
            }
            return Err(error);
        }
        self.shared.ledger.note(&made.next);
        self.forget_verified(&self.record.sandbox.state, &made.next.state);
        self.record = SandboxRecord { sandbox: made.next, revision: self.record.revision + 1 };
        Ok(())
    }

    /// Records an event that changes no state.
    pub(super) async fn note(&mut self, kind: EventKind, by: impl Into<AskedBy>, detail: Option<String>) {
        let by = by.into();
        let sandbox = &self.record.sandbox;
        let event = NewEvent {
            project: sandbox.project.clone(),
            sandbox: sandbox.id.clone(),
            at: self.shared.now(),
            kind,
            initiator: by.initiator,
            caller: by.caller(),
            operation: None,
            generation: sandbox.generation,
            detail,
            took: None,
            bytes: None,
        };
        if let Err(error) = self.shared.commit(Change { events: vec![event], ..Change::default() }).await {
            tracing::warn!(sandbox = %self.record.sandbox.id, error = %chain(&error), "cannot record an event");
        }
    }

    pub(super) async fn take_snapshot(&mut self, mut asked: SnapshotSpec, reply: Reply<SnapshotRecord>) {
        let command = dorm_lifecycle::Command::Snapshot(asked.id.clone(), asked.kind);
        let made = match self.ask(Input::Command(command)) {
            Ok(made) => made,
            Err(denied) => {
                let sandbox = self.record.sandbox.id.clone();
                let _ = reply.send(Err(ServiceError::Denied { operation: "snapshot", sandbox, denied }));
                return;
            }
        };
        match (made.outcome, made.effect.clone()) {
            // The save of a held run may be repeated for long, and automatic snapshots of all
            // sandboxes take turns.
            (Outcome::Wait, _) if asked.made_by == Maker::Policy && self.record.sandbox.state.held().is_some() => {
                let _ = reply.send(Err(self.not_running()));
            }
            (Outcome::Wait, _) => self.later.push_back(Message::Snapshot { asked, reply }),
            // A policy only takes snapshots of a sandbox that has run since the last one.
            (Outcome::Changed, Some(Effect::SnapshotImage { .. })) if asked.made_by == Maker::Policy => {
                let _ = reply.send(Err(self.not_running()));
            }
            (Outcome::Changed, Some(effect)) => {
                let request = self.made(asked.request.as_deref(), Made::Snapshot(asked.id.clone()));
                match self.record_operation(made, asked.by.clone(), Some(&asked), request).await {
                    Ok(()) => {
                        asked.tell(self.snapshot.as_ref());
                        self.waiting.push(Waiting::Snapshot(reply));
                        self.begin(effect);
                    }
                    Err(error) => {
                        let _ = reply.send(Err(error));
                    }
                }
            }
            (Outcome::Changed | Outcome::Already, _) => {
                let _ = reply.send(Err(self.not_running()));
            }
        }
    }

    /// Returns the record of a request with an idempotency key for the change that records what it
    /// makes.
    pub(super) fn made(&self, request: Option<&KeyedRequest>, made: Made) -> Option<RequestRecord> {
        request.map(|request| request.record(made, self.shared.now()))
    }

    fn not_running(&self) -> ServiceError {
        let sandbox = &self.record.sandbox;
        ServiceError::NotRunning { sandbox: sandbox.id.clone(), state: sandbox.state.name() }
    }
}

impl SnapshotSpec {
    /// Returns a request for a snapshot that is not taken by a policy.
    pub(crate) fn new(id: SnapshotId, kind: SnapshotKind, removal: Removal, by: AskedBy) -> Self {
        Self {
            id,
            kind,
            name: None,
            carries: Carries::Settings,
            labels: BTreeMap::new(),
            removal,
            made_by: Maker::Request,
            by,
            request: None,
            begun: None,
        }
    }

    /// Notifies the caller that the snapshot is being taken.
    fn tell(&mut self, record: Option<&SnapshotRecord>) {
        if let (Some(begun), Some(record)) = (self.begun.take(), record) {
            let _ = begun.send(record.clone());
        }
    }
}

/// Returns the id for the saved state that the operation in `state` writes, if it writes one.
fn to_write(shared: &Shared, state: &State) -> Option<SavedStateId> {
    match state {
        // A run that is held is saved later.
        State::Suspending { rewind: Some(rewind), .. } if rewind.may_hold => None,
        State::Suspending { .. } | State::Snapshotting { .. } => Some(shared.ids().saved_state()),
        State::Running { background: Some(background), .. } | State::Suspended { background: Some(background), .. } => {
            match &background.work {
                BackgroundWork::Attach { .. } | BackgroundWork::Egress { .. } | BackgroundWork::Resize { .. } => None,
                BackgroundWork::PrepareRewind(rewind) => {
                    rewind.target.as_ref().map(|target| target.saved_state.clone())
                }
                BackgroundWork::Snapshot(_) => Some(shared.ids().saved_state()),
                BackgroundWork::SaveHeld(held) => held.future.is_some().then(|| shared.ids().saved_state()),
            }
        }
        State::Running { background: None, .. }
        | State::Suspended { background: None, .. }
        | State::Pending { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => None,
    }
}

/// Returns the record of the operation that `sandbox` is in.
fn operation(
    sandbox: &Sandbox,
    by: &AskedBy,
    now: dorm_lifecycle::Timestamp,
    saved_state: Option<&SavedStateId>,
) -> Option<OperationRecord> {
    let (kind, id, deadline) = match &sandbox.state {
        State::Pending { operation, deadline, .. } => (OperationKind::Create, operation, deadline),
        State::Snapshotting { operation, deadline, .. } => (OperationKind::Snapshot, operation, deadline),
        State::Suspending { operation, deadline, rewind: Some(_), .. }
        | State::Resuming { operation, deadline, rewind: Some(_), .. } => (OperationKind::Rewind, operation, deadline),
        State::Suspending { operation, deadline, .. } => (OperationKind::Suspend, operation, deadline),
        State::Resuming { operation, deadline, .. } => (OperationKind::Resume, operation, deadline),
        State::Terminating { operation, deadline, .. } => (OperationKind::Terminate, operation, deadline),
        State::Running { background: Some(background), .. } | State::Suspended { background: Some(background), .. } => {
            let kind = match &background.work {
                BackgroundWork::Attach { after } if after.len() < sandbox.spec.attachments.len() => {
                    OperationKind::Detach
                }
                BackgroundWork::Attach { .. } => OperationKind::Attach,
                BackgroundWork::Egress { .. } => OperationKind::Egress,
                BackgroundWork::Resize { .. } => OperationKind::Resize,
                BackgroundWork::PrepareRewind(_) => OperationKind::Rewind,
                BackgroundWork::Snapshot(_) | BackgroundWork::SaveHeld(_) => OperationKind::Snapshot,
            };
            (kind, &background.operation, &background.deadline)
        }
        State::Running { background: None, .. }
        | State::Suspended { background: None, .. }
        | State::Terminated { .. } => return None,
    };
    Some(OperationRecord {
        id: id.clone(),
        kind,
        project: sandbox.project.clone(),
        sandbox: Some(sandbox.id.clone()),
        initiator: by.initiator,
        caller: by.caller(),
        began: now,
        deadline: *deadline,
        saved_state: saved_state.cloned(),
        fork: None,
        promote: None,
        ended: None,
    })
}

/// Returns the record of the operation that a new sandbox is in.
pub(crate) fn first_operation(sandbox: &Sandbox, by: &AskedBy) -> Option<OperationRecord> {
    operation(sandbox, by, sandbox.created, None)
}

fn snapshot_record(
    shared: &Shared,
    sandbox: &Sandbox,
    asked: &SnapshotSpec,
    saved_state: &SavedStateId,
) -> SnapshotRecord {
    SnapshotRecord {
        id: asked.id.clone(),
        project: sandbox.project.clone(),
        name: asked.name.clone(),
        source: sandbox.id.clone(),
        // The state of a suspended sandbox is that of its sleep image.
        generation: match &sandbox.state {
            State::Suspended { image, .. } => image.generation,
            _ => sandbox.generation,
        },
        parent: sandbox.parent().cloned(),
        kind: asked.kind,
        saved_state: saved_state.clone(),
        image: sandbox.spec.image.clone(),
        layer: match (&sandbox.state, asked.kind) {
            // It is a copy of the files with all layers below them.
            (State::Suspended { image, .. }, SnapshotKind::Filesystem) if image.keeps() == Keep::Files => None,
            (_, _) => sandbox.spec.layer.clone(),
        },
        resources: sandbox.spec.resources,
        inherited: match asked.carries {
            Carries::Settings => Some(sandbox.spec.inherited()),
            Carries::Nothing => None,
        },
        created: shared.now(),
        bytes: 0,
        shares_data: false,
        labels: asked.labels.clone(),
        removal: asked.removal,
        made_by: asked.made_by,
        status: SnapshotStatus::InProgress,
    }
}

/// Returns the request for the snapshot that holds the files of a suspend that keeps nothing else.
/// It is deleted when the sandbox, and all that was made from it, is based on other files.
fn files_of_suspend(next: &Sandbox, by: &AskedBy) -> Option<SnapshotSpec> {
    let State::Suspending { files: Some(files), .. } = &next.state else { return None };
    let labels = [("suspended".to_owned(), next.id.to_string())].into();
    let spec = SnapshotSpec::new(files.clone(), SnapshotKind::Filesystem, Removal::WhenFree, by.clone());
    Some(SnapshotSpec { labels, ..spec })
}

/// Updates the metrics for an operation that has ended.
fn measure(ended: &OperationRecord, result: &OperationResult) {
    let kind = ended.kind.as_str();
    let word = match result {
        OperationResult::Done => "done",
        OperationResult::Failed(_) => "failed",
    };
    metrics::counter!("dorm_operations_total", "kind" => kind, "result" => word).increment(1);
    if let Some((at, _)) = &ended.ended {
        metrics::histogram!("dorm_operation_seconds", "kind" => kind).record(at.since(ended.began).as_secs_f64());
    }
}

/// Returns the saved states that `before` keeps and `next` does not.
fn discarded(before: &Sandbox, next: &Sandbox) -> Vec<SavedStateId> {
    let kept: Vec<_> = next.saved_states().collect();
    before.saved_states().filter(|saved_state| !kept.contains(saved_state)).cloned().collect()
}
