//! A value whose changes tasks wait for. Unlike tokio's, it wakes waiting tasks in the order in
//! which they began to wait: tokio's order is random, and nothing here is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The end that changes the value. After it is dropped, the value does not change any more.
#[derive(Debug, Default)]
pub(crate) struct Sender<T: Copy>(Arc<Shared<T>>);

/// An end that waits for changes.
#[derive(Debug)]
pub(crate) struct Receiver<T: Copy> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The sender is gone.
#[derive(Debug)]
pub(crate) struct Closed;

#[derive(Debug, Default)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State<T> {
    value: T,
    version: u64,
    closed: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Copy> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        let state = Mutex::new(State { value, version: 0, closed: false });
        Self(Arc::new(Shared { state, changed: Notify::new() }))
    }

    pub(crate) fn get(&self) -> T {
        self.0.lock().value
    }

    pub(crate) fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        let mut state = self.0.lock();
        modify(&mut state.value);
        state.version += 1;
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Returns a receiver that has seen the present value.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.lock().version;
        Receiver { shared: Arc::clone(&self.0), seen }
    }
}

impl<T: Copy> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_waiters();
    }
}

impl<T: Copy> Receiver<T> {
    /// Marks the present value as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.shared.lock().version;
    }

    /// Waits for a value that has not been seen.
    pub(crate) async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            // Created before the value is read, so that no change in between is missed.
            let changed = self.shared.changed.notified();
            {
                let state = self.shared.lock();
                if state.version != self.seen {
                    self.seen = state.version;
                    return Ok(());
                }
                if state.closed {
                    return Err(Closed);
                }
            }
            changed.await;
        }
    }

    /// Waits until the value satisfies `wanted`.
    pub(crate) async fn wait_for(&mut self, wanted: impl Fn(&T) -> bool) -> Result<(), Closed> {
        loop {
            self.mark_seen();
            if wanted(&self.shared.lock().value) {
                return Ok(());
            }
            self.changed().await?;
        }
    }
}
