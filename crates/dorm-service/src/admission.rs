//! Admission: new work is refused while the host still has room for what exists, before it is in
//! trouble, and with a reason.
//!
//! Everything that takes more of the host asks for admission: create, resume, snapshot, import.
//! Suspend and terminate never do, because they release resources. Before a request is refused for
//! lack of memory, the memory of parked sandboxes is released.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dorm_lifecycle::{ByteSize, CpuCount, Initiator, ProjectId, Sandbox, SandboxId};
use dorm_store::{SnapshotFilter, SnapshotStatus};
use tokio::sync::futures::Notified;
use tokio::sync::{MutexGuard, OwnedMutexGuard};
use tokio::time::Instant;

use crate::error::{ProjectProblem, ServiceError, Shortage};
use crate::messages::Message;
use crate::shared::{Committed, Share, Shared};

/// Formats an amount for people.
type Shown = fn(u64) -> String;

/// Admission for a run, held until the run is recorded or given up.
pub(crate) struct Admitted(#[allow(dead_code, reason = "it is held")] OwnedMutexGuard<()>);

/// The use of the budgets of a project.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProjectUse {
    /// The number of sandboxes that are not terminated.
    pub sandboxes: u64,
    /// The number of sandboxes that run, or are about to.
    pub running: u64,
    /// The sum of the CPU limits of those, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// The sum of their memory limits, in bytes.
    pub memory_bytes: u64,
    /// The size of sleep images, snapshots, volumes, images with a tag of the project, and build
    /// contexts, in bytes.
    pub disk_bytes: u64,
}

/// A request for room to run.
#[derive(Clone, Copy)]
pub(crate) struct RoomRequest<'a> {
    /// The operation that needs it.
    pub(crate) what: &'static str,
    /// The project whose budgets it counts towards.
    pub(crate) project: &'a ProjectId,
    /// The limits of what is to run.
    pub(crate) share: Share,
    /// How many sandboxes are to run.
    pub(crate) count: u64,
    /// A sandbox that may have room already, which then counts as free.
    pub(crate) of: Option<&'a SandboxId>,
}

/// How often a request that waits for room looks for it, if nothing tells it to.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a parked sandbox may take to release its memory, before another one is asked to.
const EVICT_WITHIN: Duration = Duration::from_secs(10);

/// The place of a request in the queues of those that wait for room: first in that of its project,
/// then in that of the host. A project that has used up its own budgets keeps no other waiting.
pub(crate) struct Place<'a> {
    project: ProjectId,
    /// Held by the request of the project whose turn it is, until it is admitted, or refused for a
    /// reason that holds up no resume.
    own: Option<OwnedMutexGuard<()>>,
    /// Held by the request whose turn it is, until it is admitted, or refused for a reason that
    /// holds up no resume of another project.
    turn: Option<MutexGuard<'a, ()>>,
    /// When it waits no longer.
    until: Instant,
}

impl Place<'_> {
    /// Lets the next request try.
    pub(crate) fn leave(&mut self) {
        self.turn = None;
        self.own = None;
    }
}

impl Shared {
    /// Waits for the turn of a request, for at most `patience`. Requests that wait get their turns
    /// in the order in which they came.
    pub(crate) async fn queue(&self, project: &ProjectId, patience: Duration) -> Place<'_> {
        let until = Instant::now() + patience;
        let mut place = Place { project: project.clone(), own: None, turn: None, until };
        if !patience.is_zero() {
            let own = self.ledger.queues.of(project);
            place.own = tokio::time::timeout_at(until, own.lock_owned()).await.ok();
        }
        if place.own.is_some() {
            place.turn = tokio::time::timeout_at(until, self.ledger.queue.lock()).await.ok();
        }
        place
    }

    /// Waits until there may be room after a refusal. Returns whether the request may try again.
    /// `freed` is from before it last tried.
    pub(crate) async fn may_try_again<'a>(
        &'a self,
        place: &mut Place<'a>,
        freed: Notified<'_>,
        shortage: Shortage,
    ) -> bool {
        let now = Instant::now();
        let is_over = now >= place.until || self.stopping.is_cancelled();
        if is_over || place.turn.is_none() || shortage == Shortage::Permanent {
            return false;
        }
        match shortage {
            Shortage::OfProject => place.turn = None,
            Shortage::OfProjectForCreates | Shortage::OfHostForCreates => place.leave(),
            Shortage::OfHost | Shortage::OfPool | Shortage::Permanent => {}
        }
        let _ = tokio::time::timeout_at(place.until.min(now + LOOK_AGAIN), freed).await;
        if place.own.is_none() {
            let own = self.ledger.queues.of(&place.project);
            place.own = tokio::time::timeout_at(place.until, own.lock_owned()).await.ok();
        }
        if place.own.is_some() && place.turn.is_none() {
            place.turn = tokio::time::timeout_at(place.until, self.ledger.queue.lock()).await.ok();
        }
        place.turn.is_some()
    }

    /// Admits a run, and waits for room for at most `patience`.
    pub(crate) async fn admit_run_within(
        &self,
        asked: RoomRequest<'_>,
        patience: Duration,
    ) -> Result<Admitted, ServiceError> {
        let mut place = self.queue(asked.project, patience).await;
        loop {
            let freed = self.ledger.freed.notified();
            let (refused, shortage) = match self.admit_run(asked).await {
                Err(refused @ ServiceError::NotAdmitted { shortage, .. }) => (refused, shortage),
                other => return other,
            };
            if !self.may_try_again(&mut place, freed, shortage).await {
                return Err(refused);
            }
        }
    }

    /// Admits a run, releasing the memory of parked sandboxes if that helps. Others may be admitted
    /// while one of these releases its memory.
    pub(crate) async fn admit_run(&self, asked: RoomRequest<'_>) -> Result<Admitted, ServiceError> {
        // A sandbox that is resumed needs what it holds.
        let mut passed_over: BTreeSet<SandboxId> = asked.of.cloned().into_iter().collect();
        loop {
            let turn = self.ledger.turn.clone().lock_owned().await;
            self.admit_to_budgets(asked).await?;
            let Some(reason) = self.short_of_memory() else { return Ok(Admitted(turn)) };
            drop(turn);
            let Some(sandbox) = self.parking.oldest_but(&passed_over) else {
                let refused = self.full(asked.what, reason, || "its memory is nearly used up".to_owned());
                return Err(refused);
            };
            self.give_back(&sandbox).await;
            passed_over.insert(sandbox);
        }
    }

    /// Checks the budgets of the host and of the project for a run.
    async fn admit_to_budgets(&self, asked: RoomRequest<'_>) -> Result<(), ServiceError> {
        let RoomRequest { what, project, share, of, .. } = asked;
        if !self.projects.exists(project) {
            return Err(ProjectProblem::Missing(project.to_string()).into());
        }
        self.admit_to_project(asked)?;
        let budgets = self.settings.budgets;
        let Share { memory_bytes: committed, cpu_millis, disk_bytes } = self.ledger.committed(None, of).share;
        let memory_bytes = share.memory_bytes;
        if let Some(budget) = budgets.memory_bytes
            && committed.saturating_add(memory_bytes) > budget
        {
            let may_use = format!("it may use {} of memory", ByteSize(memory_bytes));
            let (committed, of_budget) = (ByteSize(committed), ByteSize(budget));
            let reason =
                format!("{may_use}, and running sandboxes may use {committed} of the {of_budget} in the budget");
            let own = ByteSize(self.ledger.committed(Some(project), of).share.memory_bytes);
            return Err(self.full_for(memory_bytes > budget, what, reason, || {
                format!("{may_use}, and running sandboxes of project '{project}' may use {own}")
            }));
        }
        if let Some(budget) = budgets.cpu_millis
            && cpu_millis.saturating_add(share.cpu_millis) > budget
        {
            let may_use = format!("it may use {}", CpuCount(share.cpu_millis));
            let (committed, of_budget) = (CpuCount(cpu_millis), CpuCount(budget));
            let reason =
                format!("{may_use}, and running sandboxes may use {committed} of the {of_budget} in the budget");
            let own = CpuCount(self.ledger.committed(Some(project), of).share.cpu_millis);
            return Err(self.full_for(share.cpu_millis > budget, what, reason, || {
                format!("{may_use}, and running sandboxes of project '{project}' may use {own}")
            }));
        }
        self.admit_disk(what, share.disk_bytes, disk_bytes).await
    }

    /// Checks the budgets of a project for what its sandboxes use while they run.
    fn admit_to_project(&self, asked: RoomRequest<'_>) -> Result<(), ServiceError> {
        let RoomRequest { what, project, share, count, of } = asked;
        let budgets = self.projects.budgets(project);
        let used = self.ledger.committed(Some(project), of);
        let cpus = |millis: u64| CpuCount(millis).to_string();
        let bytes = |bytes: u64| ByteSize(bytes).to_string();
        let limits: [(Shown, _, _, _, _); 3] = [
            (|count| count.to_string(), " running sandboxes", budgets.running, used.count, count),
            (cpus, "", budgets.cpu_millis, used.share.cpu_millis, share.cpu_millis),
            (bytes, " of memory", budgets.memory_bytes, used.share.memory_bytes, share.memory_bytes),
        ];
        for (shown, unit, budget, used, more) in limits {
            if let Some(budget) = budget
                && used.saturating_add(more) > budget
            {
                let [of_budget, used, needed] = [budget, used, more].map(shown);
                let reason =
                    format!("project '{project}' has a budget of {of_budget}{unit}, uses {used}, and needs {needed}");
                let shortage = if more > budget { Shortage::Permanent } else { Shortage::OfProject };
                return Err(refused(what, reason, shortage));
            }
        }
        Ok(())
    }

    /// Checks whether another disk of `bytes` can be promised in addition to those of running
    /// sandboxes, `committed` in total.
    pub(crate) async fn admit_disk(&self, what: &'static str, bytes: u64, committed: u64) -> Result<(), ServiceError> {
        let Some(budget) = self.settings.budgets.disks_bytes else { return Ok(()) };
        let volumes = self.volumes_bytes().await?;
        if committed.saturating_add(volumes).saturating_add(bytes) <= budget {
            return Ok(());
        }
        let [bytes, committed, volumes, budget] = [bytes, committed, volumes, budget].map(ByteSize);
        let reason = format!(
            "its disk has {bytes}; disks of running sandboxes have {committed} and volumes {volumes} of the {budget} \
             that the host's disk allows (--disk-overcommit)"
        );
        Err(self.full_for(bytes.0 > budget.0, what, reason, || {
            format!("its disk has {bytes}, and the host's disk allows no other such disk")
        }))
    }

    /// Returns the total size of the volumes, in bytes.
    pub(crate) async fn volumes_bytes(&self) -> Result<u64, ServiceError> {
        Ok(self.store.volumes().await?.iter().map(|volume| volume.size_bytes).fold(0, u64::saturating_add))
    }

    /// Checks whether one more sandbox may exist. The caller must hold the admission of a run.
    pub(crate) async fn admit_another(
        &self,
        what: &'static str,
        project: &ProjectId,
        _: &Admitted,
    ) -> Result<(), ServiceError> {
        if let Some(budget) = self.projects.budgets(project).sandboxes {
            let living = self.of_living(|sandbox| (sandbox.project == *project).then_some(())).await?.len();
            if u64::try_from(living).unwrap_or(u64::MAX) >= budget {
                let reason = format!("project '{project}' has {living} sandboxes, and a budget of {budget}");
                return Err(refused(what, reason, Shortage::OfProjectForCreates));
            }
        }
        let Some(budget) = self.settings.budgets.sandboxes else { return Ok(()) };
        let living = u64::try_from(self.living_count().await?).unwrap_or(u64::MAX);
        if living < budget {
            return Ok(());
        }
        let reason = format!("there are {living} sandboxes, and at most {budget} may exist, running or not");
        Err(self.full_as(Shortage::OfHostForCreates, what, reason, || "no more sandboxes may exist".to_owned()))
    }

    /// Returns how much of its budgets a project uses.
    pub(crate) async fn project_use(&self, project: &ProjectId) -> Result<ProjectUse, ServiceError> {
        let running = self.ledger.committed(Some(project), None);
        let sandboxes = self.of_living(|sandbox| (sandbox.project == *project).then_some(())).await?.len();
        Ok(ProjectUse {
            sandboxes: u64::try_from(sandboxes).unwrap_or(u64::MAX),
            running: running.count,
            cpu_millis: running.share.cpu_millis,
            memory_bytes: running.share.memory_bytes,
            disk_bytes: self.disk_of_project(project).await?,
        })
    }

    /// Returns how much of its budgets each project uses, in one pass over the records.
    pub(crate) async fn project_uses(&self) -> Result<BTreeMap<ProjectId, ProjectUse>, ServiceError> {
        let mut uses: BTreeMap<ProjectId, ProjectUse> = BTreeMap::new();
        for (project, Committed { count, share }) in self.ledger.by_project() {
            let used = uses.entry(project).or_default();
            (used.running, used.cpu_millis, used.memory_bytes) = (count, share.cpu_millis, share.memory_bytes);
        }
        let images = |sandbox: &Sandbox| {
            let bytes = sandbox.images().map(|image| image.bytes).fold(0, u64::saturating_add);
            Some((sandbox.project.clone(), bytes))
        };
        for (project, bytes) in self.of_living(images).await? {
            let used = uses.entry(project).or_default();
            used.sandboxes += 1;
            used.disk_bytes = used.disk_bytes.saturating_add(bytes);
        }
        let snapshots = self.store.snapshots(None).await?.into_iter();
        let snapshots = snapshots.filter(|snapshot| snapshot.status == SnapshotStatus::Completed);
        let volumes = self.store.volumes().await?.into_iter().map(|volume| (volume.project, volume.size_bytes));
        for (project, bytes) in snapshots.map(|snapshot| (snapshot.project, snapshot.bytes)).chain(volumes) {
            let used = uses.entry(project).or_default();
            used.disk_bytes = used.disk_bytes.saturating_add(bytes);
        }
        for (project, bytes) in self.image_bytes().await? {
            let used = uses.entry(project).or_default();
            used.disk_bytes = used.disk_bytes.saturating_add(bytes);
        }
        Ok(uses)
    }

    /// Returns the size of each image for each project that has a tag of it, and of each build
    /// context.
    async fn image_bytes(&self) -> Result<Vec<(ProjectId, u64)>, ServiceError> {
        let mut sizes = Vec::new();
        for image in self.storage.images().await? {
            let projects: BTreeSet<ProjectId> = image.tags.iter().filter_map(|tag| project_of_tag(tag)).collect();
            sizes.extend(projects.into_iter().map(|project| (project, image.bytes)));
        }
        let contexts = self.storage.contexts().await?.into_iter();
        sizes.extend(contexts.map(|context| (context.project, context.bytes)));
        Ok(sizes)
    }

    /// Returns the size of the sleep images, snapshots, volumes, images and build contexts of a
    /// project, in bytes.
    async fn disk_of_project(&self, project: &ProjectId) -> Result<u64, ServiceError> {
        let images = |sandbox: &Sandbox| {
            let own = sandbox.project == *project;
            own.then(|| sandbox.images().map(|image| image.bytes).fold(0, u64::saturating_add))
        };
        let images: Vec<u64> = self.of_living(images).await?;
        let own = SnapshotFilter { project: Some(project.clone()), ..SnapshotFilter::default() };
        let snapshots = self.store.find_snapshots(&own).await?.into_iter();
        let snapshots = snapshots.filter(|snapshot| snapshot.status == SnapshotStatus::Completed);
        let volumes = self.store.volumes().await?.into_iter().filter(|volume| volume.project == *project);
        let sizes = images.into_iter().chain(snapshots.map(|snapshot| snapshot.bytes));
        let sizes = sizes.chain(volumes.map(|volume| volume.size_bytes));
        let of_images = self.image_bytes().await?.into_iter().filter(|(owner, _)| owner == project);
        Ok(sizes.chain(of_images.map(|(_, bytes)| bytes)).fold(0, u64::saturating_add))
    }

    /// Checks whether a project may occupy `bytes` more of the disk.
    pub(crate) async fn admit_to_disk_of(
        &self,
        what: &'static str,
        project: &ProjectId,
        bytes: u64,
    ) -> Result<(), ServiceError> {
        let Some(budget) = self.projects.budgets(project).disk_bytes else { return Ok(()) };
        let used = self.disk_of_project(project).await?;
        // One that needs no bytes yet, but would add some, is refused when nothing is left.
        if used.saturating_add(bytes.max(1)) <= budget {
            return Ok(());
        }
        let [budget, used, bytes] = [budget, used, bytes].map(ByteSize);
        let reason = format!("project '{project}' has a budget of {budget} on disk, uses {used}, and needs {bytes}");
        Err(refused(what, reason, Shortage::OfProjectForCreates))
    }

    /// Checks whether `bytes` more may be written to the disk.
    pub(crate) async fn admit_write(&self, what: &'static str, bytes: u64) -> Result<(), ServiceError> {
        let budgets = self.settings.budgets;
        if budgets.disk_reserve_bytes > 0 {
            let free = self.storage.free_bytes().await?;
            let reserve = budgets.disk_reserve_bytes;
            if free < reserve.saturating_add(bytes) {
                let (free, reserve) = (ByteSize(free), ByteSize(reserve));
                let reason = format!("{free} of the disk are free, and {reserve} must stay free");
                return Err(
                    self.full_as(Shortage::OfHostForCreates, what, reason, || "its disk is nearly full".to_owned())
                );
            }
        }
        if let Some(budget) = budgets.disk_bytes {
            let used = self.saved_states_bytes().await?;
            let deleted = self.engine.deleted_image_bytes().await;
            if used.saturating_add(deleted).saturating_add(bytes) > budget {
                let running = match deleted {
                    0 => String::new(),
                    _ => format!(", and deleted ones that running sandboxes still use {},", ByteSize(deleted)),
                };
                let (used, budget) = (ByteSize(used), ByteSize(budget));
                let reason = format!("sleep images and snapshots occupy {used}{running} of at most {budget}");
                let own = || "sleep images and snapshots may not occupy more".to_owned();
                return Err(self.full_as(Shortage::OfHostForCreates, what, reason, own));
            }
        }
        Ok(())
    }

    /// Returns the recorded size of all sleep images and snapshots, in bytes. Copies that share
    /// files are each counted in full.
    pub(crate) async fn saved_states_bytes(&self) -> Result<u64, ServiceError> {
        let bytes = self.living.totals(&*self.store).await?.image_bytes;
        Ok(bytes.saturating_add(self.store.snapshot_bytes().await?))
    }

    /// Returns the refusal of a host that is full. Where other projects share the host, a caller
    /// learns nothing about them: the log has the totals.
    fn full(&self, what: &'static str, totals: String, own: impl FnOnce() -> String) -> ServiceError {
        self.full_for(false, what, totals, own)
    }

    /// The same, for a request that exceeds a budget even alone, or not.
    fn full_for(&self, ever: bool, what: &'static str, totals: String, own: impl FnOnce() -> String) -> ServiceError {
        self.full_as(if ever { Shortage::Permanent } else { Shortage::OfHost }, what, totals, own)
    }

    fn full_as(
        &self,
        shortage: Shortage,
        what: &'static str,
        totals: String,
        own: impl FnOnce() -> String,
    ) -> ServiceError {
        if !self.projects.are_many() {
            return refused(what, totals, shortage);
        }
        tracing::info!(operation = what, totals, "refused, because the host is full");
        refused(what, format!("the host is full: {}", own()), shortage)
    }

    /// Returns why the host has too little memory for another run, if so.
    pub(crate) fn short_of_memory(&self) -> Option<String> {
        let reserve = self.settings.budgets.memory_reserve_bytes;
        let available = self.settings.host.available_memory().filter(|_| reserve > 0)?;
        let (shown, least) = (ByteSize(available), ByteSize(reserve));
        (available < reserve)
            .then(|| format!("{shown} of the host's memory are available, and {least} must stay available"))
    }

    /// Asks a parked sandbox to release its memory. One that is busy with another operation does so
    /// later, and is not waited for.
    async fn give_back(&self, sandbox: &SandboxId) {
        let Some(handle) = self.actor(sandbox) else {
            self.parking.leave(sandbox);
            return;
        };
        let (reply, answer) = tokio::sync::oneshot::channel();
        let sent = handle.mailbox.send(Message::Evict { by: Initiator::Host.into(), reply: Some(reply) });
        let evicted = sent.is_ok()
            && tokio::time::timeout(EVICT_WITHIN, answer).await.is_ok_and(|answer| matches!(answer, Ok(Ok(_))));
        if !evicted {
            tracing::warn!(%sandbox, "a suspended sandbox has not released its memory; another one is asked to");
        }
    }
}

fn refused(what: &'static str, reason: String, shortage: Shortage) -> ServiceError {
    metrics::counter!("dorm_refused_total", "operation" => what).increment(1);
    ServiceError::NotAdmitted { what, reason, shortage }
}

/// Returns the project that a stored tag belongs to: `@PROJECT/TAG`, or without that the daemon's
/// own.
fn project_of_tag(tag: &str) -> Option<ProjectId> {
    match tag.strip_prefix('@') {
        None => Some(ProjectId::local()),
        Some(own) => own.split_once('/')?.0.parse().ok(),
    }
}
