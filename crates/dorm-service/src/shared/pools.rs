//! Facts about sandbox pools besides their records.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dorm_lifecycle::{PoolId, Sandbox, State};
use tokio::sync::Notify;

/// Facts about sandbox pools besides their records.
#[derive(Default)]
pub(crate) struct Pools {
    /// Notified when a pool or one of its members changes.
    pub(crate) news: Notify,
    /// Held while the record of a pool is decided about.
    pub(crate) turn: tokio::sync::Mutex<()>,
    problems: Mutex<BTreeMap<PoolId, String>>,
}

impl Pools {
    /// Notes why a pool cannot be filled, or that it can.
    pub(crate) fn set_problem(&self, pool: &PoolId, problem: Option<String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => problems.insert(pool.clone(), problem),
            None => problems.remove(pool),
        };
    }

    pub(crate) fn problem(&self, pool: &PoolId) -> Option<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).get(pool).cloned()
    }
}

/// Whether the keeper of pools, or a caller who waits for a member, has something to do about a
/// sandbox.
pub(super) fn concerns_pool(sandbox: &Sandbox) -> bool {
    let Some(member) = &sandbox.pool else { return false };
    match &sandbox.state {
        State::Running { background: None, .. } | State::Suspended { background: None, .. } => !member.is_claimed,
        State::Terminating { .. } | State::Terminated { .. } => true,
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Resuming { .. } => false,
    }
}
