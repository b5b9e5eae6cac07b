//! The steps of one life of the daemon: counts them, and at some of them fails an operation or
//! kills the daemon.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dorm_engine_fake::FakeHost;
use dorm_steps::{Steps, Stopped};
use tokio::sync::Notify;

use crate::disk::Disk;
use crate::trace::Trace;

/// The fault at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The daemon dies.
    Dies,
    /// The operation fails as if something were broken.
    Fails,
    /// The operation fails as if the disk were full.
    Full,
}

/// How often the result of a commit is hidden from the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Doubt {
    /// The share of commits with a hidden result, in percent.
    pub(crate) percent: u64,
    /// Whether some of those commits are not made.
    pub(crate) may_fail: bool,
}

/// How often a step was reached, and how often a fault happened there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Visits {
    /// How often it was reached.
    pub reached: u64,
    /// How often the daemon died there.
    pub died: u64,
    /// How often the operation was made to fail there.
    pub failed: u64,
}

/// Visits by the name of the step.
pub type Coverage = BTreeMap<&'static str, Visits>;

/// One life of the daemon.
pub(crate) struct Life {
    state: Mutex<State>,
    alive: AtomicBool,
    death: Notify,
    disk: Arc<Mutex<Disk>>,
    host: FakeHost,
    trace: Trace,
}

#[derive(Default)]
struct State {
    reached: u64,
    /// The planned faults, by the number of the step.
    endings: BTreeMap<u64, Ending>,
    doubt: Option<Doubt>,
    coverage: Coverage,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life").field("alive", &self.alive).finish_non_exhaustive()
    }
}

impl Life {
    pub(crate) fn new(disk: Arc<Mutex<Disk>>, host: FakeHost, trace: Trace) -> Arc<Self> {
        let alive = AtomicBool::new(true);
        Arc::new(Self { state: Mutex::default(), alive, death: Notify::new(), disk, host, trace })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a fault at the `nth` step from now; 1 is the next.
    pub(crate) fn plan(&self, nth: u64, ending: Ending) {
        let mut state = self.lock();
        let at = state.reached + nth;
        state.endings.insert(at, ending);
    }

    /// Hides the results of some commits from now on.
    pub(crate) fn plan_doubt(&self, doubt: Doubt) {
        self.lock().doubt = Some(doubt);
    }

    pub(crate) fn doubt(&self) -> Option<Doubt> {
        self.lock().doubt
    }

    /// Drops all planned faults.
    pub(crate) fn forgive(&self) {
        let mut state = self.lock();
        state.endings.clear();
        state.doubt = None;
    }

    pub(crate) fn coverage(&self) -> Coverage {
        self.lock().coverage.clone()
    }

    /// Ends the life at any point. Pending calls of the engine stop in the middle.
    pub(crate) fn end(&self) {
        if self.alive.swap(false, Ordering::SeqCst) {
            drop(self.host.open());
            self.death.notify_one();
        }
    }

    /// Waits for the end of the life.
    pub(crate) async fn ended(&self) {
        while self.alive() {
            self.death.notified().await;
        }
    }
}

impl Steps for Life {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        if !self.alive() {
            return Err(Stopped { step, full: false });
        }
        let mut state = self.lock();
        state.reached += 1;
        let reached = state.reached;
        let ending = state.endings.remove(&reached);
        let visits = state.coverage.entry(step).or_default();
        visits.reached += 1;
        match ending {
            None => {}
            Some(Ending::Dies) => visits.died += 1,
            Some(Ending::Fails | Ending::Full) => visits.failed += 1,
        }
        drop(state);
        match ending {
            None => {
                self.trace.note(step);
                return Ok(());
            }
            Some(ending) => self.trace.note(format_args!("{step}: {ending:?}")),
        }
        if ending == Some(Ending::Dies) {
            self.end();
        }
        Err(Stopped { step, full: ending == Some(Ending::Full) })
    }

    fn alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    fn durable(&self, path: &Path) {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).durable(path);
    }

    fn in_place(&self) -> bool {
        true
    }
}
