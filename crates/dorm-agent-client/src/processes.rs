//! Processes in the sandbox.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dorm_agent_proto::{
    Answer, End, Event, ExitStatus, Offsets, OutputHeader, OutputKind, ProcessSpec, ProcessStarted, ProcessStatus,
    Request, Signal, Target, TerminalSize,
};
use futures_util::Stream;

use crate::agent::{Agent, wrong};
use crate::channel::{Channel, Item};
use crate::error::AgentError;
use crate::page::{Listed, PAGE_MAX, Page, collect};

impl Agent {
    /// Starts a process. It belongs to the sandbox, not to this connection, and outlives it.
    ///
    /// # Errors
    /// [`AgentError::CommandNotFound`], [`AgentError::CannotExecute`], [`AgentError::NoUser`], and
    /// [`AgentError::NotFound`] or [`AgentError::NotADirectory`] for its directory.
    pub async fn start(&self, spec: &ProcessSpec) -> Result<ProcessStarted, AgentError> {
        let (answer, channel) = self.ask(&Request::Start(spec.clone())).await?;
        match answer {
            Answer::Started(started) => Ok(started),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Returns the processes started by [`Agent::start`], oldest first: all live ones, and about
    /// 256 that have ended.
    ///
    /// # Errors
    /// [`AgentError::TooMany`], [`AgentError::Closed`].
    pub async fn processes(&self) -> Result<Vec<ProcessStatus>, AgentError> {
        let Page { items, more } = self.processes_after(None, PAGE_MAX).await?;
        if more { Err(AgentError::TooMany(items.len())) } else { Ok(items) }
    }

    /// Returns a page of those processes, oldest first: at most `most`, and at most [`PAGE_MAX`],
    /// of those after the handle `after`.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn processes_after(&self, after: Option<u64>, most: usize) -> Result<Page<ProcessStatus>, AgentError> {
        self.processes_that(after, most, |_| true).await
    }

    /// Returns a page as [`Agent::processes_after`] does, of those processes that `is_wanted`.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn processes_that(
        &self,
        after: Option<u64>,
        most: usize,
        is_wanted: impl Fn(&ProcessStatus) -> bool,
    ) -> Result<Page<ProcessStatus>, AgentError> {
        self.some_processes(most, |status| after.is_none_or(|after| status.process > after) && is_wanted(status)).await
    }

    /// Returns one of those processes.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`].
    pub async fn process(&self, process: u64) -> Result<ProcessStatus, AgentError> {
        let found = self.some_processes(1, |other| process == other.process).await?;
        found.items.into_iter().next().ok_or(AgentError::NoProcess(process))
    }

    async fn some_processes(
        &self,
        most: usize,
        is_wanted: impl Fn(&ProcessStatus) -> bool,
    ) -> Result<Page<ProcessStatus>, AgentError> {
        let channel = self.follow(&Request::Processes).await?;
        let process = |event| match event {
            Event::Process(status) => Listed::when(is_wanted(&status), status),
            _ => Listed::Stranger,
        };
        collect(channel, most, process).await
    }

    /// Follows a process's output from an offset until the process ends. If the reader is slower,
    /// the process waits for it; if the reader stalls for some seconds, it loses output, and the
    /// stream reports how much.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`].
    pub async fn output(&self, process: u64, from: Offsets) -> Result<OutputStream, AgentError> {
        Ok(OutputStream { channel: self.follow(&Request::Output { process, from }).await?, at: Offsets::BEGINNING })
    }

    /// Writes to a process's standard input; returns when the sandbox's kernel has accepted all
    /// bytes. The bytes of one call are not interleaved with others. A dropped call may have
    /// written some of them.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::InputClosed`].
    pub async fn write_stdin(&self, process: u64, bytes: Bytes) -> Result<(), AgentError> {
        let mut channel = self.open(&Request::WriteStdin { process })?;
        match send_all(&mut channel, &bytes).await? {
            Some(Answer::Done) => return Ok(()),
            Some(other) => return Err(wrong(&channel, &other)),
            None => channel.send_end(&End::Complete),
        }
        match channel.answer().await? {
            Answer::Done => Ok(()),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Closes a process's standard input after everything written before; on a terminal, sends the
    /// end-of-file character. Closing it twice succeeds.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`].
    pub async fn close_stdin(&self, process: u64) -> Result<(), AgentError> {
        self.do_it(&Request::CloseStdin { process }).await
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], also if the process has ended.
    pub async fn signal(&self, process: u64, signal: Signal, target: Target) -> Result<(), AgentError> {
        self.do_it(&Request::Signal { process, signal, target }).await
    }

    /// Kills a process and every process that descends from it, also in other groups and sessions,
    /// and also if the process itself has ended. Returns how many processes were killed.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::Older`]; [`AgentError::Other`] if they start new
    /// ones too fast.
    pub async fn kill_tree(&self, process: u64) -> Result<u32, AgentError> {
        let (answer, channel) = self.ask(&Request::KillTree { process }).await?;
        match answer {
            Answer::Killed(killed) => Ok(killed),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Changes the size of a process's terminal.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::NoTerminal`].
    pub async fn resize(&self, process: u64, rows: u16, columns: u16) -> Result<(), AgentError> {
        self.do_it(&Request::Resize { process, size: TerminalSize { rows, columns } }).await
    }

    /// Waits until a process has ended; returns at once if it has. All its output can then be read
    /// from [`Agent::output`], except for what a slow reader still holds up.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`] if it never existed or is forgotten.
    pub async fn wait(&self, process: u64) -> Result<ExitStatus, AgentError> {
        let (answer, channel) = self.ask(&Request::Wait { process }).await?;
        match answer {
            Answer::Exited(status) => Ok(status),
            other => Err(wrong(&channel, &other)),
        }
    }
}

/// Sends bytes as credit arrives. An answer that arrives meanwhile ends it: the agent accepts no
/// more.
pub(crate) async fn send_all(channel: &mut Channel, bytes: &[u8]) -> Result<Option<Answer>, AgentError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let sent = {
            let sender = channel.sender();
            tokio::select! {
                biased;
                answer = channel.answer() => return answer.map(Some),
                sent = poll_fn(|context| sender.poll_send(context, rest)) => sent,
            }
        };
        match sent {
            Some(sent) => rest = &rest[sent..],
            None => return channel.answer().await.map(Some),
        }
    }
    Ok(None)
}

/// A piece of a process's output, in the order in which to show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Bytes of standard output, or of the terminal.
    Stdout {
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Bytes of standard error.
    Stderr {
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// A gap: bytes that are no longer kept.
    Lost {
        /// The output that has the gap.
        kind: OutputKind,
        /// The offset of its beginning.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// The process has ended and nothing follows. Later output of its remaining children is not
    /// shown.
    Exited(ExitStatus),
}

/// A process's output, as it arrives. Ends after [`Output::Exited`].
#[derive(Debug)]
pub struct OutputStream {
    channel: Channel,
    /// The offsets after what has arrived. Nothing arrives twice.
    at: Offsets,
}

impl OutputStream {
    /// Advances past a piece. Returns whether its position is valid.
    fn pass(&mut self, kind: OutputKind, offset: u64, bytes: u64) -> bool {
        let at = match kind {
            OutputKind::Stdout => &mut self.at.stdout,
            OutputKind::Stderr => &mut self.at.stderr,
        };
        let end = offset.checked_add(bytes).filter(|_| offset >= *at);
        *at = end.unwrap_or(*at);
        end.is_some()
    }
}

impl Stream for OutputStream {
    type Item = Result<Output, AgentError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let item = match ready!(this.channel.poll_item(context)).transpose() {
            Ok(Some(item)) => item,
            Ok(None) => return Poll::Ready(None),
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        let output = match item {
            Item::Data(data) => match OutputHeader::split(&data) {
                Some((OutputHeader { kind, offset }, bytes)) if this.pass(kind, offset, bytes.len() as u64) => {
                    let bytes = data.slice(OutputHeader::LENGTH..);
                    Ok(match kind {
                        OutputKind::Stdout => Output::Stdout { offset, bytes },
                        OutputKind::Stderr => Output::Stderr { offset, bytes },
                    })
                }
                _ => Err("output of an unknown stream".to_owned()),
            },
            Item::Event(Event::Lost { kind, offset, bytes }) if this.pass(kind, offset, bytes) => {
                Ok(Output::Lost { kind, offset, bytes })
            }
            Item::Event(Event::Exited(status)) => Ok(Output::Exited(status)),
            Item::Event(other) => Err(format!("an unexpected {other:?} in an output")),
        };
        Poll::Ready(Some(output.map_err(|what| this.channel.unexpected(&what))))
    }
}
