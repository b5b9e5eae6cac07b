//! Carries out builds: images from steps, and templates whose program already runs.
//!
//! ```text
//! queued ─► base image ─► steps ─► compose, try ─► (start, wait until ready, memory snapshot) ─► name ─► succeeded
//!              │            │           │                        │                              │
//!              └────────────┴───────────┴─ failed, cancelled ────┘                       no way back
//! ```
//!
//! One task begins builds in the order in which they were requested, the projects in turn. A build
//! is a task of its own. The sandbox and the snapshot that it makes are on record before they
//! exist, so that the next daemon keeps what was finished, removes the rest, and continues. The
//! result of a step is a filesystem snapshot under the key of the step (decision 0051).

mod carry;
mod compose;
mod contexts;
mod place;
mod plan;

pub use carry::BUILD_LABEL;
pub(crate) use carry::guest_path;
pub(crate) use place::put_context;

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{BuildId, ProjectId};
use dorm_store::{
    BuildFailure, BuildRecord, BuildState, BuildStepState, Change, Code, FailureRecord, SnapshotStatus, StoreError,
};
use tokio_util::sync::CancellationToken;

use crate::diary::Diary;
use crate::error::{ServiceError, chain};
use crate::shared::{Service, Shared};

/// The longest sleep of the task that begins builds. Files and records that are not needed any more
/// are removed as often.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The delay before a build is continued after its records could not be read or written.
const AGAIN: Duration = Duration::from_secs(5);

/// Why a build does not continue.
pub(crate) enum Stop {
    /// Its cancellation was requested.
    Cancelled,
    /// It has failed.
    Failed(BuildFailure),
    /// The daemon stops, or cannot record anything now: the build continues later.
    Later(ServiceError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Later(error.into())
    }
}

impl Stop {
    /// A failure with this reason.
    fn failed(code: Code, reason: impl Into<String>) -> Self {
        Self::Failed(BuildFailure { step: None, exit_code: None, failure: FailureRecord::new(code, reason) })
    }

    /// Returns the same stop as that of a step.
    fn at(self, step: usize) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(BuildFailure { step: Some(step as u64), ..failure }),
            other => other,
        }
    }
}

impl Shared {
    /// Returns why a build does not continue after an error.
    fn stop(&self, error: ServiceError) -> Stop {
        if self.stopping.is_cancelled() || matches!(error, ServiceError::Stopping) {
            return Stop::Later(ServiceError::Stopping);
        }
        match error.code() {
            Code::StoreFailed => Stop::Later(error),
            Code::InvalidArgument if !error.next_step().is_empty() => {
                Stop::failed(Code::InvalidArgument, format!("{}: {}", error.message(), error.next_step()))
            }
            code => Stop::failed(code, error.message()),
        }
    }
}

/// Begins builds until the service stops, and continues those of earlier daemons.
pub(crate) async fn keep_building(service: Service) {
    let shared = service.shared.clone();
    let mut turns = BTreeMap::new();
    loop {
        let news = shared.builds.news.notified();
        if let Err(error) = begin_some(&service, &mut turns).await {
            tracing::warn!(error = %chain(&error), "cannot look for builds; retrying");
        }
        if let Err(error) = service.end_reserved_builds().await {
            tracing::warn!(error = %chain(&error), "cannot end builds that were not given their steps; retrying");
        }
        if let Err(error) = service.clear_builds().await {
            tracing::warn!(error = %chain(&error), "cannot remove the remains of builds; retrying");
        }
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = news => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Begins as many builds as may run at once.
async fn begin_some(service: &Service, turns: &mut BTreeMap<ProjectId, u64>) -> Result<(), ServiceError> {
    let shared = &service.shared;
    let mut open: Vec<BuildRecord> = shared.store.builds().await?;
    open.retain(|build| !build.state.has_ended() && build.state != BuildState::Reserved);
    loop {
        if shared.stopping.is_cancelled() {
            return Ok(());
        }
        let running: Vec<&ProjectId> =
            open.iter().filter(|build| shared.builds.is_running(&build.id)).map(|build| &build.project).collect();
        let most = shared.settings.builds_at_once;
        // The last place is for a project that has none, so that none can keep all others waiting.
        let has_place = |build: &&BuildRecord| {
            running.len() < most && (running.len() + 1 < most || most == 1 || !running.contains(&&build.project))
        };
        let Some(next) = next(shared, &open, turns).filter(has_place) else { return Ok(()) };
        let latest = turns.values().max().copied().unwrap_or(0);
        turns.insert(next.project.clone(), latest + 1);
        let id = next.id.clone();
        let own = service.of_project(&next.project).of_part().as_caller(next.caller.clone());
        let Some(cancel) = shared.builds.begin(&id) else { return Ok(()) };
        shared.spawn(async move {
            if let Err(error) = own.build(&id, &cancel).await
                && !own.shared.stopping.is_cancelled()
            {
                tracing::warn!(build = %id, error = %chain(&error), "cannot continue a build; retrying");
                own.shared.stops_within(AGAIN).await;
            }
            own.shared.builds.end(&id);
            own.shared.followers.tell(&(&id).into());
        });
    }
}

/// Returns the build whose turn it is: one that has begun; otherwise the oldest of the project that
/// had its turn the longest ago.
fn next<'a>(shared: &Shared, open: &'a [BuildRecord], turns: &BTreeMap<ProjectId, u64>) -> Option<&'a BuildRecord> {
    let waiting = open.iter().filter(|build| !shared.builds.is_running(&build.id));
    waiting.min_by_key(|build| {
        let running = |other: &&BuildRecord| other.project == build.project && shared.builds.is_running(&other.id);
        let turn = turns.get(&build.project).copied().unwrap_or(0);
        let is_new = build.state == BuildState::Queued;
        (is_new, open.iter().filter(running).count(), turn, build.created, build.id.clone())
    })
}

/// A build that is being carried out.
struct Builder {
    service: Service,
    record: BuildRecord,
    cancel: CancellationToken,
    diary: Diary,
}

impl Service {
    /// Carries out a build to its end.
    async fn build(&self, id: &BuildId, cancel: &CancellationToken) -> Result<(), ServiceError> {
        let turn = self.shared.builds.turn.lock().await;
        let Some(mut record) = self.shared.build_record(id).await?.filter(|build| !build.state.has_ended()) else {
            return Ok(());
        };
        if record.cancel && record.state != BuildState::Finishing {
            cancel.cancel();
        }
        let is_new = record.state == BuildState::Queued;
        if is_new {
            record.state = BuildState::Running;
            record.began = Some(self.shared.now());
            self.shared.write_build(record.clone()).await?;
        }
        drop(turn);
        let diary = Diary::new(self.shared.clone(), id.into());
        let mut builder = Builder { service: self.clone(), record, cancel: cancel.clone(), diary };
        if !is_new {
            builder.diary.say(None, "interrupted: the build continues").await;
        }
        let end = match builder.carry_out().await {
            Err(Stop::Later(error)) => return Err(error),
            end => end,
        };
        match builder.end(end).await {
            Err(Stop::Later(error)) => Err(error),
            Ok(()) | Err(Stop::Cancelled | Stop::Failed(_)) => Ok(()),
        }
    }
}

impl Shared {
    pub(crate) async fn build_record(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError> {
        self.store.build(id).await
    }

    pub(crate) async fn write_build(&self, build: BuildRecord) -> Result<(), StoreError> {
        let id = build.id.clone();
        self.commit_known(Change { builds: vec![build], ..Change::default() }).await?;
        self.followers.tell(&(&id).into());
        Ok(())
    }
}

impl Builder {
    /// Changes the record.
    async fn update(&mut self, change: impl FnOnce(&mut BuildRecord)) -> Result<(), Stop> {
        let shared = self.service.shared.clone();
        let _turn = shared.builds.turn.lock().await;
        change(&mut self.record);
        // The request to cancel is written by another task.
        self.record.cancel |= self.cancel.is_cancelled();
        Ok(shared.write_build(self.record.clone()).await?)
    }

    /// Waits for something, unless the build is cancelled or the service stops before.
    async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = self.service.shared.stopping.cancelled() => Err(Stop::Later(ServiceError::Stopping)),
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
            done = work => Ok(done),
        }
    }

    fn stop(&self, error: ServiceError) -> Stop {
        self.service.shared.stop(error)
    }

    /// Carries out what is not done yet.
    async fn carry_out(&mut self) -> Result<(), Stop> {
        if self.record.state != BuildState::Finishing {
            self.settle().await?;
            self.unless(std::future::ready(())).await?;
            if self.record.image.is_none() {
                let base = self.base().await?;
                let stages = self.plan(&base).await?;
                let from = self.steps(&base, &stages).await?;
                self.compose(&base, &stages, from).await?;
            }
            self.try_image().await?;
            self.prepare_template().await?;
            self.finishing().await?;
        }
        self.name().await
    }

    /// Keeps or removes what an earlier daemon was making.
    async fn settle(&mut self) -> Result<(), Stop> {
        let Some(work) = self.record.work.clone() else { return Ok(()) };
        let snapshot = self.service.shared.store.snapshot(&work.snapshot).await?;
        let is_complete = snapshot.is_some_and(|snapshot| snapshot.status == SnapshotStatus::Completed);
        self.end_sandbox(&work.sandbox).await?;
        let now = self.service.shared.now();
        let running = self.record.steps.iter().position(|step| step.state == BuildStepState::Running);
        self.update(|record| {
            let step = running.and_then(|at| record.steps.get_mut(at));
            match step {
                Some(step) if is_complete => {
                    (step.state, step.ended) = (BuildStepState::Done, Some(now));
                    step.snapshot = Some(work.snapshot);
                }
                Some(step) => (step.state, step.began) = (BuildStepState::Waiting, None),
                None if is_complete && record.image.is_some() => record.snapshot = Some(work.snapshot),
                None => {}
            }
            record.work = None;
        })
        .await
    }

    /// Terminates a sandbox of the build, if it exists.
    async fn end_sandbox(&self, sandbox: &dorm_lifecycle::SandboxId) -> Result<(), Stop> {
        match self.service.terminate(sandbox).await {
            Ok(_) | Err(ServiceError::NoSandbox(_)) => Ok(()),
            Err(error) => Err(Stop::Later(error)),
        }
    }

    /// Records that the build can no longer be cancelled.
    async fn finishing(&mut self) -> Result<(), Stop> {
        let shared = self.service.shared.clone();
        let _turn = shared.builds.turn.lock().await;
        if self.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        self.record.state = BuildState::Finishing;
        Ok(shared.write_build(self.record.clone()).await?)
    }

    /// Records the end, after what the build was making is removed.
    async fn end(&mut self, end: Result<(), Stop>) -> Result<(), Stop> {
        if let Some(work) = self.record.work.clone() {
            self.end_sandbox(&work.sandbox).await?;
        }
        let (state, said) = match end {
            Ok(()) => return self.clear().await,
            Err(Stop::Later(error)) => return Err(Stop::Later(error)),
            Err(Stop::Cancelled) => (BuildState::Cancelled, "cancelled".to_owned()),
            Err(Stop::Failed(failure)) => {
                let step = failure.step.and_then(|at| self.record.steps.get(usize::try_from(at).ok()?));
                let place = step.map(|step| format!("{}: ", step.title)).unwrap_or_default();
                let said = format!("failed: {place}{}", failure.failure.reason);
                (BuildState::Failed(failure), said)
            }
        };
        self.discard_image().await?;
        self.diary.say(None, &said).await;
        self.diary.sync().await;
        let now = self.service.shared.now();
        let snapshot = self.record.snapshot.clone().or(self.record.work.clone().map(|work| work.snapshot));
        self.update(|record| {
            if let BuildState::Failed(failure) = &state
                && let Some(at) = failure.step.and_then(|at| usize::try_from(at).ok())
                && let Some(step) = record.steps.get_mut(at)
            {
                (step.state, step.ended) = (BuildStepState::Failed, Some(now));
            }
            for step in record.steps.iter_mut().filter(|step| step.state == BuildStepState::Running) {
                (step.state, step.began) = (BuildStepState::Waiting, None);
            }
            (record.work, record.image, record.snapshot) = (None, None, None);
            record.plan.login = None;
            (record.state, record.ended) = (state, Some(now));
        })
        .await?;
        // A snapshot for a template is deleted as soon as nothing needs it.
        if snapshot.is_some() {
            self.service.shared.removals.poke();
        }
        self.clear().await
    }
}
