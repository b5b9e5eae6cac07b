//! Threads for calls that may block. There are as many as calls block at once, up to a limit.
//!
//! Calls that may wait for the host or for a program get only some of the threads. So a call that
//! ends by itself gets one soon, however many come at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use dorm_agent_proto::Failure;

use crate::lock::{lock, wait};
use crate::places::Places;

const THREADS_MAX: usize = 576;
const WAITING_MAX: u32 = 512;
const IDLE_MAX: usize = 8;
const QUEUED_MAX: usize = 16_384;

type Job = Box<dyn FnOnce() + Send>;

/// How long a call may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// It ends by itself.
    Short,
    /// It may wait for the host or for a program in the sandbox.
    Waits,
}

/// The threads.
pub(crate) struct Workers {
    state: Mutex<State>,
    changed: Condvar,
    waiting: Arc<Places>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let waiting = Places::new(
            "file transfers, lists, watches, writes to standard input and connections being opened",
            WAITING_MAX,
        );
        Self { state: Mutex::default(), changed: Condvar::new(), waiting }
    }

    /// Runs a job on a thread of its own, as soon as there is one.
    pub(crate) fn run(self: &Arc<Self>, length: Length, job: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let place = match length {
            Length::Short => None,
            Length::Waits => Some(self.waiting.take()?),
        };
        let job = move || {
            let _place = place;
            job();
        };
        let mut state = lock(&self.state);
        if state.idle > state.queue.len() {
            state.queue.push_back(Box::new(job));
            drop(state);
            self.changed.notify_one();
            return Ok(());
        }
        if state.threads >= THREADS_MAX {
            if state.queue.len() >= QUEUED_MAX {
                return Err(Failure::Busy);
            }
            // The next thread that has ended its call takes it.
            state.queue.push_back(Box::new(job));
            return Ok(());
        }
        let workers = Arc::clone(self);
        let mut first: Option<Job> = Some(Box::new(job));
        let spawned = thread::Builder::new().name("worker".to_owned()).spawn(move || {
            if let Some(job) = first.take() {
                run_safely(job);
            }
            workers.work();
        });
        spawned.map_err(|_| Failure::Busy)?;
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

    use dorm_agent_proto::Failure;

    use super::{Length, WAITING_MAX, Workers};

    #[test]
    fn jobs_that_wait_for_each_other_all_run_and_a_panic_costs_only_its_own() {
        let workers = Arc::new(Workers::new());
        let (done, all_done) = mpsc::channel();
        let (give, take) = mpsc::channel();
        for _ in 0..20 {
            assert!(workers.run(Length::Short, || panic!("expected by this test")).is_ok());
        }
        let (first, second) = (done.clone(), done);
        assert!(workers.run(Length::Waits, move || first.send(take.recv().unwrap()).unwrap()).is_ok());
        assert!(
            workers
                .run(Length::Short, move || {
                    give.send(7).unwrap();
                    second.send(8).unwrap();
                })
                .is_ok()
        );
        let mut seen: Vec<i32> = all_done.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, [7, 8]);
    }

    #[test]
    fn calls_that_wait_leave_threads_to_those_that_do_not() {
        let workers = Arc::new(Workers::new());
        let (give, take) = mpsc::channel::<()>();
        let take = Arc::new(std::sync::Mutex::new(take));
        for _ in 0..WAITING_MAX {
            let take = Arc::clone(&take);
            let wait = move || assert!(take.lock().unwrap().recv().is_err());
            assert!(workers.run(Length::Waits, wait).is_ok());
        }
        assert!(matches!(workers.run(Length::Waits, || ()), Err(Failure::TooManyOpen { most: WAITING_MAX, .. })));
        let (done, is_done) = mpsc::channel();
        for _ in 0..5000 {
            let done = done.clone();
            assert!(workers.run(Length::Short, move || done.send(()).unwrap()).is_ok());
        }
        assert_eq!(is_done.iter().take(5000).count(), 5000);
        drop(give);
    }
}
