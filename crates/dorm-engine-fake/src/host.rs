//! The host that fake engines run on. It outlives them as a host outlives the daemon: an engine
//! that is opened again finds the runs where they were.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_engine::{EngineError, Mount, Notice, RunSpec};
use dorm_lifecycle::{Egress, RunCondition, RunId};
use tokio::time::Instant;

use crate::faults::Faults;
use crate::machine::Machine;
use crate::notices::Notices;

/// Midnight of 1 January 2026, when every fake host was switched on.
const SWITCHED_ON: Duration = Duration::from_secs(1_767_225_600);

/// A host. Clones refer to the same host.
#[derive(Clone)]
pub struct FakeHost(Arc<Shared>);

struct Shared {
    runs: Mutex<BTreeMap<RunId, Arc<Machine>>>,
    faults: Faults,
    notices: Notices,
    opened: AtomicU64,
    deleted_image_bytes: AtomicU64,
    began: Instant,
}

impl Drop for Shared {
    fn drop(&mut self) {
        for machine in self.runs.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            machine.end();
        }
    }
}

impl Default for FakeHost {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeHost {
    /// Returns a host on which nothing runs. It needs a tokio runtime with time from its first use
    /// on.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            runs: Mutex::default(),
            faults: Faults::default(),
            notices: Notices::default(),
            opened: AtomicU64::new(0),
            deleted_image_bytes: AtomicU64::new(0),
            began: Instant::now(),
        }))
    }

    /// Makes runs hold deleted memory images of this size from now on.
    pub fn hold_deleted_images(&self, bytes: u64) {
        self.0.deleted_image_bytes.store(bytes, Ordering::SeqCst);
    }

    pub(crate) fn deleted_image_bytes(&self) -> u64 {
        self.0.deleted_image_bytes.load(Ordering::SeqCst)
    }

    /// Returns the faults of this host, to plan them.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Returns all runs, dead and incomplete ones included.
    pub fn runs(&self) -> Vec<(RunId, RunCondition)> {
        self.lock().iter().map(|(run, machine)| (run.clone(), machine.condition())).collect()
    }

    /// Returns the host directories that are mounted in a run.
    pub fn mounts(&self, run: &RunId) -> Vec<Mount> {
        self.machine(run).map(|machine| machine.mounts()).unwrap_or_default()
    }

    /// Returns the memory limit of a run that has a guest, in bytes.
    pub fn memory_limit(&self, run: &RunId) -> Option<u64> {
        self.machine(run)?.note(|guest| guest.memory().1)
    }

    /// Returns the egress policy that is in effect for a run; `None` if there is no such run.
    pub fn egress(&self, run: &RunId) -> Option<Egress> {
        self.machine(run).map(|machine| machine.egress())
    }

    /// Returns the volumes mounted in a run: the mount point of each, and the directory mounted
    /// there.
    pub fn volumes_inside(&self, run: &RunId) -> Vec<(String, String)> {
        let inside = self.machine(run).and_then(|machine| machine.look(|guest| guest.mounts.clone()));
        let shown = |mount: dorm_agent_proto::GuestMount| (mount.path.to_text(), mount.from.to_text());
        inside.unwrap_or_default().into_iter().map(shown).collect()
    }

    /// Returns the labels of the living processes of a run.
    pub fn labels(&self, run: &RunId) -> Vec<String> {
        self.machine(run).and_then(|machine| machine.look(|guest| guest.labels())).unwrap_or_default()
    }

    /// Kills a run from outside; the engine sends a notice. Returns whether the run was alive.
    pub fn kill(&self, run: &RunId, reason: &str) -> bool {
        let alive = self.die_silently(run);
        if alive {
            self.give_notice(run, reason);
        }
        alive
    }

    /// Sends the engine's notice that a run has ended, whether it has or not: such as a late notice
    /// of an earlier process of a run that was restarted since.
    pub fn give_notice(&self, run: &RunId, reason: &str) {
        self.0.notices.send(Notice::Ended { run: run.clone(), reason: reason.to_owned() });
    }

    /// Kills a run from outside without a notice: its remains stay, broken. Returns whether the run
    /// was alive.
    pub fn die_silently(&self, run: &RunId) -> bool {
        match self.machine(run) {
            Some(machine) if machine.condition() != RunCondition::Broken => {
                machine.end();
                true
            }
            Some(_) | None => false,
        }
    }

    /// Keeps the agent of a run from answering for this long, by tokio's clock; [`Duration::MAX`]
    /// lasts until [`FakeHost::let_all_answer`]. Its guest continues.
    pub fn silence(&self, run: &RunId, time: Duration) {
        if let Some(machine) = self.machine(run) {
            machine.silence(time);
        }
    }

    /// Lets every silent agent answer again.
    pub fn let_all_answer(&self) {
        let machines: Vec<_> = self.lock().values().cloned().collect();
        for machine in machines {
            machine.silence(Duration::ZERO);
        }
    }

    /// Removes a run with everything that is left of it, without a notice.
    pub fn lose(&self, run: &RunId) {
        let lost = self.lock().remove(run);
        if let Some(machine) = lost {
            machine.end();
        }
    }

    /// Switches the host off and on: every run is gone. The engine is dead too; open another.
    pub fn reboot(&self) {
        self.0.notices.unsubscribe();
        self.0.opened.fetch_add(1, Ordering::SeqCst);
        let runs = std::mem::take(&mut *self.lock());
        for machine in runs.into_values() {
            machine.end();
        }
    }

    /// Returns the number of a new engine. The engine with the previous number is dead from then
    /// on.
    pub(crate) fn next_engine(&self) -> u64 {
        self.0.notices.unsubscribe();
        self.0.opened.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns whether the engine with this number is the current one.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.0.opened.load(Ordering::SeqCst) == number
    }

    pub(crate) fn notices(&self) -> &Notices {
        &self.0.notices
    }

    pub(crate) fn machine(&self, run: &RunId) -> Option<Arc<Machine>> {
        self.lock().get(run).cloned()
    }

    /// Registers a run that is about to be made.
    pub(crate) fn add(&self, spec: &RunSpec) -> Result<Arc<Machine>, EngineError> {
        let mut runs = self.lock();
        if runs.contains_key(&spec.run) {
            return Err(EngineError::Exists(spec.run.clone()));
        }
        let machine = Machine::half_made(spec.clone(), self.0.notices.clone());
        runs.insert(spec.run.clone(), Arc::clone(&machine));
        Ok(machine)
    }

    /// Returns the time in microseconds since 1970, by tokio's clock.
    pub(crate) fn unix_us(&self) -> u64 {
        u64::try_from((SWITCHED_ON + self.0.began.elapsed()).as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<Machine>>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
