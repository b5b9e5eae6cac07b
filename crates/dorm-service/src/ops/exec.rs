//! Runs a command to its end, with input and a time limit.
//!
//! The command belongs to the sandbox: if its caller goes away, it continues, and its time limit
//! still applies. The agent has all of its input and enforces the limit, also after a suspend. For
//! an agent of an earlier release the daemon does both, and then they end with the connection to
//! the agent.

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
use tokio::sync::oneshot;

use crate::activity::{InUse, Use};
use crate::error::{ServiceError, chain};
use crate::shared::Service;

/// How long an agent may take to kill a command.
const KILL: Duration = Duration::from_secs(10);

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
    /// Tells why the command cannot get all of its input.
    unfed: Option<oneshot::Receiver<AgentError>>,
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
        if let Some(unfed) = &mut this.unfed
            && let Poll::Ready(told) = Pin::new(unfed).poll(context)
        {
            this.unfed = None;
            if let Ok(error) = told {
                return Poll::Ready(Some(Err(error)));
            }
        }
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
        let mut unfed = None;
        let started = match input {
            CommandInput::Empty | CommandInput::Open => self.begin(&agent, &spec, limit, &overtime).await?,
            CommandInput::Whole(input) => match agent.start_with_input(&spec, &input, limit).await {
                Err(AgentError::Older { .. }) => {
                    let started = self.begin(&agent, &spec, limit, &overtime).await?;
                    unfed = Some(self.feed(agent.clone(), started.process, input));
                    started
                }
                started => started?,
            },
        };
        match agent.output(started.process, Offsets::BEGINNING).await {
            Ok(output) => Ok(Execution { started, output, overtime, unfed, exit: None, _in_use: in_use }),
            Err(error) => {
                // Its caller cannot learn its handle.
                kill(&agent, started.process, "whose output cannot be followed").await;
                Err(error.into())
            }
        }
    }

    /// Starts a command without input of its own.
    async fn begin(
        &self,
        agent: &Agent,
        spec: &ProcessSpec,
        limit: Option<Duration>,
        overtime: &Arc<AtomicBool>,
    ) -> Result<ProcessStarted, AgentError> {
        let Some(limit) = limit else { return agent.start(spec).await };
        match agent.start_within(spec, limit).await {
            Err(AgentError::Older { .. }) => {
                let started = agent.start(spec).await?;
                self.until_stop(end_after(agent.clone(), started.process, limit, Arc::clone(overtime)));
                Ok(started)
            }
            started => started,
        }
    }

    /// Writes all of its input to a command. If that fails, the command is killed: it would take
    /// the part that it got for all, or wait for the rest.
    fn feed(&self, agent: Agent, process: u64, input: Bytes) -> oneshot::Receiver<AgentError> {
        let (tell, told) = oneshot::channel();
        let stopping = self.shared.stopping.clone();
        self.shared.spawn(async move {
            tokio::select! {
                biased;
                () = stopping.cancelled() => kill(&agent, process, "whose input ends with the daemon").await,
                () = feed_or_kill(agent.clone(), process, input, tell) => {}
            }
        });
        told
    }

    /// Follows a process from the first byte of its output that is kept.
    pub(crate) async fn follow_process(&self, id: &SandboxId, process: u64) -> Result<Execution, ServiceError> {
        let (agent, in_use) = self.agent(id, Use::Exec).await?;
        let status = agent.process(process).await?;
        let output = agent.output(process, Offsets::BEGINNING).await?;
        let started = ProcessStarted { process, pid: status.pid };
        Ok(Execution { started, output, overtime: Arc::default(), unfed: None, exit: None, _in_use: in_use })
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
    kill(&agent, process, "that exceeded its time limit").await;
}

/// Kills a command and its group.
async fn kill(agent: &Agent, process: u64, which: &str) {
    let killed = tokio::time::timeout(KILL, agent.signal(process, Signal::KILL, Target::Group)).await;
    let error = match killed {
        // It has ended, or continues beyond the end of its connection.
        Ok(Ok(()) | Err(AgentError::NoProcess(_) | AgentError::Closed { .. })) => return,
        Ok(Err(error)) => chain(&error).to_string(),
        Err(late) => late.to_string(),
    };
    tracing::warn!(process, error, "cannot kill a command {which}");
}

async fn feed_or_kill(agent: Agent, process: u64, input: Bytes, tell: oneshot::Sender<AgentError>) {
    if let Err(error) = feed(&agent, process, input).await {
        tracing::warn!(process, error = %chain(&error), "cannot pass all of its input to a command");
        // Its caller may be gone.
        let _ = tell.send(error);
        kill(&agent, process, "that did not get all of its input").await;
    }
}

async fn feed(agent: &Agent, process: u64, input: Bytes) -> Result<(), AgentError> {
    let fed = match agent.write_stdin(process, input).await {
        Ok(()) => agent.close_stdin(process).await,
        Err(error) => Err(error),
    };
    match fed {
        // The command did not read all its input, or has ended.
        Err(AgentError::InputClosed(_) | AgentError::NoProcess(_)) => Ok(()),
        fed => fed,
    }
}

#[cfg(test)]
mod tests {
    use dorm_agent_proto::frame::{self, Decoder, Kind};
    use dorm_agent_proto::{Answer, Failure, Hello, Request, Resync, VERSION};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// Reads the next frame of the host of this kind.
    async fn next(guest: &mut DuplexStream, decoder: &mut Decoder, kind: Kind) -> frame::Frame {
        let mut buffer = [0; 4096];
        loop {
            match decoder.next_frame() {
                Some(frame) if frame.kind == kind => return frame,
                Some(_) => {}
                None => {
                    let length = guest.read(&mut buffer).await.unwrap();
                    decoder.push(&buffer[..length]);
                }
            }
        }
    }

    #[tokio::test]
    async fn a_command_that_cannot_get_all_of_its_input_is_killed_and_its_caller_told() {
        let (host, mut guest) = tokio::io::duplex(256 << 10);
        let mut decoder = Decoder::for_agent();
        let meet = async {
            let resync = Resync::from_bytes(&next(&mut guest, &mut decoder, Kind::Resync).await.payload).unwrap();
            let hello = serde_json::to_vec(&Hello { version: VERSION, pid: 1, generation: 1, revision: 4 }).unwrap();
            guest.write_all(&frame::hello(resync.nonce, &hello)).await.unwrap();
        };
        let (agent, ()) = tokio::join!(Agent::connect(host, 1), meet);
        let (tell, told) = oneshot::channel();
        let work = feed_or_kill(agent.unwrap(), 7, Bytes::from_static(b"input"), tell);
        let answers = async {
            let mut asked = Vec::new();
            for answer in [Err(Failure::TooManyOpen { of: "writes".to_owned(), most: 512 }), Ok(Answer::Done)] {
                let request = next(&mut guest, &mut decoder, Kind::Request).await;
                asked.push(serde_json::from_slice::<Request>(&request.payload).unwrap());
                let mut out = Vec::new();
                frame::encode(&mut out, Kind::Answer, request.channel, &serde_json::to_vec(&answer).unwrap());
                guest.write_all(&out).await.unwrap();
            }
            asked
        };
        let ((), asked) = tokio::join!(work, answers);
        let kill = Request::Signal { process: 7, signal: Signal::KILL, target: Target::Group };
        assert_eq!(asked, [Request::WriteStdin { process: 7 }, kill]);
        let told = told.await.unwrap();
        assert!(matches!(told, AgentError::TooManyOpen { .. }), "{told}");
    }
}
