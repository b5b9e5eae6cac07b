//! Rewinds a sandbox to a snapshot, in place: it keeps its id, name, ports and settings, and its
//! present state is kept as a snapshot for some time.

use std::time::Duration;

use dorm_lifecycle::{Command, Denied, Future, Initiator, Rewind, Sandbox, SandboxId, SnapshotId, SnapshotKind, State};
use dorm_store::{Change, Made, Removal, SandboxRecord, SnapshotRecord};

use crate::admission::RoomRequest;
use crate::error::ServiceError;
use crate::messages::{Message, RewindSpec};
use crate::shared::{Service, Share};
use crate::view::SandboxView;

/// Whether, and how long, the state that a rewind abandons is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepFuture {
    /// It becomes a snapshot that is deleted automatically after this time.
    For(Duration),
    /// It becomes a snapshot that is kept until it is deleted explicitly.
    UntilDeleted,
    /// It is discarded.
    Not,
}

impl Default for KeepFuture {
    /// Returns seven days.
    fn default() -> Self {
        Self::For(Duration::from_secs(7 * 86_400))
    }
}

/// The result of a rewind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RewoundSandbox {
    /// The sandbox.
    pub sandbox: SandboxView,
    /// The snapshot it was rewound to.
    pub to: SnapshotId,
    /// The snapshot of its previous state. It may be in progress for a moment.
    pub future: Option<SnapshotId>,
}

impl Service {
    /// Rewinds a running or suspended sandbox to a snapshot. When this returns, it runs as saved in
    /// the snapshot, under its own id, name and settings; only the resource limits come from a
    /// memory snapshot. From a filesystem snapshot it boots.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `SnapshotNotReady`, `BadRewind`, `SnapshotUnusable` before anything is done;
    /// `Denied` for a terminated sandbox; `OperationFailed` if it could not be rewound: it is in
    /// its previous state.
    pub async fn rewind(
        &self,
        id: &SandboxId,
        to: &SnapshotId,
        keep: KeepFuture,
    ) -> Result<RewoundSandbox, ServiceError> {
        if let Some(Made::Operation(earlier)) = self.earlier() {
            let operation = self.done_earlier(earlier).await?;
            let (sandbox, future) = self.rewound_earlier(&operation, to).await?;
            return Ok(RewoundSandbox { sandbox, to: to.clone(), future });
        }
        self.is_to_stay(to).await?;
        let (service, id, to) = (self.clone(), id.clone(), to.clone());
        let work = async move { service.rewind_now(&id, &to, keep).await };
        self.shared.finish(work).await
    }

    pub(super) async fn rewind_now(
        &self,
        id: &SandboxId,
        to: &SnapshotId,
        keep: KeepFuture,
    ) -> Result<RewoundSandbox, ServiceError> {
        let (_using, snapshot) = self.use_snapshot(to).await?;
        let sandbox = self.record(id).await?.sandbox;
        if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
            let denied = Denied::Terminated(cause.clone());
            return Err(ServiceError::Denied { operation: "rewind", sandbox: id.clone(), denied });
        }
        if snapshot.image != sandbox.spec.image {
            let what = "it is based on another image than the sandbox";
            return Err(ServiceError::BadRewind { sandbox: id.clone(), snapshot: to.clone(), what });
        }
        self.shared.admit_write("rewind a sandbox", 0).await?;
        let verified = match snapshot.kind {
            SnapshotKind::Memory => self.shared.verify_saved_state(&snapshot.saved_state).await.map(drop),
            SnapshotKind::Filesystem => self.shared.storage.layers(&snapshot.saved_state).await.map(drop),
        };
        verified.map_err(|source| ServiceError::SnapshotUnusable { snapshot: to.clone(), source })?;
        // The verification can take long: one that was suspended meanwhile needs room.
        let SandboxRecord { sandbox, revision } = self.record(id).await?;
        let may_hold = self.admit_rewind(&sandbox, &snapshot).await?;
        let rewound = self.rewind_admitted(SandboxRecord { sandbox, revision }, &snapshot, keep, may_hold).await;
        // Its share is that of the rewind until then.
        if rewound.is_err()
            && let Ok(record) = self.record(id).await
        {
            self.shared.ledger.note(&record.sandbox);
        }
        rewound
    }

    async fn rewind_admitted(
        &self,
        SandboxRecord { sandbox, revision }: SandboxRecord,
        snapshot: &SnapshotRecord,
        keep: KeepFuture,
        may_hold: bool,
    ) -> Result<RewoundSandbox, ServiceError> {
        let id = &sandbox.id;
        let files = match &sandbox.state {
            State::Suspended { image, .. } => image.files.clone(),
            _ => None,
        };
        if let Some(files) = &files {
            self.keep_files(files, keep, &snapshot.id).await?;
        }
        let future = match keep {
            KeepFuture::Not => None,
            KeepFuture::For(_) | KeepFuture::UntilDeleted if files.is_some() => None,
            KeepFuture::For(_) | KeepFuture::UntilDeleted => Some(Future {
                snapshot: self.shared.ids().snapshot(),
                keep: if let KeepFuture::For(time) = keep { Some(time) } else { None },
            }),
        };
        let kept = match keep {
            KeepFuture::Not => None,
            KeepFuture::For(_) | KeepFuture::UntilDeleted => {
                files.or_else(|| future.as_ref().map(|future| future.snapshot.clone()))
            }
        };
        // A future that was kept before must not be lost to a state that came in between.
        let as_seen = match (keep, &kept, &future) {
            (KeepFuture::For(_) | KeepFuture::UntilDeleted, Some(_), None) => self.if_revision(revision),
            (_, _, _) => self.clone(),
        };
        let asked = Box::new(RewindSpec {
            to: snapshot.clone(),
            future,
            may_hold,
            by: self.asked_by(Initiator::User),
            request: self.request.clone(),
        });
        let answer = match as_seen.ask(id, |reply| Message::Rewind { asked, reply }).await {
            Err(ServiceError::NoSandbox(_)) => self.command_to_the_dead(id, &as_command(snapshot)).await,
            other => other,
        };
        Ok(RewoundSandbox { sandbox: answer?, to: snapshot.id.clone(), future: kept })
    }
}

impl Service {
    /// Admits a rewind, and returns whether the present run may be held beside the new one. A
    /// running sandbox already has room for one of them, but perhaps not for everything that it may
    /// use afterwards.
    async fn admit_rewind(&self, sandbox: &Sandbox, to: &SnapshotRecord) -> Result<bool, ServiceError> {
        let held = match &sandbox.state {
            State::Suspended { .. } => Share::default(),
            _ => Share::of_sandbox(sandbox),
        };
        let need = Share::of(&to.resources).max(held);
        let is_running = matches!(sandbox.state, State::Running { background: None, .. });
        // No parked run is ended so that a rewind is faster.
        if is_running && self.shared.short_of_memory().is_none() {
            match self.admit_share(sandbox, need.beside(&sandbox.spec.resources)).await {
                Ok(()) => return Ok(true),
                Err(ServiceError::NotAdmitted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if need != held {
            self.admit_share(sandbox, need).await?;
        }
        Ok(false)
    }

    async fn admit_share(&self, sandbox: &Sandbox, share: Share) -> Result<(), ServiceError> {
        let (project, of) = (self.project(), Some(&sandbox.id));
        let asked = RoomRequest { what: "rewind a sandbox", project, share, count: 1, of };
        let admitted = self.shared.admit_run(asked).await?;
        self.shared.ledger.reserve(&sandbox.id, project, share);
        drop(admitted);
        Ok(())
    }

    /// Keeps the files of a suspended sandbox, which are a snapshot already, when the sandbox is
    /// not based on them any more. If the rewind fails, they stay at least as long as the sandbox
    /// needs them.
    async fn keep_files(
        &self,
        files: &SnapshotId,
        keep: KeepFuture,
        rewound_to: &SnapshotId,
    ) -> Result<(), ServiceError> {
        let removal = match keep {
            KeepFuture::Not => return Ok(()),
            KeepFuture::For(time) => Removal::At(self.shared.now().after(time)),
            KeepFuture::UntilDeleted => Removal::Asked,
        };
        let _turn = self.shared.deletions.lock().await;
        let mut kept = SnapshotRecord { removal, ..self.complete_now(files).await? };
        kept.labels.insert("rewound".to_owned(), rewound_to.to_string());
        self.shared.commit(Change { snapshots: vec![kept.clone()], ..Change::default() }).await?;
        self.shared.removals.due().remove(files);
        self.shared.removals.note(&kept);
        Ok(())
    }
}

/// Returns the command that tells why a sandbox without an actor cannot be rewound.
fn as_command(snapshot: &SnapshotRecord) -> Command {
    Command::Rewind(Box::new(Rewind {
        to: snapshot.id.clone(),
        target: None,
        layer: None,
        resources: snapshot.resources,
        future: None,
        may_hold: false,
    }))
}
