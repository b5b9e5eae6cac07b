//! Rewinds a sandbox to a snapshot, in place: it keeps its id, name, ports and settings, and its
//! present state is kept as a snapshot for some time.

use std::time::Duration;

use dorm_lifecycle::{Command, Denied, Future, Rewind, SandboxId, SnapshotId, SnapshotKind, State};
use dorm_store::{Made, SnapshotRecord};

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
    /// The snapshot of its previous state.
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
        // A running sandbox already has room, but perhaps not for everything that it may use
        // afterwards.
        let held = if matches!(sandbox.state, State::Suspended { .. }) {
            Share::default()
        } else {
            Share::of_sandbox(&sandbox)
        };
        let need = Share::of(&snapshot.resources).max(held);
        if need != held {
            let asked =
                RoomRequest { what: "rewind a sandbox", project: self.project(), share: need, count: 1, of: Some(id) };
            let admitted = self.shared.admit_run(asked).await?;
            self.shared.ledger.reserve(id, self.project(), need);
            drop(admitted);
        }
        let future = match keep {
            KeepFuture::Not => None,
            KeepFuture::For(_) | KeepFuture::UntilDeleted => Some(Future {
                snapshot: self.shared.ids().snapshot(),
                keep: if let KeepFuture::For(time) = keep { Some(time) } else { None },
            }),
        };
        let kept = future.as_ref().map(|future| future.snapshot.clone());
        let asked = Box::new(RewindSpec { to: snapshot.clone(), future, request: self.request.clone() });
        let answer = match self.ask(id, |reply| Message::Rewind { asked, reply }).await {
            Err(ServiceError::NoSandbox(_)) => self.command_to_the_dead(id, &as_command(&snapshot)).await,
            other => other,
        };
        if answer.is_err()
            && let Ok(record) = self.record(id).await
        {
            self.shared.ledger.note(&record.sandbox);
        }
        Ok(RewoundSandbox { sandbox: answer?, to: to.clone(), future: kept })
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
    }))
}
