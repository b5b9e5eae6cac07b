//! Threads for calls that may block. There are as many as calls block at once, up to a limit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::lock::{lock, wait};

const THREADS_MAX: usize = 512;
const IDLE_MAX: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// The threads.
pub(crate) struct Workers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

/// No thread is available.
pub(crate) struct AllBusy;

impl Workers {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new() }
    }

    /// Runs a job on a thread of its own.
    pub(crate) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> Result<(), AllBusy> {
        let mut state = lock(&self.state);
        if state.idle > state.queue.len() {
            state.queue.push_back(Box::new(job));
            drop(state);
            self.changed.notify_one();
            return Ok(());
        }
        if state.threads >= THREADS_MAX {
            return Err(AllBusy);
        }
        let workers = Arc::clone(self);
        let mut first: Option<Job> = Some(Box::new(job));
        let spawned = thread::Builder::new().name("worker".to_owned()).spawn(move || {
            if let Some(job) = first.take() {
                run_safely(job);
            }
            workers.work();
        });
        spawned.map_err(|_| AllBusy)?;
        state.threads += 1;
        Ok(())
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                run_safely(job);
                state = lock(&self.state);
            } else if state.idle >= IDLE_MAX {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = wait(&self.changed, state);
                state.idle -= 1;
            }
        }
    }
}

fn run_safely(job: Job) {
    // The panic hook has reported the panic, and the call's channel answers when it is dropped.
    drop(catch_unwind(AssertUnwindSafe(job)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::Workers;

    #[test]
    fn jobs_that_wait_for_each_other_all_run_and_a_panic_costs_only_its_own() {
        let workers = Arc::new(Workers::new());
        let (done, all_done) = mpsc::channel();
        let (give, take) = mpsc::channel();
        for _ in 0..20 {
            assert!(workers.run(|| panic!("expected by this test")).is_ok());
        }
        let (first, second) = (done.clone(), done);
        assert!(workers.run(move || first.send(take.recv().unwrap()).unwrap()).is_ok());
        assert!(
            workers
                .run(move || {
                    give.send(7).unwrap();
                    second.send(8).unwrap();
                })
                .is_ok()
        );
        let mut seen: Vec<i32> = all_done.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, [7, 8]);
    }
}
