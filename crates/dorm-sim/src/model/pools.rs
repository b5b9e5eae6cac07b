//! Sandbox pools: their numbers hold, and no member is claimed twice.

use dorm_lifecycle::{Sandbox, SandboxId, StateName};
use dorm_store::{Change, PoolRecord};

use super::{Model, State};

impl Model {
    pub(super) fn pools_committed(&self, state: &mut State, change: &Change) {
        state.pools.extend(change.pools.iter().map(|pool| (pool.id.clone(), pool.clone())));
        for id in &change.removed_pools {
            state.pools.remove(id);
        }
    }

    /// Checks that a claim is final.
    pub(super) fn claim_stays(&self, before: &Sandbox, after: &Sandbox) {
        let was_claimed = before.pool.as_ref().is_some_and(|member| member.is_claimed);
        let is_claimed = after.pool.as_ref().is_some_and(|member| member.is_claimed);
        if (was_claimed && !is_claimed)
            || before.pool.as_ref().map(|one| &one.pool) != after.pool.as_ref().map(|one| &one.pool)
        {
            self.trace.wrong(format_args!("{} was {:?} and is {:?} in its pool", before.id, before.pool, after.pool));
        }
    }

    /// Notes that a caller was told that it has claimed a sandbox.
    pub(crate) fn claimed(&self, id: &SandboxId) {
        if !self.lock().claimed.insert(id.clone()) {
            self.trace.wrong(format_args!("{id} was claimed twice"));
        }
    }

    /// The names of all pools.
    pub(crate) fn pools(&self) -> Vec<String> {
        self.lock().pools.values().map(|pool| pool.name.to_string()).collect()
    }

    /// The first pool whose number of waiting members is not what was asked for.
    pub(crate) fn wrong_pool(&self) -> Option<String> {
        let state = self.lock();
        let count = |pool: &PoolRecord, is_claimed: bool| {
            let members = state.sandboxes.values().filter(|known| {
                let sandbox = &known.record.sandbox;
                let is_member =
                    sandbox.pool.as_ref().is_some_and(|one| one.pool == pool.id && one.is_claimed == is_claimed);
                is_member && known.state() != StateName::Terminated
            });
            members.count() as u64
        };
        state.pools.values().find_map(|pool| {
            let room = pool.most.map_or(u64::MAX, |most| most.saturating_sub(count(pool, true)));
            let (wait, wanted) = (count(pool, false), pool.ready.min(room));
            match pool.removed {
                true => Some(format!("the pool {} is still to be removed", pool.name)),
                false => (wait != wanted).then(|| format!("{wait} wait in the pool {}, and not {wanted}", pool.name)),
            }
        })
    }
}

/// Whether a sandbox waits in a pool: the service itself may end it.
pub(super) fn waits(sandbox: &Sandbox) -> bool {
    sandbox.pool.as_ref().is_some_and(|member| !member.is_claimed)
}
