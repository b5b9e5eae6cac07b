//! Planned faults: the nth call of an operation fails, hangs, waits, kills its run or writes less
//! than it reports, before or after its effect. Nothing is random; the same plan and calls give the
//! same faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::watch;

/// A call of the engine port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Operation {
    Start,
    Restore,
    Save,
    Pause,
    Park,
    Resume,
    Stop,
    Agent,
    Connect,
    Usage,
    Relieve,
    Mount,
    SetEgress,
    /// [`dorm_engine::Engine::set_limits`]
    SetLimits,
    Inventory,
    Condition,
    Sweep,
    Prepare,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 18] = [
        Self::Start,
        Self::Restore,
        Self::Save,
        Self::Pause,
        Self::Park,
        Self::Resume,
        Self::Stop,
        Self::Agent,
        Self::Connect,
        Self::Usage,
        Self::Relieve,
        Self::Mount,
        Self::SetEgress,
        Self::SetLimits,
        Self::Inventory,
        Self::Condition,
        Self::Sweep,
        Self::Prepare,
    ];

    /// Returns the operation as errors name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Restore => "restore",
            Self::Save => "save",
            Self::Pause => "pause",
            Self::Park => "park",
            Self::Resume => "continue",
            Self::Stop => "stop",
            Self::Agent => "reach the agent of",
            Self::Connect => "connect to",
            Self::Usage => "measure",
            Self::Relieve => "relieve",
            Self::Mount => "mount volumes in",
            Self::SetEgress => "change the egress of",
            Self::SetLimits => "change the limits of",
            Self::Inventory => "list",
            Self::Condition => "look at",
            Self::Sweep => "sweep",
            Self::Prepare => "prepare",
        }
    }
}

/// The moment in a call at which a fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before the call has any effect.
    Before,
    /// After the whole effect, before the call returns.
    After,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call returns `Failed`.
    Fail,
    /// The call returns `NoRoom`. After a save, its files are incomplete.
    NoRoom,
    /// The call hangs until [`Faults::release`].
    Hang,
    /// The call takes this much longer, by tokio's clock.
    Delay(Duration),
    /// The run dies and the engine sends a notice; the call returns what the port requires then.
    Die,
    /// The run disappears without a notice, as after a restart of the host; the call returns what
    /// the port requires then.
    Lose,
    /// The agent of the run receives and sends no frames for this long; its guest continues, and
    /// the engine answers.
    Silence(Duration),
    /// A save reports success and the full lengths, but the last bytes of its files are missing. No
    /// effect on other calls.
    WriteShort,
}

/// The planned faults of one host. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<Plan>,
    struck: watch::Sender<u64>,
    released: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Plan {
    calls: BTreeMap<Operation, u64>,
    entries: Vec<Entry>,
    struck: BTreeMap<Operation, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    operation: Operation,
    call: Option<u64>,
    moment: Moment,
    fault: Fault,
}

impl Faults {
    /// Plans a fault for the `nth` call of `operation` from now on; 1 is the next call.
    pub fn plan(&self, operation: Operation, nth: u64, moment: Moment, fault: Fault) {
        let mut plan = self.lock();
        let made = plan.calls.get(&operation).copied().unwrap_or_default();
        plan.entries.push(Entry { operation, call: Some(made + nth.max(1)), moment, fault });
    }

    /// Plans a fault for the next call.
    pub fn next(&self, operation: Operation, moment: Moment, fault: Fault) {
        self.plan(operation, 1, moment, fault);
    }

    /// Plans a fault for every call until [`Faults::clear`].
    pub fn always(&self, operation: Operation, moment: Moment, fault: Fault) {
        self.lock().entries.push(Entry { operation, call: None, moment, fault });
    }

    /// Discards all planned faults. Calls that hang continue to hang.
    pub fn clear(&self) {
        self.lock().entries.clear();
    }

    /// Lets every call that hangs now continue.
    pub fn release(&self) {
        self.0.released.send_modify(|times| *times += 1);
    }

    /// Returns how many calls of `operation` have begun.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.lock().calls.get(&operation).copied().unwrap_or_default()
    }

    /// Returns how many planned faults have struck calls of `operation`.
    pub fn struck(&self, operation: Operation) -> u64 {
        self.lock().struck.get(&operation).copied().unwrap_or_default()
    }

    /// Waits until `times` planned faults have struck calls of `operation`: until a call hangs, for
    /// example.
    pub async fn wait_until_struck(&self, operation: Operation, times: u64) {
        let mut struck = self.0.struck.subscribe();
        while self.struck(operation) < times {
            if struck.changed().await.is_err() {
                return;
            }
        }
    }

    /// Counts a call that begins, and returns its number.
    pub(crate) fn begin(&self, operation: Operation) -> u64 {
        let mut plan = self.lock();
        let calls = plan.calls.entry(operation).or_default();
        *calls += 1;
        *calls
    }

    /// Returns the faults that strike the call at this moment, in the order in which they were
    /// planned, and the [`Hold`] for those that hang. A release after the strike is never missed,
    /// however early it comes.
    pub(crate) fn strike(&self, operation: Operation, call: u64, moment: Moment) -> (Vec<Fault>, Hold) {
        let mut plan = self.lock();
        let mut released = self.0.released.subscribe();
        released.mark_seen();
        let mut faults = Vec::new();
        plan.entries.retain(|entry| {
            let hit = entry.operation == operation && entry.moment == moment && entry.call.is_none_or(|at| at == call);
            if hit {
                faults.push(entry.fault);
            }
            !hit || entry.call.is_none()
        });
        if !faults.is_empty() {
            *plan.struck.entry(operation).or_default() += faults.len() as u64;
            drop(plan);
            self.0.struck.send_modify(|times| *times += 1);
        }
        (faults, Hold(released))
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wait of a call that hangs.
pub(crate) struct Hold(watch::Receiver<u64>);

impl Hold {
    /// Waits for a [`Faults::release`] after the strike.
    pub(crate) async fn released(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
