//! How many bytes may still be sent on one channel.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use dorm_agent_proto::WINDOW;

/// The credit of one channel. One task takes from it; the connection's reader adds to it.
#[derive(Debug)]
pub(crate) struct Credit(Mutex<State>);

#[derive(Debug)]
struct State {
    bytes: u64,
    closed: bool,
    waiting: Option<Waker>,
}

impl Credit {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { bytes: u64::from(WINDOW), closed: false, waiting: None }))
    }

    /// Adds credit. Fails if it exceeds what was ever sent.
    pub(crate) fn add(&self, bytes: u32) -> Result<(), String> {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_add(u64::from(bytes));
        if state.bytes > u64::from(WINDOW) {
            return Err("more credit than data was sent".to_owned());
        }
        if let Some(waker) = state.waiting.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Closes the channel: nothing may be sent any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(waker) = state.waiting.take() {
            waker.wake();
        }
    }

    /// Takes credit for at least one and at most `most` bytes; `None` if the channel is closed.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>, most: usize) -> Poll<Option<usize>> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(None);
        }
        if state.bytes == 0 {
            state.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        let taken = state.bytes.min(most as u64);
        state.bytes -= taken;
        Poll::Ready(Some(taken as usize))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
