//! One call of the host, with its credit and the data from the host.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use dorm_agent_proto::frame::{Kind, PAYLOAD_MAX};
use dorm_agent_proto::{ANSWER_MAX, Answer, End, Event, Failure, GuestString, WINDOW};

use crate::link::{Gone, Link};
use crate::lock::{lock, wait};

type OnGone = Box<dyn FnOnce() + Send>;

/// One call. Waiting on it ends with [`Gone`] when the host has cancelled it or was replaced.
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
    poked: bool,
    on_gone: Option<OnGone>,
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

    /// Waits for the next item from the host. The previous item is then consumed.
    pub(crate) fn receive(&self) -> Result<Received, Gone> {
        let mut state = lock(&self.state);
        loop {
            if state.gone {
                return Err(Gone);
            }
            if let Some(data) = state.inbox.pop_front() {
                state.inbox_bytes -= data.len();
                state.consumed += u32::try_from(data.len()).unwrap_or(u32::MAX);
                let grant = (state.consumed >= WINDOW / 2).then(|| std::mem::take(&mut state.consumed));
                drop(state);
                if let Some(grant) = grant {
                    self.link.send(self.epoch, Kind::Credit, self.id, &grant.to_le_bytes())?;
                }
                return Ok(Received::Data(data));
            }
            if let Some(end) = &state.end {
                return Ok(Received::End(end.clone()));
            }
            state = wait(&self.changed, state);
        }
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

    /// Wakes the waiting thread.
    pub(crate) fn poke(&self) {
        lock(&self.state).poked = true;
        self.changed.notify_all();
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

    /// Marks the call as cancelled.
    pub(crate) fn vanish(&self) {
        let mut state = lock(&self.state);
        state.gone = true;
        state.inbox.clear();
        let action = state.on_gone.take();
        drop(state);
        self.changed.notify_all();
        if let Some(action) = action {
            action();
        }
    }

    pub(crate) fn add_credit(&self, bytes: u32) {
        lock(&self.state).credit += i64::from(bytes);
        self.changed.notify_all();
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
        self.changed.notify_all();
    }

    pub(crate) fn deliver_end(&self, end: End) {
        lock(&self.state).end = Some(end);
        self.changed.notify_all();
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
