//! The actions of callers inside sandboxes, and the checks of memory and files.

use std::time::Duration;

use bytes::Bytes;
use dorm_agent_client::{
    AgentError, ExitStatus, GuestPath, GuestString, Offsets, Output, ProcessSpec, Restart, RestartRules, ServiceName,
    ServiceSpec, ServiceStatus, Signal, Stdin, Target, WriteOptions,
};
use dorm_lifecycle::SandboxId;
use dorm_service::{CommandInput, Service, ServiceError, Use};
use futures_util::StreamExt as _;

use super::{Action, Client};
use crate::model::{Bounds, Counter, Hold};

const FILE: &str = "/value";

impl Client {
    /// Gets the next number from the counter, after starting one if there is none.
    pub(super) async fn count(&mut self, action: &Action, id: &SandboxId) {
        let world = self.world.clone();
        let Some(hold) = world.model.hold(id) else { return };
        if let Err(error) = self.count_once(&hold, id).await {
            self.refused(action, &error);
        }
    }

    /// Like [`Client::count`], but it must work.
    pub(super) async fn must_count(&mut self, id: &SandboxId) {
        let world = self.world.clone();
        let Some(hold) = world.model.hold(id) else { return };
        let counted = tokio::time::timeout(super::PATIENCE, self.count_once(&hold, id)).await;
        match counted {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                world.trace.wrong(format_args!("{id} runs, but its counter does not answer: {}", error.message()));
            }
            Err(_) => world.trace.wrong(format_args!("{id} runs, but its counter never answers")),
        }
    }

    async fn count_once(&mut self, hold: &Hold<'_>, id: &SandboxId) -> Result<(), ServiceError> {
        let (agent, _in_use) = self.service.agent(id, Use::Process).await?;
        let Some((epoch, memory)) = hold.memory() else { return Ok(()) };
        let Some(counter) = memory.counter else {
            let token = format!("token-{}", self.random.below(1 << 40));
            let words = ["counter", token.as_str()].into_iter().filter_map(|word| GuestString::new(word).ok());
            let spec = ProcessSpec { stdin: Stdin::Pipe, ..ProcessSpec::new(words.collect()) };
            let process = agent.start(&spec).await?.process;
            hold.learn(epoch, |memory| memory.counter = Some(Counter { process, token, count: Bounds::default() }));
            return Ok(());
        };
        let known = counter.count.least;
        let asked = hold.learn(epoch, |memory| {
            if let Some(counter) = &mut memory.counter {
                counter.count.most += 1;
            }
        });
        if !asked {
            return Ok(());
        }
        let answer = async {
            agent.write_stdin(counter.process, Bytes::from_static(b"\n")).await?;
            let from = Offsets { stdout: counter.offset_after(known), stderr: 0 };
            let mut output = agent.output(counter.process, from).await?;
            let mut line = Vec::new();
            while let Some(item) = output.next().await {
                if let Output::Stdout { bytes, .. } = item? {
                    line.extend_from_slice(&bytes);
                }
                if line.contains(&b'\n') {
                    break;
                }
            }
            Ok(line)
        };
        let answer: Result<Vec<u8>, AgentError> = answer.await;
        let told = hold.memory().filter(|(now, _)| *now == epoch);
        let Some((_, memory)) = told else { return Ok(()) };
        match answer {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line).lines().next().unwrap_or_default().to_owned();
                self.note(format_args!("{id} counts: {line}"));
                let most = memory.counter.map_or(0, |counter| counter.count.most);
                if line != counter.line(known + 1) || known + 1 > most {
                    let wanted = counter.line(known + 1);
                    self.world.trace.wrong(format_args!("{id} counts '{line}', not '{wanted}' (most {most})"));
                }
                hold.learn(epoch, |memory| {
                    if let Some(counter) = &mut memory.counter {
                        counter.count.least = known + 1;
                    }
                });
                Ok(())
            }
            Err(error @ (AgentError::NoProcess(_) | AgentError::InputClosed(_))) => {
                self.world.trace.wrong(format_args!("{id} has forgotten its counter: {error}"));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn write(&mut self, action: &Action, id: &SandboxId) {
        let world = self.world.clone();
        let Some(hold) = world.model.hold(id) else { return };
        if let Err(error) = write_value(&self.service, &hold, id, world.model.fresh_value()).await {
            self.refused(action, &error);
        }
    }

    pub(super) async fn read(&mut self, action: &Action, id: &SandboxId) {
        let world = self.world.clone();
        let Some(hold) = world.model.hold(id) else { return };
        let Some((epoch, before)) = hold.memory() else { return };
        match read_value(&self.service, id).await {
            Ok(value) => {
                self.note(format_args!("{id} holds the value {value}"));
                let Some((now, _)) = hold.memory() else { return };
                if now == epoch && !(before.file.least..=before.file.most).contains(&value) {
                    let Bounds { least, most } = before.file;
                    world.trace.wrong(format_args!("{id} holds the value {value}, not {least} to {most}"));
                }
            }
            Err(error) => self.refused(action, &error),
        }
    }

    /// Checks that the service is there and has not been given up, after starting it if there is
    /// none. Sometimes ends its process, which is then started again.
    pub(super) async fn supervise(&mut self, action: &Action, id: &SandboxId) {
        let world = self.world.clone();
        let Some(hold) = world.model.hold(id) else { return };
        let Some((epoch, before)) = hold.memory() else { return };
        let is_killed = self.random.chance(30);
        match supervise_once(&self.service, id, is_killed).await {
            Ok(Some(status)) => {
                let least = before.service.unwrap_or(0);
                let is_kept = status.restarts >= least && !status.state.is_over();
                self.note(format_args!("{id} has a service that is {:?}", status.state));
                if hold.learn(epoch, |memory| memory.service = Some(status.restarts)) && !is_kept {
                    let ServiceStatus { state, restarts, .. } = status;
                    world
                        .trace
                        .wrong(format_args!("the service of {id} is {state:?} after {restarts} of {least} restarts"));
                }
            }
            Ok(None) => {
                if hold.learn(epoch, |memory| memory.service = Some(0)) && before.service.is_some() {
                    world.trace.wrong(format_args!("{id} has forgotten its service"));
                }
            }
            Err(error) => self.refused(action, &error),
        }
    }

    /// Starts a program and leaves it running.
    pub(super) async fn start(&mut self, action: &Action, id: &SandboxId, words: [&str; 2]) {
        let words = words.into_iter().filter_map(|word| GuestString::new(word).ok()).collect();
        let started = match self.service.agent(id, Use::Process).await {
            Ok((agent, _in_use)) => agent.start(&ProcessSpec::new(words)).await.map_err(ServiceError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = started {
            self.refused(action, &error);
        }
    }

    pub(super) async fn run(&mut self, action: &Action, id: &SandboxId) {
        let words = ["echo", "hello"].into_iter().filter_map(|word| GuestString::new(word).ok()).collect();
        let limit = Some(Duration::from_secs(5));
        let mut running = match self.service.exec(id, ProcessSpec::new(words), CommandInput::Empty, limit).await {
            Ok(running) => running,
            Err(error) => return self.refused(action, &error),
        };
        let mut said = Vec::new();
        while let Some(item) = running.next().await {
            match item {
                Ok(Output::Stdout { bytes, .. }) => said.extend_from_slice(&bytes),
                Ok(Output::Exited(status)) => {
                    self.note(format_args!("{id} said {:?}, {status:?}", String::from_utf8_lossy(&said)));
                    let killed = status != ExitStatus::Code(0);
                    if !killed && said != b"hello\n" {
                        self.world.trace.wrong(format_args!("{id} said {:?}", String::from_utf8_lossy(&said)));
                    }
                }
                Ok(Output::Stderr { .. } | Output::Lost { .. }) => {}
                Err(error) => return self.refused(action, &error.into()),
            }
        }
    }
}

/// Returns the status of the service; `None` if it was started just now.
async fn supervise_once(
    service: &Service,
    id: &SandboxId,
    is_killed: bool,
) -> Result<Option<ServiceStatus>, ServiceError> {
    let name = ServiceName::try_from("kept".to_owned()).map_err(|error| AgentError::Invalid(error.to_string()))?;
    let (agent, _in_use) = service.agent(id, Use::Process).await?;
    match agent.service(&name).await {
        Ok(status) => {
            if is_killed {
                // It may have ended.
                let _ = agent.signal(status.process, Signal::KILL, Target::Process).await;
            }
            Ok(Some(status))
        }
        Err(AgentError::NoService(_)) => {
            let words = ["sleep", "1000000"].into_iter().filter_map(|word| GuestString::new(word).ok()).collect();
            // Only restarts of the last moment count, so that it is never given up.
            let restart =
                RestartRules { restart: Restart::Always, most: 10_000, window_ms: 1, ..RestartRules::default() };
            let process = ProcessSpec::new(words);
            service.start_service(id, ServiceSpec { name, process, restart, health: None }).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn write_value(service: &Service, hold: &Hold<'_>, id: &SandboxId, value: u64) -> Result<(), ServiceError> {
    let (agent, _in_use) = service.agent(id, Use::Files).await?;
    let Some((epoch, _)) = hold.memory() else { return Ok(()) };
    let Ok(path) = GuestPath::new(FILE) else { return Ok(()) };
    if !hold.learn(epoch, |memory| memory.file.most = value) {
        return Ok(());
    }
    let body = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(value.to_string()))]);
    agent.write_file(&path, WriteOptions::default(), body).await?;
    hold.learn(epoch, |memory| memory.file.least = value);
    Ok(())
}

/// The value in the file; 0 if there is no file.
async fn read_value(service: &Service, id: &SandboxId) -> Result<u64, ServiceError> {
    let (agent, _in_use) = service.agent(id, Use::Files).await?;
    let Ok(path) = GuestPath::new(FILE) else { return Ok(0) };
    let mut text = Vec::new();
    match agent.read_file(&path, 0, None).await {
        Ok((_, mut body)) => {
            while let Some(part) = body.next().await {
                text.extend_from_slice(&part?);
            }
        }
        Err(AgentError::NotFound(_)) => return Ok(0),
        Err(error) => return Err(error.into()),
    }
    Ok(String::from_utf8_lossy(&text).trim().parse().unwrap_or(u64::MAX))
}
