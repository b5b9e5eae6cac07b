//! Runs steps, each in a sandbox of its own, and keeps the resulting files.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use dorm_agent_client::{ExitStatus, GuestPath, GuestString, Output, Parents, ProcessSpec, User, Variable};
use dorm_build::{Command, Step};
use dorm_lifecycle::{Digest, FirstProgram, Initiator, SandboxId, SnapshotId, SnapshotKind, Timeouts};
use dorm_storage::{Image, LogStream};
use dorm_store::{
    BuildFailure, BuildStepState, BuildWork, Code, FailureRecord, Removal, SnapshotFilter, SnapshotRecord,
    SnapshotStatus,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::time::Instant;

use super::plan::{Stage, Stages};
use super::{Builder, Stop};
use crate::activity::Use;
use crate::error::ServiceError;
use crate::messages::{AnswerAt, Manner, SnapshotSpec};
use crate::ops::create::{CreateFrom, CreateSpec};
use crate::ops::exec::CommandInput;
use crate::shared::Using;

/// The label of the snapshots and sandboxes of steps; its value is the key of the step.
pub const BUILD_LABEL: &str = "dorm.build";
/// How long the sandbox of a step may run after the time limit of the step.
pub(super) const GRACE: Duration = Duration::from_secs(600);
/// How long the files of a step are kept for later builds.
const KEPT: Duration = Duration::from_secs(14 * 86_400);
/// How long a build waits until the host has room for the sandbox of a step.
const ROOM: Duration = Duration::from_secs(1800);
const ROOM_AGAIN: Duration = Duration::from_secs(2);

/// The files that a step starts from.
#[derive(Clone, Debug)]
pub(super) enum From {
    Image(Digest),
    /// A snapshot, and the disk size of its source: a sandbox created from it cannot have a smaller
    /// disk.
    Snapshot(SnapshotId, u64),
}

impl From {
    fn of(snapshot: &SnapshotRecord) -> Self {
        Self::Snapshot(snapshot.id.clone(), snapshot.resources.disk_bytes)
    }
}

impl Builder {
    /// Runs the steps whose results are not known, and returns the last result.
    pub(super) async fn steps(&mut self, base: &Image, stages: &Stages) -> Result<From, Stop> {
        let (known, begin) = self.known(stages).await?;
        let mut from = From::Image(base.digest.clone());
        let mut _using: Option<Using> = None;
        if let Some(snapshot) = begin.and_then(|at| known.get(&at)) {
            match self.service.use_snapshot(snapshot).await {
                Ok((using, snapshot)) => (_using, from) = (Some(using), From::of(&snapshot)),
                Err(error) => return Err(self.stop(error)),
            }
        }
        for (at, stage) in stages.all.iter().enumerate() {
            let is_kept = begin.is_some_and(|begin| at <= begin);
            let is_told = self
                .record
                .steps
                .get(at)
                .is_some_and(|step| is_kept && matches!(step.state, BuildStepState::Done | BuildStepState::Cached));
            let note = if is_kept && stage.key.is_some() { " (cached)" } else { "" };
            if !is_told {
                let title = self.record.steps.get(at).map(|step| step.title.clone()).unwrap_or_default();
                self.diary.say(Some(at), &format!("[{}/{}] {title}{note}", at + 1, stages.all.len())).await;
            }
            if is_kept || stage.key.is_none() {
                self.skip(at, stage, known.get(&at)).await?;
                continue;
            }
            let done = self.step(at, stage, &from).await.map_err(|stop| stop.at(at))?;
            let used = self.service.use_snapshot(&done).await;
            let (using, snapshot) = used.map_err(|error| self.stop(error))?;
            (_using, from) = (Some(using), From::of(&snapshot));
        }
        Ok(from)
    }

    /// Records a step that needs no run.
    async fn skip(&mut self, at: usize, stage: &Stage, snapshot: Option<&SnapshotId>) -> Result<(), Stop> {
        let state = match stage.key {
            Some(_) => BuildStepState::Cached,
            None => BuildStepState::Done,
        };
        let is_told = self.record.steps.get(at).is_some_and(|step| step.state != BuildStepState::Waiting);
        if is_told {
            return Ok(());
        }
        let (now, snapshot) = (self.service.shared.now(), snapshot.cloned());
        self.update(|record| {
            if let Some(step) = record.steps.get_mut(at) {
                (step.state, step.began, step.ended) = (state, Some(now), Some(now));
                step.snapshot = snapshot;
            }
        })
        .await
    }

    /// Returns the known results by the position of their step, and the last step whose result can
    /// be used. Each key includes the previous one, so earlier results are not needed.
    async fn known(&self, stages: &Stages) -> Result<(HashMap<usize, SnapshotId>, Option<usize>), Stop> {
        let store = &self.service.shared.store;
        let mut known = HashMap::new();
        for (at, step) in self.record.steps.iter().enumerate() {
            // Its own results count, whether or not results of others do.
            if let (BuildStepState::Done, Some(snapshot)) = (step.state, &step.snapshot)
                && store.snapshot(snapshot).await?.is_some_and(|snapshot| is_usable(&snapshot))
            {
                known.insert(at, snapshot.clone());
            }
        }
        if self.record.plan.is_cached {
            let own = SnapshotFilter { project: Some(self.service.project().clone()), ..SnapshotFilter::default() };
            let snapshots = store.find_snapshots(&own).await?;
            let usable = snapshots.iter().filter(|snapshot| is_usable(snapshot));
            let by_key: HashMap<&str, &SnapshotRecord> =
                usable.filter_map(|snapshot| Some((snapshot.labels.get(BUILD_LABEL)?.as_str(), snapshot))).collect();
            for (at, stage) in stages.all.iter().enumerate().take(stages.first_forced()) {
                let Some(found) = stage.key.as_deref().and_then(|key| by_key.get(key)) else { continue };
                known.entry(at).or_insert_with(|| found.id.clone());
            }
        }
        let begin = known.keys().max().copied();
        Ok((known, begin))
    }

    /// Runs a step in a new sandbox and returns a snapshot of the result.
    async fn step(&mut self, at: usize, stage: &Stage, from: &From) -> Result<SnapshotId, Stop> {
        let ids = self.service.shared.ids();
        let work = BuildWork { sandbox: ids.sandbox(), snapshot: ids.snapshot() };
        let (now, planned) = (self.service.shared.now(), work.clone());
        self.update(|record| {
            record.work = Some(planned);
            if let Some(step) = record.steps.get_mut(at) {
                (step.state, step.began) = (BuildStepState::Running, Some(now));
            }
        })
        .await?;
        let key = stage.key.clone().unwrap_or_default();
        let spec = self.sandbox(from, &key);
        self.create(Some(at), &work.sandbox, spec).await?;
        let carried = self.step_in(at, stage, &work.sandbox).await;
        self.diary.flush(Some(at)).await;
        carried?;
        let removal = Removal::At(self.service.shared.now().after(KEPT));
        let labels = [(BUILD_LABEL.to_owned(), key)].into();
        let by = self.service.asked_by(Initiator::User);
        let asked =
            SnapshotSpec { labels, ..SnapshotSpec::new(work.snapshot.clone(), SnapshotKind::Filesystem, removal, by) };
        self.admit_snapshot().await?;
        let taken = self.service.snapshot_as(&work.sandbox, asked).await;
        taken.map_err(|error| self.stop(error))?;
        self.end_sandbox(&work.sandbox).await?;
        self.diary.sync().await;
        let (now, snapshot) = (self.service.shared.now(), work.snapshot.clone());
        self.update(|record| {
            record.work = None;
            if let Some(step) = record.steps.get_mut(at) {
                (step.state, step.ended, step.snapshot) = (BuildStepState::Done, Some(now), Some(snapshot));
            }
        })
        .await?;
        Ok(work.snapshot)
    }

    pub(super) async fn admit_snapshot(&self) -> Result<(), Stop> {
        self.service.admit_snapshot().await.map_err(|error| self.stop(error))
    }

    /// Returns the sandbox of a step.
    fn sandbox(&self, from: &From, key: &str) -> CreateSpec {
        let plan = &self.record.plan;
        let (from, least) = match from {
            From::Image(image) => (CreateFrom::Image(image.to_string()), 0),
            From::Snapshot(id, disk) => (CreateFrom::Snapshot(id.clone()), *disk),
        };
        let mut resources = plan.resources.or_default();
        resources.disk_bytes = resources.disk_bytes.max(least);
        CreateSpec {
            resources: Some(resources),
            program: Some(FirstProgram::None),
            egress: Some(plan.egress.clone()),
            timeouts: Timeouts { max_run: Some(plan.step_limit + GRACE), ..Timeouts::default() },
            labels: [(BUILD_LABEL.to_owned(), key.to_owned())].into(),
            ..CreateSpec::new(from)
        }
    }

    /// Creates a sandbox of the build, which may have to wait for room.
    pub(super) async fn create(&mut self, at: Option<usize>, id: &SandboxId, spec: CreateSpec) -> Result<(), Stop> {
        let until = Instant::now() + ROOM;
        let service = self.service.in_manner(Manner { answer: AnswerAt::Beginning, ..Manner::default() });
        let mut is_told = false;
        loop {
            match service.create_as(id.clone(), spec.clone()).await {
                Ok(_) => break,
                Err(ServiceError::NotAdmitted { reason, .. }) if Instant::now() < until => {
                    if !std::mem::replace(&mut is_told, true) {
                        self.diary.say(at, &format!("waiting for room: {reason}")).await;
                    }
                    self.unless(tokio::time::sleep(ROOM_AGAIN)).await?;
                }
                Err(error) => return Err(self.stop(error)),
            }
        }
        let created = self.unless(self.service.created_earlier(id)).await?;
        created.map(drop).map_err(|error| self.stop(error))
    }

    async fn step_in(&mut self, at: usize, stage: &Stage, sandbox: &SandboxId) -> Result<(), Stop> {
        if let Some(directory) = &stage.before.0.workdir {
            let owner = match &stage.before.0.workdir_owner {
                Some(owner) => Some(self.user_in(sandbox, owner).await?),
                None => None,
            };
            let made = async {
                let (agent, _in_use) = self.service.agent(sandbox, Use::Files).await?;
                Ok(agent.make_directory(&guest_path(directory)?, Parents::Create, owner).await?)
            };
            self.unless(made).await?.map_err(|error: ServiceError| self.stop(error))?;
        }
        match &stage.placed.step {
            Step::Run(command) => self.run(at, stage, command, sandbox).await,
            Step::Copy(copy) => self.place(at, stage, copy, sandbox).await,
            Step::Env(..) | Step::Workdir(_) | Step::User(_) | Step::Entrypoint(_) | Step::Cmd(_) => Ok(()),
        }
    }

    async fn run(&mut self, at: usize, stage: &Stage, command: &Command, sandbox: &SandboxId) -> Result<(), Stop> {
        let limit = self.record.plan.step_limit;
        let spec = self.process(stage, command, sandbox).await?;
        let started = self.unless(self.service.exec(sandbox, spec, CommandInput::Empty, Some(limit))).await?;
        let mut execution = started.map_err(|error| self.stop(error))?;
        loop {
            // The agent ends the command at its limit; this is for an agent that does not answer.
            let item = tokio::time::timeout(limit + GRACE / 2, execution.next());
            let item = match self.unless(item).await? {
                Ok(item) => item,
                Err(_) => return Err(overtime(limit)),
            };
            match item {
                Some(Ok(Output::Stdout { bytes, .. })) => {
                    self.diary.output(Some(at), LogStream::Stdout, &bytes).await;
                }
                Some(Ok(Output::Stderr { bytes, .. })) => {
                    self.diary.output(Some(at), LogStream::Stderr, &bytes).await;
                }
                Some(Ok(Output::Lost { bytes, .. })) => {
                    self.diary.say(Some(at), &format!("{bytes} bytes of output were not kept")).await;
                }
                Some(Ok(Output::Exited(ExitStatus::Code(0)))) => return Ok(()),
                Some(Ok(Output::Exited(_))) if execution.timed_out() => return Err(overtime(limit)),
                Some(Ok(Output::Exited(status))) => return Err(exited("the command", status)),
                Some(Err(error)) => return Err(self.stop(error.into())),
                None => return Err(Stop::failed(Code::Unavailable, "the end of the command is unknown")),
            }
        }
    }

    async fn process(&self, stage: &Stage, command: &Command, sandbox: &SandboxId) -> Result<ProcessSpec, Stop> {
        let settings = &stage.before.0;
        let words = command.argv().into_iter().map(|word| GuestString::new(word.into_bytes()));
        let words: Result<Vec<_>, _> = words.collect();
        let mut spec = ProcessSpec::new(words.map_err(|_| bad("the command"))?);
        let mut env: BTreeMap<String, String> = stage.placed.arguments.clone();
        env.extend(settings.env.clone());
        for (name, value) in env {
            spec.variables.push(Variable::new(name, value).map_err(|_| bad("a variable"))?);
        }
        let directory = settings.workdir.as_deref().unwrap_or("/");
        spec.directory = Some(guest_path(directory).map_err(|error| self.stop(error))?);
        if let Some(user) = &settings.user {
            spec.user = Some(self.user_in(sandbox, user).await?);
        }
        Ok(spec)
    }

    /// Returns the user whom a step names. A name and group are looked up in the sandbox's files.
    pub(super) async fn user_in(&self, sandbox: &SandboxId, user: &str) -> Result<User, Stop> {
        let numbered = self.unless(self.numbered(sandbox, user)).await?;
        let user = numbered.map_err(|error| self.stop(error))?.ok_or_else(|| {
            let what = format!("/etc/passwd and /etc/group do not list '{user}': create it in an earlier step");
            Stop::failed(Code::InvalidArgument, what)
        })?;
        user.parse().map_err(|_| bad("the user"))
    }

    /// Returns `USER:GROUP` as the numbers that the sandbox's files list for them, and anything
    /// else unchanged.
    async fn numbered(&self, sandbox: &SandboxId, user: &str) -> Result<Option<String>, ServiceError> {
        if !user.contains(':') {
            return Ok(Some(user.to_owned()));
        }
        let (agent, _in_use) = self.service.agent(sandbox, Use::Files).await?;
        let mut lists = Vec::new();
        for list in ["/etc/passwd", "/etc/group"] {
            let (_, content) = agent.read_file(&guest_path(list)?, 0, Some(LIST_BYTES_MAX)).await?;
            let content: Vec<_> = content.try_collect().await?;
            lists.push(String::from_utf8_lossy(&content.concat()).into_owned());
        }
        let list = |at: usize| lists.get(at).map(String::as_str).unwrap_or_default();
        Ok(dorm_storage::numbered_user(user, list(0), list(1)))
    }
}

/// How much is read of a list of users.
const LIST_BYTES_MAX: u64 = 4 << 20;

pub(crate) fn guest_path(path: &str) -> Result<GuestPath, ServiceError> {
    let invalid = |_| ServiceError::ImageSetting { what: "path", value: path.to_owned() };
    GuestPath::try_from(path).map_err(invalid)
}

fn is_usable(snapshot: &SnapshotRecord) -> bool {
    snapshot.status == SnapshotStatus::Completed
        && snapshot.kind == SnapshotKind::Filesystem
        && snapshot.removal != Removal::WhenFree
}

fn overtime(limit: Duration) -> Stop {
    let reason = format!("the command exceeded the step timeout of {} s and was ended", limit.as_secs_f64());
    Stop::failed(Code::TimedOut, reason)
}

fn bad(what: &str) -> Stop {
    Stop::failed(Code::InvalidArgument, format!("{what} has a NUL or is not valid"))
}

/// Returns the failure of a command that has ended like this.
pub(super) fn exited(what: &str, status: ExitStatus) -> Stop {
    let (exit_code, reason) = match status {
        ExitStatus::Code(code) => (Some(code), format!("{what} exited with code {code}")),
        ExitStatus::Signal(signal) => (None, format!("{what} was killed by signal {signal}")),
    };
    Stop::Failed(BuildFailure { step: None, exit_code, failure: FailureRecord::new(Code::Failed, reason) })
}
