//! One call of the host, with its credit and the data from the host.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use dorm_agent_proto::frame::{self, Kind, PAYLOAD_MAX};
use dorm_agent_proto::{ANSWER_MAX, Answer, End, Event, Failure, GuestString, WINDOW};

use crate::link::{Gone, Link};
use crate::lock::{lock, wait};

type OnGone = Box<dyn FnOnce() + Send>;
type OnChange = Arc<dyn Fn() + Send + Sync>;

/// One call. Waiting on it ends with [`Gone`] when the host has cancelled it or was
/// replaced. Either a thread waits on it, or an action is set that is called for every change.
pub(crate) struct Channel {
    id: u32,
    epoch: u64,
    link: Arc<Link>,
    answered: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    credit: i64,
    inbox: VecDeque<Vec<u8>>,
    inbox_bytes: usize,
    consumed: u32,
    end: Option<End>,
    gone: bool,
    is_abandoned: bool,
    poked: bool,
    on_gone: Option<OnGone>,
    on_change: Option<OnChange>,
}

/// Frames that are sent together.
pub(crate) struct Batch {
    id: u32,
    frames: Vec<u8>,
    credit: i64,
    spent: i64,
}

impl Batch {
    /// Returns whether another frame may be added. The last frame may overdraw the credit.
    pub(crate) fn may_grow(&self) -> bool {
        self.spent < self.credit && self.frames.len() < PAYLOAD_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds at most [`PAYLOAD_MAX`] bytes.
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        self.add(Kind::Data, bytes);
    }

    pub(crate) fn event(&mut self, event: &Event) {
        self.add(Kind::Event, &encoded(event));
    }

    /// Announces the end of the data.
    pub(crate) fn end(&mut self, end: &End) {
        frame::encode(&mut self.frames, Kind::End, self.id, &encoded(end));
    }

    fn add(&mut self, kind: Kind, message: &[u8]) {
        self.spent = self.spent.saturating_add_unsigned(message.len() as u64);
        frame::encode(&mut self.frames, kind, self.id, message);
    }
}

/// An item received from the host.
pub(crate) enum Received {
    Data(Vec<u8>),
    End(End),
}

impl Channel {
    pub(crate) fn new(id: u32, epoch: u64, link: Arc<Link>) -> Self {
        Self {
            id,
            epoch,
            link,
            answered: AtomicBool::new(false),
            state: Mutex::new(State { credit: i64::from(WINDOW), ..State::default() }),
            changed: Condvar::new(),
        }
    }

    /// Sends the one answer. A second one is dropped.
    pub(crate) fn answer(&self, answer: &Result<Answer, Failure>) -> Result<(), Gone> {
        if self.answered.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut message = encoded(answer);
        if message.len() > ANSWER_MAX {
            message = encoded(&Err::<Answer, _>(failed_inside("the answer of the agent is too long")));
        }
        self.link.send(self.epoch, Kind::Answer, self.id, &message)
    }

    /// Sends the answer, after which the whole agent is quiet.
    pub(crate) fn answer_and_be_quiet(&self) {
        self.answered.store(true, Ordering::Release);
        self.link.quiesce(self.epoch, Kind::Answer, self.id, &encoded(&Ok::<_, Failure>(Answer::Done)));
    }

    /// Sends bytes as credit arrives.
    pub(crate) fn data(&self, bytes: &[u8]) -> Result<(), Gone> {
        for chunk in bytes.chunks(PAYLOAD_MAX) {
            self.wait_credit()?;
            self.take_credit(chunk.len());
            self.link.send(self.epoch, Kind::Data, self.id, chunk)?;
        }
        Ok(())
    }

    /// Sends one event as credit arrives.
    pub(crate) fn event(&self, event: &Event) -> Result<(), Gone> {
        let message = encoded(event);
        self.wait_credit()?;
        self.take_credit(message.len());
        self.link.send(self.epoch, Kind::Event, self.id, &message)
    }

    /// Announces the end of the data.
    pub(crate) fn end(&self, end: &End) -> Result<(), Gone> {
        self.link.send(self.epoch, Kind::End, self.id, &encoded(end))
    }

    /// Waits until something may be sent. The last frame may overdraw the credit.
    pub(crate) fn wait_credit(&self) -> Result<(), Gone> {
        let mut state = lock(&self.state);
        while !state.gone && state.credit <= 0 {
            state = wait(&self.changed, state);
        }
        if state.gone { Err(Gone) } else { Ok(()) }
    }

    /// Begins a batch, within the present credit. Only one thread may send at a time.
    pub(crate) fn batch(&self) -> Result<Batch, Gone> {
        let state = lock(&self.state);
        if state.gone {
            Err(Gone)
        } else {
            Ok(Batch { id: self.id, frames: Vec::new(), credit: state.credit, spent: 0 })
        }
    }

    /// Sends a batch.
    pub(crate) fn send(&self, batch: Batch) -> Result<(), Gone> {
        if batch.is_empty() {
            return Ok(());
        }
        lock(&self.state).credit -= batch.spent;
        self.link.send_frames(self.epoch, &batch.frames)
    }

    /// Returns whether something may be sent now.
    pub(crate) fn has_credit(&self) -> Result<bool, Gone> {
        let state = lock(&self.state);
        if state.gone { Err(Gone) } else { Ok(state.credit > 0) }
    }

    /// Waits for the next item from the host. The previous item is then consumed.
    pub(crate) fn receive(&self) -> Result<Received, Gone> {
        let mut state = lock(&self.state);
        while !state.gone && state.inbox.is_empty() && state.end.is_none() {
            state = wait(&self.changed, state);
        }
        // There is one, or the call is gone.
        self.take_received(state)?.ok_or(Gone)
    }

    /// Returns the next item from the host, if there is one.
    pub(crate) fn try_receive(&self) -> Result<Option<Received>, Gone> {
        self.take_received(lock(&self.state))
    }

    fn take_received(&self, mut state: MutexGuard<'_, State>) -> Result<Option<Received>, Gone> {
        if state.gone {
            return Err(Gone);
        }
        let Some(data) = state.inbox.pop_front() else {
            return Ok(state.end.clone().map(Received::End));
        };
        state.inbox_bytes -= data.len();
        state.consumed += u32::try_from(data.len()).unwrap_or(u32::MAX);
        let grant = (state.consumed >= WINDOW / 2).then(|| std::mem::take(&mut state.consumed));
        drop(state);
        if let Some(grant) = grant {
            self.link.send(self.epoch, Kind::Credit, self.id, &grant.to_le_bytes())?;
        }
        Ok(Some(Received::Data(data)))
    }

    /// Waits until the channel has been poked since the last wait.
    pub(crate) fn wait_poke(&self) -> Result<(), Gone> {
        let mut state = lock(&self.state);
        while !state.gone && !state.poked {
            state = wait(&self.changed, state);
        }
        state.poked = false;
        if state.gone { Err(Gone) } else { Ok(()) }
    }

    /// Wakes the thread that waits on the call.
    pub(crate) fn poke(&self) {
        let mut state = lock(&self.state);
        state.poked = true;
        self.announce(state);
    }

    /// Sets the action for every change of the call, in place of a thread that waits on it.
    pub(crate) fn on_change(&self, action: OnChange) {
        lock(&self.state).on_change = Some(action);
    }

    fn announce(&self, state: MutexGuard<'_, State>) {
        let action = state.on_change.clone();
        drop(state);
        match action {
            Some(action) => action(),
            None => self.changed.notify_all(),
        }
    }

    /// Sets the action for when the call is cancelled. Runs it at once if the call already is.
    pub(crate) fn on_gone(&self, action: OnGone) {
        let mut state = lock(&self.state);
        if state.gone {
            drop(state);
            action();
        } else {
            state.on_gone = Some(action);
        }
    }

    /// Marks the call as cancelled because another host has come.
    pub(crate) fn abandon(&self) {
        lock(&self.state).is_abandoned = true;
        self.vanish();
    }

    /// Returns whether the host has left without cancelling the call.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.state).is_abandoned
    }

    /// Marks the call as cancelled.
    pub(crate) fn vanish(&self) {
        let mut state = lock(&self.state);
        state.gone = true;
        state.inbox.clear();
        let action = state.on_gone.take();
        self.announce(state);
        if let Some(action) = action {
            action();
        }
    }

    pub(crate) fn add_credit(&self, bytes: u32) {
        let mut state = lock(&self.state);
        state.credit += i64::from(bytes);
        self.announce(state);
    }

    /// Takes data from the host. A host that exceeds its credit loses the call.
    pub(crate) fn deliver(&self, data: Vec<u8>) {
        let mut state = lock(&self.state);
        state.inbox_bytes += data.len();
        if state.inbox_bytes > WINDOW as usize {
            drop(state);
            self.vanish();
            return;
        }
        if !state.gone {
            state.inbox.push_back(data);
        }
        self.announce(state);
    }

    pub(crate) fn deliver_end(&self, end: End) {
        let mut state = lock(&self.state);
        state.end = Some(end);
        self.announce(state);
    }

    fn take_credit(&self, bytes: usize) {
        lock(&self.state).credit -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }
}

impl Drop for Channel {
    /// The host waits for an answer in any case.
    fn drop(&mut self) {
        let _ = self.answer(&Err(failed_inside("the agent has an internal error")));
    }
}

fn failed_inside(reason: &str) -> Failure {
    Failure::Other { operation: "complete".to_owned(), operand: GuestString::default(), reason: reason.to_owned() }
}

fn encoded(message: &impl serde::Serialize) -> Vec<u8> {
    // The protocol's types always have a JSON form.
    serde_json::to_vec(message).unwrap_or_default()
}
