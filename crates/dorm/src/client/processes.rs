//! Commands in a sandbox: starts, follows, feeds and signals them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dorm_api_types as wire;
use futures_util::Stream;
use reqwest::{Body, Method};

use super::{Client, ClientError, Sse, segment};

/// How much output a command keeps for a reader that follows shortly after the start.
const KEPT_BYTES: u32 = 8 << 20;

/// An event of a command.
#[derive(Debug)]
pub(crate) enum CommandEvent {
    /// This snapshot was taken first.
    Checkpoint(String),
    /// It runs under this handle.
    Started(u64),
    /// It wrote to its standard output.
    Stdout(Vec<u8>),
    /// It wrote to its standard error.
    Stderr(Vec<u8>),
    /// Some of its output was lost.
    Lost(wire::LostOutput),
    /// It has ended.
    Exited(wire::ExitStatus),
}

/// The events of a command.
pub(crate) struct CommandEvents {
    sse: Sse,
}

impl CommandEvents {
    pub(super) fn new(sse: Sse) -> Self {
        Self { sse }
    }

    /// Returns the next event. The last one is [`CommandEvent::Exited`].
    pub(crate) async fn next(&mut self) -> Result<CommandEvent, ClientError> {
        let next = self.next_if_any().await?;
        next.ok_or_else(|| self.sse.ended())
    }

    /// Returns the next event of a stream that may end without a last one.
    pub(crate) async fn next_if_any(&mut self) -> Result<Option<CommandEvent>, ClientError> {
        loop {
            let Some(event) = self.sse.next().await? else {
                return Ok(None);
            };
            return Ok(Some(match event.kind.as_str() {
                "checkpoint" => CommandEvent::Checkpoint(self.sse.parse::<wire::CheckpointTaken>(&event)?.snapshot),
                "started" => CommandEvent::Started(self.sse.parse::<wire::ProcessStarted>(&event)?.process),
                "stdout" => CommandEvent::Stdout(bytes(self.sse.parse(&event)?)),
                "stderr" => CommandEvent::Stderr(bytes(self.sse.parse(&event)?)),
                "lost" => CommandEvent::Lost(self.sse.parse(&event)?),
                "exit" => CommandEvent::Exited(self.sse.parse(&event)?),
                _ => continue,
            }));
        }
    }
}

fn bytes(chunk: wire::OutputChunk) -> Vec<u8> {
    match chunk.encoding {
        wire::Encoding::Utf8 => chunk.data.into_bytes(),
        // A daemon always sends valid base64.
        wire::Encoding::Base64 => STANDARD.decode(chunk.data).unwrap_or_default(),
    }
}

impl Client {
    /// Runs a command without input, and follows it.
    pub(crate) async fn exec(&self, sandbox: &str, asked: &wire::ExecRequest) -> Result<CommandEvents, ClientError> {
        let request = self.request(Method::POST, &format!("/sandboxes/{}/exec", segment(sandbox))).json(asked);
        Ok(CommandEvents { sse: self.stream(request).await? })
    }

    /// Runs a command without input to its end.
    pub(crate) async fn exec_whole(
        &self,
        sandbox: &str,
        asked: &wire::ExecRequest,
    ) -> Result<wire::ExecResult, ClientError> {
        self.post(&format!("/sandboxes/{}/exec", segment(sandbox)), asked).await
    }

    /// Starts a command that continues without a follower, and returns its handle.
    pub(crate) async fn start(&self, sandbox: &str, mut asked: wire::StartProcess) -> Result<u64, ClientError> {
        asked.output_kept_bytes = Some(KEPT_BYTES);
        let path = format!("/sandboxes/{}/processes", segment(sandbox));
        Ok(self.post::<wire::ProcessStarted>(&path, &asked).await?.process)
    }

    /// Follows a started command from its first byte.
    pub(crate) async fn follow(&self, sandbox: &str, process: u64) -> Result<CommandEvents, ClientError> {
        let path = format!("/sandboxes/{}/processes/{process}/output", segment(sandbox));
        Ok(CommandEvents { sse: self.stream(self.request(Method::GET, &path)).await? })
    }

    /// Writes a stream of bytes to a command's input, and closes it. It is not an error if the
    /// command reads no more.
    pub(crate) async fn feed<S>(&self, sandbox: &str, process: u64, input: S) -> Result<(), ClientError>
    where
        S: Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static,
    {
        let path = format!("/sandboxes/{}/processes/{process}/stdin", segment(sandbox));
        let written = self.tell(self.request(Method::POST, &path).body(Body::wrap_stream(input))).await;
        let closed = match written {
            Ok(()) => self.tell(self.request(Method::POST, &format!("{path}/close"))).await,
            Err(error) => Err(error),
        };
        match closed {
            Err(ClientError::Refused { status: 404 | 409, .. }) => Ok(()),
            other => other,
        }
    }

    /// Returns the processes of a sandbox, of one label if it is given, oldest first.
    pub(crate) async fn processes(
        &self,
        sandbox: &str,
        label: Option<&str>,
    ) -> Result<Vec<wire::Process>, ClientError> {
        let path = format!("/sandboxes/{}/processes", segment(sandbox));
        let query: Vec<_> = label.map(|label| ("label", label.to_owned())).into_iter().collect();
        self.pages(&path, &query, |page: wire::ProcessList| (page.processes, page.next)).await
    }

    /// Kills a process with all its descendants.
    pub(crate) async fn kill(&self, sandbox: &str, process: u64) -> Result<wire::Killed, ClientError> {
        let path = format!("/sandboxes/{}/processes/{process}/kill", segment(sandbox));
        self.read(self.request(Method::POST, &path)).await
    }

    /// Sends a signal to a command and all processes it started. It is not an error if the command
    /// has ended.
    pub(crate) async fn signal(&self, sandbox: &str, process: u64, signal: i32) -> Result<(), ClientError> {
        let path = format!("/sandboxes/{}/processes/{process}/signal", segment(sandbox));
        let asked = wire::SignalRequest { signal, target: wire::SignalTarget::Group };
        match self.tell(self.request(Method::POST, &path).json(&asked)).await {
            Err(ClientError::Refused { status: 404, .. }) => Ok(()),
            other => other,
        }
    }
}
