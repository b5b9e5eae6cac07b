//! Runs the steps of a setup. A command that a daemon left running is found again by its label.

use std::time::Duration;

use dorm_agent_client::{
    AgentError, ExitStatus, GuestString, Output, Parents, ProcessSpec, ProcessStatus, User, Variable,
};
use dorm_lifecycle::SandboxId;
use dorm_storage::LogStream;
use dorm_store::{AttemptFailure, Code, FailureRecord, SetupState};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::attempt::{Maker, Stop};
use super::plan::Planned;
use crate::activity::Use;
use crate::backoff::Backoff;
use crate::builds::guest_path;
use crate::diary::Diary;
use crate::error::ServiceError;
use crate::ops::exec::{CommandInput, Execution};
use crate::shared::Service;

/// The label of the process of a start command.
const START_LABEL: &str = "dorm.start";
/// How long the daemon waits for the end of a command after its time limit.
const GRACE: Duration = Duration::from_secs(300);
/// The delay before the ready command is repeated.
const READY_AGAIN: Duration = Duration::from_millis(200);
/// The time limit of each run of the ready command.
const READY_ANSWER: Duration = Duration::from_secs(30);
/// How often a command is looked for after its connection has ended, and the delays before.
const RECONNECTS: usize = 6;
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How much of the last output is part of a failure.
const TAIL_BYTES: usize = 1000;

/// A command of a setup, with all it needs to run.
pub(super) struct Job {
    pub(super) service: Service,
    pub(super) sandbox: SandboxId,
    pub(super) spec: ProcessSpec,
    pub(super) label: String,
    pub(super) limit: Duration,
    pub(super) at: usize,
    pub(super) diary: Diary,
    /// The values that no line of the log may have.
    pub(super) hidden: Vec<String>,
}

/// How a command has ended.
pub(super) struct Ended {
    pub(super) exit: Option<ExitStatus>,
    pub(super) timed_out: bool,
    /// Its last output.
    pub(super) tail: String,
}

impl Maker {
    /// Runs groups of steps, those of one group at the same time.
    pub(super) async fn run_groups(&mut self, groups: &[Vec<Planned>], sandbox: &SandboxId) -> Result<(), Stop> {
        self.make_directory(sandbox).await?;
        let mut at = 0;
        for group in groups {
            let places: Vec<(usize, &Planned)> = (at..).zip(group).collect();
            at += group.len();
            let left: Vec<_> = places.into_iter().filter(|(at, _)| !self.is_done(*at)).collect();
            if left.is_empty() {
                continue;
            }
            self.unless(std::future::ready(())).await?;
            let now = self.service.shared.now();
            let waiting: Vec<usize> = left.iter().map(|(at, _)| *at).collect();
            self.update(|_, attempt| {
                for at in &waiting {
                    if let Some(step) = attempt.steps.get_mut(*at) {
                        (step.state, step.began) = (SetupState::Running, step.began.or(Some(now)));
                    }
                }
            })
            .await?;
            for (at, _) in &left {
                let title = self.attempt.steps.get(*at).map(|step| step.title.clone()).unwrap_or_default();
                let all = self.attempt.steps.len();
                self.diary.say(Some(*at), &format!("[{}/{all}] {title}", at + 1)).await;
            }
            match left.as_slice() {
                [(at, Planned::Clone)] => self.clone_code(*at, sandbox).await?,
                [(at, Planned::Upload)] => self.copy_upload(*at, sandbox).await?,
                [(at, Planned::Start(command))] => self.start(*at, command, sandbox).await?,
                [(at, Planned::Ready(command))] => self.until_ready(*at, command, sandbox).await?,
                commands => self.run_commands(commands, sandbox).await?,
            }
        }
        Ok(())
    }

    /// Makes the directory of the code, which belongs to the user of the commands.
    async fn make_directory(&self, sandbox: &SandboxId) -> Result<(), Stop> {
        let made = async {
            let (agent, _in_use) = self.service.agent(sandbox, Use::Files).await?;
            let directory = guest_path(&self.record.workspace.directory)?;
            match agent.make_directory(&directory, Parents::Create, self.user()?).await {
                Ok(_) | Err(AgentError::Exists(_)) => Ok(()),
                Err(error) => Err(ServiceError::from(error)),
            }
        };
        self.unless(made).await?.map_err(|error| self.stop(error))
    }

    fn user(&self) -> Result<Option<User>, ServiceError> {
        let Some(user) = &self.record.workspace.user else { return Ok(None) };
        let invalid = |_| ServiceError::ImageSetting { what: "user", value: user.clone() };
        user.parse().map(Some).map_err(invalid)
    }

    /// Returns a command of the setup, with the secrets of the environment.
    pub(super) fn job(&self, at: usize, words: &[&str], sandbox: &SandboxId) -> Result<Job, Stop> {
        let stop = |error: ServiceError| self.stop(error);
        let invalid = |_| Stop::failed(Code::InvalidArgument, "a command or a variable of the setup has a NUL");
        let words: Result<Vec<_>, _> = words.iter().map(|word| GuestString::new(word.as_bytes().to_vec())).collect();
        let mut spec = ProcessSpec::new(words.map_err(invalid)?);
        let secrets = self.service.secret_values(&self.record).map_err(stop)?;
        for (name, value) in &secrets.0 {
            let variable = Variable::new(name.clone(), value.clone());
            spec.variables.push(variable.map_err(|_| Stop::failed(Code::InvalidArgument, "a secret is not valid"))?);
        }
        spec.directory = Some(guest_path(&self.record.workspace.directory).map_err(stop)?);
        spec.user = self.user().map_err(stop)?;
        let label = format!("dorm.setup.{}.{at}", self.attempt.id);
        spec.label = Some(label.clone());
        Ok(Job {
            service: self.service.clone(),
            sandbox: sandbox.clone(),
            spec,
            label,
            limit: self.record.workspace.step_limit,
            at,
            diary: self.diary.another(),
            hidden: secrets.0.into_values().collect(),
        })
    }

    async fn run_commands(&mut self, commands: &[(usize, &Planned)], sandbox: &SandboxId) -> Result<(), Stop> {
        let mut running = FuturesUnordered::new();
        for (at, planned) in commands {
            let Planned::Command(command) = planned else { continue };
            let job = self.job(*at, &["/bin/sh", "-c", command], sandbox)?;
            let at = *at;
            running.push(async move { (at, job.run().await) });
        }
        let cancel = self.cancel.clone();
        loop {
            let ended = tokio::select! {
                biased;
                () = self.service.shared.stopping.cancelled() => return Err(Stop::later(ServiceError::Stopping)),
                () = cancel.cancelled() => return Err(Stop::Cancelled),
                ended = running.next() => ended,
            };
            match ended {
                None => return Ok(()),
                // The others end with the sandbox.
                Some((at, ended)) => self.ended(at, ended, "the command").await?,
            }
        }
    }

    /// Records how a step has ended.
    pub(super) async fn ended(
        &mut self,
        at: usize,
        ended: Result<Ended, ServiceError>,
        what: &str,
    ) -> Result<(), Stop> {
        let limit = self.record.workspace.step_limit;
        let (stop, exit_code) = match ended {
            Ok(Ended { exit: Some(ExitStatus::Code(0)), .. }) => (None, Some(0)),
            Ok(Ended { timed_out: true, tail, .. }) => {
                let reason = format!("{what} exceeded the time limit of {} s{}", limit.as_secs_f64(), said(&tail));
                (Some((Code::TimedOut, reason)), None)
            }
            Ok(Ended { exit: Some(ExitStatus::Code(code)), tail, .. }) => {
                (Some((Code::Failed, format!("{what} exited with code {code}{}", said(&tail)))), Some(code))
            }
            Ok(Ended { exit: Some(ExitStatus::Signal(signal)), tail, .. }) => {
                (Some((Code::Failed, format!("{what} was killed by signal {signal}{}", said(&tail)))), None)
            }
            Ok(Ended { exit: None, .. }) => (Some((Code::Unavailable, format!("the end of {what} is unknown"))), None),
            Err(error) => match self.stop(error) {
                Stop::Failed(AttemptFailure { failure, .. }) => (Some((failure.code, failure.reason)), None),
                stop => return Err(stop),
            },
        };
        let now = self.service.shared.now();
        let state = if stop.is_none() { SetupState::Done } else { SetupState::Failed };
        self.update(|_, attempt| {
            if let Some(step) = attempt.steps.get_mut(at) {
                (step.state, step.ended, step.exit_code) = (state, Some(now), exit_code);
            }
        })
        .await?;
        match stop {
            None => Ok(()),
            Some((code, reason)) => {
                let title = self.attempt.steps.get(at).map(|step| step.title.clone()).unwrap_or_default();
                let failure = FailureRecord::new(code, format!("step {} ({title}): {reason}", at + 1));
                Err(Stop::Failed(AttemptFailure { step: None, exit_code, failure, kept: None }).at(at))
            }
        }
    }

    /// Starts the command that stays running.
    async fn start(&mut self, at: usize, command: &str, sandbox: &SandboxId) -> Result<(), Stop> {
        let mut job = self.job(at, &["/bin/sh", "-c", command], sandbox)?;
        job.label = START_LABEL.to_owned();
        job.spec.label = Some(job.label.clone());
        let started = async {
            match job.earlier().await? {
                // A daemon that died before it could record that.
                Some(_) => Ok(()),
                None => job.service.start(&job.sandbox, job.spec, None).await.map(drop),
            }
        };
        let ended = self.unless(started).await?.map(|()| Ended {
            exit: Some(ExitStatus::Code(0)),
            timed_out: false,
            tail: String::new(),
        });
        self.ended(at, ended, "the start command").await
    }

    /// Repeats the ready command until it succeeds.
    async fn until_ready(&mut self, at: usize, command: &str, sandbox: &SandboxId) -> Result<(), Stop> {
        let until = Instant::now() + self.record.workspace.step_limit;
        loop {
            let mut job = self.job(at, &["/bin/sh", "-c", command], sandbox)?;
            let left = until.saturating_duration_since(Instant::now());
            (job.limit, job.spec.label) = (READY_ANSWER.min(left.max(Duration::from_millis(1))), None);
            let asked = self.unless(job.run_anew(false)).await?;
            let is_over = Instant::now() >= until;
            match asked {
                Ok(ended) if ended.exit == Some(ExitStatus::Code(0)) => {
                    return self.ended(at, Ok(ended), "the ready command").await;
                }
                Ok(ended) if is_over => {
                    let overtime = Ended { timed_out: true, exit: None, tail: ended.tail };
                    return self.ended(at, Ok(overtime), "the ready command never succeeded, and").await;
                }
                Err(error) if is_over || error.code() != Code::Unavailable => {
                    return self.ended(at, Err(error), "the ready command").await;
                }
                Ok(_) | Err(_) => self.unless(tokio::time::sleep(READY_AGAIN)).await?,
            }
        }
    }
}

/// Returns the last output as part of a sentence.
fn said(tail: &str) -> String {
    match tail.trim() {
        "" => String::new(),
        tail => format!("; its last output: {tail}"),
    }
}

impl Job {
    /// Runs the command to its end. If the connection to the agent ends, which also happens when
    /// the sandbox itself does, the command is looked for again.
    pub(super) async fn run(mut self) -> Result<Ended, ServiceError> {
        let mut waits = Backoff::new(RECONNECT);
        for _ in 0..RECONNECTS {
            match self.run_or_follow().await {
                Err(error) if error.code() == Code::Unavailable && !matches!(error, ServiceError::Stopping) => {
                    tokio::time::sleep(waits.wait()).await;
                }
                ended => return ended,
            }
        }
        self.run_or_follow().await
    }

    /// Runs the command, or follows it if it was started before.
    async fn run_or_follow(&mut self) -> Result<Ended, ServiceError> {
        match self.earlier().await? {
            None => self.run_anew(true).await,
            Some(earlier) => {
                let line = "the command was started before: its output is repeated from its beginning";
                self.diary.say(Some(self.at), line).await;
                let execution = self.service.follow_process(&self.sandbox, earlier.process).await?;
                self.follow(execution, true).await
            }
        }
    }

    /// Returns the process of the command, if it was started before.
    async fn earlier(&self) -> Result<Option<ProcessStatus>, ServiceError> {
        let (agent, _in_use) = self.service.agent(&self.sandbox, Use::Process).await?;
        let is_it = |status: &ProcessStatus| status.label.as_ref() == Some(&self.label);
        Ok(agent.processes_that(None, 1, is_it).await?.items.into_iter().next())
    }

    /// Runs the command to its end. Its output goes to the log if `is_logged`.
    pub(super) async fn run_anew(&mut self, is_logged: bool) -> Result<Ended, ServiceError> {
        let spec = self.spec.clone();
        let execution = self.service.exec(&self.sandbox, spec, CommandInput::Empty, Some(self.limit)).await?;
        self.follow(execution, is_logged).await
    }

    async fn follow(&mut self, mut execution: Execution, is_logged: bool) -> Result<Ended, ServiceError> {
        let mut tail = Vec::new();
        let mut exit = None;
        let within = self.limit + GRACE;
        loop {
            // The agent ends the command at its limit; this is for an agent that does not answer.
            let Ok(item) = tokio::time::timeout(within, execution.next()).await else {
                return Ok(Ended { exit: None, timed_out: true, tail: self.shown(&tail) });
            };
            match item {
                Some(Ok(Output::Stdout { bytes, .. })) => {
                    self.said(LogStream::Stdout, &bytes, &mut tail, is_logged).await
                }
                Some(Ok(Output::Stderr { bytes, .. })) => {
                    self.said(LogStream::Stderr, &bytes, &mut tail, is_logged).await
                }
                Some(Ok(Output::Lost { bytes, .. })) if is_logged => {
                    self.diary.say(Some(self.at), &format!("{bytes} bytes of output were not kept")).await;
                }
                Some(Ok(Output::Lost { .. })) => {}
                Some(Ok(Output::Exited(status))) => {
                    exit = Some(status);
                    break;
                }
                Some(Err(error)) => return Err(error.into()),
                None => break,
            }
        }
        if is_logged {
            self.diary.flush(Some(self.at)).await;
        }
        Ok(Ended { exit, timed_out: execution.timed_out(), tail: self.shown(&tail) })
    }

    async fn said(&mut self, stream: LogStream, bytes: &[u8], tail: &mut Vec<u8>, is_logged: bool) {
        let bytes = self.without_secrets(bytes);
        tail.extend_from_slice(&bytes);
        let surplus = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..surplus);
        if is_logged {
            self.diary.output(Some(self.at), stream, &bytes).await;
        }
    }

    /// Returns output in which the secrets of the setup are replaced. One that a command prints in
    /// parts is not recognized.
    fn without_secrets(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for secret in self.hidden.iter().filter(|secret| secret.len() >= 4) {
            while let Some(at) = bytes.windows(secret.len()).position(|part| part == secret.as_bytes()) {
                bytes.splice(at..at + secret.len(), *b"***");
            }
        }
        bytes
    }

    fn shown(&self, tail: &[u8]) -> String {
        String::from_utf8_lossy(tail).trim().to_owned()
    }
}
