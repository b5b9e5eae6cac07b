//! Runs a command to its end, with input and a time limit.
//!
//! The command belongs to the sandbox: if its caller goes away, it continues, and its time limit
//! still applies. The agent enforces the limit, also after a suspend. For an agent of an earlier
//! release the daemon does, and then the limit ends with the connection to the agent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use dorm_agent_client::{
    Agent, AgentError, ExitStatus, FirstReader, Offsets, Output, OutputStream, ProcessSpec, ProcessStarted, Signal,
    Stdin, Target,
};
use dorm_lifecycle::SandboxId;
use futures_util::Stream;

use crate::activity::{InUse, Use};
use crate::error::{ServiceError, chain};
use crate::shared::Service;

/// The standard input of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandInput {
    /// It ends at once.
    Empty,
    /// These bytes; then it ends.
    Whole(Bytes),
    /// The bytes that are written to the process until its input is closed.
    Open,
}

/// A running command: its output as a stream, until [`Output::Exited`]. The sandbox counts as in
/// use until this is dropped.
pub struct Execution {
    /// The process.
    pub started: ProcessStarted,
    output: OutputStream,
    overtime: Arc<AtomicBool>,
    exit: Option<ExitStatus>,
    _in_use: InUse,
}

impl Execution {
    /// Returns whether it was killed at its time limit.
    pub fn timed_out(&self) -> bool {
        let killed = ExitStatus::Signal(Signal::KILL.number());
        self.output.timed_out() || (self.exit == Some(killed) && self.overtime.load(Ordering::SeqCst))
    }
}

impl Stream for Execution {
    type Item = Result<Output, AgentError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let item = ready!(Pin::new(&mut this.output).poll_next(context));
        if let Some(Ok(Output::Exited(status))) = &item {
            this.exit = Some(*status);
        }
        Poll::Ready(item)
    }
}

impl Service {
    /// Starts a command and follows its output from the first byte. After `limit`, the command and
    /// its process group are killed, whether its input is open or not. Input and first reader of
    /// `spec` are overwritten.
    ///
    /// # Errors
    ///
    /// Those of [`Service::agent`], and the agent's for a command that cannot be started.
    pub async fn exec(
        &self,
        id: &SandboxId,
        mut spec: ProcessSpec,
        input: CommandInput,
        limit: Option<Duration>,
    ) -> Result<Execution, ServiceError> {
        spec.first_reader = FirstReader::Expected;
        spec.stdin = if input == CommandInput::Empty { Stdin::Empty } else { Stdin::Pipe };
        let spec = self.with_settings(id, spec).await?;
        let (agent, in_use) = self.agent(id, Use::Exec).await?;
        let overtime = Arc::new(AtomicBool::new(false));
        let started = match limit {
            None => agent.start(&spec).await?,
            Some(limit) => match agent.start_within(&spec, limit).await {
                Err(AgentError::Older { .. }) => {
                    let started = agent.start(&spec).await?;
                    self.until_stop(end_after(agent.clone(), started.process, limit, overtime.clone()));
                    started
                }
                started => started?,
            },
        };
        if let CommandInput::Whole(input) = input {
            self.until_stop(feed(agent.clone(), started.process, input));
        }
        let output = agent.output(started.process, Offsets::BEGINNING).await?;
        Ok(Execution { started, output, overtime, exit: None, _in_use: in_use })
    }

    /// Follows a process from the first byte of its output that is kept.
    pub(crate) async fn follow_process(&self, id: &SandboxId, process: u64) -> Result<Execution, ServiceError> {
        let (agent, in_use) = self.agent(id, Use::Exec).await?;
        let status = agent.process(process).await?;
        let output = agent.output(process, Offsets::BEGINNING).await?;
        let started = ProcessStarted { process, pid: status.pid };
        Ok(Execution { started, output, overtime: Arc::default(), exit: None, _in_use: in_use })
    }

    fn until_stop(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.shared.stopping.clone();
        self.shared.spawn(async move {
            tokio::select! {
                biased;
                () = stopping.cancelled() => {}
                () = work => {}
            }
        });
    }
}

async fn end_after(agent: Agent, process: u64, limit: Duration, overtime: Arc<AtomicBool>) {
    tokio::select! {
        biased;
        _ = agent.wait(process) => return,
        () = tokio::time::sleep(limit) => {}
    }
    overtime.store(true, Ordering::SeqCst);
    if let Err(error) = agent.signal(process, Signal::KILL, Target::Group).await {
        match error {
            AgentError::NoProcess(_) => {}
            error => {
                tracing::warn!(process, error = %chain(&error), "cannot kill a command that exceeded its time limit")
            }
        }
    }
}

async fn feed(agent: Agent, process: u64, input: Bytes) {
    let fed = match agent.write_stdin(process, input).await {
        Ok(()) => agent.close_stdin(process).await,
        Err(error) => Err(error),
    };
    match fed {
        // The command did not read all its input, or has ended.
        Ok(()) | Err(AgentError::InputClosed(_) | AgentError::NoProcess(_) | AgentError::Closed { .. }) => {}
        Err(error) => tracing::warn!(process, error = %chain(&error), "cannot pass all of its input to a command"),
    }
}
