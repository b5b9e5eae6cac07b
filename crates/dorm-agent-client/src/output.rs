//! The output of a process.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dorm_agent_proto::{Event, ExitStatus, Offsets, OutputHeader, OutputKind};
use futures_util::Stream;

use crate::channel::{Channel, Item};
use crate::error::AgentError;

/// A piece of a process's output, in the order in which to show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Bytes of standard output, or of the terminal.
    Stdout {
        /// The offset of the first byte.
        offset: u64,
        /// When the agent read them, in milliseconds since 1970 by the sandbox's clock.
        read_unix_ms: Option<u64>,
        /// The bytes.
        bytes: Bytes,
    },
    /// Bytes of standard error.
    Stderr {
        /// The offset of the first byte.
        offset: u64,
        /// When the agent read them, in milliseconds since 1970 by the sandbox's clock.
        read_unix_ms: Option<u64>,
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
    timed_out: bool,
}

impl OutputStream {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, at: Offsets::BEGINNING, timed_out: false }
    }

    /// Returns whether [`Output::Exited`] has arrived and the process was killed at the limit of
    /// [`crate::Agent::start_within`].
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

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
                Some((OutputHeader { kind, offset, read_unix_ms }, bytes))
                    if this.pass(kind, offset, bytes.len() as u64) =>
                {
                    let bytes = data.slice_ref(bytes);
                    Ok(match kind {
                        OutputKind::Stdout => Output::Stdout { offset, read_unix_ms, bytes },
                        OutputKind::Stderr => Output::Stderr { offset, read_unix_ms, bytes },
                    })
                }
                _ => Err("output of an unknown stream".to_owned()),
            },
            Item::Event(Event::Lost { kind, offset, bytes }) if this.pass(kind, offset, bytes) => {
                Ok(Output::Lost { kind, offset, bytes })
            }
            Item::Event(Event::Exited(status)) => Ok(Output::Exited(status)),
            Item::Event(Event::Ended { status, timed_out }) => {
                this.timed_out = timed_out;
                Ok(Output::Exited(status))
            }
            Item::Event(other) => Err(format!("an unexpected {other:?} in an output")),
        };
        Poll::Ready(Some(output.map_err(|what| this.channel.unexpected(&what))))
    }
}
