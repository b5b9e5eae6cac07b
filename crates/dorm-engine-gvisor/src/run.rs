//! The runs that this daemon knows, each with its turn: at most one operation is executed on a run
//! at a time.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dorm_engine::EngineError;
use dorm_lifecycle::RunId;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::blocking::in_place;
use crate::container::Container;
use crate::error::{GvisorError, chain};
use crate::lock::lock;
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
    /// The guest is paused because of memory pressure, not on request.
    is_short: AtomicBool,
    under_memory_pressure: AtomicBool,
    /// The lowest memory usage since the guest was saved or loaded, in bytes; 0 when that memory is
    /// freed.
    kernel_room: AtomicU64,
    memory_pressure: Mutex<Option<oneshot::Sender<Relieved>>>,
    /// Notified when the noted memory limit has changed.
    pub(crate) resized: Arc<tokio::sync::Notify>,
}

/// How much the usage may exceed the memory left over in the kernel before it counts as growth of
/// the guest.
const GROWTH_BYTES: u64 = 32 << 20;

/// The result of handling memory pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relieved {
    /// A process was killed, and its memory is being freed.
    Killed,
    /// No process was killed: memory may be short again at once.
    Nobody,
}

/// The state that only the holder of the run's turn may read or change.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The container's home and note; `None` before the container exists, and after it is gone.
    kept: Option<(Home, Note)>,
    /// The pages file to which the guest was saved since it was paused, if it can map its memory
    /// from there.
    pub(crate) pages: Option<Arc<File>>,
    /// When the guest was paused, as far as this daemon has observed.
    pub(crate) still_since: Option<Instant>,
    /// Whether this daemon has parked the guest since it ran. It may be thawed for a moment.
    pub(crate) is_parked: bool,
}

impl Run {
    /// Creates a run without a container.
    pub(crate) fn new(id: RunId) -> Self {
        Self {
            id,
            container: OnceLock::new(),
            turn: Arc::default(),
            thread: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            under_memory_pressure: AtomicBool::new(false),
            kernel_room: AtomicU64::new(0),
            memory_pressure: Mutex::default(),
            resized: Arc::default(),
        }
    }

    /// Creates a run from before a restart of the daemon. `container` is `None` if its creation was
    /// not completed.
    pub(crate) fn found(id: RunId, home: Home, note: Note, container: Option<Container>) -> Self {
        let mut note = note;
        // The earlier daemon may not have been able to record the end of a pause, so the guest
        // itself is asked.
        if let Duty::Run { phase: phase @ Phase::Paused, .. } = &mut note.duty {
            *phase = Phase::Pausing;
        }
        let turn = Turn { kept: Some((home, note)), ..Turn::default() };
        let run = Self { turn: Arc::new(tokio::sync::Mutex::new(turn)), ..Self::new(id) };
        if let Some(container) = container {
            let _ = run.container.set(container);
        }
        run
    }

    /// Returns whether the guest runs according to the note. A run with an operation in progress
    /// counts as running.
    pub(crate) fn is_moving(&self) -> bool {
        self.turn.try_lock().map_or(true, |turn| turn.phase() == Phase::Running)
    }

    /// Waits for the run's turn.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<Turn> {
        self.turn.clone().lock_owned().await
    }

    /// Assigns the run its container, once.
    pub(crate) fn take_container(&self, turn: &mut Turn, container: Container, note: Note) {
        turn.kept = Some((container.home.clone(), note));
        let _ = self.container.set(container);
    }

    /// Returns its container, if it has one yet.
    pub(crate) fn container(&self) -> Option<&Container> {
        self.container.get()
    }

    /// Returns its container, whose sandbox must be alive.
    pub(crate) fn living(&self, operation: &'static str) -> Result<&Container, EngineError> {
        match self.container().filter(|container| container.is_alive()) {
            None => Err(EngineError::Ended { operation, run: self.id.clone() }),
            Some(container) => Ok(container),
        }
    }

    /// Ends the most recent stream to the agent, and keeps `next` to end the next one.
    pub(crate) fn cut(&self, next: Option<Thread>) {
        *lock(&self.thread) = next;
    }

    pub(crate) fn begin_stopping(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Sets whether the guest is paused because of memory pressure. Only for the holder of the
    /// turn.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::SeqCst);
    }

    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::SeqCst)
    }

    /// Begins a time in which the run may exceed its limit and is not paused for it. Returns the
    /// receiver of how it ends; `None` if such a time has already begun.
    pub(crate) fn begin_memory_pressure(&self) -> Option<oneshot::Receiver<Relieved>> {
        if self.under_memory_pressure.swap(true, Ordering::SeqCst) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        *lock(&self.memory_pressure) = Some(sender);
        Some(receiver)
    }

    pub(crate) fn is_under_memory_pressure(&self) -> bool {
        self.under_memory_pressure.load(Ordering::SeqCst)
    }

    pub(crate) fn end_memory_pressure(&self) {
        self.under_memory_pressure.store(false, Ordering::SeqCst);
    }

    /// Begins a time in which the kernel still has to free memory from saving or loading the guest.
    pub(crate) fn begin_kernel_room(&self) {
        self.kernel_room.store(u64::MAX, Ordering::SeqCst);
    }

    /// Records that the run uses no more than `bytes` now.
    pub(crate) fn lower_kernel_room(&self, bytes: u64) {
        self.kernel_room.fetch_min(bytes, Ordering::SeqCst);
    }

    pub(crate) fn end_kernel_room(&self) {
        self.kernel_room.store(0, Ordering::SeqCst);
    }

    /// Returns whether a usage of `uses` bytes is memory that the kernel has not freed yet, and not
    /// growth of the guest.
    pub(crate) fn is_kernel_room(&self, uses: u64) -> bool {
        let room = self.kernel_room.load(Ordering::SeqCst);
        room > 0 && uses <= room.saturating_add(GROWTH_BYTES)
    }

    /// Reports the result of handling memory pressure, once.
    pub(crate) fn relieved(&self, how: Relieved) {
        if let Some(sender) = lock(&self.memory_pressure).take() {
            let _ = sender.send(how);
        }
    }

    /// Returns whether the run is being stopped.
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

    /// Records the phase of the run, or the operation that is about to be executed.
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

    /// Like [`Turn::set`], but a full disk is no error, as for resuming a guest. Only the beginning
    /// of a pause must be durable; after a restart the guest is asked in every other phase of a
    /// pause.
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

    /// Records the memory limit, in bytes.
    pub(crate) fn set_memory(&mut self, bytes: u64) -> Result<(), GvisorError> {
        let Some((home, note)) = &mut self.kept else { return Ok(()) };
        let before = std::mem::replace(&mut note.memory_bytes, bytes);
        in_place(|| home.write(note)).inspect_err(|_| note.memory_bytes = before)
    }

    /// Records the writes that the disk has lost. If that fails, they are known as long as this
    /// daemon lives.
    pub(crate) fn set_lost_writes(&mut self, what: String) {
        let Some((home, note)) = &mut self.kept else { return };
        note.lost_writes = Some(what);
        if let Err(error) = in_place(|| home.write(note)) {
            tracing::warn!(container = home.id(), error = %chain(&error), "cannot record that the disk of a run has lost writes");
        }
    }

    /// Returns how long the guest has been paused, as far as this daemon has observed.
    pub(crate) fn stood(&self) -> Duration {
        self.still_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Forgets the container, which is gone.
    pub(crate) fn forget(&mut self) {
        self.kept = None;
    }
}

/// All runs.
#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<HashMap<RunId, Arc<Run>>>);

impl Runs {
    /// Inserts a new run, with its turn taken.
    pub(crate) fn reserve(&self, id: &RunId) -> Result<(Arc<Run>, OwnedMutexGuard<Turn>), EngineError> {
        let run = Arc::new(Run::new(id.clone()));
        // No other task knows the run yet.
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

    /// Removes `run` itself, not a later one with the same ID.
    pub(crate) fn remove(&self, run: &Arc<Run>) {
        let mut runs = lock(&self.0);
        if runs.get(&run.id).is_some_and(|known| Arc::ptr_eq(known, run)) {
            runs.remove(&run.id);
        }
    }
}
