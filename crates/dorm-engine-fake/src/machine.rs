//! A guest on its host. It is running, paused or dead, and callers wait while it is paused.
//!
//! The guest's clock is tokio's, minus the time it was paused. Every access to the guest holds one
//! lock and runs to its end, so a save always sees a consistent guest.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_engine::{Mount, Notice, RunSpec, Usage};
use dorm_lifecycle::{Egress, Resources, RunCondition, RunId};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::guest::{Guest, Moved};
use crate::notices::Notices;
use crate::watch;

/// The capacity of a stream to the guest.
pub(crate) const STREAM_BYTES: usize = 64 * 1024;

/// One run.
pub(crate) struct Machine {
    pub(crate) spec: RunSpec,
    mounts: Mutex<Vec<Mount>>,
    egress: Mutex<Egress>,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    ended: watch::Sender<bool>,
    session: Mutex<Option<AbortHandle>>,
    notices: Notices,
}

struct State {
    /// `None` while the run is being made, and when it is dead.
    guest: Option<Guest>,
    condition: RunCondition,
    /// The time up to which the guest's clock has been advanced.
    counted: Instant,
    stood_still_since: Instant,
    /// Whether the guest is paused because of memory pressure, not by a call.
    is_short: bool,
    /// The time until which only the agent runs.
    memory_pressure: Option<Instant>,
    /// The time until which the agent receives and sends no frames.
    silent: Option<Instant>,
}

/// A duration longer than any test.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// How long only the agent runs while no OOM victim is named.
const NAMING: Duration = Duration::from_secs(10);

impl Machine {
    /// Returns a run that is being made: it can only be ended.
    pub(crate) fn half_made(spec: RunSpec, notices: Notices) -> Arc<Self> {
        let now = Instant::now();
        let condition = RunCondition::Broken;
        let (mounts, egress) = (Mutex::new(spec.mounts.clone()), Mutex::new(spec.egress.clone()));
        Arc::new(Self {
            spec,
            mounts,
            egress,
            state: Mutex::new(State {
                guest: None,
                condition,
                counted: now,
                stood_still_since: now,
                is_short: false,
                memory_pressure: None,
                silent: None,
            }),
            changed: watch::Sender::new(0),
            ended: watch::Sender::new(false),
            session: Mutex::new(None),
            notices,
        })
    }

    /// Adds the guest and lets it run.
    pub(crate) fn begin(self: &Arc<Self>, mut guest: Guest) {
        guest.see(self.mounts());
        let mut state = self.lock();
        if self.ended.get() {
            return;
        }
        state.guest = Some(guest);
        state.condition = RunCondition::Running;
        state.counted = Instant::now();
        drop(state);
        self.spawn(drive(Arc::clone(self)));
    }

    pub(crate) fn run(&self) -> &RunId {
        &self.spec.run
    }

    pub(crate) fn condition(&self) -> RunCondition {
        self.lock().condition
    }

    /// Returns the host directories that are mounted in it.
    pub(crate) fn mounts(&self) -> Vec<Mount> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_mounts(&self, mounts: &[Mount]) {
        *self.mounts.lock().unwrap_or_else(PoisonError::into_inner) = mounts.to_vec();
        self.note(|guest| guest.see(mounts.to_vec()));
    }

    /// Returns the egress policy that is in effect.
    pub(crate) fn egress(&self) -> Egress {
        self.egress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_egress(&self, egress: &Egress) {
        *self.egress.lock().unwrap_or_else(PoisonError::into_inner) = egress.clone();
    }

    /// Replaces the limits of CPU time and memory; a guest of this engine has no CPU to limit.
    pub(crate) fn set_limits(&self, resources: &Resources) {
        let limits = Resources { memory_bytes: resources.memory_bytes, ..self.spec.resources };
        self.note(|guest| guest.limit(&limits));
    }

    /// Pauses the guest, and returns how long it has been paused; `None` if there is no guest.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.guest.as_ref()?;
        if state.condition == RunCondition::Running {
            self.settle(&mut state);
            // Settling may have paused it already, because of memory pressure.
            self.stand_still(&mut state);
        }
        state.is_short = false;
        state.memory_pressure = None;
        Some(state.stood_still_since.elapsed())
    }

    /// Makes a paused run use no CPU. Returns its previous condition.
    pub(crate) fn park(&self) -> RunCondition {
        let mut state = self.lock();
        let before = state.condition;
        if before == RunCondition::Paused {
            state.condition = RunCondition::Parked;
        }
        before
    }

    /// Lets a paused run continue. Returns its previous condition.
    pub(crate) fn resume(&self) -> RunCondition {
        let mut state = self.lock();
        let before = state.condition;
        match before {
            RunCondition::Paused | RunCondition::Parked => {
                state.condition = RunCondition::Running;
                state.is_short = false;
                state.counted = Instant::now();
                drop(state);
                self.tell();
            }
            RunCondition::Running | RunCondition::Silent | RunCondition::Broken => {}
        }
        before
    }

    /// Kills a process of the guest, whether the guest runs or not, or lets the agent alone
    /// continue. A guest that a call has paused stays paused.
    pub(crate) fn relieve_memory_pressure(&self, victim: Option<u32>) -> RunCondition {
        let mut state = self.lock();
        let before = state.condition;
        match victim {
            Some(_) => {
                if let Some(guest) = &mut state.guest {
                    guest.relieve_memory_pressure(victim);
                }
                state.memory_pressure = None;
            }
            None if state.is_short => state.memory_pressure = Some(Instant::now() + NAMING),
            None => {}
        }
        let is_short = state.is_short;
        drop(state);
        if is_short {
            self.resume();
        }
        self.tell();
        before
    }

    /// Reads the guest as it is, whether it runs or not.
    pub(crate) fn look<R>(&self, at: impl FnOnce(&Guest) -> R) -> Option<R> {
        self.lock().guest.as_ref().map(at)
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        let mut state = self.lock();
        if state.condition == RunCondition::Running {
            self.settle(&mut state);
        }
        state.guest.as_ref().map(|guest| Usage {
            cpu_micros: guest.cpu_us(),
            memory_bytes: guest.memory().0,
            processes: u64::from(guest.metrics().processes),
            disk_bytes: None,
            network: None,
            disk_io: None,
        })
    }

    /// Ends the run and all its tasks and streams.
    pub(crate) fn end(&self) {
        self.ended.send_modify(|ended| *ended = true);
        let mut state = self.lock();
        state.condition = RunCondition::Broken;
        state.guest = None;
        drop(state);
        self.replace_session(None);
    }

    /// Waits until the guest runs, then changes it and lets its processes react.
    pub(crate) async fn act<R>(&self, act: impl FnOnce(&mut Guest) -> R) -> R {
        let mut act = Some(act);
        self.when_running(|machine, state| {
            machine.settle(state);
            let (guest, act) = (state.guest.as_mut()?, act.take()?);
            let answer = act(guest);
            machine.settle(state);
            machine.tell();
            Some(answer)
        })
        .await
    }

    /// Waits until the guest runs, then reads it, or makes a change to which its processes need not
    /// react at once.
    pub(crate) async fn peek<R>(&self, mut peek: impl FnMut(&mut Guest) -> R) -> R {
        self.when_running(|_, state| state.guest.as_mut().map(&mut peek)).await
    }

    /// Waits until the guest runs.
    pub(crate) async fn running(&self) {
        self.when_running(|_, _| Some(())).await;
    }

    /// Waits until the guest runs and its agent is not silent.
    pub(crate) async fn speaking(&self) {
        let is_over = |silent: Instant| silent <= Instant::now();
        self.when_running(|_, state| state.silent.is_none_or(is_over).then_some(())).await;
    }

    /// Keeps the agent from receiving and sending frames for this long from now on; zero ends an
    /// earlier silence.
    pub(crate) fn silence(self: &Arc<Self>, time: Duration) {
        let time = time.min(FOR_EVER);
        self.lock().silent = (time > Duration::ZERO).then(|| Instant::now() + time);
        if time == Duration::ZERO {
            return self.tell();
        }
        let machine = Arc::clone(self);
        self.spawn(async move {
            tokio::time::sleep(time).await;
            machine.tell();
        });
    }

    /// Settles the guest after a change that may let a process continue.
    pub(crate) fn nudge(&self) {
        let mut state = self.lock();
        if state.condition == RunCondition::Running && self.settle(&mut state).1 == Moved::Yes {
            drop(state);
            self.tell();
        }
    }

    /// Changes the guest from outside, whether it runs or not.
    pub(crate) fn note<R>(&self, note: impl FnOnce(&mut Guest) -> R) -> Option<R> {
        self.lock().guest.as_mut().map(note)
    }

    /// Returns a receiver of every change to the guest.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Runs a task that is stopped when the run ends.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut ended = self.ended.subscribe();
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = ended.wait_for(|ended| *ended) => {}
                () = work => {}
            }
        });
        task.abort_handle()
    }

    /// Replaces the task that serves the agent's stream; the previous one is stopped.
    pub(crate) fn replace_session(&self, session: Option<AbortHandle>) {
        let mut current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = std::mem::replace(&mut *current, session) {
            before.abort();
        }
    }

    async fn when_running<R>(&self, mut attempt: impl FnMut(&Self, &mut State) -> Option<R>) -> R {
        let mut changes = self.changes();
        loop {
            changes.mark_seen();
            {
                let mut state = self.lock();
                if state.condition == RunCondition::Running
                    && let Some(answer) = attempt(self, &mut state)
                {
                    return answer;
                }
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Advances the guest's clock and lets the processes make progress. Returns the delay until
    /// there is more to do, and whether any process made progress.
    fn settle(&self, state: &mut State) -> (Option<Duration>, Moved) {
        let Some(guest) = &mut state.guest else { return (None, Moved::No) };
        if state.condition != RunCondition::Running {
            return (None, Moved::No);
        }
        let now = Instant::now();
        let passed = now.saturating_duration_since(state.counted);
        guest.clock_us += u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        state.counted = now;
        match state.memory_pressure {
            Some(until) if now < until => return (Some(until - now), Moved::No),
            Some(_) | None => state.memory_pressure = None,
        }
        let settled = guest.settle();
        let wait = settled.wake_us.map(|wake| Duration::from_micros(wake.saturating_sub(guest.clock_us)));
        let (used, limit) = guest.memory();
        if used > limit / 10 * 8 {
            self.stand_still(state);
            state.is_short = true;
            self.notices.send(Notice::MemoryHigh { run: self.spec.run.clone() });
        }
        (wait, settled.moved)
    }

    fn stand_still(&self, state: &mut State) {
        state.condition = RunCondition::Paused;
        state.stood_still_since = Instant::now();
    }

    fn tell(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settles the guest after each change, and whenever a process has waited long enough.
async fn drive(machine: Arc<Machine>) {
    let mut changes = machine.changes();
    loop {
        changes.mark_seen();
        let (wait, moved) = {
            let mut state = machine.lock();
            machine.settle(&mut state)
        };
        if moved == Moved::Yes {
            machine.tell();
            continue;
        }
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            () = sleep(wait) => {}
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
