//! Keeps sandbox pools filled: makes members, suspends them, and ends those that are not needed.
//!
//! Each project has a turn of its own. The members of a pool follow from the records of sandboxes
//! alone, which name their pool from their first commit on, so a restarted daemon counts the
//! members that its predecessor made, and those that it was still making.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use dorm_lifecycle::{Initiator, Keep, PoolId, ProjectId, Sandbox, SandboxId, State};
use dorm_store::{Change, PoolRecord, StoreError};
use tokio::task::{JoinError, JoinSet};
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

/// The trouble with the pools of one project.
type Troubles = BTreeMap<PoolId, Trouble>;

/// The result of a turn of a project.
struct Turn {
    project: ProjectId,
    troubles: Troubles,
    filled: Filled,
    /// When a pool with trouble is tried again.
    next: Option<Instant>,
}

/// The turns of projects.
#[derive(Default)]
struct Turns {
    going: JoinSet<Turn>,
    /// The projects whose turns are going, by the task of the turn.
    busy: HashMap<tokio::task::Id, ProjectId>,
    /// The projects that need a turn.
    due: BTreeSet<ProjectId>,
    /// The troubles of projects whose turns are not going, and when they are tried again.
    troubles: BTreeMap<ProjectId, (Troubles, Option<Instant>)>,
}

/// Keeps all pools filled until the service stops. Each project has a turn of its own: what takes
/// long for one does not delay the others.
pub(crate) async fn keep_filling(service: Service) {
    let shared = service.shared.clone();
    let mut turns = Turns::default();
    let mut all = true;
    // Made before the pools are read: what happens after that is told.
    let mut news = std::pin::pin!(shared.pools.news.notified());
    loop {
        if let Err(error) = turns.begin(&service, all).await {
            tracing::warn!(error = %chain(&error), "cannot look after the sandbox pools; retrying");
        }
        let again = turns.troubles.values().filter_map(|(_, next)| *next).min();
        let look = Instant::now() + LOOK_AGAIN;
        all = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => break,
            () = news.as_mut() => {
                news.set(shared.pools.news.notified());
                true
            }
            Some(ended) = turns.going.join_next_with_id() => {
                turns.over(ended);
                false
            }
            () = tokio::time::sleep_until(again.map_or(look, |again| look.min(again))) => true,
        };
    }
    // They end soon, because everything that they ask for is refused.
    while turns.going.join_next().await.is_some() {}
}

impl Turns {
    /// Begins the turn of each project with pools that needs one and has none, or of all of them.
    async fn begin(&mut self, service: &Service, all: bool) -> Result<(), ServiceError> {
        if !all && self.due.is_empty() {
            return Ok(());
        }
        let shared = &service.shared;
        let mut pools: BTreeMap<ProjectId, Vec<PoolRecord>> = BTreeMap::new();
        for pool in shared.store.pools().await? {
            pools.entry(pool.project.clone()).or_default().push(pool);
        }
        if all {
            self.due.extend(pools.keys().cloned());
        }
        self.due.retain(|project| pools.contains_key(project));
        self.troubles.retain(|project, _| pools.contains_key(project));
        let busy: BTreeSet<&ProjectId> = self.busy.values().collect();
        pools.retain(|project, _| self.due.contains(project) && !busy.contains(project));
        if pools.is_empty() {
            return Ok(());
        }
        let mut members = shared.pool_members().await?;
        for (project, pools) in pools {
            let pools = pools.into_iter().map(|pool| (members.remove(&pool.id).unwrap_or_default(), pool)).collect();
            let (troubles, _) = self.troubles.remove(&project).unwrap_or_default();
            self.due.remove(&project);
            let turn = self.going.spawn(service.of_project(&project).turn(pools, troubles));
            self.busy.insert(turn.id(), project);
        }
        Ok(())
    }

    fn over(&mut self, ended: Result<(tokio::task::Id, Turn), JoinError>) {
        match ended {
            Ok((id, Turn { project, troubles, filled, next })) => {
                self.busy.remove(&id);
                if matches!(filled, Filled::More) {
                    self.due.insert(project.clone());
                }
                self.troubles.insert(project, (troubles, next));
            }
            // The project has its next turn when all look again.
            Err(error) => {
                let project = self.busy.remove(&error.id()).map(|project| project.to_string());
                tracing::error!(%error, project, "filling the pools of a project failed; retrying");
            }
        }
    }
}

/// Whether there is more to do at once.
enum Filled {
    More,
    Enough,
}

impl Service {
    /// Does one piece of work for each of these pools of the project.
    async fn turn(self, pools: Vec<(Members, PoolRecord)>, mut troubles: Troubles) -> Turn {
        let (shared, project) = (self.shared.clone(), self.project().clone());
        let (mut filled, mut next) = (Filled::Enough, None::<Instant>);
        let mut again = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        for (members, pool) in pools {
            if shared.stopping.is_cancelled() {
                break;
            }
            let now = Instant::now();
            if let Some(waits) = troubles.get(&pool.id).filter(|waits| waits.until > now) {
                again(waits.until);
                continue;
            }
            match self.fill(&pool, members).await {
                Ok(more) => {
                    troubles.remove(&pool.id);
                    shared.pools.set_problem(&pool.id, None);
                    if matches!(more, Filled::More) {
                        filled = Filled::More;
                    }
                }
                Err(ServiceError::Stopping) => break,
                Err(error) => {
                    tracing::warn!(pool = %pool.name, error = %chain(&error), "cannot fill a sandbox pool; retrying");
                    shared.pools.set_problem(&pool.id, Some(error.message()));
                    let waits = troubles
                        .entry(pool.id.clone())
                        .or_insert_with(|| Trouble { backoff: Backoff::new(AGAIN), until: now });
                    waits.until = now + waits.backoff.wait();
                    again(waits.until);
                }
            }
        }
        Turn { project, troubles, filled, next }
    }

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
            self.command(member, dorm_lifecycle::Command::Suspend(Keep::Memory), Initiator::Host).await?;
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
        self.command(&made.sandbox.id, dorm_lifecycle::Command::Suspend(Keep::Memory), Initiator::Host).await?;
        Ok(Filled::More)
    }
}
