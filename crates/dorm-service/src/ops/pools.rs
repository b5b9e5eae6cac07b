//! Sandbox pools: sandboxes that are made in advance and wait, suspended, to be claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{
    Claim, Command, Denied, Egress, FirstProgram, Initiator, Name, PoolId, PoolMember, PortAccess, Resources, SandboxId,
};
use dorm_store::{Change, Made, PoolRecord, PoolSource, RowKind};
use tokio::time::Instant;

use super::create::{CreateFrom, CreateSpec};
use super::resume::ResumeSpec;
use crate::error::{PoolProblem, ServiceError, Shortage};
use crate::pools::Members;
use crate::shared::Service;
use crate::view::SandboxView;

/// The largest number of members that wait in a pool.
pub const POOL_READY_MAX: u64 = 1000;

/// How often a claim that waits looks for a member, if nothing tells it to.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A request for a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolSpec {
    /// Its name.
    pub name: Name,
    /// The origin of its members.
    pub from: CreateFrom,
    /// The program to start in each before it counts as made. Default: the one that the snapshot
    /// carries if it boots, else none.
    pub program: Option<FirstProgram>,
    /// Their resource limits.
    pub resources: Option<Resources>,
    /// Where they may connect to. Default: as the snapshot says, else the public internet.
    pub egress: Option<Egress>,
    /// Environment variables of every process in them.
    pub variables: BTreeMap<String, String>,
    /// Who may reach their ports; by default as the snapshot says, else as set for the daemon.
    pub port_access: Option<PortAccess>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// How many wait to be claimed.
    pub ready: u64,
    /// How many may exist, waiting and claimed; none for any number.
    pub most: Option<u64>,
}

/// A pool, and its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolView {
    /// Its record.
    pub pool: PoolRecord,
    /// How many are suspended and wait to be claimed.
    pub waiting: u64,
    /// How many were claimed and are not terminated.
    pub claimed: u64,
    /// Why members cannot be made, if that is so.
    pub problem: Option<String>,
}

impl Service {
    /// Creates a pool. Its members are made from then on.
    ///
    /// # Errors
    ///
    /// `Pool` for numbers that contradict each other, or a name that is taken; those of
    /// [`Service::create`] for what members start from.
    pub async fn create_pool(&self, asked: PoolSpec) -> Result<PoolView, ServiceError> {
        if let Some(Made::Pool(earlier)) = self.earlier() {
            let pools = self.shared.store.pools().await?;
            let pool = pools.into_iter().find(|pool| pool.id == *earlier);
            return self.view_pool(pool.ok_or_else(|| ServiceError::made_is_gone("pool", earlier))?).await;
        }
        self.to_the_end(|own| async move { own.create_pool_now(asked).await }).await
    }

    async fn create_pool_now(&self, asked: PoolSpec) -> Result<PoolView, ServiceError> {
        let _turn = self.shared.pools.turn.lock().await;
        let _staying = self.shared.holding.clone().read_owned().await;
        self.exists()?;
        let taken = |pool: &PoolRecord| pool.project == *self.project() && pool.name == asked.name;
        if self.shared.store.pools().await?.iter().any(taken) {
            return Err(self.bad_pool(&asked.name, "a pool of this name exists"));
        }
        let id = self.shared.ids().pool();
        self.shared.unreadable().await?.refuse(RowKind::Pool, id.as_str(), asked.name.as_str())?;
        asked.egress.as_ref().map_or(Ok(()), Egress::check).map_err(dorm_lifecycle::SpecError::from)?;
        let source = match &self.source_named(asked.from).await? {
            CreateFrom::Image(reference) => PoolSource::Image(self.image(reference).await?.digest),
            CreateFrom::Template(template) => {
                return Err(template.unfit("a pool can only be made from an image or a snapshot"));
            }
            CreateFrom::Snapshot(id) => {
                self.is_to_stay(id).await?;
                PoolSource::Snapshot(id.clone())
            }
        };
        let pool = PoolRecord {
            id,
            project: self.project().clone(),
            name: asked.name,
            source,
            program: asked.program,
            resources: asked.resources,
            egress: asked.egress.map(|egress| egress.of_project(self.project())),
            variables: asked.variables,
            port_access: asked.port_access,
            labels: asked.labels,
            ready: asked.ready,
            most: asked.most,
            created: self.shared.now(),
            removed: false,
        };
        self.fits(&pool)?;
        let requests = self.made(Made::Pool(pool.id.clone()));
        self.write_pool(pool, requests).await
    }

    /// Changes how many members wait, and how many there may be.
    ///
    /// # Errors
    ///
    /// `Pool` if there is none, or for numbers that contradict each other.
    pub async fn resize_pool(&self, name: &str, ready: u64, most: Option<u64>) -> Result<PoolView, ServiceError> {
        let name = name.to_owned();
        let resize = |own: Self| async move {
            let _turn = own.shared.pools.turn.lock().await;
            let pool = PoolRecord { ready, most, ..own.pool_record(&name).await? };
            own.fits(&pool)?;
            own.write_pool(pool, Vec::new()).await
        };
        self.to_the_end(resize).await
    }

    /// Removes a pool. The members that wait are terminated, those that were claimed stay.
    ///
    /// # Errors
    ///
    /// `Pool` if there is none.
    pub async fn remove_pool(&self, name: &str) -> Result<(), ServiceError> {
        let name = name.to_owned();
        let remove = |own: Self| async move {
            let _turn = own.shared.pools.turn.lock().await;
            let pool = PoolRecord { removed: true, ..own.pool_record(&name).await? };
            own.write_pool(pool, Vec::new()).await.map(drop)
        };
        self.to_the_end(remove).await
    }

    /// Returns every pool of this project, in the order of names.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn pools(&self) -> Result<Vec<PoolView>, ServiceError> {
        let mut pools = self.shared.store.pools().await?;
        pools.retain(|pool| pool.project == *self.project() && !pool.removed);
        pools.sort_by(|one, other| one.name.cmp(&other.name));
        let mut members = self.shared.pool_members().await?;
        Ok(pools.into_iter().map(|pool| self.view_of(pool, &mut members)).collect())
    }

    /// Returns one pool, by name or id.
    ///
    /// # Errors
    ///
    /// `Pool` if there is none.
    pub async fn pool(&self, name: &str) -> Result<PoolView, ServiceError> {
        self.view_pool(self.pool_record(name).await?).await
    }

    /// Claims a member of a pool: it wakes with the properties of the claim, and is a sandbox like
    /// any other from then on. Waits for a member for at most `patience`.
    ///
    /// # Errors
    ///
    /// `Pool` if there is none; `NotAdmitted` if no member is ready in time; those of
    /// [`Service::resume`] and `NameTaken`: then the member waits as before, or is terminated if
    /// its wake failed, and the pool makes another one.
    pub async fn claim(&self, name: &str, claim: Claim, patience: Duration) -> Result<SandboxView, ServiceError> {
        if let Some(Made::Sandbox(claimed)) = self.earlier() {
            return self.claimed_earlier(claimed).await;
        }
        claim.timeouts.check()?;
        let until = Instant::now() + patience;
        let pool = self.pool_record(name).await?;
        loop {
            let news = self.shared.pools.news.notified();
            for member in self.ready_members(&pool.id).await? {
                match self.claim_member(&member, &claim, until).await {
                    // Another caller was first, or the pool is getting smaller.
                    Err(ServiceError::Denied { denied: Denied::NotInPool | Denied::Terminated(_), .. })
                    | Err(ServiceError::NoSandbox(_)) => {}
                    other => {
                        self.shared.pools.news.notify_waiters();
                        return other;
                    }
                }
            }
            let now = Instant::now();
            if now >= until {
                let reason = format!("no sandbox of the pool '{}' is ready", pool.name);
                let shortage = Shortage::OfPool;
                return Err(ServiceError::NotAdmitted { what: "claim a sandbox", reason, shortage });
            }
            tokio::select! {
                biased;
                () = self.shared.stopping.cancelled() => return Err(ServiceError::Stopping),
                _ = tokio::time::timeout_at(until.min(now + LOOK_AGAIN), news) => {}
            }
        }
    }

    async fn claim_member(
        &self,
        member: &SandboxId,
        claim: &Claim,
        until: Instant,
    ) -> Result<SandboxView, ServiceError> {
        let asked = ResumeSpec { total: None, max_wait: until.saturating_duration_since(Instant::now()) };
        self.wake_with(member, Initiator::User, asked, Command::Claim(Box::new(claim.clone()))).await
    }

    /// Returns the members that wait, those first that wake fastest.
    async fn ready_members(&self, pool: &PoolId) -> Result<Vec<SandboxId>, ServiceError> {
        let mut ready = self.shared.pool_members().await?.remove(pool).unwrap_or_default().ready;
        ready.sort_by_key(|member| !self.shared.parking.holds(member));
        Ok(ready)
    }

    /// Returns the properties of a member.
    pub(crate) fn member_of(&self, pool: &PoolRecord) -> CreateSpec {
        let from = match &pool.source {
            PoolSource::Image(digest) => CreateFrom::Image(digest.to_string()),
            PoolSource::Snapshot(snapshot) => CreateFrom::Snapshot(snapshot.clone()),
        };
        CreateSpec {
            program: pool.program,
            resources: pool.resources,
            egress: pool.egress.clone(),
            variables: pool.variables.clone(),
            port_access: pool.port_access,
            labels: pool.labels.clone(),
            suspendable: Some(true),
            wake: dorm_lifecycle::Wake::Never,
            pool: Some(PoolMember { pool: pool.id.clone(), is_claimed: false }),
            ..CreateSpec::new(from)
        }
    }

    async fn pool_record(&self, name: &str) -> Result<PoolRecord, ServiceError> {
        let pools = self.shared.store.pools().await?;
        let own = |pool: &&PoolRecord| pool.project == *self.project() && !pool.removed;
        let mut own = pools.iter().filter(own);
        let found = own.find(|pool| pool.name.as_str() == name || pool.id.as_str() == name);
        found.cloned().ok_or_else(|| PoolProblem::Missing(name.to_owned()).into())
    }

    /// Refuses numbers that can never be reached.
    fn fits(&self, pool: &PoolRecord) -> Result<(), ServiceError> {
        if pool.ready > POOL_READY_MAX {
            return Err(self.bad_pool(&pool.name, format!("at most {POOL_READY_MAX} sandboxes can wait in it")));
        }
        if let Some(most) = pool.most.filter(|most| *most < pool.ready) {
            let ready = pool.ready;
            return Err(self.bad_pool(&pool.name, format!("{ready} sandboxes must wait, but at most {most} may exist")));
        }
        let budgets = self.shared.projects.budgets(self.project());
        let daemon = self.shared.settings.budgets;
        for budget in [budgets.sandboxes, daemon.sandboxes].into_iter().flatten() {
            if pool.ready > budget {
                let ready = pool.ready;
                return Err(
                    self.bad_pool(&pool.name, format!("{ready} sandboxes must wait, but the budget is {budget}"))
                );
            }
        }
        Ok(())
    }

    fn bad_pool(&self, name: &Name, reason: impl Into<String>) -> ServiceError {
        PoolProblem::Bad { pool: name.clone(), reason: reason.into() }.into()
    }

    async fn write_pool(
        &self,
        pool: PoolRecord,
        requests: Vec<dorm_store::RequestRecord>,
    ) -> Result<PoolView, ServiceError> {
        let change = Change { pools: vec![pool.clone()], requests, ..Change::default() };
        self.shared.commit_known(change).await?;
        self.shared.pools.news.notify_waiters();
        self.view_pool(pool).await
    }

    async fn view_pool(&self, pool: PoolRecord) -> Result<PoolView, ServiceError> {
        Ok(self.view_of(pool, &mut self.shared.pool_members().await?))
    }

    fn view_of(&self, mut pool: PoolRecord, members: &mut BTreeMap<PoolId, Members>) -> PoolView {
        let Members { ready, claimed, .. } = members.remove(&pool.id).unwrap_or_default();
        let problem = self.shared.pools.problem(&pool.id);
        pool.created = self.shared.clock.shown(pool.created);
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        PoolView { pool, waiting: count(ready.len()), claimed: count(claimed), problem }
    }
}
