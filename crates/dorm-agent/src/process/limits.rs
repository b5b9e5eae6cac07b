//! Time limits of processes. A thread, started with the first limit, waits for the next one.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::Processes;
use crate::lock::{lock, wait, wait_for};

/// The limits that have not passed.
#[derive(Default)]
pub(super) struct Limits {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: BTreeSet<(Instant, u64)>,
    has_thread: bool,
    /// Since when time does not count.
    stopped: Option<Instant>,
}

impl Limits {
    /// Has a process killed after some time.
    pub(super) fn add(&self, processes: &Arc<Processes>, id: u64, limit: Duration) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !state.has_thread {
            let processes = Arc::clone(processes);
            thread::Builder::new().name("limits".to_owned()).spawn(move || {
                loop {
                    let id = processes.limits.next();
                    processes.kill_overdue(id);
                }
            })?;
            state.has_thread = true;
        }
        // A limit that is later than the clock can tell never passes.
        state.due.extend(Instant::now().checked_add(limit).map(|due| (due, id)));
        self.changed.notify_all();
        Ok(())
    }

    pub(super) fn remove(&self, id: u64) {
        lock(&self.state).due.retain(|(_, other)| *other != id);
    }

    /// Does not count time from now on: the sandbox may be suspended, and its clock may jump.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped.get_or_insert_with(Instant::now);
    }

    /// Counts time again.
    pub(super) fn resume(&self) {
        let mut state = lock(&self.state);
        let Some(since) = state.stopped.take() else { return };
        let (time, due) = (since.elapsed(), std::mem::take(&mut state.due));
        state.due = due.into_iter().filter_map(|(due, id)| Some((due.checked_add(time)?, id))).collect();
        self.changed.notify_all();
    }

    /// Waits until a limit has passed, and returns its process.
    fn next(&self) -> u64 {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            match state.due.first().copied().filter(|_| state.stopped.is_none()) {
                Some((due, id)) if due <= now => {
                    state.due.pop_first();
                    return id;
                }
                Some((due, _)) => state = wait_for(&self.changed, state, due.saturating_duration_since(now)),
                None => state = wait(&self.changed, state),
            }
        }
    }
}
