//! The notices of a fake engine, which go to the last subscriber.

use std::sync::{Arc, Mutex, PoisonError};

use dorm_engine::Notice;
use tokio::sync::mpsc;

const WAITING: usize = 1024;

/// The sender to the one subscriber, shared by all runs of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices(Arc<Mutex<Option<mpsc::Sender<Notice>>>>);

impl Notices {
    pub(crate) fn subscribe(&self) -> mpsc::Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(WAITING);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// Removes the subscriber.
    pub(crate) fn unsubscribe(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn send(&self, notice: Notice) {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(Err(lost)) = receiver.map(|receiver| receiver.try_send(notice)) {
            tracing::debug!(%lost, "a notice that nobody takes");
        }
    }
}
