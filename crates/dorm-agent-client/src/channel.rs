//! One call: its request, its answer, and the stream that follows.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dorm_agent_proto::frame::{self, Kind, PAYLOAD_MAX};
use dorm_agent_proto::{Added, Answer, End, Event, Failure, REQUEST_MAX, Request, WINDOW};

use crate::connection::{Connection, Outgoing};
use crate::credit::Credit;
use crate::error::AgentError;
use crate::inbox::{Bounds, Inbox, Incoming};

/// One call on a connection. Dropping it before its end cancels the call.
#[derive(Debug)]
pub(crate) struct Channel {
    id: u32,
    connection: Arc<Connection>,
    inbox: Arc<Inbox>,
    credit: Arc<Credit>,
    consumed: u32,
    taken: u64,
    behind: Behind,
    stage: Stage,
}

/// The sending half of a channel.
#[derive(Debug)]
pub(crate) struct Sender {
    id: u32,
    connection: Arc<Connection>,
    credit: Arc<Credit>,
}

/// The stream that follows the metadata of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    Nothing,
    Contents,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Over,
}

/// One item of a stream.
#[derive(Debug)]
pub(crate) enum Item {
    Data(Bytes),
    Event(Event),
}

impl Channel {
    /// Opens a channel with a request. `as_outgoing` determines how it is sent to a quiet agent.
    pub(crate) fn open(
        connection: &Arc<Connection>,
        request: &Request,
        as_outgoing: fn(Vec<u8>) -> Outgoing,
    ) -> Result<Self, AgentError> {
        if let Some(Added { revision, ability }) = request.added()
            && connection.hello().revision < revision
        {
            return Err(AgentError::Older { ability });
        }
        let message = serde_json::to_vec(request).map_err(|error| AgentError::Invalid(error.to_string()))?;
        if message.len() > REQUEST_MAX {
            return Err(AgentError::Invalid(frame::TooLong(REQUEST_MAX).to_string()));
        }
        // A request that quiets an agent or wakes it up again is small, and always sent.
        if connection.is_full() && matches!(as_outgoing(Vec::new()), Outgoing::Frames(_)) {
            return Err(AgentError::Behind);
        }
        let bounds = match request {
            Request::ReadFile { .. } | Request::Dial { .. } => Bounds::None,
            _ => Bounds::Kept,
        };
        let (id, inbox, credit) = connection.add(bounds)?;
        let behind = if matches!(request, Request::ReadFile { .. }) { Behind::Contents } else { Behind::Nothing };
        let connection = Arc::clone(connection);
        let channel = Self { id, connection, inbox, credit, consumed: 0, taken: 0, behind, stage: Stage::Open };
        channel.connection.send(as_outgoing(encoded(Kind::Request, id, &message)));
        Ok(channel)
    }

    /// Waits for the answer. May be dropped and called again.
    pub(crate) async fn answer(&mut self) -> Result<Answer, AgentError> {
        match poll_fn(|context| self.inbox.poll_take(context)).await {
            None => Err(self.over()),
            Some(Incoming::Answer(answer)) => {
                let answer: Result<Answer, Failure> = serde_json::from_slice(&answer)
                    .map_err(|error| self.connection.give_up(&format!("an invalid answer: {error}")))?;
                let streams = match &answer {
                    Ok(Answer::Follows) => true,
                    Ok(Answer::Stat(_)) => self.behind == Behind::Contents,
                    Ok(_) | Err(_) => false,
                };
                if !streams {
                    self.stage = Stage::Over;
                }
                Ok(answer?)
            }
            Some(_) => Err(self.connection.give_up("stream data before the answer")),
        }
    }

    /// Returns the next item of the stream; `None` at its regular end.
    pub(crate) fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Item, AgentError>>> {
        if self.stage == Stage::Over {
            return Poll::Ready(None);
        }
        let item = match ready!(self.inbox.poll_take(context)) {
            None => Some(Err(self.over())),
            Some(Incoming::Data(data)) => {
                self.consume(u32::try_from(data.len()).unwrap_or(u32::MAX));
                Some(Ok(Item::Data(data)))
            }
            Some(Incoming::Event(event)) => {
                self.consume(u32::try_from(event.len()).unwrap_or(u32::MAX));
                let event = serde_json::from_slice(&event).map(Item::Event);
                Some(event.map_err(|error| self.connection.give_up(&format!("an invalid event: {error}"))))
            }
            Some(Incoming::End(end)) => {
                self.stage = Stage::Over;
                match serde_json::from_slice(&end) {
                    Ok(End::Complete | End::Abandoned) => None,
                    Ok(End::Failed(failure)) => {
                        self.credit.close();
                        Some(Err(failure.into()))
                    }
                    Err(error) => Some(Err(self.connection.give_up(&format!("an invalid end of a stream: {error}")))),
                }
            }
            Some(Incoming::Answer(_)) => Some(Err(self.connection.give_up("two answers to one request"))),
        };
        Poll::Ready(item)
    }

    /// Returns how many bytes of the stream have been taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the sending half.
    pub(crate) fn sender(&self) -> Sender {
        Sender { id: self.id, connection: Arc::clone(&self.connection), credit: Arc::clone(&self.credit) }
    }

    /// Announces the end of the data from this side.
    pub(crate) fn send_end(&self, end: &End) {
        // An `End` without a failure always has a JSON form.
        let message = serde_json::to_vec(end).unwrap_or_default();
        self.connection.send(Outgoing::Frames(encoded(Kind::End, self.id, &message)));
    }

    /// Closes the connection because of an unexpected item.
    pub(crate) fn unexpected(&self, what: &str) -> AgentError {
        self.connection.give_up(what)
    }

    fn over(&mut self) -> AgentError {
        self.stage = Stage::Over;
        self.connection.error()
    }

    fn consume(&mut self, bytes: u32) {
        self.taken = self.taken.saturating_add(u64::from(bytes));
        self.consumed = self.consumed.saturating_add(bytes);
        if self.consumed >= WINDOW / 2 {
            let credit = std::mem::take(&mut self.consumed);
            self.inbox.grant(credit);
            self.connection.send(Outgoing::Credit(encoded(Kind::Credit, self.id, &credit.to_le_bytes())));
        }
    }
}

impl Sender {
    /// Sends as many of the bytes as credit allows, at least one, and returns how many. `None` if
    /// nothing can be sent any more.
    pub(crate) fn poll_send(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Option<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Some(0));
        }
        ready!(self.connection.poll_room(context));
        let taken = ready!(self.credit.poll_take(context, bytes.len().min(PAYLOAD_MAX)));
        if let Some(taken) = taken {
            self.connection.send(Outgoing::Frames(encoded(Kind::Data, self.id, &bytes[..taken])));
        }
        Poll::Ready(taken)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.connection.remove(self.id);
        if self.stage == Stage::Open {
            self.connection.send(Outgoing::Frames(encoded(Kind::Cancel, self.id, &[])));
        }
    }
}

fn encoded(kind: Kind, channel: u32, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode(&mut out, kind, channel, message);
    out
}
