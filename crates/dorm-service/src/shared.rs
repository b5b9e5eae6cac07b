//! The state that all parts of the service share, and the handle for callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_engine::Engine;
use dorm_lifecycle::{
    Caller, Context, Digest, Initiator, ProjectId, RequestId, RunId, Sandbox, SandboxId, Timestamp, Wake,
};
use dorm_ports::Clock as _;
use dorm_storage::Storage;
use dorm_store::{OperationKind, OperationRecord, SandboxRecord, Store, StoreError};
use dorm_volume::Volumes;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::activity::Activity;
use crate::asked_by::AskedBy;
use crate::error::ServiceError;
use crate::identity::Ids;
use crate::keyed::{KeyedLocks, KeyedRequest};
use crate::living::Living;
use crate::messages::{Mailbox, Manner, Message};
use crate::parking::Parking;
use crate::service_clock::ServiceClock;
use crate::timers::Timers;
use crate::usage_history::UsageHistory;

mod api_keys;
mod builds;
mod checkpointing;
mod commit;
mod environments;
mod followers;
mod ledger;
mod left_alone;
mod outcome;
mod paused_for_disk;
mod pools;
mod port_links;
mod projects;
mod quarantined;
mod references;
mod removals;
mod settings;
mod shown;
mod soundness;
mod tasks;

pub(crate) use api_keys::ApiKeys;
pub(crate) use builds::Builds;
pub(crate) use checkpointing::Checkpointing;
pub(crate) use commit::blocking;
pub(crate) use environments::{Environments, RETIRED_KEPT};
pub(crate) use followers::Followers;
pub(crate) use ledger::{Committed, Ledger, Share};
pub(crate) use left_alone::LeftAlone;
pub(crate) use paused_for_disk::PausedForDisk;
pub(crate) use pools::Pools;
pub(crate) use port_links::PortLinks;
pub use port_links::PortSecret;
pub(crate) use projects::Projects;
pub(crate) use quarantined::{Quarantined, Unreadable};
pub(crate) use references::{References, Referring};
pub(crate) use removals::{Removals, Using};
pub use settings::{Budgets, Parts, Retention, Settings};
pub(crate) use soundness::{Soundness, needs};

/// A handle to the service for one project; cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(crate) shared: Arc<Shared>,
    /// The project that this handle is for.
    pub(crate) project: ProjectId,
    /// The request with an idempotency key that this handle is for.
    pub(crate) request: Option<Arc<KeyedRequest>>,
    /// The caller that this handle is for.
    pub(crate) caller: Option<Arc<Caller>>,
    /// The revision of a sandbox that this handle may change.
    pub(crate) if_revision: Option<u64>,
    /// The calls that may wake a sandbox, in place of what the sandbox says.
    pub(crate) wake: Option<Wake>,
    /// How commands are carried out.
    pub(crate) manner: Manner,
}

#[derive(Clone)]
pub(crate) struct ActorHandle {
    pub(crate) mailbox: Mailbox,
    pub(crate) project: ProjectId,
    pub(crate) image: Digest,
    pub(crate) activity: Arc<Activity>,
}

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) storage: Storage,
    pub(crate) volumes: Volumes,
    /// Held from deciding about leases until the record that takes them is committed.
    pub(crate) leasing: Arc<tokio::sync::Mutex<()>>,
    /// The source of every time that is recorded or used for a decision.
    pub(crate) clock: Arc<ServiceClock>,
    pub(crate) settings: Settings,
    pub(crate) timers: Timers,
    pub(crate) parking: Parking,
    pub(crate) ledger: Ledger,
    pub(crate) paused_for_disk: PausedForDisk,
    /// Cancelled when no new work begins and nothing is retried any more.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when work in progress is not waited for any longer.
    pub(crate) left: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Runs that are not needed and could not be ended yet.
    unended: Mutex<BTreeSet<RunId>>,
    pub(crate) living: Living,
    pub(crate) left_alone: LeftAlone,
    pub(crate) removals: Removals,
    pub(crate) quarantined: Quarantined,
    pub(crate) soundness: Soundness,
    pub(crate) checkpointing: Checkpointing,
    /// Held while a snapshot is deleted.
    pub(crate) deletions: tokio::sync::Mutex<()>,
    /// Held while layers are merged.
    pub(crate) merging: tokio::sync::Mutex<()>,
    /// Held for reading while a snapshot becomes needed, for writing while one is deleted.
    pub(crate) holding: Arc<tokio::sync::RwLock<()>>,
    /// Images that are being fetched, by name: further requests for the same name wait.
    pub(crate) pulling: KeyedLocks<String>,
    /// Requests with an idempotency key that have not recorded anything yet.
    pub(crate) request_turns: KeyedLocks<RequestId>,
    pub(crate) references: References,
    /// Held from reading a webhook until it is written.
    pub(crate) webhooks: tokio::sync::Mutex<()>,
    pub(crate) webhook_news: watch::Sender<u64>,
    pub(crate) pools: Pools,
    pub(crate) builds: Builds,
    pub(crate) environments: Environments,
    pub(crate) followers: Followers,
    pub(crate) projects: Projects,
    pub(crate) api_keys: ApiKeys,
    pub(crate) port_secret: PortSecret,
    pub(crate) port_links: PortLinks,
    pub(crate) usage_history: UsageHistory,
    news: watch::Sender<u64>,
    /// Notified of every change with an event, in the order of waiting.
    pub(crate) committed: Notify,
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
                storage: parts.storage,
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
                pulling: KeyedLocks::default(),
                request_turns: KeyedLocks::default(),
                references: References::default(),
                webhooks: tokio::sync::Mutex::default(),
                webhook_news: watch::channel(0).0,
                pools: Pools::default(),
                builds: Builds::default(),
                environments: Environments::default(),
                followers: Followers::default(),
                projects: Projects::default(),
                api_keys: ApiKeys::default(),
                port_secret,
                port_links: PortLinks::default(),
                usage_history: UsageHistory::default(),
                news: watch::channel(0).0,
                committed: Notify::new(),
                actors: Mutex::default(),
            }
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the context for a decision now.
    pub(crate) fn context(&self) -> Context {
        let (operation, files) = (self.ids().operation(), self.ids().snapshot());
        Context { now: self.now(), operation, files, limits: self.settings.limits, bytes: 0 }
    }

    /// Returns the record of every sandbox that is not terminated.
    pub(crate) async fn living(&self) -> Result<Vec<SandboxRecord>, StoreError> {
        self.living.look(&*self.store, |records| records.values().cloned().collect()).await
    }

    /// Returns what `find` takes from each sandbox that is not terminated; unlike
    /// [`Shared::living`] it copies no record. `find` may lock, but must not call back here.
    pub(crate) async fn of_living<T, I>(&self, find: impl Fn(&Sandbox) -> I) -> Result<Vec<T>, StoreError>
    where
        I: IntoIterator<Item = T>,
    {
        let look = |records: &BTreeMap<_, SandboxRecord>| records.values().flat_map(|one| find(&one.sandbox)).collect();
        self.living.look(&*self.store, look).await
    }

    /// Returns how many sandboxes are not terminated.
    pub(crate) async fn living_count(&self) -> Result<usize, StoreError> {
        self.living.look(&*self.store, |records| records.len()).await
    }

    /// Returns the record of an operation that begins now, is abandoned after `within`, and
    /// concerns nothing yet.
    pub(crate) fn operation(
        &self,
        project: &ProjectId,
        kind: OperationKind,
        by: AskedBy,
        within: Duration,
    ) -> OperationRecord {
        let began = self.now();
        OperationRecord {
            id: self.ids().operation(),
            kind,
            project: project.clone(),
            sandbox: None,
            initiator: by.initiator,
            caller: by.caller(),
            began,
            deadline: began.after(within),
            saved_state: None,
            fork: None,
            promote: None,
            ended: None,
        }
    }

    pub(crate) fn ids(&self) -> Ids<'_> {
        Ids(&*self.settings.randomness)
    }

    /// Waits before a retry; returns whether the service is stopped before that.
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

    /// Sends a message to a sandbox that is not terminated; otherwise it does nothing.
    pub(crate) fn tell(&self, sandbox: &SandboxId, message: Message) {
        if let Some(handle) = self.actor(sandbox) {
            let _ = handle.mailbox.send(message);
        }
    }

    /// Sends a message to every sandbox that is not terminated.
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        for handle in self.actors().values() {
            let _ = handle.mailbox.send(message());
        }
    }
}

impl Service {
    /// Returns the number of the newest event, as it changes.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.shared.news.subscribe()
    }

    /// Returns a handle that changes a sandbox only if its record has this revision.
    pub fn if_revision(&self, revision: u64) -> Self {
        Self { if_revision: Some(revision), ..self.clone() }
    }

    /// Returns a handle for what this caller asks for; `None` if it is not known.
    pub fn as_caller(&self, caller: Option<Caller>) -> Self {
        Self { caller: caller.map(Arc::new), ..self.clone() }
    }

    /// Returns who asks for a change through this handle.
    pub(crate) fn asked_by(&self, initiator: Initiator) -> AskedBy {
        AskedBy::new(initiator, self.caller.as_ref())
    }

    /// Returns the caller of this handle, for a record.
    pub(crate) fn caller(&self) -> Option<Caller> {
        self.caller.as_deref().cloned()
    }

    /// Returns what the engine is and can do.
    pub fn capabilities(&self) -> &dorm_engine::Capabilities {
        self.shared.engine.capabilities()
    }

    /// Returns the storage, for images.
    pub fn storage(&self) -> &Storage {
        &self.shared.storage
    }

    /// Returns a handle whose calls wake a suspended sandbox as `wake` says, whatever the wake
    /// policy of the sandbox.
    pub fn waking(&self, wake: Wake) -> Self {
        Self { wake: Some(wake), ..self.clone() }
    }

    /// Returns whether the calls of this handle wake no sandbox, whatever its wake policy.
    pub fn wakes_nothing(&self) -> bool {
        self.wake == Some(Wake::Never)
    }

    /// Returns a handle whose commands are carried out in this manner.
    pub fn in_manner(&self, manner: Manner) -> Self {
        Self { manner, ..self.clone() }
    }

    /// Returns the project that this handle is for.
    pub fn project(&self) -> &ProjectId {
        &self.project
    }

    pub(crate) async fn ask<T>(
        &self,
        sandbox: &SandboxId,
        message: impl FnOnce(oneshot::Sender<Result<T, ServiceError>>) -> Message,
    ) -> Result<T, ServiceError> {
        let handle = self.shared.actor(sandbox).filter(|handle| handle.project == self.project);
        let handle = handle.ok_or_else(|| ServiceError::NoSandbox(sandbox.to_string()))?;
        let (reply, answer) = oneshot::channel();
        let message = message(reply);
        let Some(asked) = self.if_revision else {
            if handle.mailbox.send(message).is_err() {
                return Err(ServiceError::Stopping);
            }
            return answer.await.unwrap_or(Err(ServiceError::Stopping));
        };
        let (changed, now) = oneshot::channel();
        if handle.mailbox.send(Message::AtRevision { revision: asked, message: Box::new(message), changed }).is_err() {
            return Err(ServiceError::Stopping);
        }
        match (answer.await, now.await) {
            (Ok(answer), _) => answer,
            (Err(_), Ok(now)) => Err(ServiceError::RevisionChanged { sandbox: sandbox.clone(), asked, now }),
            (Err(_), Err(_)) => Err(ServiceError::Stopping),
        }
    }
}
