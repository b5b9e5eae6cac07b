//! The facts from which the way to a sandbox is chosen.

use std::time::Duration;

use dorm_lifecycle::environment::{Base, Choice, Facts, SandboxFact, SnapshotFact, SnapshotOf, Way, decide};
use dorm_lifecycle::{Cause, Restored, Sandbox, SandboxId, SnapshotId, SnapshotKind, State};
use dorm_store::{Attempt, EnvironmentRecord, RestoredFrom, SnapshotFilter, SnapshotRecord, SnapshotStatus};

use super::{Asked, WORKSPACE_LABEL};
use crate::error::ServiceError;
use crate::shared::{Service, Using};

impl Service {
    /// Returns what exists for a request. `broken` names a sandbox that could not be resumed, and
    /// the reason. The second part keeps the snapshots that may be restored from being deleted;
    /// others may be meanwhile: reading one to its end can take long.
    pub(super) async fn facts(
        &self,
        asked: &Asked,
        record: Option<&EnvironmentRecord>,
        broken: Option<&(SandboxId, String)>,
    ) -> Result<(Facts, Vec<Using>), ServiceError> {
        let drift = record.map(|record| record.workspace.differences(&asked.workspace)).unwrap_or_default();
        let own = record.and_then(|record| record.snapshot.as_ref());
        let sandbox = record.and_then(|record| record.sandbox.as_ref());
        let (sandbox, sandbox_age) = self.sandbox_fact(sandbox, broken).await?;
        let unknown = || SnapshotFact::None("it was not looked for".to_owned());
        let facts = Facts { sandbox, sandbox_age, own: unknown(), of_workspace: unknown(), drift };
        // A sandbox that is there is used without a look at all snapshots.
        if !matches!(decide(&facts, &asked.spec.policy).choice, Choice::Create) {
            return Ok((facts, Vec::new()));
        }
        // A deletion either comes first, or finds them in use.
        let reading = self.staying().await?;
        let of_workspace = self.newest_of_workspace(&asked.workspace_key).await?;
        let base = match &asked.workspace.base {
            Base::Snapshot(id) => Some(id),
            Base::Image(_) => None,
        };
        let candidates = own.into_iter().chain(of_workspace.as_ref().map(|snapshot| &snapshot.id)).chain(base);
        let used = candidates.map(|id| Using::of(&self.shared, id)).collect();
        drop(reading);
        let facts = Facts {
            own: match own {
                Some(id) => self.snapshot_fact(id).await?,
                None => SnapshotFact::None("it has no snapshot".to_owned()),
            },
            of_workspace: match of_workspace {
                // It was considered just before.
                Some(snapshot) if Some(&snapshot.id) != own => self.usable(&snapshot).await?,
                Some(_) | None => SnapshotFact::None("no other environment has a snapshot of it".to_owned()),
            },
            ..facts
        };
        Ok((facts, used))
    }

    /// Returns the sandbox of an environment, and the time since it was created.
    async fn sandbox_fact(
        &self,
        sandbox: Option<&SandboxId>,
        broken: Option<&(SandboxId, String)>,
    ) -> Result<(SandboxFact, Duration), ServiceError> {
        let none = |why: String| Ok((SandboxFact::None(why), Duration::ZERO));
        let Some(id) = sandbox else { return none("it has no sandbox".to_owned()) };
        let found = match self.record(id).await {
            Ok(record) => record.sandbox,
            Err(ServiceError::NoSandbox(_)) => return none(format!("sandbox {id} is forgotten")),
            Err(error) => return Err(error),
        };
        let fact = match &found.state {
            State::Terminated { cause, .. } => SandboxFact::None(format!("sandbox {id} {}", ended(cause))),
            State::Terminating { .. } => SandboxFact::None(format!("sandbox {id} is being terminated")),
            State::Running { .. } | State::Snapshotting { .. } => match &found.unreachable {
                Some(unreachable) => SandboxFact::Broken(
                    Way::Live,
                    format!("sandbox {id} runs and does not answer: {}", unreachable.reason),
                ),
                None => SandboxFact::Live,
            },
            State::Pending { .. } | State::Suspending { .. } | State::Suspended { .. } | State::Resuming { .. } => {
                match broken.filter(|(broken, _)| broken == id) {
                    Some((_, reason)) => SandboxFact::Broken(Way::Resume, reason.clone()),
                    None => SandboxFact::Suspended,
                }
            }
        };
        Ok((fact, self.shared.now().since(found.created)))
    }

    async fn snapshot_fact(&self, id: &SnapshotId) -> Result<SnapshotFact, ServiceError> {
        match self.snapshot_record(id).await {
            Ok(snapshot) => self.usable(&snapshot).await,
            Err(ServiceError::NoSnapshot(_)) => Ok(SnapshotFact::None(format!("snapshot {id} was deleted"))),
            Err(error) => Err(error),
        }
    }

    async fn usable(&self, snapshot: &SnapshotRecord) -> Result<SnapshotFact, ServiceError> {
        let id = &snapshot.id;
        match &snapshot.status {
            SnapshotStatus::Completed => {}
            SnapshotStatus::InProgress => return Ok(SnapshotFact::None(format!("snapshot {id} is being taken"))),
            SnapshotStatus::Deleting => return Ok(SnapshotFact::None(format!("snapshot {id} is being deleted"))),
            SnapshotStatus::Failed(failure) => {
                return Ok(SnapshotFact::None(format!("snapshot {id} could not be taken: {}", failure.reason)));
            }
        }
        let layer = match snapshot.kind {
            SnapshotKind::Filesystem => Some(&snapshot.saved_state),
            SnapshotKind::Memory => snapshot.layer.as_ref(),
        };
        let checked = async {
            self.can_restore(snapshot).await?;
            Ok::<_, ServiceError>(self.shared.refuse_damaged(&snapshot.image, layer).await?)
        };
        Ok(match checked.await {
            Ok(()) => SnapshotFact::Usable { id: id.clone(), age: self.shared.now().since(snapshot.created) },
            Err(error) => SnapshotFact::Broken(format!("snapshot {id}: {}", error.message())),
        })
    }

    /// Returns the newest snapshot of a workspace that is complete.
    pub(crate) async fn newest_of_workspace(&self, key: &str) -> Result<Option<SnapshotRecord>, ServiceError> {
        let filter = SnapshotFilter { project: Some(self.project().clone()), ..SnapshotFilter::default() };
        let mut all = self.shared.store.find_snapshots(&filter).await?.into_iter();
        let is_of_it = |snapshot: &SnapshotRecord| {
            snapshot.status == SnapshotStatus::Completed
                && snapshot.labels.get(WORKSPACE_LABEL).is_some_and(|label| label == key)
                && snapshot.removal != dorm_store::Removal::WhenFree
        };
        Ok(all.rfind(is_of_it))
    }
}

fn ended(cause: &Cause) -> String {
    match cause {
        Cause::Failed { reason } => format!("has failed: {reason}"),
        Cause::Requested | Cause::Timeout => format!("was terminated ({cause})"),
    }
}

/// Returns what a resume has not brought back.
pub(super) fn lost_by_resume(sandbox: &Sandbox) -> Vec<String> {
    match sandbox.restored {
        Restored::Memory { generation: Some(generation) } if generation + 1 < sandbox.generation => {
            vec![format!("what happened after generation {generation}: a newer sleep image could not be restored")]
        }
        Restored::Memory { .. } => Vec::new(),
        Restored::Files { .. } | Restored::Filesystem => {
            vec!["processes and memory: only the files were kept".to_owned()]
        }
        Restored::Nothing => vec!["everything: no sleep image could be restored, and it booted afresh".to_owned()],
    }
}

/// Returns what was there before an attempt and is not any more.
pub(super) fn lost(attempt: &Attempt, record: &EnvironmentRecord) -> Vec<String> {
    let mut lost = Vec::new();
    if let (Some(before), restore) = (&attempt.replaces, &attempt.restore) {
        let is_retired = record.retired.iter().any(|retired| retired.sandbox == *before);
        match restore.as_ref().filter(|restored| restored.of == Some(SnapshotOf::Own)) {
            Some(RestoredFrom { snapshot, age, .. }) => {
                lost.push(format!(
                    "changes in sandbox {before} after snapshot {snapshot} was taken, {} ago",
                    ago(*age)
                ));
            }
            None if is_retired => lost.push(format!("the work in sandbox {before}, which is kept")),
            None => lost.push(format!("the work in sandbox {before}")),
        }
    }
    let boots = attempt.restore.is_some() && record.policy.snapshot_kind == SnapshotKind::Filesystem;
    if boots {
        lost.push("processes and memory: the snapshot has files only".to_owned());
    }
    lost
}

fn ago(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
