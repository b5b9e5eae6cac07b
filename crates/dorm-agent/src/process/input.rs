//! The queue of bytes for one process's standard input. The pump writes them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use crate::channel::Channel;
use crate::link::Gone;
use crate::lock::lock;

/// The byte that Ctrl-D sends on a terminal.
const END_OF_FILE: u8 = 4;

const WAITING: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

/// The queue.
pub(super) struct Input {
    pieces: VecDeque<Piece>,
    state: State,
}

/// Where the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reader {
    Pipe,
    Terminal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    Closing,
    Closed,
}

struct Piece {
    bytes: Vec<u8>,
    written: usize,
    ticket: Arc<Ticket>,
}

/// The calls that write to the input, in the order in which they may: each writes all of its bytes
/// before the next one.
#[derive(Default)]
pub(super) struct Writers(Mutex<VecDeque<Arc<Channel>>>);

/// The turn of one call. Dropping it lets the next one write.
pub(super) struct Turn<'w> {
    writers: &'w Writers,
    channel: Arc<Channel>,
}

impl Writers {
    /// Waits until all calls before this one have ended.
    pub(super) fn turn(&self, channel: &Arc<Channel>) -> Result<Turn<'_>, Gone> {
        lock(&self.0).push_back(Arc::clone(channel));
        let turn = Turn { writers: self, channel: Arc::clone(channel) };
        while !lock(&self.0).front().is_some_and(|first| Arc::ptr_eq(first, channel)) {
            channel.wait_poke()?;
        }
        Ok(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut writers = lock(&self.writers.0);
        writers.retain(|other| !Arc::ptr_eq(other, &self.channel));
        let next = writers.front().cloned();
        drop(writers);
        if let Some(next) = next {
            next.poke();
        }
    }
}

/// Reports to the sender what happened to its bytes.
pub(super) struct Ticket {
    outcome: AtomicU8,
    channel: Option<Arc<Channel>>,
}

impl Ticket {
    pub(super) fn failed(&self) -> bool {
        self.outcome.load(Ordering::Acquire) == FAILED
    }

    fn settle(&self, outcome: u8) {
        self.outcome.store(outcome, Ordering::Release);
        if let Some(channel) = &self.channel {
            channel.poke();
        }
    }
}

/// Waits until the kernel has accepted the bytes or they are lost.
pub(super) fn wait_written(channel: &Channel, ticket: &Ticket) -> Result<(), Gone> {
    while ticket.outcome.load(Ordering::Acquire) == WAITING {
        channel.wait_poke()?;
    }
    Ok(())
}

impl Input {
    pub(super) fn open() -> Self {
        Self { pieces: VecDeque::new(), state: State::Open }
    }

    /// An input that ends behind these bytes.
    pub(super) fn whole(bytes: Vec<u8>, reader: Reader) -> Self {
        let mut input = Self::open();
        if !bytes.is_empty() {
            input.push_without_sender(bytes);
        }
        input.end(reader);
        input
    }

    pub(super) fn closed() -> Self {
        Self { pieces: VecDeque::new(), state: State::Closed }
    }

    /// Queues bytes; `None` if the input is closed.
    pub(super) fn push(&mut self, bytes: Vec<u8>, channel: Arc<Channel>) -> Option<Arc<Ticket>> {
        if self.state != State::Open {
            return None;
        }
        let ticket = Arc::new(Ticket { outcome: AtomicU8::new(WAITING), channel: Some(channel) });
        self.pieces.push_back(Piece { bytes, written: 0, ticket: Arc::clone(&ticket) });
        Some(ticket)
    }

    fn push_without_sender(&mut self, bytes: Vec<u8>) {
        let ticket = Arc::new(Ticket { outcome: AtomicU8::new(WAITING), channel: None });
        self.pieces.push_back(Piece { bytes, written: 0, ticket });
    }

    /// Ends the input behind all queued bytes: closes it, or sends a terminal its end-of-file
    /// character.
    pub(super) fn end(&mut self, reader: Reader) {
        match reader {
            _ if self.state != State::Open => {}
            Reader::Terminal => self.push_without_sender(vec![END_OF_FILE]),
            Reader::Pipe => self.state = State::Closing,
        }
    }

    /// Removes a piece whose sender is gone.
    pub(super) fn withdraw(&mut self, ticket: &Arc<Ticket>) {
        self.pieces.retain(|piece| !Arc::ptr_eq(&piece.ticket, ticket));
    }

    /// Returns the next bytes to write.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.pieces.front().map(|piece| &piece.bytes[piece.written..])
    }

    /// Removes written bytes from the front.
    pub(super) fn advance(&mut self, bytes: usize) {
        let Some(piece) = self.pieces.front_mut() else { return };
        piece.written += bytes;
        if piece.written >= piece.bytes.len()
            && let Some(piece) = self.pieces.pop_front()
        {
            piece.ticket.settle(WRITTEN);
        }
    }

    /// Returns whether to close the descriptor now.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Closed || (self.state == State::Closing && self.pieces.is_empty())
    }

    /// Closes the input at once.
    pub(super) fn close_now(&mut self) {
        self.state = State::Closed;
        for piece in self.pieces.drain(..) {
            piece.ticket.settle(FAILED);
        }
    }
}
