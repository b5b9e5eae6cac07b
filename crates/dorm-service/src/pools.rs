//! Keeps sandbox pools filled: makes members, suspends them, and ends those that are not needed.
//!
//! One task handles all pools. The members of a pool follow from the records of sandboxes alone,
//! which name their pool from their first commit on, so a restarted daemon counts the members that
//! its predecessor made, and those that it was still making.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{Initiator, PoolId, Sandbox, SandboxId, State};
use dorm_store::{Change, PoolRecord, StoreError};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::error::{ServiceError, chain};
use crate::shared::{Service, Shared};

/// The longest sleep: something may have happened that nothing told.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The delays before a member is made again after a failure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The members of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Members {
    /// Suspended, and not claimed.
    pub(crate) ready: Vec<SandboxId>,
    /// Running, and not claimed: they were just made.
    running: Vec<SandboxId>,
    /// Not claimed, and neither of these: their operations have not ended.
    at_work: usize,
    /// Claimed, and not terminated.
    pub(crate) claimed: usize,
}

impl Members {
    fn unclaimed(&self) -> usize {
        self.ready.len() + self.running.len() + self.at_work
    }

    /// Returns how many there are.
    pub(crate) fn all(&self) -> usize {
        self.unclaimed() + self.claimed
    }

    fn add(&mut self, sandbox: &Sandbox, is_claimed: bool) {
        match &sandbox.state {
            _ if is_claimed => self.claimed += 1,
            State::Suspended { background: None, .. } => self.ready.push(sandbox.id.clone()),
            State::Running { background: None, .. } => self.running.push(sandbox.id.clone()),
            State::Pending { .. }
            | State::Running { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Suspended { .. }
            | State::Resuming { .. } => self.at_work += 1,
            State::Terminating { .. } | State::Terminated { .. } => {}
        }
    }
}

/// The trouble with a pool.
struct Trouble {
    backoff: Backoff,
    until: Instant,
}

impl Shared {
    /// Returns the members of every pool.
    pub(crate) async fn pool_members(&self) -> Result<BTreeMap<PoolId, Members>, StoreError> {
        let look = |records: &BTreeMap<SandboxId, dorm_store::SandboxRecord>| {
            let mut members: BTreeMap<PoolId, Members> = BTreeMap::new();
            for sandbox in records.values().map(|record| &record.sandbox) {
                if let Some(member) = &sandbox.pool {
                    members.entry(member.pool.clone()).or_default().add(sandbox, member.is_claimed);
                }
            }
            members
        };
        self.living.look(&*self.store, look).await
    }
}

/// Keeps all pools filled until the service stops.
pub(crate) async fn keep_filling(service: Service) {
    let shared = service.shared.clone();
    let mut trouble: BTreeMap<PoolId, Trouble> = BTreeMap::new();
    loop {
        let news = shared.pools.news.notified();
        let mut next = Instant::now() + LOOK_AGAIN;
        match fill_all(&service, &mut trouble, &mut next).await {
            Ok(Filled::More) => continue,
            Ok(Filled::Enough) => {}
            Err(error) => tracing::warn!(error = %chain(&error), "cannot look after the sandbox pools; retrying"),
        }
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = news => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Whether there is more to do at once.
enum Filled {
    More,
    Enough,
}

/// Does one piece of work for each pool.
async fn fill_all(
    service: &Service,
    trouble: &mut BTreeMap<PoolId, Trouble>,
    next: &mut Instant,
) -> Result<Filled, ServiceError> {
    let shared = &service.shared;
    let pools = shared.store.pools().await?;
    if pools.is_empty() {
        return Ok(Filled::Enough);
    }
    let mut members = shared.pool_members().await?;
    let mut filled = Filled::Enough;
    for pool in pools {
        if shared.stopping.is_cancelled() {
            return Ok(Filled::Enough);
        }
        let now = Instant::now();
        if let Some(waits) = trouble.get(&pool.id).filter(|waits| waits.until > now) {
            *next = (*next).min(waits.until);
            continue;
        }
        let own = service.of_project(&pool.project);
        match own.fill(&pool, members.remove(&pool.id).unwrap_or_default()).await {
            Ok(more) => {
                trouble.remove(&pool.id);
                shared.pools.set_problem(&pool.id, None);
                if matches!(more, Filled::More) {
                    filled = Filled::More;
                }
            }
            Err(ServiceError::Stopping) => return Ok(Filled::Enough),
            Err(error) => {
                tracing::warn!(pool = %pool.name, error = %chain(&error), "cannot fill a sandbox pool; retrying");
                shared.pools.set_problem(&pool.id, Some(error.message()));
                let waits = trouble
                    .entry(pool.id.clone())
                    .or_insert_with(|| Trouble { backoff: Backoff::new(AGAIN), until: now });
                waits.until = now + waits.backoff.wait();
                *next = (*next).min(waits.until);
            }
        }
    }
    Ok(filled)
}

impl Service {
    /// Does one piece of work for a pool.
    async fn fill(&self, pool: &PoolRecord, members: Members) -> Result<Filled, ServiceError> {
        let ready = match pool.removed {
            true => 0,
            false => usize::try_from(pool.ready).unwrap_or(usize::MAX),
        };
        let surplus = members.unclaimed().saturating_sub(ready);
        // Before any suspend: one that cannot be suspended must not keep a pool from being removed.
        let unneeded = members.running.first().or(members.ready.first());
        if let Some(member) = unneeded.filter(|_| surplus > 0) {
            let command = dorm_lifecycle::Command::Discard;
            match self.command(member, command, Initiator::Host).await {
                // It was claimed meanwhile.
                Ok(_) | Err(ServiceError::Denied { .. }) => return Ok(Filled::More),
                Err(error) => return Err(error),
            }
        }
        if let Some(member) = members.running.first() {
            self.command(member, dorm_lifecycle::Command::Suspend, Initiator::Host).await?;
            return Ok(Filled::More);
        }
        if pool.removed && members.unclaimed() == 0 {
            let change = Change { removed_pools: vec![pool.id.clone()], ..Change::default() };
            self.shared.commit_known(change).await?;
            return Ok(Filled::Enough);
        }
        let most = pool.most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        if members.unclaimed() >= ready || members.all() >= most {
            return Ok(Filled::Enough);
        }
        let made = self.of_part().create_as(self.shared.ids().sandbox(), self.member_of(pool)).await?;
        self.command(&made.sandbox.id, dorm_lifecycle::Command::Suspend, Initiator::Host).await?;
        self.shared.pools.news.notify_waiters();
        Ok(Filled::More)
    }
}
