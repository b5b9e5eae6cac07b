//! One thread that sends for calls which wait long: readers of output, and waits for an end. Such a
//! call is an errand, not a thread, so that thousands can be open.
//!
//! An errand takes a turn when its call has changed: there is something to send, the host has given
//! credit, or the call has ended. In a turn it sends at most a frame. The link is one stream, so
//! more threads would not send more.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::call::Call;
use crate::lock::{lock, wait};

/// The next step of an errand after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// It has more to send: the next turn comes after those of the others.
    Again,
    /// It waits for a change of its call.
    Wait,
    Over,
}

/// The work of one call, in turns that never wait for anything but the link.
pub(crate) trait Errand: Send {
    fn turn(&mut self) -> Next;
}

/// The thread, and the errands that are due.
pub(crate) struct Courier {
    due: Mutex<VecDeque<Arc<Running>>>,
    changed: Condvar,
}

struct Running {
    /// `None` when it is over.
    errand: Mutex<Option<Box<dyn Errand>>>,
    is_due: AtomicBool,
}

impl Courier {
    pub(crate) fn start_thread() -> io::Result<Arc<Self>> {
        let courier = Arc::new(Self { due: Mutex::default(), changed: Condvar::new() });
        let shared = Arc::clone(&courier);
        thread::Builder::new().name("courier".to_owned()).spawn(move || {
            loop {
                let running = shared.next();
                shared.take_turn(&running);
            }
        })?;
        Ok(courier)
    }

    /// Runs an errand, from now on and whenever its call changes.
    pub(crate) fn run(self: &Arc<Self>, call: &Call, errand: impl Errand + 'static) {
        let running = Arc::new(Running { errand: Mutex::new(Some(Box::new(errand))), is_due: AtomicBool::new(false) });
        let (courier, changed) = (Arc::clone(self), Arc::clone(&running));
        call.on_change(Arc::new(move || courier.call_on(&changed)));
        self.call_on(&running);
    }

    fn call_on(&self, running: &Arc<Running>) {
        if running.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut due = lock(&self.due);
        due.push_back(Arc::clone(running));
        let was_idle = due.len() == 1;
        drop(due);
        if was_idle {
            self.changed.notify_one();
        }
    }

    fn next(&self) -> Arc<Running> {
        let mut due = lock(&self.due);
        loop {
            if let Some(running) = due.pop_front() {
                return running;
            }
            due = wait(&self.changed, due);
        }
    }

    fn take_turn(&self, running: &Arc<Running>) {
        // A change during the turn leads to another one.
        running.is_due.store(false, Ordering::Release);
        let mut errand = lock(&running.errand);
        // The panic hook has reported a panic; the call is answered when it is dropped.
        let turn = errand.as_mut().map(|errand| catch_unwind(AssertUnwindSafe(|| errand.turn())));
        match turn {
            Some(Ok(Next::Again)) => self.call_on(running),
            Some(Ok(Next::Wait)) | None => {}
            Some(Ok(Next::Over) | Err(_)) => {
                let over = errand.take();
                drop(errand);
                drop(over);
            }
        }
    }
}
