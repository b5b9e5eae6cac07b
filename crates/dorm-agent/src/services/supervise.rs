//! One service.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use dorm_agent_proto::{
    AfterEnd, ExitStatus, Failure, Outcome, ProcessStarted, Restart, Restarts, ServiceEvent, ServiceRecord,
    ServiceSpec, ServiceState, ServiceStatus, Signal, Target,
};

use super::clock::{Clock, LOOK, Moment};
use super::launcher::Launcher;
use super::probe::probe;
use crate::lock::{lock, wait_for};
use crate::process::{self, Log, Process, unix_ms};

/// How long a process that is unhealthy gets to end by itself.
const UNHEALTHY_GRACE: Duration = Duration::from_secs(5);
/// How long a stop waits for the thread of the service: longer than a probe takes.
const STOPPED_WITHIN: Duration = Duration::from_secs(70);
/// The longest wait without a look at the clock.
const LONG: Duration = Duration::from_secs(3600);

/// A service.
pub(super) struct Service {
    spec: ServiceSpec,
    log: Log,
    clock: Arc<Clock>,
    /// Held during a start, so that a stop finds the process that was started.
    starting: Mutex<()>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    record: ServiceRecord,
    /// The present or last process.
    run: Arc<Process>,
    /// Whether a caller wants it to end.
    is_unwanted: bool,
}

/// A process of the service that is attended to.
struct Run {
    process: Arc<Process>,
    began: Moment,
}

impl Service {
    /// Starts the first process.
    pub(super) fn start(
        launcher: &Launcher,
        spec: ServiceSpec,
        clock: Arc<Clock>,
    ) -> Result<(Arc<Self>, ProcessStarted), Failure> {
        let log = Log::new(process::kept(&spec.process));
        let run = launcher.start(spec.process.clone(), log.clone())?;
        let started = run.started();
        let record = ServiceRecord::new(&spec, started.process, unix_ms());
        let inner = Mutex::new(Inner { record, run, is_unwanted: false });
        let service = Self { spec, log, clock, starting: Mutex::new(()), inner, changed: Condvar::new() };
        Ok((Arc::new(service), started))
    }

    pub(super) fn status(&self) -> ServiceStatus {
        let inner = lock(&self.inner);
        ServiceStatus {
            name: self.spec.name.clone(),
            arguments: inner.run.arguments().to_vec(),
            restart: self.spec.restart,
            check: self.spec.health.clone(),
            state: inner.record.state,
            health: inner.record.health,
            process: inner.run.id(),
            started_unix_ms: inner.run.started_unix_ms(),
            restarts: inner.record.restarts,
            last_exit: inner.record.last_exit,
            written: self.log.written(),
            last_event: inner.record.last_event(),
        }
    }

    pub(super) fn events(&self, after: u64, most: usize) -> Vec<ServiceEvent> {
        lock(&self.inner).record.events(after, most)
    }

    pub(super) fn log(&self) -> Log {
        self.log.clone()
    }

    /// Ends it, and kills what is left of its processes.
    pub(super) fn stop(&self, launcher: &Launcher, grace: Duration) -> Result<(), Failure> {
        let mut inner = lock(&self.inner);
        if inner.record.state.is_over() {
            return Ok(());
        }
        inner.is_unwanted = true;
        inner.record.state = ServiceState::Stopping;
        drop(inner);
        self.changed.notify_all();
        // A start that has begun is complete after this, and no other follows.
        drop(lock(&self.starting));
        let run = Arc::clone(&lock(&self.inner).run);
        end(launcher, &run, grace)?;
        // The thread records how the process has ended. It may be in the middle of a probe.
        let deadline = Instant::now() + STOPPED_WITHIN;
        let mut inner = lock(&self.inner);
        while !inner.record.state.is_over() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            inner = wait_for(&self.changed, inner, left);
        }
        drop(inner);
        self.over(ServiceState::Stopped);
        Ok(())
    }

    /// Attends to the process and starts it again, until the service is over.
    pub(super) fn supervise(&self, launcher: &Launcher) {
        let mut restarts = Restarts::default();
        let mut run = Some(Run { process: Arc::clone(&lock(&self.inner).run), began: self.clock.now() });
        loop {
            let (outcome, ran_ms) = match &run {
                Some(run) => {
                    let outcome = self.attend(launcher, run);
                    (outcome, self.clock.now().ms().saturating_sub(run.began.ms()))
                }
                // It could not be started.
                None => (Outcome::Failed, 0),
            };
            let now_ms = self.clock.now().ms();
            match self.spec.restart.after(&mut restarts, outcome, now_ms, ran_ms) {
                _ if lock(&self.inner).is_unwanted => return self.over(ServiceState::Stopped),
                AfterEnd::Restart { after_ms } => {
                    lock(&self.inner).record.waits(after_ms, unix_ms());
                    self.clear(launcher);
                    if self.pause(Duration::from_millis(after_ms)).is_break() {
                        return self.over(ServiceState::Stopped);
                    }
                    run = match self.start_again(launcher) {
                        Ok(process) => Some(Run { process, began: self.clock.now() }),
                        Err(NotStarted::Unwanted) => return self.over(ServiceState::Stopped),
                        Err(NotStarted::Failed) => None,
                    };
                }
                AfterEnd::Finish if outcome == Outcome::Succeeded => return self.over(ServiceState::Finished),
                AfterEnd::Finish => return self.over(ServiceState::Failed),
                AfterEnd::GiveUp => {
                    self.clear(launcher);
                    return self.over(ServiceState::Failed);
                }
            }
        }
    }

    /// Waits for the end of the process, and checks its health.
    fn attend(&self, launcher: &Launcher, run: &Run) -> Outcome {
        let (mut next, mut failed, mut stops) = (self.first_probe(run.began), 0, run.began.stops);
        let mut is_killed = false;
        loop {
            let now = self.clock.now();
            if now.stops != stops {
                // The process may need some time to be as fast as before.
                (stops, failed) = (now.stops, 0);
                next = next.map(|next| next.max(now.at + self.interval()));
            }
            let patience = match next {
                _ if !now.counts => LOOK,
                Some(next) => next.saturating_sub(now.at).min(LONG),
                None => LONG,
            };
            if let Some(status) = run.process.wait_until(Instant::now() + patience) {
                lock(&self.inner).record.exited(run.process.id(), status, unix_ms());
                return if is_killed { Outcome::Failed } else { Outcome::of(status) };
            }
            if !now.counts {
                self.clock.look();
            }
            let now = self.clock.now();
            let Some(check) = &self.spec.health else { continue };
            if !now.counts || now.stops != stops || next.is_none_or(|next| now.at < next) {
                continue;
            }
            let result = probe(&check.probe, Duration::from_millis(check.timeout_ms));
            let after = self.clock.now();
            next = Some(after.at + self.interval());
            if after.stops != stops || !after.counts {
                // A suspend came between.
                continue;
            }
            match result {
                Ok(()) => {
                    failed = 0;
                    lock(&self.inner).record.is_well(unix_ms());
                }
                Err(_) if after.ms().saturating_sub(run.began.ms()) < check.grace_ms => {}
                Err(reason) => {
                    failed += 1;
                    if failed >= check.failures && !is_killed {
                        lock(&self.inner).record.is_unwell(reason, unix_ms());
                        if self.spec.restart.restart != Restart::Never {
                            is_killed = end(launcher, &run.process, UNHEALTHY_GRACE).is_ok();
                        }
                    }
                }
            }
        }
    }

    /// Kills what is left of the last process, which may hold its port.
    fn clear(&self, launcher: &Launcher) {
        let last = lock(&self.inner).run.id();
        // If they start new ones too fast, the next process has to cope with them.
        let _ = launcher.processes.kill_tree(last);
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.spec.health.as_ref().map_or(u64::MAX, |check| check.interval_ms))
    }

    fn first_probe(&self, began: Moment) -> Option<Duration> {
        self.spec.health.as_ref().map(|check| began.at + Duration::from_millis(check.interval_ms))
    }

    /// Waits before a restart; breaks if the service is to end.
    fn pause(&self, time: Duration) -> std::ops::ControlFlow<()> {
        let due = self.clock.now().at.saturating_add(time);
        let mut inner = lock(&self.inner);
        loop {
            if inner.is_unwanted {
                return std::ops::ControlFlow::Break(());
            }
            let now = self.clock.now();
            let patience = match due.saturating_sub(now.at) {
                _ if !now.counts => LOOK,
                Duration::ZERO => return std::ops::ControlFlow::Continue(()),
                left => left.min(LONG),
            };
            inner = wait_for(&self.changed, inner, patience);
            if !now.counts {
                self.clock.look();
            }
        }
    }

    fn start_again(&self, launcher: &Launcher) -> Result<Arc<Process>, NotStarted> {
        let _starting = lock(&self.starting);
        if lock(&self.inner).is_unwanted {
            return Err(NotStarted::Unwanted);
        }
        let started = launcher.start(self.spec.process.clone(), self.log.clone());
        let mut inner = lock(&self.inner);
        match started {
            Ok(run) => {
                inner.record.restarted(run.id(), unix_ms());
                inner.run = Arc::clone(&run);
                Ok(run)
            }
            Err(failure) => {
                inner.record.not_started(failure.to_string(), unix_ms());
                Err(NotStarted::Failed)
            }
        }
    }

    fn over(&self, state: ServiceState) {
        let mut inner = lock(&self.inner);
        inner.record.over(state, unix_ms());
        let status = inner.record.last_exit.unwrap_or(ExitStatus::Signal(Signal::KILL.number()));
        drop(inner);
        self.changed.notify_all();
        self.log.finish(status);
    }
}

enum NotStarted {
    Unwanted,
    Failed,
}

/// Asks a process to end, and kills what is left of its tree.
fn end(launcher: &Launcher, run: &Process, grace: Duration) -> Result<(), Failure> {
    if !grace.is_zero() {
        // It may have ended.
        let _ = launcher.processes.signal(run.id(), Signal::TERMINATE, Target::Group);
        run.wait_until(Instant::now() + grace);
    }
    launcher.processes.kill_tree(run.id()).map(drop)
}
