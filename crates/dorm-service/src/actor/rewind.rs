//! Rewinds: the request to the lifecycle, and the record of the state that a rewind abandons.

use std::time::Duration;

use dorm_lifecycle::{
    Abandoned, Command, Future, Held, Input, Outcome, Resources, Rewind, RunId, Sandbox, SavedStateId, SleepImage,
    SnapshotId, SnapshotKind, State, Timestamp,
};
use dorm_store::{Code, Made, Maker, Removal, SnapshotRecord, SnapshotStatus};

use super::{Actor, Waiting};
use crate::effects;
use crate::error::{Failure, ServiceError};
use crate::messages::{Message, Reply, RewindSpec};
use crate::view::SandboxView;

/// How long a run that nobody needs any more is kept, so that ending it does not delay the calls
/// that follow a rewind: it takes about as much CPU time as several of them.
const ENDED_AFTER: Duration = Duration::from_millis(250);

impl Actor {
    pub(super) async fn rewind(&mut self, asked: Box<RewindSpec>, reply: Reply<SandboxView>) {
        let rewind = self.planned(&asked);
        let made = match self.ask(Input::Command(Command::Rewind(Box::new(rewind)))) {
            Ok(made) if made.outcome == Outcome::Wait => {
                self.later.push_back(Message::Rewind { asked, reply });
                return;
            }
            Ok(made) => made,
            Err(denied) => {
                let sandbox = self.record.sandbox.id.clone();
                let _ = reply.send(Err(ServiceError::Denied { operation: "rewind", sandbox, denied }));
                return;
            }
        };
        let Some(effect) = made.effect.clone() else {
            let _ = reply.send(Err(self.failed("rewind", Failure::new(Code::Internal, "it has no effect"))));
            return;
        };
        let operation = made.next.state.operation().cloned();
        let made_by_it = operation.and_then(|id| self.made(asked.request.as_deref(), Made::Operation(id)));
        match self.record_command(made, asked.by, made_by_it).await {
            Ok(()) => {
                self.waiting.push(Waiting::View("rewind", reply));
                self.begin(effect);
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    fn planned(&self, asked: &RewindSpec) -> Rewind {
        let RewindSpec { to, future, may_hold, by: _, request: _ } = asked;
        let own = to.source == self.record.sandbox.id;
        let copy = || SleepImage {
            saved_state: self.shared.ids().saved_state(),
            generation: if own { to.generation } else { 0 },
            taken: to.created,
            bytes: to.bytes,
            files: None,
        };
        let (target, layer, resources) = match to.kind {
            SnapshotKind::Memory => (Some(copy()), to.layer.clone(), to.resources),
            // The sandbox keeps its own limits, except that the disk may have to be larger.
            SnapshotKind::Filesystem => {
                let own = self.record.sandbox.spec.resources;
                let disk_bytes = own.disk_bytes.max(to.resources.disk_bytes);
                (None, Some(to.saved_state.clone()), Resources { disk_bytes, ..own })
            }
        };
        Rewind { to: to.id.clone(), target, layer, resources, future: future.clone(), may_hold: *may_hold }
    }

    /// Ends the run that a rewind has left, whose state is recorded, after the first calls to the
    /// new run.
    pub(super) fn end_held(&self, held: &Held) {
        let (task, run) = (self.task(), RunId { sandbox: self.record.sandbox.id.clone(), generation: held.run });
        task.shared.unended().insert(run.clone());
        self.shared.spawn(async move {
            tokio::select! {
                biased;
                () = task.shared.stopping.cancelled() => {}
                () = tokio::time::sleep(ENDED_AFTER) => {}
            }
            effects::end(&task, &run).await;
        });
    }

    pub(super) fn held_settled(&mut self, reply: Reply<()>) {
        match self.record.sandbox.state.held() {
            Some(held) if held.failures == 0 => self.waiting.push(Waiting::Settled(reply)),
            Some(_) | None => _ = reply.send(Ok(())),
        }
    }

    /// Forgets that a copy was verified, once nothing relies on that.
    pub(super) fn forget_verified(&self, before: &State, next: &State) {
        if let (Some(Rewind { target: Some(target), .. }), None) = (before.rewind(), next.rewind()) {
            self.shared.removals.forget_verified(&target.saved_state);
        }
    }
}

/// Returns the record of the snapshot that keeps the state that a rewind abandons.
pub(super) fn future_record(before: &Sandbox, abandoned: &Abandoned, now: Timestamp) -> SnapshotRecord {
    let Abandoned { future, image, rewound_to } = abandoned;
    let saved = (image.generation, &image.saved_state);
    let status = SnapshotStatus::Completed;
    SnapshotRecord { bytes: image.bytes, status, ..record(before, future, rewound_to, saved, now) }
}

/// Returns the record of the snapshot that keeps the state of the run that a rewind has left, while
/// it is saved as `saved_state`.
pub(super) fn held_record(
    before: &Sandbox,
    held: &Held,
    saved_state: &SavedStateId,
    now: Timestamp,
) -> Option<SnapshotRecord> {
    let future = held.future.as_ref()?;
    Some(record(before, future, &held.rewound_to, (held.generation, saved_state), now))
}

/// Makes `snapshot`, which is in progress, one of the image of a state that was to be saved once
/// more and is lost.
pub(super) fn fall_back(snapshot: &mut SnapshotRecord, image: &SleepImage) {
    snapshot.generation = image.generation;
    snapshot.saved_state = image.saved_state.clone();
    snapshot.bytes = image.bytes;
    snapshot.status = SnapshotStatus::Completed;
}

fn record(
    before: &Sandbox,
    future: &Future,
    rewound_to: &SnapshotId,
    (generation, saved_state): (u64, &SavedStateId),
    now: Timestamp,
) -> SnapshotRecord {
    SnapshotRecord {
        id: future.snapshot.clone(),
        project: before.project.clone(),
        name: None,
        source: before.id.clone(),
        generation,
        parent: before.parent().cloned(),
        kind: SnapshotKind::Memory,
        saved_state: saved_state.clone(),
        image: before.spec.image.clone(),
        layer: before.spec.layer.clone(),
        resources: before.spec.resources,
        inherited: Some(before.spec.inherited()),
        created: now,
        bytes: 0,
        shares_data: false,
        labels: [("rewound".to_owned(), rewound_to.to_string())].into(),
        removal: future.keep.map_or(Removal::Asked, |keep| Removal::At(now.after(keep))),
        made_by: Maker::Request,
        status: SnapshotStatus::InProgress,
    }
}
