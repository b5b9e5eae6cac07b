//! Processes inside the sandbox.

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

    /// The processes that were started by [`Agent::start`], oldest first: all that live, and about 256 that ended.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn processes(&self) -> Result<Vec<ProcessStatus>, AgentError> {
        let mut channel = self.follow(&Request::Processes).await?;
        let mut list = Vec::new();
        while let Some(item) = poll_fn(|context| channel.poll_item(context)).await {
            match item? {
                Item::Event(Event::Process(status)) => list.push(status),
                other => return Err(channel.unexpected(&format!("{other:?} in a list of processes"))),
            }
        }
        Ok(list)
    }

    /// Follows a process's output from a place in it until the process ends. A reader that reads makes the process
    /// wait when it is slower; one that stands still for some seconds loses output, and learns how much.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`].
    pub async fn output(&self, process: u64, from: Offsets) -> Result<OutputStream, AgentError> {
        Ok(OutputStream { channel: self.follow(&Request::Output { process, from }).await? })
    }

    /// Writes to a process's input; returns when the sandbox's kernel has taken all of it. Bytes of one call stay
    /// together. A dropped call may have written some of them.
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

    /// Closes a process's input, behind what was written before; on a terminal, sends it the end-of-file character.
    /// Closing it twice is a success.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`].
    pub async fn close_stdin(&self, process: u64) -> Result<(), AgentError> {
        self.do_it(&Request::CloseStdin { process }).await
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`] also when it has ended.
    pub async fn signal(&self, process: u64, signal: Signal, target: Target) -> Result<(), AgentError> {
        self.do_it(&Request::Signal { process, signal, target }).await
    }

    /// Changes the size of a process's terminal.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::NoTerminal`].
    pub async fn resize(&self, process: u64, rows: u16, columns: u16) -> Result<(), AgentError> {
        self.do_it(&Request::Resize { process, size: TerminalSize { rows, columns } }).await
    }

    /// Waits until a process has ended; answers at once when it has. All that it wrote can then be read from
    /// [`Agent::output`], but for what a reader of it is too slow for.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`] when it never was or is forgotten.
    pub async fn wait(&self, process: u64) -> Result<ExitStatus, AgentError> {
        let (answer, channel) = self.ask(&Request::Wait { process }).await?;
        match answer {
            Answer::Exited(status) => Ok(status),
            other => Err(wrong(&channel, &other)),
        }
    }
}

/// Sends bytes as credit comes. An answer that comes meanwhile ends it: the agent wants no more.
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

/// A piece of a process's output, in the order it is to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Bytes of standard output, or of the terminal.
    Stdout {
        /// Where the first of them stands.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Bytes of standard error.
    Stderr {
        /// Where the first of them stands.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// A gap: bytes that are no longer kept.
    Lost {
        /// In which output.
        kind: OutputKind,
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// The process has ended and nothing follows. What processes that it left behind write later is not shown.
    Exited(ExitStatus),
}

/// A process's output as it comes. Ends after [`Output::Exited`].
#[derive(Debug)]
pub struct OutputStream {
    channel: Channel,
}

impl Stream for OutputStream {
    type Item = Result<Output, AgentError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let channel = &mut self.get_mut().channel;
        Poll::Ready(ready!(channel.poll_item(context)).map(|item| match item? {
            Item::Data(data) => match OutputHeader::split(&data) {
                Some((OutputHeader { kind: OutputKind::Stdout, offset }, _)) => {
                    Ok(Output::Stdout { offset, bytes: data.slice(OutputHeader::LENGTH..) })
                }
                Some((OutputHeader { kind: OutputKind::Stderr, offset }, _)) => {
                    Ok(Output::Stderr { offset, bytes: data.slice(OutputHeader::LENGTH..) })
                }
                None => Err(channel.unexpected("output without a header")),
            },
            Item::Event(Event::Lost { kind, offset, bytes }) => Ok(Output::Lost { kind, offset, bytes }),
            Item::Event(Event::Exited(status)) => Ok(Output::Exited(status)),
            Item::Event(other) => Err(channel.unexpected(&format!("{other:?} in an output"))),
        }))
    }
}
