//! The requests of callers about sandboxes, and the checks of their answers.

use std::time::Duration;

use dorm_lifecycle::{FirstProgram, Initiator, Keep, Name, Sandbox, SandboxId, SnapshotId, SnapshotKind, StateName};
use dorm_service::{
    CheckpointSpec, CreateFrom, CreateSpec, ForkChildSpec, ForkSpec, KeepFuture, SandboxView, ServiceError,
};
use dorm_store::{OnPartialFailure, SandboxFilter, SnapshotRecord, SnapshotStatus};

use super::{Action, Client};
use crate::check::is_over;

/// The longest silence of an agent, including the time until it is asked again.
const SILENCE: Duration = Duration::from_secs(600);

impl Client {
    /// Carries out an action and checks the answer.
    pub(crate) async fn carry_out(&mut self, action: &Action) {
        let since = self.world.model.now();
        match action {
            Action::Create { .. } => self.create(action, since).await,
            Action::Clone(id, name) => self.clone_one(action, id, *name, since).await,
            Action::Fork(id, names, on_partial_failure) => {
                self.fork(action, id, names, *on_partial_failure, since).await
            }
            Action::Suspend(id) => {
                let answer = self.service.suspend(id).await;
                self.viewed(action, answer, since, |sandbox| sandbox.state.name() == StateName::Suspended);
            }
            Action::SuspendFiles(id) => {
                let answer = self.service.suspend_with(id, Keep::Files).await;
                self.viewed(action, answer, since, |sandbox| sandbox.state.name() == StateName::Suspended);
            }
            Action::Resize(id, wanted) => {
                let answer = self.service.resize(id, *wanted).await;
                self.viewed(action, answer, since, |sandbox| {
                    wanted.apply(sandbox.spec.resources) == sandbox.spec.resources
                });
            }
            Action::Resume(id) => {
                let answer = self.service.resume(id, Initiator::User).await;
                let awake =
                    |sandbox: &Sandbox| matches!(sandbox.state.name(), StateName::Running | StateName::Snapshotting);
                self.viewed(action, answer, since, awake);
            }
            Action::Checkpoint(id, kind) => self.checkpoint(action, id, *kind, None).await,
            Action::CheckpointFor(id, kind, expires) => self.checkpoint(action, id, *kind, Some(*expires)).await,
            Action::DeleteSnapshot(id) => match self.delete_snapshot(id).await {
                Ok(()) => {
                    if self.world.model.snapshot(id).is_some() {
                        self.world.trace.wrong(format_args!("{action:?} is done and the snapshot is there"));
                    }
                }
                Err(error) => self.refused(action, &error),
            },
            Action::Rewind(id, to, keep) => {
                let answer = self.service.rewind(id, to, *keep).await.map(|done| done.sandbox);
                self.viewed(action, answer, since, |sandbox| is_back(sandbox) == Some(to));
            }
            Action::Restart(id) => {
                let answer = self.service.restart(id, None).await.map(|made| made.sandbox);
                self.viewed(action, answer, since, |sandbox| sandbox.state.name() == StateName::Running);
            }
            Action::Promote(id) => {
                let answer = self.service.promote(id, KeepFuture::UntilDeleted).await;
                if answer.is_ok() && self.world.model.told(id) != Some(StateName::Terminated) {
                    self.world.trace.wrong(format_args!("{action:?} is done and the child lives"));
                }
                self.viewed(action, answer.map(|done| done.sandbox), since, |sandbox| is_back(sandbox).is_some());
            }
            Action::Evict(id) => {
                let answer = self.service.evict(id).await;
                self.viewed(action, answer, since, |_| true);
            }
            Action::SetTimeouts(id, timeouts) => {
                let answer = self.service.set_timeouts(id, *timeouts).await;
                self.viewed(action, answer, since, |sandbox| sandbox.spec.timeouts == *timeouts);
            }
            Action::Extend(id, by) => {
                let answer = self.service.extend(id, *by).await;
                self.viewed(action, answer, since, |sandbox| {
                    sandbox
                        .spec
                        .timeouts
                        .total
                        .is_none_or(|total| total >= *by || sandbox.state.name() == StateName::Running)
                });
            }
            Action::Update(id, update) => {
                let answer = self.service.update(id, update.clone()).await;
                self.viewed(action, answer, since, |sandbox| {
                    let is_named = update.name.is_none() || sandbox.spec.name == update.name;
                    is_named && Some(sandbox.spec.wake) == update.wake
                });
            }
            Action::SetRetention(id, retention) => {
                let answer = self.service.set_retention(id, *retention).await;
                self.viewed(action, answer, since, |sandbox| sandbox.spec.retention == *retention);
            }
            Action::SetEgress(id, egress) => {
                let answer = self.service.set_egress(id, egress.clone()).await;
                self.viewed(action, answer, since, |sandbox| sandbox.spec.egress == *egress);
            }
            Action::Hold(id, length) => {
                let answer = self.service.hold(id, *length, "a build".to_owned(), None).await;
                self.viewed(action, answer.map(|(view, _)| view), since, |sandbox| !sandbox.holds.is_empty());
            }
            Action::Terminate(id) => {
                self.world.model.terminate_asked(id);
                let answer = self.service.terminate(id).await;
                self.viewed(action, answer, since, |sandbox| sandbox.state.name() == StateName::Terminated);
            }
            Action::Count(id) => self.count(action, id).await,
            Action::Write(id) => self.write(action, id).await,
            Action::Read(id) => self.read(action, id).await,
            Action::Run(id) => self.run(action, id).await,
            Action::Serve(id) => self.start(action, id, ["serve", "8000"]).await,
            Action::Supervise(id) => self.supervise(action, id).await,
            Action::Eat(id) => self.start(action, id, ["allocate", "500000000"]).await,
            Action::Reach(id) => match self.service.connect(id, 8000).await {
                Ok((stream, in_use)) => {
                    self.note("reached it");
                    drop((stream, in_use));
                }
                Err(error) => self.refused(action, &error),
            },
            Action::Look(id) => {
                let answer = self.service.describe(id).await;
                self.viewed(action, answer, since, |_| true);
            }
            Action::List => self.list(action, since).await,
            Action::SetClock(by) => self.world.clock.set_by(*by),
            Action::MakeVolume(..) | Action::Attach(..) | Action::Detach(..) => self.use_volume(action, since).await,
            Action::MakePool(..) | Action::ResizePool(..) | Action::RemovePool(_) | Action::Claim(_) => {
                self.use_pool(action, since).await;
            }
            Action::Build(_) | Action::CancelBuild(_) | Action::AwaitBuild(_) | Action::CreateFromTemplate(_) => {
                self.use_build(action, since).await;
            }
            Action::Ensure(_)
            | Action::CancelEnvironment(_)
            | Action::RemoveEnvironment(_)
            | Action::ReleaseEnvironment(_)
            | Action::EndEnvironment(_)
            | Action::SuspendEnvironment(_) => self.use_environment(action).await,
            Action::Kill(id) => {
                if let Some(record) = self.world.model.record(id) {
                    self.world.host.kill(&record.sandbox.run_id(), "killed from outside");
                }
            }
        }
    }

    /// Checks an answer about a sandbox: it must have been true at some moment since the request.
    pub(super) fn viewed(
        &self,
        action: &Action,
        answer: Result<SandboxView, ServiceError>,
        since: u64,
        holds: impl Fn(&Sandbox) -> bool,
    ) {
        let view = match answer {
            Ok(view) => view,
            Err(error) => return self.refused(action, &error),
        };
        self.note(format_args!("told: {} is {}", view.sandbox.id, view.sandbox.state.name()));
        if !holds(&view.sandbox) {
            self.world.trace.wrong(format_args!("the answer to {action:?} shows {:?}", view.sandbox.state));
        }
        self.was_true(action, &view, since);
    }

    fn was_true(&self, action: &Action, view: &SandboxView, since: u64) {
        let told = &view.sandbox;
        let same = |sandbox: &Sandbox| essence(sandbox) == essence(told);
        if !self.world.model.was_true(&told.id, since, same) {
            self.world.trace.wrong(format_args!("the answer to {action:?} was never true: {told:?}"));
        }
    }

    async fn create(&mut self, action: &Action, since: u64) {
        let Action::Create { name, timeouts, snapshot, program } = action else { return };
        let from = match (snapshot, program) {
            (Some(snapshot), _) => self.snapshot_to_start_from(snapshot),
            (None, None | Some(FirstProgram::None)) => CreateFrom::Image("base".to_owned()),
            (None, Some(FirstProgram::OfImage)) => CreateFrom::Image("app".to_owned()),
        };
        let (name, timeouts, program) = (named(*name), *timeouts, *program);
        let asked = CreateSpec { name, timeouts, program, ..CreateSpec::new(from) };
        match self.service.create(asked).await {
            Ok(view) => {
                let id = view.sandbox.id.clone();
                if !self.world.model.inherits(&id) {
                    self.world.trace.wrong(format_args!("{id} does not have the settings of its snapshot"));
                }
                self.viewed(action, Ok(view), since, |sandbox| sandbox.state.name() == StateName::Running);
                self.count(action, &id).await;
            }
            Err(error) => {
                if let ServiceError::OperationFailed { sandbox, .. } = &error
                    && self.world.model.record(sandbox).is_some_and(|record| !is_over(&record.sandbox.state))
                {
                    self.world.trace.wrong(format_args!("{action:?} has failed and {sandbox} lives"));
                }
                self.refused(action, &error);
            }
        }
    }

    /// The snapshot, by its name if it has one.
    fn snapshot_to_start_from(&self, id: &SnapshotId) -> CreateFrom {
        let known = self.world.model.snapshot(id);
        match known.as_ref().and_then(SnapshotRecord::held_name) {
            Some(name) => CreateFrom::Image(name.to_string()),
            None => CreateFrom::Snapshot(id.clone()),
        }
    }

    async fn clone_one(&mut self, action: &Action, id: &SandboxId, name: Option<u64>, since: u64) {
        match self.service.clone_sandbox(id, named(name)).await {
            Ok(made) => {
                self.viewed(action, Ok(made.clone), since, |sandbox| sandbox.state.name() == StateName::Running);
            }
            Err(error) => self.refused(action, &error),
        }
    }

    async fn fork(
        &mut self,
        action: &Action,
        id: &SandboxId,
        names: &[Option<u64>],
        on_partial_failure: OnPartialFailure,
        since: u64,
    ) {
        let child = |name: &Option<u64>| ForkChildSpec { name: named(*name), ..ForkChildSpec::default() };
        let asked = ForkSpec {
            children: names.iter().map(child).collect(),
            on_partial_failure,
            volumes: dorm_service::FollowingVolumes::Same,
        };
        match self.service.fork(id, asked).await {
            Ok(made) => {
                if on_partial_failure == OnPartialFailure::RollBack && made.iter().any(Result::is_err) {
                    self.world.trace.wrong(format_args!("{action:?} is done and a child was not made"));
                }
                for child in made {
                    // A deadline of the source may end it before the last child exists.
                    self.viewed(action, child, since, |sandbox| sandbox.state.name() == StateName::Running);
                }
            }
            Err(error) => self.refused(action, &error),
        }
    }

    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        self.world.model.deletion_asked(id);
        self.service.delete_snapshot(id).await
    }

    async fn checkpoint(&mut self, action: &Action, id: &SandboxId, kind: SnapshotKind, expires: Option<Duration>) {
        // Few names, so that some are taken.
        let name = expires.and_then(|expires| format!("snap:{}", expires.as_secs() / 86_400 % 8).parse().ok());
        let settings = CheckpointSpec { kind, name, expires, ..CheckpointSpec::default() };
        match self.service.checkpoint_as(id, settings).await {
            Ok(snapshot) => {
                self.note(format_args!("told: snapshot {} is {}", snapshot.id, snapshot.status.as_str()));
                let committed = self.world.model.snapshot(&snapshot.id);
                // Another caller may have deleted it since.
                let holds = committed.is_none_or(|committed| {
                    matches!(committed.status, SnapshotStatus::Completed | SnapshotStatus::Deleting)
                });
                if snapshot.status != SnapshotStatus::Completed || !holds {
                    self.world.trace.wrong(format_args!("{action:?} is done and the snapshot is not complete"));
                }
            }
            Err(error) => self.refused(action, &error),
        }
    }

    async fn list(&mut self, action: &Action, since: u64) {
        match self.service.list(&SandboxFilter::default()).await {
            Ok(views) => {
                for view in &views {
                    self.was_true(action, view, since);
                }
            }
            Err(error) => self.refused(action, &error),
        }
    }

    /// Resumes a sandbox on a host without further faults, and checks all its data.
    pub(crate) async fn probe(&mut self, id: &SandboxId) {
        self.note(format_args!("looks into {id}"));
        self.insist(&Action::SetTimeouts(id.clone(), dorm_lifecycle::Timeouts::default())).await;
        // A deadline that has passed may still be about to end it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.detach_all(id).await;
        self.insist(&Action::Resume(id.clone())).await;
        let Some(record) = self.world.model.record(id) else { return };
        if is_over(&record.sandbox.state) {
            return;
        }
        if record.sandbox.state.name() != StateName::Running {
            self.world.trace.wrong(format_args!("{id} cannot be woken: it is {}", record.sandbox.state.name()));
            return;
        }
        self.until_reachable(id).await;
        let before = self.world.trace.is_wrong();
        self.must_count(id).await;
        self.insist(&Action::Read(id.clone())).await;
        if !before && self.world.trace.is_wrong() {
            self.note(format_args!("{id} does not hold what it should"));
        }
    }
}

impl Client {
    /// Waits until the sandbox is asked again and answers. A silence that began under an earlier
    /// daemon lasts its full time first.
    async fn until_reachable(&self, id: &SandboxId) {
        let end = tokio::time::Instant::now() + SILENCE;
        loop {
            match self.service.describe(id).await {
                Ok(view) if view.sandbox.unreachable.is_some() => {}
                Ok(_) | Err(_) => return,
            }
            if tokio::time::Instant::now() > end {
                return self.world.trace.wrong(format_args!("{id} answers, and is still said to be unreachable"));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// The target of the rewind with which the present run began, if the sandbox runs.
fn is_back(sandbox: &Sandbox) -> Option<&SnapshotId> {
    let back = sandbox.rewound.as_ref().filter(|rewound| rewound.generation == sandbox.generation)?;
    (sandbox.state.name() == StateName::Running).then_some(&back.to)
}

/// The part of an answer that is compared: all but moments, which follow the wall clock and move
/// with use.
fn essence(sandbox: &Sandbox) -> impl PartialEq + '_ {
    let Sandbox { id, spec, origin, generation, run, state, restored, rewound, older, .. } = sandbox;
    let older: Vec<_> = older.iter().map(|image| &image.saved_state).collect();
    let image = state.image().map(|image| &image.saved_state);
    (id, spec, origin, (generation, run), (state.name(), state.operation(), image), restored, rewound, older)
}

pub(super) fn named(number: Option<u64>) -> Option<Name> {
    number.and_then(|number| format!("name-{number}").parse().ok())
}
