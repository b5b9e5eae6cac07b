//! Carries out attempts to make the sandbox of an environment.

use std::time::Duration;

use dorm_lifecycle::environment::{Considered, SnapshotOf, Verdict, Way};
use dorm_lifecycle::{EnvironmentId, OnTimeout, SandboxId, SnapshotKind, StateName, Timeouts, Wake};
use dorm_store::{
    Attempt, AttemptEnd, AttemptFailure, AttemptResult, Code, EnvironmentRecord, FailureRecord, Phase, RestoredFrom,
    RetiredSandbox, SetupState, SnapshotRecord, SnapshotStatus, StoreError,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::plan::{boot_groups, records};
use super::{COMMIT_LABEL, LABEL, is_left};
use crate::diary::Diary;
use crate::error::ServiceError;
use crate::messages::{AnswerAt, Manner};
use crate::ops::create::{CreateFrom, CreateSpec};
use crate::ops::environments::timeouts;
use crate::shared::Service;

/// How long an attempt waits until the host has room for its sandbox.
const ROOM: Duration = Duration::from_secs(1800);
const ROOM_AGAIN: Duration = Duration::from_secs(1);
/// How long the sandbox of a failed setup is kept for inspection.
const INSPECTED: Duration = Duration::from_secs(3600);
/// How often a setup begins again after its sandbox was lost.
const LOST_MAX: usize = 2;

/// Why an attempt does not continue.
pub(super) enum Stop {
    /// Its cancellation was requested.
    Cancelled,
    /// It has failed.
    Failed(AttemptFailure),
    /// The daemon stops, or cannot record anything now: it continues later.
    Later(Box<ServiceError>),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Later(Box::new(error.into()))
    }
}

impl Stop {
    pub(super) fn later(error: ServiceError) -> Self {
        Self::Later(Box::new(error))
    }

    pub(super) fn failed(code: Code, reason: impl Into<String>) -> Self {
        let failure = FailureRecord::new(code, reason);
        Self::Failed(AttemptFailure { step: None, exit_code: None, failure, kept: None })
    }

    /// Returns the same stop as that of a step.
    pub(super) fn at(self, step: usize) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(AttemptFailure { step: Some(step as u64), ..failure }),
            other => other,
        }
    }
}

/// An attempt that is being carried out.
pub(super) struct Maker {
    pub(super) service: Service,
    pub(super) id: EnvironmentId,
    pub(super) record: EnvironmentRecord,
    pub(super) attempt: Attempt,
    pub(super) cancel: CancellationToken,
    pub(super) diary: Diary,
    /// How often the sandbox of the setup was lost.
    lost: usize,
}

impl Service {
    /// Carries out an attempt to its end.
    pub(super) async fn carry_out_attempt(
        &self,
        record: EnvironmentRecord,
        cancel: &CancellationToken,
    ) -> Result<(), ServiceError> {
        let Some(attempt) = record.attempt.clone() else { return Ok(()) };
        let service = self.as_caller(attempt.caller.clone());
        let diary = Diary::new(self.shared.clone(), (&attempt.id).into());
        let is_continued = attempt.setup.is_some() || !attempt.phases.is_empty();
        self.shared.environments.carries_out(&record.id, &attempt.id);
        let is_followed = self.shared.environments.is_waited_for(&attempt.id);
        if attempt.cancel || record.removed || (is_left(&attempt) && !is_followed) {
            cancel.cancel();
        }
        if let Some(last) = &record.last {
            self.shared.storage.remove_log(&(&last.attempt.id).into()).await?;
            self.end_kept(last).await?;
        }
        let id = record.id.clone();
        let mut maker = Maker { service, id, record, attempt, cancel: cancel.clone(), diary, lost: 0 };
        if is_continued {
            maker.diary.say(None, "interrupted: the attempt continues").await;
        }
        let end = match maker.carry_out().await {
            Err(Stop::Later(error)) => return Err(*error),
            end => end,
        };
        match maker.end(end).await {
            Err(Stop::Later(error)) => Err(*error),
            Ok(()) | Err(Stop::Cancelled | Stop::Failed(_)) => Ok(()),
        }
    }
}

impl Service {
    /// Terminates the sandbox that an earlier attempt has kept for inspection.
    pub(super) async fn end_kept(&self, last: &AttemptEnd) -> Result<(), ServiceError> {
        let AttemptResult::Failed(AttemptFailure { kept: Some(kept), .. }) = &last.result else { return Ok(()) };
        self.terminate_if_there(kept).await
    }
}

impl Maker {
    /// Changes the attempt and its record.
    pub(super) async fn update(
        &mut self,
        change: impl FnOnce(&mut EnvironmentRecord, &mut Attempt),
    ) -> Result<(), Stop> {
        let mut found = false;
        let id = self.attempt.id.clone();
        let changed = self.service.shared.change_environment(&self.id, |record| {
            if let Some(mut attempt) = record.attempt.take().filter(|attempt| attempt.id == id) {
                found = true;
                change(record, &mut attempt);
                record.attempt = Some(attempt);
            }
        });
        match changed.await.map_err(Stop::later)? {
            Some(record) if found => {
                self.attempt = record.attempt.clone().unwrap_or_else(|| self.attempt.clone());
                self.record = record;
                Ok(())
            }
            Some(_) | None => Err(Stop::Cancelled),
        }
    }

    /// Waits for something, unless the attempt is cancelled or the service stops before.
    pub(super) async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = self.service.shared.stopping.cancelled() => Err(Stop::later(ServiceError::Stopping)),
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
            done = work => Ok(done),
        }
    }

    pub(super) fn stop(&self, error: ServiceError) -> Stop {
        if self.service.shared.stopping.is_cancelled() || matches!(error, ServiceError::Stopping) {
            return Stop::later(ServiceError::Stopping);
        }
        match error.code() {
            Code::StoreFailed => Stop::later(error),
            code => Stop::failed(code, error.message()),
        }
    }

    async fn carry_out(&mut self) -> Result<(), Stop> {
        loop {
            self.unless(std::future::ready(())).await?;
            match self.attempt.restore.clone() {
                Some(restore) => {
                    if self.restore(restore).await? {
                        return Ok(());
                    }
                }
                None => {
                    if self.set_up().await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Restores the sandbox from a snapshot. Returns `false` if another way must be taken.
    async fn restore(&mut self, restore: RestoredFrom) -> Result<bool, Stop> {
        let began = Instant::now();
        let snapshot = self.service.shared.store.snapshot(&restore.snapshot).await?;
        let spec = match self.spec(CreateFrom::Snapshot(restore.snapshot.clone()), snapshot.as_ref()) {
            Ok(spec) => spec,
            Err(error) => return Err(self.stop(error)),
        };
        let sandbox = self.attempt.sandbox.clone();
        match self.create(&sandbox, spec).await? {
            Ok(()) => {}
            Err(error) => {
                let verdict = match &error {
                    ServiceError::NoSnapshot(_) | ServiceError::SnapshotNotReady { .. } => {
                        Verdict::Unavailable(error.message())
                    }
                    ServiceError::SnapshotUnusable { .. } => Verdict::Broken(error.message()),
                    error if error.code() == Code::Damaged => Verdict::Broken(error.message()),
                    _ => return Err(self.stop(error)),
                };
                return self.pass_over(restore, verdict).await.map(|()| false);
            }
        }
        self.phase("restore", began).await?;
        if let Some(snapshot) = snapshot.as_ref().filter(|_| restore.of.is_some()) {
            let commit = snapshot.labels.get(COMMIT_LABEL).cloned();
            self.update(|_, attempt| attempt.commit = commit).await?;
        }
        if snapshot.is_some_and(|snapshot| snapshot.kind == SnapshotKind::Filesystem) {
            self.boot(&sandbox).await?;
        }
        Ok(true)
    }

    /// Runs what every boot from files runs.
    async fn boot(&mut self, sandbox: &SandboxId) -> Result<(), Stop> {
        let workspace = self.record.workspace.clone();
        let groups = boot_groups(&workspace);
        if groups.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let steps = records(&workspace, &groups);
        self.update(|_, attempt| {
            let has_these = attempt.steps.len() == steps.len()
                && attempt.steps.iter().zip(&steps).all(|(one, other)| one.title == other.title);
            if !has_these {
                attempt.steps = steps;
            }
        })
        .await?;
        self.run_groups(&groups, sandbox).await?;
        self.phase("start", began).await
    }

    /// Goes to the next way, after a snapshot could not be restored.
    async fn pass_over(&mut self, restore: RestoredFrom, verdict: Verdict) -> Result<(), Stop> {
        let way = match restore.of {
            Some(SnapshotOf::Own) => Way::OwnSnapshot,
            Some(SnapshotOf::Workspace) => Way::WorkspaceSnapshot,
            None => {
                // It was taken just before.
                let reason = "the snapshot after the setup was deleted before its first use";
                return Err(Stop::failed(Code::Conflict, reason));
            }
        };
        self.diary.say(None, &format!("snapshot {} cannot be restored", restore.snapshot)).await;
        if let (Verdict::Broken(reason), dorm_lifecycle::environment::OnBroken::Refuse) =
            (&verdict, self.record.policy.on_broken)
        {
            return Err(Stop::failed(Code::Damaged, format!("snapshot {}: {reason}", restore.snapshot)));
        }
        let next = self.service.shared.ids().sandbox();
        self.update(|_, attempt| {
            for considered in attempt.considered.iter_mut().filter(|considered| considered.way == way) {
                considered.verdict = verdict.clone();
            }
            attempt.considered.push(Considered { way: Way::Create, verdict: Verdict::Taken });
            // The id of a sandbox is not used twice.
            (attempt.restore, attempt.sandbox, attempt.commit) = (None, next, None);
        })
        .await
    }

    /// Returns the sandbox that is handed out.
    pub(super) fn spec(&self, from: CreateFrom, snapshot: Option<&SnapshotRecord>) -> Result<CreateSpec, ServiceError> {
        let workspace = &self.record.workspace;
        let mut labels = self.record.labels.clone();
        labels.insert(LABEL.to_owned(), self.id.to_string());
        let is_memory = snapshot.is_some_and(|snapshot| snapshot.kind == SnapshotKind::Memory);
        Ok(CreateSpec {
            resources: (!is_memory).then_some(workspace.resources),
            egress: workspace.egress.clone(),
            variables: workspace.variables.clone(),
            secrets: self.service.secret_values(&self.record)?,
            suspendable: Some(true),
            on_timeout: Some(OnTimeout::Suspend),
            wake: Wake::Any,
            timeouts: timeouts(&self.record.policy),
            labels,
            ..CreateSpec::new(from)
        })
    }

    /// Creates a sandbox whose id is on record, which may have to wait for room, or continues its
    /// creation. The inner error says why it cannot be created.
    pub(super) async fn create(&mut self, id: &SandboxId, spec: CreateSpec) -> Result<Result<(), ServiceError>, Stop> {
        if self.service.shared.store.sandbox(id).await?.is_none() {
            let until = Instant::now() + ROOM;
            let service = self.service.in_manner(Manner { answer: AnswerAt::Beginning, ..Manner::default() });
            let mut is_told = false;
            loop {
                match service.create_as(id.clone(), spec.clone()).await {
                    Ok(_) => break,
                    Err(ServiceError::NotAdmitted { reason, .. }) if Instant::now() < until => {
                        if !std::mem::replace(&mut is_told, true) {
                            self.diary.say(None, &format!("waiting for room: {reason}")).await;
                        }
                        self.unless(tokio::time::sleep(ROOM_AGAIN)).await?;
                    }
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        Ok(match self.unless(self.service.created_earlier(id)).await? {
            Ok(view) if view.sandbox.state.name() == StateName::Terminated => {
                Err(ServiceError::made_is_gone("sandbox", id))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Records how long a phase took.
    pub(super) async fn phase(&mut self, name: &str, began: Instant) -> Result<(), Stop> {
        let phase = Phase { name: name.to_owned(), took: began.elapsed() };
        self.update(|_, attempt| attempt.phases.push(phase)).await
    }

    /// Notes that the sandbox of the setup was lost; fails if that was too often.
    pub(super) fn is_lost(&mut self, why: &str) -> Result<(), Stop> {
        self.lost += 1;
        match self.lost > LOST_MAX {
            true => Err(Stop::failed(Code::Failed, format!("the sandbox of the setup was lost: {why}"))),
            false => Ok(()),
        }
    }

    /// Terminates a sandbox of the attempt, if it exists.
    pub(super) async fn end_sandbox(&self, sandbox: &SandboxId) -> Result<(), Stop> {
        match self.service.terminate(sandbox).await {
            Ok(_) | Err(ServiceError::NoSandbox(_)) => Ok(()),
            Err(error) => Err(Stop::later(error)),
        }
    }

    /// Records the end, after what the attempt was making is removed.
    async fn end(&mut self, end: Result<(), Stop>) -> Result<(), Stop> {
        let result = match end {
            Ok(()) => AttemptResult::Ready,
            Err(Stop::Later(error)) => return Err(Stop::Later(error)),
            Err(Stop::Cancelled) => AttemptResult::Cancelled,
            Err(Stop::Failed(failure)) => AttemptResult::Failed(failure),
        };
        let result = match result {
            AttemptResult::Ready => AttemptResult::Ready,
            AttemptResult::Cancelled => {
                self.undo(None).await?;
                self.diary.say(None, "cancelled").await;
                AttemptResult::Cancelled
            }
            AttemptResult::Failed(mut failure) => {
                failure.kept = self.kept_for_inspection(&failure).await;
                self.undo(failure.kept.as_ref()).await?;
                self.diary.say(None, &format!("failed: {}", failure.failure.reason)).await;
                AttemptResult::Failed(failure)
            }
        };
        self.diary.sync().await;
        let now = self.service.shared.now();
        self.update_to_end(result, now).await
    }

    async fn update_to_end(&mut self, result: AttemptResult, now: dorm_lifecycle::Timestamp) -> Result<(), Stop> {
        let id = self.attempt.id.clone();
        let changed = self.service.shared.change_environment(&self.id, |record| {
            let Some(mut attempt) = record.attempt.take_if(|attempt| attempt.id == id) else { return };
            (attempt.token, attempt.setup) = (None, None);
            let settings = attempt.before.take();
            if result == AttemptResult::Ready {
                match &attempt.restore {
                    Some(restored) if restored.of.is_none() => record.snapshot = Some(restored.snapshot.clone()),
                    // That of another definition must not be restored for this one.
                    _ if settings.is_some_and(|before| before.workspace != record.workspace) => record.snapshot = None,
                    _ => {}
                }
                record.commit.clone_from(&attempt.commit);
                if let Some(sandbox) = record.sandbox.replace(attempt.sandbox.clone()) {
                    // Its runs do not use the new sandbox, so their end must not end that.
                    (record.leases, record.ending) = (Vec::new(), None);
                    record.retired.push(RetiredSandbox { sandbox, at: now, is_settled: false });
                }
            } else if let Some(before) = settings {
                record.restore_settings(before);
            }
            for step in attempt.steps.iter_mut().filter(|step| step.state == SetupState::Running) {
                step.state = SetupState::Waiting;
            }
            record.last = Some(AttemptEnd { attempt, ended: now, result });
        });
        changed.await.map_err(Stop::later)?;
        self.service.shared.followers.tell(&(&id).into());
        // Snapshots that it held may be unused now.
        self.service.shared.removals.poke();
        Ok(())
    }

    /// Keeps the sandbox of a setup whose step has failed, if that is wanted.
    async fn kept_for_inspection(&self, failure: &AttemptFailure) -> Option<SandboxId> {
        let setup = self.attempt.setup.as_ref()?;
        if !self.record.policy.keep_failed || failure.step.is_none() {
            return None;
        }
        let (sandbox, timeouts) = (setup.sandbox.clone(), Timeouts { total: Some(INSPECTED), ..Timeouts::default() });
        let update =
            dorm_lifecycle::Update { on_timeout: Some(OnTimeout::Terminate), ..dorm_lifecycle::Update::default() };
        let limited = async {
            self.service.update(&sandbox, update).await?;
            self.service.set_timeouts(&sandbox, timeouts).await
        };
        limited.await.ok().map(|_| sandbox.clone())
    }

    /// Removes what an attempt has made that does not succeed.
    async fn undo(&mut self, kept: Option<&SandboxId>) -> Result<(), Stop> {
        let setup = self.attempt.setup.as_ref();
        let sandboxes = [setup.map(|setup| setup.sandbox.clone()), Some(self.attempt.sandbox.clone())];
        for sandbox in sandboxes.iter().flatten().filter(|sandbox| Some(*sandbox) != kept) {
            self.end_sandbox(sandbox).await?;
        }
        Ok(())
    }

    /// Returns the snapshot of the setup, if it is complete.
    pub(super) async fn finished_snapshot(&self) -> Result<Option<SnapshotRecord>, Stop> {
        let taken = self.attempt.setup.as_ref().and_then(|setup| setup.snapshot.as_ref());
        let Some(id) = taken else { return Ok(None) };
        let snapshot = self.service.shared.store.snapshot(id).await?;
        Ok(snapshot.filter(|one| one.status == SnapshotStatus::Completed))
    }
}
