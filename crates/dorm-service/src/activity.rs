//! The open uses of a sandbox: an exec, stream, terminal or connection keeps its idle limit from
//! passing. Connections to its ports end when its run does not continue.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dorm_lifecycle::Timestamp;
use dorm_ports::Clock;
use tokio_util::sync::CancellationToken;

/// A kind of use of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Use {
    /// A command that a caller waits for.
    Exec,
    /// Starting, listing or signalling a process.
    Process,
    /// Following the output of a process.
    Output,
    /// A terminal.
    Terminal,
    /// Reading, writing or listing files.
    Files,
    /// Watching files.
    Watch,
    /// A connection to one of its ports.
    Traffic,
}

impl Use {
    const ALL: [Self; 7] =
        [Self::Exec, Self::Process, Self::Output, Self::Terminal, Self::Files, Self::Watch, Self::Traffic];

    /// Returns the word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Process => "process call",
            Self::Output => "output stream",
            Self::Terminal => "terminal",
            Self::Files => "file call",
            Self::Watch => "file watch",
            Self::Traffic => "connection",
        }
    }
}

/// The uses of a sandbox since its record was written.
pub(crate) struct Activity {
    open: [AtomicUsize; Use::ALL.len()],
    /// When the last use ended, in milliseconds of the steady clock, so that changes of the wall
    /// clock do not matter.
    last: AtomicI64,
    last_use: Mutex<Option<Use>>,
    clock: Arc<dyn Clock>,
    /// Ends the connections to ports of the present run.
    connections: Mutex<CancellationToken>,
}

fn steady_millis(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.steady().as_millis()).unwrap_or(i64::MAX)
}

impl Activity {
    pub(crate) fn new(clock: Arc<dyn Clock>, last: Timestamp) -> Arc<Self> {
        let ago = i64::try_from(clock.now().since(last).as_millis()).unwrap_or(i64::MAX);
        let last = AtomicI64::new(steady_millis(&*clock).saturating_sub(ago));
        Arc::new(Self {
            open: Default::default(),
            last,
            last_use: Mutex::default(),
            clock,
            connections: Mutex::default(),
        })
    }

    /// Returns when the sandbox was last used: now, while a use is open.
    pub(crate) fn last(&self) -> Timestamp {
        if self.open.iter().any(|open| open.load(Ordering::SeqCst) > 0) {
            return self.clock.now();
        }
        let ago = steady_millis(&*self.clock).saturating_sub(self.last.load(Ordering::SeqCst));
        self.clock.now().shifted(-ago)
    }

    /// Returns the open uses, with the number of each.
    pub(crate) fn open(&self) -> Vec<(Use, usize)> {
        let counts = Use::ALL.into_iter().zip(&self.open).map(|(what, open)| (what, open.load(Ordering::SeqCst)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the last use of the sandbox.
    pub(crate) fn last_use(&self) -> Option<Use> {
        *self.last_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all connections to ports that were begun so far: their guest is suspended, and would
    /// let their clients wait until it is resumed.
    pub(crate) fn end_connections(&self) {
        std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner)).cancel();
    }

    pub(crate) fn begin(self: &Arc<Self>, what: Use) -> InUse {
        self.open[what as usize].fetch_add(1, Ordering::SeqCst);
        InUse { activity: self.clone(), what }
    }
}

/// Keeps a sandbox from being idle until it is dropped.
pub struct InUse {
    activity: Arc<Activity>,
    what: Use,
}

impl InUse {
    /// Cancelled when a connection that begins now has to end.
    pub(crate) fn connection_end(&self) -> CancellationToken {
        self.activity.connections.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.activity.last.fetch_max(steady_millis(&*self.activity.clock), Ordering::SeqCst);
        *self.activity.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.what);
        self.activity.open[self.what as usize].fetch_sub(1, Ordering::SeqCst);
    }
}
