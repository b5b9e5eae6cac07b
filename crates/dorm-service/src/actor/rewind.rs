//! Rewinds: the request to the lifecycle, and the record of the state that a rewind abandons.

use dorm_lifecycle::{
    Abandoned, Command, Input, Outcome, Resources, Rewind, Sandbox, SleepImage, SnapshotKind, State, Timestamp,
};
use dorm_store::{Code, Made, Maker, Removal, SnapshotRecord, SnapshotStatus};

use super::{Actor, Waiting};
use crate::error::{Failure, ServiceError};
use crate::messages::{Message, Reply, RewindSpec};
use crate::view::SandboxView;

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
        let RewindSpec { to, future, by: _, request: _ } = asked;
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
        Rewind { to: to.id.clone(), target, layer, resources, future: future.clone() }
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
    SnapshotRecord {
        id: future.snapshot.clone(),
        project: before.project.clone(),
        name: None,
        source: before.id.clone(),
        generation: image.generation,
        parent: before.parent().cloned(),
        kind: SnapshotKind::Memory,
        saved_state: image.saved_state.clone(),
        image: before.spec.image.clone(),
        layer: before.spec.layer.clone(),
        resources: before.spec.resources,
        inherited: Some(before.spec.inherited()),
        created: now,
        bytes: image.bytes,
        shares_data: false,
        labels: [("rewound".to_owned(), rewound_to.to_string())].into(),
        removal: future.keep.map_or(Removal::Asked, |keep| Removal::At(now.after(keep))),
        made_by: Maker::Request,
        status: SnapshotStatus::Completed,
    }
}
