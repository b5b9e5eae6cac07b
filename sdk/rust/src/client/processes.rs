//! Commands in a sandbox: starts, follows, feeds and signals them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dorm_api_types as wire;
use futures_util::Stream;
use reqwest::{Body, Method};

use super::path::sandbox as of;
use super::{Client, ClientError, Sse, SseEvent};

/// A piece of output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Position of the first byte in this output stream, counted from the start of the process.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A position in the output of a process: how many bytes of each stream come before it. The default
/// is the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// Bytes of standard output, or of what a terminal shows.
    pub stdout: u64,
    /// Bytes of standard error.
    pub stderr: u64,
}

impl Position {
    /// Returns the position after an event.
    #[must_use]
    pub fn after(mut self, event: &CommandEvent) -> Self {
        let end = |chunk: &Chunk| chunk.offset + chunk.bytes.len() as u64;
        match event {
            CommandEvent::Stdout(chunk) => self.stdout = end(chunk),
            CommandEvent::Stderr(chunk) => self.stderr = end(chunk),
            CommandEvent::Lost(gap) => match gap.stream {
                wire::OutputStream::Stdout => self.stdout = gap.offset + gap.bytes,
                wire::OutputStream::Stderr => self.stderr = gap.offset + gap.bytes,
            },
            CommandEvent::Checkpoint(_) | CommandEvent::Started(_) | CommandEvent::Exited(_) => {}
        }
        self
    }
}

/// An event of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandEvent {
    /// This snapshot was taken first.
    Checkpoint(String),
    /// It runs under this handle.
    Started(u64),
    /// It wrote to its standard output.
    Stdout(Chunk),
    /// It wrote to its standard error.
    Stderr(Chunk),
    /// Some of its output is no longer kept.
    Lost(wire::LostOutput),
    /// It has ended.
    Exited(wire::ExitStatus),
}

/// The events of a command. The stream ends with its connection.
pub struct CommandEvents {
    sse: Sse,
}

impl CommandEvents {
    pub(super) fn new(sse: Sse) -> Self {
        Self { sse }
    }

    /// Returns the next event. The last one is [`CommandEvent::Exited`].
    pub async fn next(&mut self) -> Result<CommandEvent, ClientError> {
        let next = self.next_if_any().await?;
        next.ok_or_else(|| self.sse.ended())
    }

    /// Returns the error for a stream that ended too early.
    pub(crate) fn ended(&self) -> ClientError {
        self.sse.ended()
    }

    fn chunk(&self, event: &SseEvent) -> Result<Chunk, ClientError> {
        let chunk: wire::OutputChunk = self.sse.parse(event)?;
        let bytes = match chunk.encoding {
            wire::Encoding::Utf8 => chunk.data.into_bytes(),
            wire::Encoding::Base64 => STANDARD.decode(chunk.data).map_err(|error| self.sse.unreadable(error))?,
        };
        Ok(Chunk { offset: chunk.offset, bytes })
    }

    /// Returns the next event of a stream that may end without a last one.
    pub async fn next_if_any(&mut self) -> Result<Option<CommandEvent>, ClientError> {
        loop {
            let Some(event) = self.sse.next().await? else {
                return Ok(None);
            };
            return Ok(Some(match event.kind.as_str() {
                "checkpoint" => CommandEvent::Checkpoint(self.sse.parse::<wire::CheckpointTaken>(&event)?.snapshot),
                "started" => CommandEvent::Started(self.sse.parse::<wire::ProcessStarted>(&event)?.process),
                "stdout" => CommandEvent::Stdout(self.chunk(&event)?),
                "stderr" => CommandEvent::Stderr(self.chunk(&event)?),
                "lost" => CommandEvent::Lost(self.sse.parse(&event)?),
                "exit" => CommandEvent::Exited(self.sse.parse(&event)?),
                _ => continue,
            }));
        }
    }
}

impl Client {
    /// Runs a command and follows it.
    pub async fn exec(&self, sandbox: &str, asked: &wire::ExecRequest) -> Result<CommandEvents, ClientError> {
        let request = self.request(Method::POST, &of(sandbox, "exec")).json(asked);
        Ok(CommandEvents::new(self.stream(request).await?))
    }

    /// Runs a command to its end, and returns at most 4 MiB of each output stream.
    pub async fn exec_whole(&self, sandbox: &str, asked: &wire::ExecRequest) -> Result<wire::ExecResult, ClientError> {
        self.post(&of(sandbox, "exec"), asked).await
    }

    /// Starts a command that continues without a follower, and returns its handle.
    pub async fn start(&self, sandbox: &str, asked: &wire::StartProcess) -> Result<u64, ClientError> {
        Ok(self.post::<wire::ProcessStarted>(&of(sandbox, "processes"), asked).await?.process)
    }

    /// Follows a started command from a position in its output.
    pub async fn follow(&self, sandbox: &str, process: u64, from: Position) -> Result<CommandEvents, ClientError> {
        self.output(sandbox, process, from, true).await
    }

    /// Returns the output of a command from a position on: until it ends, or else what exists now.
    pub async fn output(
        &self,
        sandbox: &str,
        process: u64,
        from: Position,
        follow: bool,
    ) -> Result<CommandEvents, ClientError> {
        let query = [("stdout", from.stdout.to_string()), ("stderr", from.stderr.to_string())];
        let request = self.request(Method::GET, &of(sandbox, &format!("processes/{process}/output"))).query(&query);
        Ok(CommandEvents::new(self.stream(request.query(&[("follow", follow)])).await?))
    }

    /// Waits for the end of a command, however long that takes.
    pub async fn wait(&self, sandbox: &str, process: u64) -> Result<wire::ExitStatus, ClientError> {
        self.get(&of(sandbox, &format!("processes/{process}/wait"))).await
    }

    /// Writes a stream of bytes to a command's input, and closes it. It is not an error if the
    /// command reads no more.
    pub async fn feed<S>(&self, sandbox: &str, process: u64, input: S) -> Result<(), ClientError>
    where
        S: Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static,
    {
        let path = of(sandbox, &format!("processes/{process}/stdin"));
        let written = self.tell(self.request(Method::POST, &path).body(Body::wrap_stream(input))).await;
        let closed = match written {
            Ok(()) => self.close_stdin(sandbox, process).await,
            Err(error) => Err(error),
        };
        match closed {
            Err(ClientError::Refused { status: 404 | 409, .. }) => Ok(()),
            other => other,
        }
    }

    /// Writes bytes to a command's input, which stays open. Returns when the kernel of the sandbox
    /// has accepted all of them, with their number.
    pub async fn write_stdin(
        &self,
        sandbox: &str,
        process: u64,
        input: impl Into<bytes::Bytes>,
    ) -> Result<u64, ClientError> {
        let path = of(sandbox, &format!("processes/{process}/stdin"));
        let request = self.request(Method::POST, &path).body(Body::from(input.into()));
        Ok(self.read::<wire::StdinWritten>(request).await?.bytes)
    }

    /// Closes a command's input. Bytes that were written before are delivered first.
    pub async fn close_stdin(&self, sandbox: &str, process: u64) -> Result<(), ClientError> {
        self.tell(self.request(Method::POST, &of(sandbox, &format!("processes/{process}/stdin/close")))).await
    }

    /// Returns the processes of a sandbox, of one label if it is given, oldest first.
    pub async fn processes(&self, sandbox: &str, label: Option<&str>) -> Result<Vec<wire::Process>, ClientError> {
        let query: Vec<_> = label.map(|label| ("label", label.to_owned())).into_iter().collect();
        self.pages(&of(sandbox, "processes"), &query, |page: wire::ProcessList| (page.processes, page.next)).await
    }

    /// Returns a process.
    pub async fn process(&self, sandbox: &str, process: u64) -> Result<wire::Process, ClientError> {
        self.get(&of(sandbox, &format!("processes/{process}"))).await
    }

    /// Kills a process with all its descendants.
    pub async fn kill(&self, sandbox: &str, process: u64) -> Result<wire::Killed, ClientError> {
        self.read(self.request(Method::POST, &of(sandbox, &format!("processes/{process}/kill")))).await
    }

    /// Sends a signal to a command and all processes it started. It is not an error if the command
    /// has ended.
    pub async fn signal(&self, sandbox: &str, process: u64, signal: i32) -> Result<(), ClientError> {
        let asked = wire::SignalRequest { signal, target: wire::SignalTarget::Group };
        match self.send_signal(sandbox, process, asked).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// Sends a signal to a command. That it has ended is an error.
    pub async fn send_signal(
        &self,
        sandbox: &str,
        process: u64,
        asked: wire::SignalRequest,
    ) -> Result<(), ClientError> {
        self.tell(self.request(Method::POST, &of(sandbox, &format!("processes/{process}/signal"))).json(&asked)).await
    }

    /// Changes the size of the terminal of a process.
    pub async fn resize(&self, sandbox: &str, process: u64, size: wire::TerminalSize) -> Result<(), ClientError> {
        self.tell(self.request(Method::POST, &of(sandbox, &format!("processes/{process}/resize"))).json(&size)).await
    }
}
