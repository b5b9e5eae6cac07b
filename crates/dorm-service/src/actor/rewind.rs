//! Taking a sandbox back to a snapshot: its own copy of the snapshot's content is made first, then the lifecycle decides.

use dorm_lifecycle::{
    Abandoned, Actor as By, Command, Context, Future, Input, Outcome, Resources, Rewind, Sandbox, SleepImage,
    SnapshotKind, State, step,
};
use dorm_store::{
    Change, Maker, OperationKind, OperationRecord, OperationResult, Removal, SnapshotRecord, SnapshotStatus,
};

use super::{Actor, Message, Reply, Waiting};
use crate::error::ServiceError;
use crate::shared::{Shared, chain};
use crate::view::SandboxView;

/// A rewind that somebody wants.
pub(crate) struct RewindAsked {
    /// The snapshot, complete and read to its last byte a moment ago.
    pub(crate) to: SnapshotRecord,
    /// What becomes of the present.
    pub(crate) future: Option<Future>,
}

impl Actor {
    pub(super) async fn rewind(&mut self, asked: Box<RewindAsked>, reply: Reply<SandboxView>) {
        let rewind = self.planned(&asked);
        let looked = self.ask(Input::Command(Command::Rewind(Box::new(rewind.clone()))));
        let begun = match looked {
            Ok(made) if made.outcome == Outcome::Wait => {
                self.later.push_back(Message::Rewind { asked, reply });
                return;
            }
            Ok(_) => self.copy_and_begin(rewind, &asked.to).await,
            Err(denied) => {
                Err(ServiceError::Denied { operation: "rewind", sandbox: self.record.sandbox.id.clone(), denied })
            }
        };
        match begun {
            Ok(()) => self.waiting.push(Waiting::View("rewind", reply)),
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    fn planned(&self, asked: &RewindAsked) -> Rewind {
        let RewindAsked { to, future } = asked;
        let own = to.source == self.record.sandbox.id;
        let copy = || SleepImage {
            capture: self.shared.ids().capture(),
            generation: if own { to.generation } else { 0 },
            taken: to.created,
            bytes: to.bytes,
        };
        let (target, layer, resources) = match to.kind {
            SnapshotKind::Memory => (Some(copy()), to.layer.clone(), to.resources),
            // What it boots with fits its own limits, but for a disk that may have to be larger.
            SnapshotKind::Filesystem => {
                let own = self.record.sandbox.spec.resources;
                let disk_bytes = own.disk_bytes.max(to.resources.disk_bytes);
                (None, Some(to.capture.clone()), Resources { disk_bytes, ..own })
            }
        };
        Rewind { to: to.id.clone(), target, layer, resources, future: future.clone() }
    }

    /// The copy is on record in the operation before there is anything of it, and in the sandbox from the moment at which
    /// that is being taken back.
    async fn copy_and_begin(&mut self, rewind: Rewind, to: &SnapshotRecord) -> Result<(), ServiceError> {
        let copy = rewind.target.as_ref().map(|target| target.capture.clone());
        let operation = OperationRecord {
            sandbox: Some(self.record.sandbox.id.clone()),
            capture: copy.clone(),
            ..self.shared.operation(OperationKind::Rewind, By::User, self.shared.settings.limits.resume)
        };
        self.shared.commit(Change { operations: vec![operation.clone()], ..Change::default() }).await?;
        let copied = match &copy {
            Some(copy) => self.shared.pool.copy(&to.capture, copy).await.map(drop),
            None => Ok(()),
        };
        let begun = match copied {
            Ok(()) => {
                copy.iter().for_each(|copy| self.shared.removals.note_verified(copy));
                self.begin_rewind(rewind, &operation).await
            }
            Err(error) => Err(error.into()),
        };
        // What may be recorded all the same is left to the next start.
        if let Err(error) = &begun
            && !error.is_unknown()
        {
            copy.iter().for_each(|copy| self.shared.removals.forget_verified(copy));
            let ended = Some((self.shared.now(), OperationResult::Failed(chain(error))));
            let operations = vec![OperationRecord { ended, ..operation }];
            let given_up = Change { operations, discard: copy.into_iter().collect(), ..Change::default() };
            if let Err(error) = self.shared.commit(given_up).await {
                tracing::warn!(sandbox = %self.record.sandbox.id, error = %chain(&error), "a rewind that was given up is ended at the next start");
            }
        }
        begun
    }

    async fn begin_rewind(&mut self, rewind: Rewind, operation: &OperationRecord) -> Result<(), ServiceError> {
        self.take_activity();
        let context = Context { operation: operation.id.clone(), ..self.shared.context() };
        let sandbox = &self.record.sandbox;
        let made = step(sandbox, &Input::Command(Command::Rewind(Box::new(rewind))), &context)
            .map_err(|denied| ServiceError::Denied { operation: "rewind", sandbox: sandbox.id.clone(), denied })?;
        let Some(effect) = made.effect.clone() else { return Err(self.failed("rewind", "it leads to nothing")) };
        self.record_command(made, By::User).await?;
        self.begin(effect);
        Ok(())
    }

    /// Nobody relies any more on a copy having been read to its last byte.
    pub(super) fn forget_verified(&self, before: &State, next: &State) {
        if let (Some(Rewind { target: Some(target), .. }), None) = (before.rewind(), next.rewind()) {
            self.shared.removals.forget_verified(&target.capture);
        }
    }
}

/// The record of the snapshot that a rewind leaves of the present.
pub(super) fn future_record(shared: &Shared, before: &Sandbox, abandoned: &Abandoned) -> SnapshotRecord {
    let Abandoned { future, image, for_the_sake_of } = abandoned;
    let now = shared.now();
    SnapshotRecord {
        id: future.snapshot.clone(),
        project: before.project.clone(),
        source: before.id.clone(),
        generation: image.generation,
        parent: before.parent().cloned(),
        kind: SnapshotKind::Memory,
        capture: image.capture.clone(),
        image: before.spec.image.clone(),
        layer: before.spec.layer.clone(),
        resources: before.spec.resources,
        created: now,
        bytes: image.bytes,
        labels: [("rewound".to_owned(), for_the_sake_of.to_string())].into(),
        removal: future.keep.map_or(Removal::Asked, |keep| Removal::At(now.after(keep))),
        made_by: Maker::Request,
        status: SnapshotStatus::Completed,
    }
}
