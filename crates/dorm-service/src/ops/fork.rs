//! Forks: several sandboxes that continue from one moment of another.
//!
//! ```text
//! record the fork ─► announce the children ─► memory snapshot, deleted when unused
//!    ─► children, each recorded before it starts
//!    ─► record the end of the fork
//! ```
//!
//! A daemon that dies in between leaves an open fork. If the fork rolls back on partial failure,
//! the next daemon terminates its children; otherwise it keeps them. The end of a fork is therefore
//! retried until it is recorded, and the caller gets no answer before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dorm_engine::{Expectation, Layer, RunSpec};
use dorm_lifecycle::{
    Command, EventKind, Initiator, Name, OnTimeout, OperationId, RunId, SandboxId, SandboxSpec, SavedStateId,
    SnapshotId, SnapshotKind, Timeouts,
};
use dorm_store::{
    Change, FailureRecord, ForkPlan, Made, NewEvent, OnPartialFailure, OperationKind, OperationRecord, OperationResult,
    Removal, StoreError,
};
use futures_util::StreamExt as _;

use super::attach::{FollowingVolumes, following};
use super::create::CreateSpec;
use crate::admission::RoomRequest;
use crate::backoff::Backoff;
use crate::error::{ServiceError, chain, stopped};
use crate::messages::SnapshotSpec;
use crate::secrets::SecretSpecs;
use crate::shared::{Service, Share, Shared, Using};
use crate::view::SandboxView;

/// The maximum number of children of one fork.
pub const FORK_MAX: usize = 256;
/// How many children start at the same time.
const AT_ONCE: usize = 16;
/// The delays before recording the end of a fork, or terminating a child, is retried, first and
/// longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// A sandbox that continues from another: a child of a fork, or a clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForkChildSpec {
    /// Its name, if any.
    pub name: Option<Name>,
    /// Its time limits, where they differ from those of the source.
    pub timeouts: Timeouts,
    /// The action when a deadline passes. By default that of the source, or for a sandbox that is
    /// the first to have a name, that of a named sandbox.
    pub on_timeout: Option<OnTimeout>,
    /// Variables for its processes, which override those of the source.
    pub variables: BTreeMap<String, String>,
    /// Labels, which override those of the source.
    pub labels: BTreeMap<String, String>,
    /// The secrets it gets, and no others.
    pub secrets: SecretSpecs,
}

/// The result of creating one child.
type Created = Result<SandboxView, ServiceError>;

/// A request to fork.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForkSpec {
    /// The children to create, 1 to [`FORK_MAX`].
    pub children: Vec<ForkChildSpec>,
    /// Whether the other children are kept if one cannot be created.
    pub on_partial_failure: OnPartialFailure,
    /// How the source's volumes are attached to the children.
    pub volumes: FollowingVolumes,
}

impl Service {
    /// Creates several sandboxes that continue where `id` is now, with its settings, memory and
    /// processes but not its secrets, each with an identity of its own. A running source continues
    /// in the same run; a suspended one does not wake. The results are in the order of the
    /// children. With [`OnPartialFailure::RollBack`] either all children exist afterwards or no
    /// child does.
    ///
    /// # Errors
    ///
    /// `BadFork` and `NameTaken` before anything is done; those of [`Service::checkpoint`];
    /// `ForkFailed` if a child could not be created with [`OnPartialFailure::RollBack`], and none
    /// is left; `ForkNotRecorded` if the daemon stopped before the end of such a fork could be
    /// recorded, so that the next start terminates its children.
    pub async fn fork(
        &self,
        id: &SandboxId,
        asked: ForkSpec,
    ) -> Result<Vec<Result<SandboxView, ServiceError>>, ServiceError> {
        if let Some(Made::Operation(earlier)) = self.earlier() {
            return self.forked_earlier(earlier).await;
        }
        let source = self.record(id).await?.sandbox.spec;
        self.can_be_made(id, &source, &asked).await?;
        self.shared.admit_write("fork a sandbox", 0).await?;
        self.shared.admit_to_disk_of("fork a sandbox", self.project(), 0).await?;
        let count = u64::try_from(asked.children.len()).unwrap_or(u64::MAX);
        let share = Share::of(&source.resources).times(count);
        let room = RoomRequest { what: "fork a sandbox", project: self.project(), share, count, of: None };
        drop(self.shared.admit_run(room).await?);
        let plan = ForkPlan {
            snapshot: self.shared.ids().snapshot(),
            children: asked.children.iter().map(|_| self.shared.ids().sandbox()).collect(),
            on_partial_failure: asked.on_partial_failure,
        };
        let (service, id) = (self.clone(), id.clone());
        let work = async move { service.fork_now(&id, &source, plan, asked).await };
        self.shared.finish(work).await
    }

    /// Returns the result of a fork that an earlier request began.
    async fn forked_earlier(
        &self,
        earlier: &OperationId,
    ) -> Result<Vec<Result<SandboxView, ServiceError>>, ServiceError> {
        let (operation, failure) = self.ended_earlier(earlier).await?;
        let Some(plan) = operation.fork else { return Err(ServiceError::made_is_gone("operation", earlier)) };
        let mut children = Vec::new();
        for child in &plan.children {
            let made = match (self.created_earlier(child).await, &failure) {
                // It was refused before it was recorded.
                (Err(ServiceError::MadeIsGone { .. }), Some(failure)) => {
                    Err(ServiceError::FailedEarlier(failure.clone()))
                }
                (made, _) => made,
            };
            children.push(made);
        }
        match failure {
            Some(failure)
                if plan.on_partial_failure == OnPartialFailure::RollBack || children.iter().all(Result::is_err) =>
            {
                Err(ServiceError::FailedEarlier(failure))
            }
            Some(_) | None => Ok(children),
        }
    }

    async fn can_be_made(&self, id: &SandboxId, source: &SandboxSpec, asked: &ForkSpec) -> Result<(), ServiceError> {
        let bad = |what: String| ServiceError::BadFork { sandbox: id.clone(), what };
        if asked.children.is_empty() || asked.children.len() > FORK_MAX {
            return Err(bad(format!("it can have 1 to {FORK_MAX} children, not {}", asked.children.len())));
        }
        for child in &asked.children {
            self.shared.following_secrets(source, &child.secrets).map_err(|why| why.of(id))?;
        }
        // Checked beforehand, so that no sandbox is paused for a fork that cannot succeed.
        let volumes = self.attachments(following(&source.attachments, asked.volumes)).await?;
        self.shared.could_lease(&volumes).await?;
        let mut names = BTreeSet::new();
        for name in asked.children.iter().filter_map(|child| child.name.as_ref()) {
            if !names.insert(name) {
                return Err(bad(format!("two children cannot both have the name '{name}'")));
            }
            if let Some(holder) = self.shared.store.named(self.project(), name).await? {
                return Err(StoreError::NameTaken { name: name.clone(), holder: holder.sandbox.id }.into());
            }
        }
        Ok(())
    }

    async fn fork_now(
        &self,
        id: &SandboxId,
        source: &SandboxSpec,
        plan: ForkPlan,
        asked: ForkSpec,
    ) -> Result<Vec<Result<SandboxView, ServiceError>>, ServiceError> {
        let shared = &self.shared;
        let limits = &shared.settings.limits;
        // The children read the memory and files that the fork writes.
        let content = source.resources.memory_bytes.saturating_add(source.resources.disk_bytes);
        let operation = OperationRecord {
            sandbox: Some(id.clone()),
            fork: Some(plan.clone()),
            ..shared.operation(
                self.project(),
                OperationKind::Fork,
                self.asked_by(Initiator::User),
                limits.snapshot + limits.time_for(content) + limits.start_of(content),
            )
        };
        let _using = Using::of(shared, &plan.snapshot);
        let requests = self.made(Made::Operation(operation.id.clone()));
        shared.commit(Change { operations: vec![operation.clone()], requests, ..Change::default() }).await?;
        let expected = self.expect_children(source, &plan).await;
        let by = self.asked_by(Initiator::User);
        let snapshot = SnapshotSpec::new(plan.snapshot.clone(), SnapshotKind::Memory, Removal::WhenFree, by);
        let taken = match self.snapshot_as(id, snapshot).await {
            Ok(snapshot) => Verified::read(shared, snapshot.saved_state).await,
            Err(error) => Err(error),
        };
        let _verified = match taken {
            Ok(verified) => verified,
            Err(error) => {
                close(shared, operation, OperationResult::Failed(error.record()), None).await;
                return Err(error);
            }
        };
        let volumes = asked.volumes;
        let asked: Vec<_> =
            asked.children.into_iter().map(|child| self.child_of(source, &plan.snapshot, child, volumes)).collect();
        let creations = plan.children.clone().into_iter().zip(asked).enumerate().map(|(place, (child, asked))| {
            let service = self.of_part();
            async move { (place, service.create_as(child, asked).await) }
        });
        // A child that takes long does not keep the next ones from starting.
        let mut made: Vec<_> = futures_util::stream::iter(creations).buffer_unordered(AT_ONCE).collect().await;
        made.sort_by_key(|(place, _)| *place);
        let made: Vec<_> = made.into_iter().map(|(_, made)| made).collect();
        drop(expected);
        let (count, failed) = (made.len(), made.iter().filter(|made| made.is_err()).count());
        let result = result_of(&made);
        if plan.on_partial_failure == OnPartialFailure::RollBack && failed > 0 {
            if self.end_children(&plan, Initiator::Host).await == Recorded::NotYet
                || close(shared, operation, result, None).await == Recorded::NotYet
            {
                return Err(ServiceError::ForkNotRecorded { sandbox: id.clone() });
            }
            let source = made.into_iter().find_map(Result::err).unwrap_or(ServiceError::Stopping);
            return Err(ServiceError::ForkFailed { sandbox: id.clone(), failed, count, source: Box::new(source) });
        }
        let event = self.forked_event(id, &operation, &made).await;
        match (close(shared, operation, result, Some(event)).await, plan.on_partial_failure) {
            (Recorded::NotYet, OnPartialFailure::RollBack) => {
                Err(ServiceError::ForkNotRecorded { sandbox: id.clone() })
            }
            // The next start closes the operation and keeps the children.
            (Recorded::NotYet, OnPartialFailure::Keep) | (Recorded::Yes, _) => Ok(made),
        }
    }

    /// Lets the engine prepare for the children while the snapshot is taken. This only affects
    /// speed.
    async fn expect_children(&self, source: &SandboxSpec, plan: &ForkPlan) -> Expectation {
        let shared = &self.shared;
        let Some(first) = plan.children.first() else { return Expectation::default() };
        let (image, layers) = match shared.sound(&source.image, source.layer.as_ref()).await {
            Ok(found) => found,
            // The children report it.
            Err(_) => return Expectation::default(),
        };
        let like = RunSpec {
            run: RunId { sandbox: first.clone(), generation: 0 },
            image: image.digest,
            rootfs: image.rootfs,
            layers: layers.iter().map(|layer| Layer { id: layer.id.clone(), directory: layer.root() }).collect(),
            resources: source.resources,
            egress: source.egress.clone(),
            mounts: Vec::new(),
            build: None,
        };
        shared.engine.expect(&like, plan.children.len())
    }

    /// Returns the event of a fork that has ended.
    async fn forked_event(&self, id: &SandboxId, operation: &OperationRecord, made: &[Created]) -> NewEvent {
        let ids: Vec<&str> = made.iter().flatten().map(|view| view.sandbox.id.as_str()).collect();
        let generation = self.record(id).await.map_or(0, |record| record.sandbox.generation);
        let now = self.shared.now();
        NewEvent {
            project: self.project().clone(),
            sandbox: id.clone(),
            at: now,
            kind: EventKind::Forked,
            initiator: Initiator::User,
            caller: self.caller(),
            operation: Some(operation.id.clone()),
            generation,
            detail: Some(format!("into {}", if ids.is_empty() { "no children".to_owned() } else { ids.join(", ") })),
            took: Some(now.since(operation.began)),
            bytes: None,
        }
    }

    /// Terminates every child of `plan` that exists.
    async fn end_children(&self, plan: &ForkPlan, by: Initiator) -> Recorded {
        for child in &plan.children {
            if self.end_child(child, by).await == Recorded::NotYet {
                return Recorded::NotYet;
            }
        }
        Recorded::Yes
    }

    /// Terminates a child, if it exists. Retries until termination has begun or the daemon stops.
    pub(super) async fn end_child(&self, child: &SandboxId, by: Initiator) -> Recorded {
        let mut again = Backoff::new(AGAIN);
        loop {
            match self.command(child, Command::Terminate, by).await {
                Ok(_) | Err(ServiceError::NoSandbox(_) | ServiceError::Denied { .. }) => return Recorded::Yes,
                Err(ServiceError::Stopping) => return Recorded::NotYet,
                Err(error) => {
                    tracing::warn!(sandbox = %child, error = %chain(&error), "cannot terminate a child of a fork; retrying");
                }
            }
            if self.shared.stops_within(again.wait()).await {
                return Recorded::NotYet;
            }
        }
    }

    /// Returns the properties of a child: the source's settings, and those requested for the child.
    pub(super) fn child_of(
        &self,
        source: &SandboxSpec,
        snapshot: &SnapshotId,
        asked: ForkChildSpec,
        volumes: FollowingVolumes,
    ) -> CreateSpec {
        let mut child = CreateSpec::like(source, snapshot.clone(), asked.name);
        let Timeouts { total, idle, after_wake, max_run } = asked.timeouts;
        child.timeouts.total = total.or(child.timeouts.total);
        child.timeouts.idle = idle.or(child.timeouts.idle);
        child.timeouts.after_wake = after_wake.or(child.timeouts.after_wake);
        child.timeouts.max_run = max_run.or(child.timeouts.max_run);
        child.on_timeout = asked.on_timeout.or(child.on_timeout);
        child.secrets = self.shared.following_secrets(source, &asked.secrets).unwrap_or_default();
        child.attachments = following(&source.attachments, volumes);
        child.variables.extend(asked.variables);
        child.labels.extend(asked.labels);
        child
    }

    /// Ends a fork during which a daemon died.
    pub(crate) async fn end_fork(&self, operation: OperationRecord) {
        let Some(plan) = operation.fork.clone() else { return };
        if plan.on_partial_failure == OnPartialFailure::RollBack
            && self.end_children(&plan, Initiator::Recovery).await == Recorded::NotYet
        {
            return;
        }
        let result = OperationResult::Failed(stopped());
        if close(&self.shared, operation, result, None).await == Recorded::Yes {
            self.shared.removals.end_use(&plan.snapshot);
        }
    }
}

/// Whether a change is on record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recorded {
    Yes,
    /// The daemon is stopping; the next start finds the fork open.
    NotYet,
}

/// While it exists, the children of a fork need not verify its saved state again.
struct Verified {
    shared: Arc<Shared>,
    saved_state: SavedStateId,
}

impl Verified {
    /// Verifies the saved state once for all children.
    async fn read(shared: &Arc<Shared>, saved_state: SavedStateId) -> Result<Self, ServiceError> {
        shared.verify_saved_state(&saved_state).await?;
        shared.removals.note_verified(&saved_state);
        Ok(Self { shared: shared.clone(), saved_state })
    }
}

impl Drop for Verified {
    fn drop(&mut self) {
        self.shared.removals.forget_verified(&self.saved_state);
    }
}

/// Records the end of an operation on several sandboxes. Retries until it is recorded or the daemon
/// stops, because the world has changed already.
pub(super) async fn close(
    shared: &Arc<Shared>,
    mut operation: OperationRecord,
    result: OperationResult,
    event: Option<NewEvent>,
) -> Recorded {
    operation.ended = Some((shared.now(), result));
    let events: Vec<_> = event.into_iter().collect();
    let mut again = Backoff::new(AGAIN);
    loop {
        let (operations, events) = (vec![operation.clone()], events.clone());
        match shared.commit(Change { operations, events, ..Change::default() }).await {
            Ok(_) => return Recorded::Yes,
            Err(error) => {
                tracing::error!(operation = %operation.id, error = %chain(&error), "cannot record the end of an operation; retrying");
            }
        }
        if shared.stops_within(again.wait()).await {
            return Recorded::NotYet;
        }
    }
}

/// Returns the result of a fork: that of the first child that could not be created, if there is
/// one.
fn result_of(made: &[Created]) -> OperationResult {
    let failed = made.iter().filter(|made| made.is_err()).count();
    match made.iter().find_map(|made| made.as_ref().err()) {
        None => OperationResult::Done,
        Some(first) => {
            let reason = format!("{failed} of {} children: {}", made.len(), chain(first));
            OperationResult::Failed(FailureRecord::new(first.code(), reason))
        }
    }
}
