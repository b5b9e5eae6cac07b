//! Threads for calls that may block. There are as many as calls block at once, up to a limit.
//!
//! Calls that may wait for the host or for a program get only some of the threads, and connections
//! that are being opened some others. So a call that ends by itself gets one soon, however many
//! come at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use dorm_agent_proto::Failure;

use crate::lock::{lock, wait};
use crate::places::Places;

const THREADS_MAX: usize = 640;
const WAITING_MAX: u32 = 512;
const CONNECTING_MAX: usize = 64;
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
    /// It connects to a program in the sandbox, and ends within seconds. Further ones wait for it.
    Connects,
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
    connecting: usize,
    to_connect: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let waiting = Places::new("file transfers, lists, watches and writes to standard input", WAITING_MAX);
        Self { state: Mutex::default(), changed: Condvar::new(), waiting }
    }

    /// Runs a job on a thread of its own, as soon as there is one.
    pub(crate) fn run(self: &Arc<Self>, length: Length, job: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        match length {
            Length::Short => self.start(Box::new(job)),
            Length::Waits => {
                let place = self.waiting.take()?;
                self.start(Box::new(move || {
                    let _place = place;
                    job();
                }))
            }
            Length::Connects => self.connect(Box::new(job)),
        }
    }

    fn connect(self: &Arc<Self>, job: Job) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        if state.connecting >= CONNECTING_MAX {
            if state.to_connect.len() >= QUEUED_MAX {
                return Err(Failure::Busy);
            }
            state.to_connect.push_back(job);
            return Ok(());
        }
        state.connecting += 1;
        drop(state);
        let workers = Arc::clone(self);
        self.start(Box::new(move || workers.connect_in_turn(job))).inspect_err(|_| lock(&self.state).connecting -= 1)
    }

    fn connect_in_turn(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            run_safely(job);
            let mut state = lock(&self.state);
            next = state.to_connect.pop_front();
            if next.is_none() {
                state.connecting -= 1;
            }
        }
    }

    fn start(self: &Arc<Self>, job: Job) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        if state.idle > state.queue.len() {
            state.queue.push_back(job);
            drop(state);
            self.changed.notify_one();
            return Ok(());
        }
        if state.threads >= THREADS_MAX {
            if state.queue.len() >= QUEUED_MAX {
                return Err(Failure::Busy);
            }
            // The next thread that has ended its call takes it.
            state.queue.push_back(job);
            return Ok(());
        }
        let workers = Arc::clone(self);
        let mut first = Some(job);
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

    use super::{CONNECTING_MAX, Length, WAITING_MAX, Workers};

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
    #[test]
    fn connections_beyond_those_being_opened_wait_their_turn_and_hold_up_nothing_else() {
        let workers = Arc::new(Workers::new());
        let (give, take) = mpsc::channel::<()>();
        let take = Arc::new(std::sync::Mutex::new(take));
        let (done, is_done) = mpsc::channel();
        for number in 0..20 * CONNECTING_MAX {
            let (take, done) = (Arc::clone(&take), done.clone());
            let connect = move || {
                assert!(take.lock().unwrap().recv().is_ok());
                done.send(number).unwrap();
                assert!(number % 2 == 0, "expected by this test");
            };
            assert!(workers.run(Length::Connects, connect).is_ok());
        }
        let (short, is_short) = mpsc::channel();
        for _ in 0..WAITING_MAX {
            let short = short.clone();
            assert!(workers.run(Length::Waits, move || short.send(()).unwrap()).is_ok());
        }
        assert_eq!(is_short.iter().take(WAITING_MAX as usize).count(), WAITING_MAX as usize);
        assert!(is_done.try_recv().is_err());
        (0..20 * CONNECTING_MAX).for_each(|_| give.send(()).unwrap());
        let mut opened: Vec<_> = is_done.iter().take(20 * CONNECTING_MAX).collect();
        opened.sort_unstable();
        assert!(opened.into_iter().eq(0..20 * CONNECTING_MAX));
    }
}
