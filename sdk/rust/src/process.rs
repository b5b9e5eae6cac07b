//! Processes in a sandbox, and the output of commands.

use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::client::{Client, ClientError, CommandEvent, CommandEvents, Position, Reconnects};
use crate::types::{self, ExitStatus};

/// How much of a long input is written at once.
const PIECE: usize = 256 << 10;

/// How long a command that has ended is asked why its input was not written.
const FAREWELL: Duration = Duration::from_secs(5);

/// How many characters of standard error an error shows.
const SHOWN: usize = 2000;

/// A process that runs in a sandbox, or has ended there.
///
/// It continues when the client disconnects, when the daemon restarts, and across a suspend and a
/// resume. [`Sandbox::process`](crate::Sandbox::process) finds it again by its handle.
#[derive(Clone, Debug)]
pub struct Process {
    client: Client,
    sandbox: String,
    handle: u64,
}

impl Process {
    pub(crate) const fn new(client: Client, sandbox: String, handle: u64) -> Self {
        Self { client, sandbox, handle }
    }

    /// Returns its handle, unique in its sandbox.
    pub const fn handle(&self) -> u64 {
        self.handle
    }

    /// Returns its properties.
    pub async fn info(&self) -> Result<types::Process, ClientError> {
        self.client.process(&self.sandbox, self.handle).await
    }

    /// Follows its output from a position until it ends.
    ///
    /// After a lost connection, the stream continues where it was. If the sandbox is suspended
    /// meanwhile, it ends with an error; when the sandbox has been resumed, another stream from
    /// [`CommandStream::position`] continues.
    pub async fn output(&self, from: Position) -> Result<CommandStream, ClientError> {
        let events = self.client.follow(&self.sandbox, self.handle, from).await?;
        let mut stream = CommandStream::new(self.client.clone(), self.sandbox.clone(), events, None);
        (stream.process, stream.position) = (Some(self.handle), from);
        Ok(stream)
    }

    /// Returns the events from a position to what exists now, without waiting.
    pub async fn output_so_far(&self, from: Position) -> Result<Vec<CommandEvent>, ClientError> {
        let mut events = self.client.output(&self.sandbox, self.handle, from, false).await?;
        let mut found = Vec::new();
        while let Some(event) = events.next_if_any().await? {
            found.push(event);
        }
        Ok(found)
    }

    /// Waits for its end, and returns its output and exit status.
    pub async fn result(&self) -> Result<Output, ClientError> {
        self.output(Position::default()).await?.collect().await
    }

    /// Waits for its end, however long that takes.
    pub async fn wait(&self) -> Result<ExitStatus, ClientError> {
        self.client.wait(&self.sandbox, self.handle).await
    }

    /// Writes to its input, which stays open, and returns the number of bytes. It must have been
    /// started with [`Start::stdin`](crate::Start::stdin) or in a terminal. Returns when the kernel
    /// of the sandbox has accepted all of it, which takes as long as the process takes to read.
    pub async fn write(&self, input: impl Into<Bytes>) -> Result<u64, ClientError> {
        self.client.write_stdin(&self.sandbox, self.handle, input).await
    }

    /// Closes its input. Bytes that were written before are delivered first.
    pub async fn close_stdin(&self) -> Result<(), ClientError> {
        self.client.close_stdin(&self.sandbox, self.handle).await
    }

    /// Sends a Linux signal, 1 to 31, to the process alone or to its group.
    pub async fn signal(&self, signal: i32, target: types::SignalTarget) -> Result<(), ClientError> {
        self.client.send_signal(&self.sandbox, self.handle, types::SignalRequest { signal, target }).await
    }

    /// Kills it with all its descendants, and returns how many processes were killed.
    pub async fn kill(&self) -> Result<u32, ClientError> {
        Ok(self.client.kill(&self.sandbox, self.handle).await?.killed)
    }

    /// Changes the size of its terminal.
    pub async fn resize(&self, rows: u16, cols: u16) -> Result<(), ClientError> {
        self.client.resize(&self.sandbox, self.handle, types::TerminalSize { rows, cols }).await
    }

    /// Writes all of a long input and closes it. It is not an error if the process reads no more.
    /// If the input cannot be written, kills the process, which would wait for the rest forever.
    async fn feed(&self, input: Bytes) -> Result<(), ClientError> {
        let fed = self.feed_all(input).await;
        if fed.is_err() {
            let _ = self.kill().await;
        }
        fed
    }

    async fn feed_all(&self, mut input: Bytes) -> Result<(), ClientError> {
        // One long request would break off before its response if the process reads no more.
        while !input.is_empty() {
            let piece = input.split_to(input.len().min(PIECE));
            match self.write(piece).await {
                Err(ClientError::Refused { status: 404 | 409, .. }) => return Ok(()),
                other => other?,
            };
        }
        match self.close_stdin().await {
            Err(ClientError::Refused { status: 404 | 409, .. }) => Ok(()),
            other => other,
        }
    }
}

/// The output of a command, and how it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Handle of the process.
    pub process: u64,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output, or everything that its terminal showed.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// How many bytes of its output are missing, because they were no longer kept.
    pub lost_bytes: u64,
    /// ID of the snapshot that was taken before it ran, if that was asked for.
    pub checkpoint: Option<String>,
}

impl Output {
    /// Returns its standard output as text, with replacement characters for what is not UTF-8.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns its standard error as text, with replacement characters for what is not UTF-8.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns its exit code, or none if a signal ended it.
    pub const fn exit_code(&self) -> Option<i32> {
        self.status.exit_code
    }

    /// Returns whether it exited with code 0.
    pub fn is_success(&self) -> bool {
        self.status.exit_code == Some(0) && !self.status.timed_out
    }

    /// Returns itself if the command was a success.
    ///
    /// # Errors
    /// [`ClientError::Command`] if it was not.
    pub fn check(self) -> Result<Self, ClientError> {
        if self.is_success() {
            return Ok(self);
        }
        let outcome = match self.status {
            ExitStatus { timed_out: true, .. } => "was killed at its time limit".to_owned(),
            ExitStatus { signal: Some(signal), .. } => format!("was ended by signal {signal}"),
            ExitStatus { exit_code, .. } => format!("exited with code {}", exit_code.unwrap_or_default()),
        };
        let text = self.stderr_text();
        let skipped = text.chars().count().saturating_sub(SHOWN);
        Err(ClientError::Command { outcome, status: self.status, stderr: text.chars().skip(skipped).collect() })
    }
}

/// The events of a command. It continues after a lost connection, as [`Retries`](crate::Retries)
/// say.
pub struct CommandStream {
    client: Client,
    sandbox: String,
    events: CommandEvents,
    process: Option<u64>,
    position: Position,
    reconnects: Reconnects,
    is_over: bool,
    /// Input to write when the process has started.
    input: Option<Bytes>,
    feeder: Option<Feeder>,
}

impl CommandStream {
    pub(crate) fn new(client: Client, sandbox: String, events: CommandEvents, input: Option<Bytes>) -> Self {
        let reconnects = Reconnects::new(client.retries());
        let (process, position) = (None, Position::default());
        Self { client, sandbox, events, process, position, reconnects, is_over: false, input, feeder: None }
    }

    /// Returns the process, if it has started.
    pub fn process(&self) -> Option<Process> {
        self.process.map(|handle| Process::new(self.client.clone(), self.sandbox.clone(), handle))
    }

    /// Returns the position after the last event, from which another stream continues.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns the next event, or none after [`CommandEvent::Exited`].
    pub async fn next(&mut self) -> Result<Option<CommandEvent>, ClientError> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            let next = match &mut self.feeder {
                None => self.events.next().await,
                Some(feeder) => tokio::select! {
                    biased;
                    next = self.events.next() => next,
                    fed = &mut feeder.0 => {
                        self.feeder = None;
                        fed.unwrap_or(Ok(()))?;
                        continue;
                    }
                },
            };
            match next {
                Ok(event) => return self.delivered(event).await.map(Some),
                Err(error) => self.reconnect(error).await?,
            }
        }
    }

    /// Waits for the end of the command, and returns what it has written from here on.
    pub async fn collect(mut self) -> Result<Output, ClientError> {
        let (mut stdout, mut stderr, mut lost_bytes, mut checkpoint) = (Vec::new(), Vec::new(), 0, None);
        while let Some(event) = self.next().await? {
            match event {
                CommandEvent::Stdout(chunk) => stdout.extend(chunk.bytes),
                CommandEvent::Stderr(chunk) => stderr.extend(chunk.bytes),
                CommandEvent::Lost(gap) => lost_bytes += gap.bytes,
                CommandEvent::Checkpoint(snapshot) => checkpoint = Some(snapshot),
                CommandEvent::Started(_) => {}
                CommandEvent::Exited(status) => {
                    let process = self.process.unwrap_or_default();
                    return Ok(Output { process, status, stdout, stderr, lost_bytes, checkpoint });
                }
            }
        }
        Err(self.events.ended())
    }

    async fn delivered(&mut self, event: CommandEvent) -> Result<CommandEvent, ClientError> {
        self.reconnects.delivered();
        self.position = self.position.after(&event);
        match &event {
            CommandEvent::Started(handle) => {
                self.process = Some(*handle);
                if let (Some(input), Some(process)) = (self.input.take(), self.process()) {
                    self.feeder = Some(Feeder(tokio::spawn(async move { process.feed(input).await })));
                }
            }
            CommandEvent::Exited(_) => {
                self.is_over = true;
                if let Some(feeder) = self.feeder.take() {
                    feeder.end().await?;
                }
            }
            _ => {}
        }
        Ok(event)
    }

    /// Continues after the last event, or returns the error.
    async fn reconnect(&mut self, mut error: ClientError) -> Result<(), ClientError> {
        loop {
            // Before the command has started, another request would start it again.
            let Some(process) = self.process else { return Err(error) };
            self.reconnects.pause(error).await?;
            match self.client.follow(&self.sandbox, process, self.position).await {
                Ok(events) => {
                    self.events = events;
                    return Ok(());
                }
                Err(again) => error = again,
            }
        }
    }
}

/// A task that writes the input of a command. It ends with the stream of the command.
struct Feeder(JoinHandle<Result<(), ClientError>>);

impl Feeder {
    /// Returns the error of the task. A command may end before it has read its input, which the
    /// task learns from its next write.
    async fn end(mut self) -> Result<(), ClientError> {
        match tokio::time::timeout(FAREWELL, &mut self.0).await {
            Ok(Ok(fed)) => fed,
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.0.abort();
    }
}
