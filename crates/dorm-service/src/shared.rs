//! What every part of the service shares, and the handle callers hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_engine::Engine;
use dorm_lifecycle::{
    Actor, Context, Digest, Limits, PortAccess, ProjectId, RunId, Sandbox, SandboxId, State, Timestamp,
};
use dorm_pool::Pool;
use dorm_store::{Change, EventRecord, OperationKind, OperationRecord, SandboxRecord, Store, StoreError};
use dorm_volume::Volumes;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::activity::Activity;
use crate::actor::{Mailbox, Message};
use crate::admission::{Budgets, HostFacts, Ledger, ThisHost};
use crate::checkpointing::Checkpointing;
use crate::clock::Clock;
use crate::data_disk::{DataDisk, PausedForDisk};
use crate::destinations::Destinations;
use crate::error::ServiceError;
use crate::identity::{Ids, Randomness, SystemRandomness};
use crate::living::Living;
use crate::ops::keys::ApiKeys;
use crate::ops::ports::{PortLinks, PortSecret};
use crate::ops::pull::Pulling;
use crate::ops::runs::LeftAlone;
use crate::parking::{ParkLimits, Parking};
use crate::quarantine::Quarantined;
use crate::references::References;
use crate::registry::Registry;
use crate::removals::Removals;
use crate::retention::Retention;
use crate::secrets::SecretsKey;
use crate::service_clock::ServiceClock;
use crate::soundness::Soundness;
use crate::timers::Timers;

/// What a service is made of.
pub struct Parts {
    /// What it remembers.
    pub store: Arc<dyn Store>,
    /// What runs its sandboxes.
    pub engine: Arc<dyn Engine>,
    /// The disk.
    pub pool: Pool,
    /// The files of volumes.
    pub volumes: Volumes,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The rest.
    pub settings: Settings,
}

/// What can be chosen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose sandboxes these are.
    pub project: ProjectId,
    /// How long operations may take.
    pub limits: Limits,
    /// How much may be parked.
    pub park: ParkLimits,
    /// What may be used of the host.
    pub budgets: Budgets,
    /// How long an agent may take to answer before its run is unreachable. Default 30 s.
    pub agent: Duration,
    /// After how long a run that does not answer is ended. Default: never.
    pub max_unreachable: Option<Duration>,
    /// How long traffic waits for a sandbox to wake; the waking itself goes on. Default 60 s.
    pub wake: Duration,
    /// Who knows the host.
    pub host: Arc<dyn HostFacts>,
    /// Where identifiers and entropy come from. Default: the system.
    pub randomness: Arc<dyn Randomness>,
    /// How long old records are kept.
    pub retention: Retention,
    /// Which addresses webhooks may be sent to. Default: public ones.
    pub webhooks: Destinations,
    /// Where images come from that are not here. Default: nowhere.
    pub registry: Option<Arc<dyn Registry>>,
    /// The disk of the data directory, which is watched. Default: none is.
    pub data_disk: Option<Arc<dyn DataDisk>>,
    /// How fast everything on the disk is read in the background, once a day at most. Default: it is not.
    pub scrub_bytes_per_second: Option<u64>,
    /// Who may reach the ports of a sandbox whose creator does not say. Default: everyone who knows its id.
    pub port_access: PortAccess,
    /// What the tokens of private ports are derived from. Default: something new at each start.
    pub port_secret: Option<PortSecret>,
    /// What encrypts the secrets of records. Default: nothing does.
    pub secrets_key: Option<SecretsKey>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            project: ProjectId::local(),
            limits: Limits::default(),
            park: ParkLimits { memory_bytes: 4 << 30, count: 64 },
            budgets: Budgets::default(),
            agent: Duration::from_secs(30),
            max_unreachable: None,
            wake: Duration::from_secs(60),
            host: Arc::new(ThisHost),
            randomness: Arc::new(SystemRandomness),
            retention: Retention::default(),
            webhooks: Destinations::default(),
            registry: None,
            data_disk: None,
            scrub_bytes_per_second: None,
            port_access: PortAccess::default(),
            port_secret: None,
            secrets_key: None,
        }
    }
}

/// A handle to the service; cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Clone)]
pub(crate) struct ActorHandle {
    pub(crate) mailbox: Mailbox,
    pub(crate) image: Digest,
    pub(crate) activity: Arc<Activity>,
}

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) pool: Pool,
    pub(crate) volumes: Volumes,
    /// Held from deciding about leases to recording what takes them.
    pub(crate) leasing: Arc<tokio::sync::Mutex<()>>,
    /// Tells every moment that is decided by or recorded.
    pub(crate) clock: Arc<ServiceClock>,
    pub(crate) settings: Settings,
    pub(crate) timers: Timers,
    pub(crate) parking: Parking,
    pub(crate) ledger: Ledger,
    pub(crate) paused_for_disk: PausedForDisk,
    /// No new work is begun, and nothing is tried again.
    pub(crate) stopping: CancellationToken,
    /// Work that is still under way is not waited for any longer.
    pub(crate) left: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Runs of which nothing is needed and that could not be ended yet.
    unended: Mutex<BTreeSet<RunId>>,
    pub(crate) living: Living,
    pub(crate) left_alone: LeftAlone,
    pub(crate) removals: Removals,
    pub(crate) quarantined: Quarantined,
    pub(crate) soundness: Soundness,
    pub(crate) checkpointing: Checkpointing,
    /// Held by whoever deletes a snapshot.
    pub(crate) deletions: tokio::sync::Mutex<()>,
    /// Held by whoever merges layers.
    pub(crate) merging: tokio::sync::Mutex<()>,
    /// Held for reading while a snapshot becomes needed, for writing while one stops being there.
    pub(crate) holding: Arc<tokio::sync::RwLock<()>>,
    pub(crate) pulling: Pulling,
    pub(crate) references: References,
    /// Held from reading a webhook to writing it.
    pub(crate) webhooks: tokio::sync::Mutex<()>,
    pub(crate) webhook_news: watch::Sender<u64>,
    pub(crate) api_keys: ApiKeys,
    pub(crate) port_secret: PortSecret,
    pub(crate) port_links: PortLinks,
    news: watch::Sender<u64>,
    actors: Mutex<BTreeMap<SandboxId, ActorHandle>>,
}

impl Shared {
    pub(crate) fn new(parts: Parts, clock: Arc<ServiceClock>) -> Arc<Self> {
        Arc::new_cyclic(|weak: &std::sync::Weak<Self>| {
            let weak = weak.clone();
            let timers = Timers::start(move |sandbox| {
                if let Some(shared) = weak.upgrade() {
                    shared.tell(&sandbox, Message::Due);
                }
            });
            let port_secret = parts.settings.port_secret;
            let port_secret = port_secret.unwrap_or_else(|| PortSecret(Ids(&*parts.settings.randomness).random()));
            Self {
                store: parts.store,
                engine: parts.engine,
                pool: parts.pool,
                volumes: parts.volumes,
                leasing: Arc::default(),
                clock,
                parking: Parking::new(parts.settings.park),
                ledger: Ledger::default(),
                paused_for_disk: PausedForDisk::default(),
                settings: parts.settings,
                timers,
                stopping: CancellationToken::new(),
                left: CancellationToken::new(),
                tasks: TaskTracker::new(),
                unended: Mutex::default(),
                living: Living::default(),
                left_alone: LeftAlone::default(),
                removals: Removals::default(),
                quarantined: Quarantined::default(),
                soundness: Soundness::default(),
                checkpointing: Checkpointing::default(),
                deletions: tokio::sync::Mutex::default(),
                merging: tokio::sync::Mutex::default(),
                holding: Arc::default(),
                pulling: Pulling::default(),
                references: References::default(),
                webhooks: tokio::sync::Mutex::default(),
                webhook_news: watch::channel(0).0,
                api_keys: ApiKeys::default(),
                port_secret,
                port_links: PortLinks::default(),
                news: watch::channel(0).0,
                actors: Mutex::default(),
            }
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What a decision of this moment depends on.
    pub(crate) fn context(&self) -> Context {
        Context { now: self.now(), operation: self.ids().operation(), limits: self.settings.limits, bytes: 0 }
    }

    /// Every sandbox that is not over.
    pub(crate) async fn living(&self) -> Result<Vec<SandboxRecord>, StoreError> {
        self.living.look(&*self.store, |records| records.values().cloned().collect()).await
    }

    /// What `find` takes of each sandbox that is not over; unlike [`Shared::living`] it copies no record. `find` may lock, but
    /// must not come back here.
    pub(crate) async fn of_living<T, I>(&self, find: impl Fn(&Sandbox) -> I) -> Result<Vec<T>, StoreError>
    where
        I: IntoIterator<Item = T>,
    {
        let look = |records: &BTreeMap<_, SandboxRecord>| records.values().flat_map(|one| find(&one.sandbox)).collect();
        self.living.look(&*self.store, look).await
    }

    /// How many sandboxes are not over.
    pub(crate) async fn living_count(&self) -> Result<usize, StoreError> {
        self.living.look(&*self.store, |records| records.len()).await
    }

    /// The record of an operation that begins now, is given up after `within`, and touches nothing yet.
    pub(crate) fn operation(&self, kind: OperationKind, actor: Actor, within: Duration) -> OperationRecord {
        let began = self.now();
        OperationRecord {
            id: self.ids().operation(),
            kind,
            sandbox: None,
            actor,
            began,
            deadline: began.after(within),
            capture: None,
            fork: None,
            promote: None,
            ended: None,
        }
    }

    pub(crate) fn ids(&self) -> Ids<'_> {
        Ids(&*self.settings.randomness)
    }

    /// Waits before something is tried again; whether the service is stopped before that.
    pub(crate) async fn stops_within(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.stopping.cancelled()).await.is_ok()
    }

    pub(crate) fn unended(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.unended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn actors(&self) -> MutexGuard<'_, BTreeMap<SandboxId, ActorHandle>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn actor(&self, sandbox: &SandboxId) -> Option<ActorHandle> {
        self.actors().get(sandbox).cloned()
    }

    pub(crate) fn enter(&self, sandbox: &SandboxId, handle: ActorHandle) {
        self.actors().insert(sandbox.clone(), handle);
    }

    pub(crate) fn leave(&self, sandbox: &SandboxId) {
        self.actors().remove(sandbox);
        self.timers.set(sandbox, None);
        self.parking.leave(sandbox);
        self.checkpointing.leave(sandbox);
        self.paused_for_disk.leave(sandbox);
    }

    /// Leaves a message for a living sandbox; whoever is over hears nothing.
    pub(crate) fn tell(&self, sandbox: &SandboxId, message: Message) {
        if let Some(handle) = self.actor(sandbox) {
            let _ = handle.mailbox.send(message);
        }
    }

    /// Leaves a message for every living sandbox.
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        for handle in self.actors().values() {
            let _ = handle.mailbox.send(message());
        }
    }

    /// Commits a change, tells whoever follows the events, and lets go of what the change discards.
    pub(crate) async fn commit(self: &Arc<Self>, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        let discard = change.discard.clone();
        if frees(&change) {
            self.make_room_to_free().await;
        }
        let events = self.commit_known(change).await?;
        if let Some(last) = events.last() {
            self.news.send_if_modified(|newest| {
                let newer = last.number > *newest;
                *newest = (*newest).max(last.number);
                newer
            });
        }
        if !discard.is_empty() {
            let shared = self.clone();
            self.spawn(async move { shared.discard(discard).await });
        }
        Ok(events)
    }

    /// Deletes captures that a record says are to be deleted, then the record of that.
    pub(crate) async fn discard(&self, captures: Vec<dorm_lifecycle::CaptureId>) {
        let unreadable = self.quarantined.last();
        for capture in captures {
            if unreadable.mention(&capture) {
                tracing::warn!(%capture, "a discarded capture stays: a record that cannot be read names it");
                continue;
            }
            if let Err(error) = self.pool.remove(&capture).await {
                tracing::error!(%capture, error = %chain(&error), "a discarded capture stays until the next start");
                continue;
            }
            let change = Change { discarded: vec![capture.clone()], ..Change::default() };
            self.make_room_to_free().await;
            if let Err(error) = self.commit_known(change).await {
                tracing::error!(%capture, error = %chain(&error), "a deleted capture is looked for again at the next start");
            }
        }
    }
}

impl Service {
    /// The number of the newest event, as it changes.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.shared.news.subscribe()
    }

    /// What the engine is and can do.
    pub fn capabilities(&self) -> &dorm_engine::Capabilities {
        self.shared.engine.capabilities()
    }

    /// The disk, for images.
    pub fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// Whose sandboxes these are.
    pub fn project(&self) -> &ProjectId {
        &self.shared.settings.project
    }

    pub(crate) async fn ask<T>(
        &self,
        sandbox: &SandboxId,
        message: impl FnOnce(oneshot::Sender<Result<T, ServiceError>>) -> Message,
    ) -> Result<T, ServiceError> {
        let handle = self.shared.actor(sandbox).ok_or_else(|| ServiceError::NoSandbox(sandbox.to_string()))?;
        let (reply, answer) = oneshot::channel();
        if handle.mailbox.send(message(reply)).is_err() {
            return Err(ServiceError::Stopping);
        }
        answer.await.unwrap_or(Err(ServiceError::Stopping))
    }
}

/// Whether a change leads to room on the disk, so that it may use the reserve.
fn frees(change: &Change) -> bool {
    let is_ending =
        |record: &SandboxRecord| matches!(record.sandbox.state, State::Terminating { .. } | State::Terminated { .. });
    let is_deletion = |operation: &OperationRecord| operation.kind == OperationKind::DeleteSnapshot;
    change.sandboxes.iter().any(is_ending)
        || change.operations.iter().any(is_deletion)
        || !(change.discard.is_empty() && change.discarded.is_empty() && change.forgotten.is_empty())
        || !change.removed_volumes.is_empty()
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
