//! The runs this daemon knows, each with its turn: at most one thing is done to a run at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dorm_engine::EngineError;
use dorm_lifecycle::RunId;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::container::{Container, in_place};
use crate::error::{GvisorError, chain};
use crate::notes::{Duty, Home, Note, Phase};
use crate::stream::Thread;

/// One run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    container: OnceLock<Container>,
    turn: Arc<tokio::sync::Mutex<Turn>>,
    thread: Mutex<Option<Thread>>,
    is_stopping: AtomicBool,
    /// It stands still for its memory, not because it is held.
    is_short: AtomicBool,
    in_relief: AtomicBool,
    /// The least it has used since it was saved or loaded, in bytes; 0 when nothing of that is left.
    kernel_room: AtomicU64,
    relief: Mutex<Option<oneshot::Sender<Relieved>>>,
}

/// How much more a run may use than its kernel has left over before that is growth of its guest.
const GROWTH_BYTES: u64 = 32 << 20;

/// How the time ended in which a run had more room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relieved {
    /// A process was killed, whose memory is on its way back.
    Killed,
    /// Nobody was: it may be short again at once.
    Nobody,
}

/// What may only be looked at or changed by whoever has the run's turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The container's home and note; `None` before there is a container, and after it is gone.
    kept: Option<(Home, Note)>,
    /// Since when the guest stands still, as far as this daemon has seen.
    pub(crate) still_since: Option<Instant>,
}

impl Run {
    /// A run without a container.
    pub(crate) fn new(id: RunId) -> Self {
        Self {
            id,
            container: OnceLock::new(),
            turn: Arc::default(),
            thread: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            in_relief: AtomicBool::new(false),
            kernel_room: AtomicU64::new(0),
            relief: Mutex::default(),
        }
    }

    /// A run from before a restart of the daemon. `container` is missing when it was not made to its end.
    pub(crate) fn found(id: RunId, home: Home, note: Note, container: Option<Container>) -> Self {
        let mut note = note;
        // Of a pause that ended, the earlier daemon may not have been able to write: the guest itself is asked.
        if let Duty::Run { phase: phase @ Phase::Paused, .. } = &mut note.duty {
            *phase = Phase::Pausing;
        }
        let turn = Turn { kept: Some((home, note)), still_since: None };
        let run = Self { turn: Arc::new(tokio::sync::Mutex::new(turn)), ..Self::new(id) };
        if let Some(container) = container {
            let _ = run.container.set(container);
        }
        run
    }

    /// Whether its guest runs, as far as that is noted; a run that somebody works at is taken to.
    pub(crate) fn is_moving(&self) -> bool {
        self.turn.try_lock().map_or(true, |turn| turn.phase() == Phase::Running)
    }

    /// Waits for the run's turn.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<Turn> {
        self.turn.clone().lock_owned().await
    }

    /// Gives the run its container, once.
    pub(crate) fn take_container(&self, turn: &mut Turn, container: Container, note: Note) {
        turn.kept = Some((container.home.clone(), note));
        let _ = self.container.set(container);
    }

    /// Its container, if it has one by now.
    pub(crate) fn container(&self) -> Option<&Container> {
        self.container.get()
    }

    /// Its container, whose sandbox must be alive.
    pub(crate) fn living(&self, operation: &'static str) -> Result<&Container, EngineError> {
        match self.container().filter(|container| container.is_alive()) {
            None => Err(EngineError::Ended { operation, run: self.id.clone() }),
            Some(container) => Ok(container),
        }
    }

    /// Ends the stream to the agent that was handed out last, and keeps `next` for the next time.
    pub(crate) fn cut(&self, next: Option<Thread>) {
        *lock(&self.thread) = next;
    }

    pub(crate) fn begin_stopping(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Says whether it stands still for its memory. Only for who has its turn.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::SeqCst);
    }

    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::SeqCst)
    }

    /// Begins the time in which it may use more memory and is not paused for it. Answers how it will end; nothing when
    /// it has begun already.
    pub(crate) fn begin_relief(&self) -> Option<oneshot::Receiver<Relieved>> {
        if self.in_relief.swap(true, Ordering::SeqCst) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        *lock(&self.relief) = Some(sender);
        Some(receiver)
    }

    pub(crate) fn is_in_relief(&self) -> bool {
        self.in_relief.load(Ordering::SeqCst)
    }

    pub(crate) fn end_relief(&self) {
        self.in_relief.store(false, Ordering::SeqCst);
    }

    /// Begins the time in which its kernel has memory that saving or loading the guest has left to be given back.
    pub(crate) fn begin_kernel_room(&self) {
        self.kernel_room.store(u64::MAX, Ordering::SeqCst);
    }

    /// It uses no more than `bytes` now.
    pub(crate) fn lower_kernel_room(&self, bytes: u64) {
        self.kernel_room.fetch_min(bytes, Ordering::SeqCst);
    }

    pub(crate) fn end_kernel_room(&self) {
        self.kernel_room.store(0, Ordering::SeqCst);
    }

    /// Whether what it uses, in bytes, is what its kernel has not given back yet, and no growth of the guest.
    pub(crate) fn is_kernel_room(&self, uses: u64) -> bool {
        let room = self.kernel_room.load(Ordering::SeqCst);
        room > 0 && uses <= room.saturating_add(GROWTH_BYTES)
    }

    /// Says how it ended, once.
    pub(crate) fn relieved(&self, how: Relieved) {
        if let Some(sender) = lock(&self.relief).take() {
            let _ = sender.send(how);
        }
    }

    /// Whether its end is wanted.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

impl Turn {
    pub(crate) fn note(&self) -> Option<&Note> {
        self.kept.as_ref().map(|(_, note)| note)
    }

    pub(crate) fn home(&self) -> Option<Home> {
        self.kept.as_ref().map(|(home, _)| home.clone())
    }

    pub(crate) fn phase(&self) -> Phase {
        self.note().map_or(Phase::Beginning, Note::phase)
    }

    /// Writes down how far the run is, or what is about to be done.
    pub(crate) fn set(&mut self, next: Phase) -> Result<(), GvisorError> {
        let Some((home, note)) = &mut self.kept else { return Ok(()) };
        if let Duty::Run { phase, .. } = &mut note.duty
            && *phase != next
        {
            let before = std::mem::replace(phase, next);
            in_place(|| home.write(note)).inspect_err(|_| {
                if let Duty::Run { phase, .. } = &mut note.duty {
                    *phase = before;
                }
            })?;
        }
        self.count(next);
        Ok(())
    }

    /// The same for what may not fail because the disk is full: letting a guest go on. Only a pause that has not begun
    /// has to be on disk; after a restart the guest is asked in every other phase of one.
    pub(crate) fn set_if_possible(&mut self, next: Phase) {
        let Err(error) = self.set(next) else { return };
        if let Some((home, note)) = &mut self.kept
            && let Duty::Run { phase, .. } = &mut note.duty
        {
            *phase = next;
            tracing::warn!(container = home.id(), error = %chain(&error), "cannot record the phase of a run");
        }
        self.count(next);
    }

    fn count(&mut self, next: Phase) {
        match next {
            Phase::Paused => _ = self.still_since.get_or_insert_with(Instant::now),
            Phase::Pausing => self.still_since = Some(Instant::now()),
            Phase::Beginning | Phase::Running | Phase::Resuming | Phase::Stopping => self.still_since = None,
        }
    }

    /// Writes down what the disk has lost. If that cannot be written now, it is known as long as this daemon lives.
    pub(crate) fn set_lost_writes(&mut self, what: String) {
        let Some((home, note)) = &mut self.kept else { return };
        note.lost_writes = Some(what);
        if let Err(error) = in_place(|| home.write(note)) {
            tracing::warn!(container = home.id(), error = %chain(&error), "cannot record that the disk of a run has lost writes");
        }
    }

    /// How long the guest has stood still, as far as this daemon has seen.
    pub(crate) fn stood(&self) -> Duration {
        self.still_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The container is gone.
    pub(crate) fn forget(&mut self) {
        self.kept = None;
    }
}

/// All runs.
#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<HashMap<RunId, Arc<Run>>>);

impl Runs {
    /// Puts in a new run, with its turn taken.
    pub(crate) fn reserve(&self, id: &RunId) -> Result<(Arc<Run>, OwnedMutexGuard<Turn>), EngineError> {
        let run = Arc::new(Run::new(id.clone()));
        // Nobody else knows the run yet.
        let Ok(turn) = run.turn.clone().try_lock_owned() else { return Err(EngineError::Exists(id.clone())) };
        let mut runs = lock(&self.0);
        if runs.contains_key(id) {
            return Err(EngineError::Exists(id.clone()));
        }
        runs.insert(id.clone(), run.clone());
        Ok((run, turn))
    }

    pub(crate) fn insert(&self, run: Arc<Run>) {
        lock(&self.0).insert(run.id.clone(), run);
    }

    pub(crate) fn get(&self, id: &RunId) -> Result<Arc<Run>, EngineError> {
        lock(&self.0).get(id).cloned().ok_or_else(|| EngineError::NoRun(id.clone()))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        lock(&self.0).values().cloned().collect()
    }

    /// Takes out `run` itself, not a later one of that id.
    pub(crate) fn remove(&self, run: &Arc<Run>) {
        let mut runs = lock(&self.0);
        if runs.get(&run.id).is_some_and(|known| Arc::ptr_eq(known, run)) {
            runs.remove(&run.id);
        }
    }
}

/// Locks `mutex`, also after somebody panicked with it: what it guards is only ever replaced whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
