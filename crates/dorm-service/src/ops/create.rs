//! Creates sandboxes: from an image, or from a snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{
    Annotations, Checkpoints, Context, Digest, Effect, Egress, FirstProgram, InheritedSettings, Initiator, Name,
    OnSuspendFailure, OnTimeout, Origin, PoolMember, PortAccess, PortHost, PortRules, Resources, SandboxId,
    SandboxSpec, SavedStateId, SleepRetention, SnapshotId, SnapshotKind, Timeouts, Variables, Wake, create_with,
};
use dorm_store::{Change, Made, NewEvent, SandboxRecord, SnapshotRecord};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::attach::{AttachmentSpec, FollowingVolumes, following};
use super::templates::TemplateReference;
use crate::actor::record::first_operation;
use crate::actor::{Actor, First, Open, Seat};
use crate::admission::{Place, RoomRequest};
use crate::error::{ServiceError, host_part};
use crate::image_settings::fits_host;
use crate::messages::AnswerAt;
use crate::shared::{Service, Share, Using};
use crate::view::SandboxView;

/// The image or snapshot that a new sandbox starts from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateFrom {
    /// An image, by tag, digest or the beginning of a digest, or a snapshot by its name. A tag goes
    /// before a name.
    Image(String),
    /// A snapshot. It determines the image and, for a memory snapshot, the resources. For a
    /// filesystem snapshot its resources are the default, and the disk can only be larger.
    Snapshot(SnapshotId),
    /// A template. It determines what its tag stands for when the sandbox is created.
    Template(TemplateReference),
}

/// The properties of a sandbox to create. Omitted ones take their defaults, which for some are
/// those that the snapshot carries ([`dorm_lifecycle::InheritedSettings`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateSpec {
    /// The image or snapshot it starts from.
    pub from: CreateFrom,
    /// The program to start before the sandbox counts as created. Default: the one that the
    /// snapshot carries if it boots, else none.
    pub program: Option<FirstProgram>,
    /// Its name; without one, it is ephemeral.
    pub name: Option<Name>,
    /// Its resource limits; by default those of the snapshot, or the general defaults.
    pub resources: Option<Resources>,
    /// Where it may connect to. Default: as the snapshot says, else the public internet.
    pub egress: Option<Egress>,
    /// Environment variables of every process in it.
    pub variables: BTreeMap<String, String>,
    /// Secrets for every process in it, by the name of their environment variable.
    pub secrets: Variables,
    /// The action when a deadline passes; by default suspend with a name, terminate without.
    pub on_timeout: Option<OnTimeout>,
    /// The action if it cannot be suspended at its deadline.
    pub on_suspend_failure: OnSuspendFailure,
    /// Whether it can be suspended; by default if it has a name.
    pub suspendable: Option<bool>,
    /// The calls that resume it while it is suspended.
    pub wake: Wake,
    /// Who may reach its ports; by default as the snapshot says, else as set for the daemon.
    pub port_access: Option<PortAccess>,
    /// The `Host` header for programs behind its ports, `Some(None)` for the one that the client
    /// named; by default as the snapshot says, else that one.
    pub port_host: Option<Option<PortHost>>,
    /// The exceptions for single ports; by default those that the snapshot carries, else none.
    pub port_rules: Option<PortRules>,
    /// Its time limits.
    pub timeouts: Timeouts,
    /// The retention policy of the sleep images it can be restored from.
    pub retention: SleepRetention,
    /// The policy for automatic snapshots.
    pub checkpoints: Option<Checkpoints>,
    /// The volumes that are attached to it.
    pub attachments: Vec<AttachmentSpec>,
    /// Labels: arbitrary text of the user, by key.
    pub labels: BTreeMap<String, String>,
    /// Notes of programs that use it on behalf of others.
    pub annotations: Annotations,
    /// How long it waits for room, in turn with others. Default: it does not wait.
    pub max_wait: Duration,
    /// The pool that it is made for, by the keeper of pools. Default: none.
    pub pool: Option<PoolMember>,
}

impl CreateSpec {
    /// Returns an ephemeral sandbox with every default.
    pub fn new(from: CreateFrom) -> Self {
        Self {
            from,
            program: None,
            name: None,
            resources: None,
            egress: None,
            variables: BTreeMap::new(),
            secrets: Variables::default(),
            on_timeout: None,
            on_suspend_failure: OnSuspendFailure::default(),
            suspendable: None,
            wake: Wake::default(),
            port_access: None,
            port_host: None,
            port_rules: None,
            timeouts: Timeouts::default(),
            retention: SleepRetention::default(),
            checkpoints: None,
            attachments: Vec::new(),
            labels: BTreeMap::new(),
            annotations: Annotations::default(),
            max_wait: Duration::ZERO,
            pool: None,
        }
    }

    /// Returns a sandbox with this name that continues from a snapshot of `source`, with its
    /// settings and variables, but not its secrets.
    pub(super) fn like(source: &SandboxSpec, snapshot: SnapshotId, name: Option<Name>) -> Self {
        // One that gets its first name is suspendable like any named sandbox.
        let is_named_first = name.is_some() && source.name.is_none();
        Self {
            name,
            on_timeout: (!is_named_first).then_some(source.on_timeout),
            suspendable: (!is_named_first).then_some(source.suspendable),
            egress: Some(source.egress.clone()),
            variables: source.variables.0.clone(),
            wake: source.wake,
            port_access: Some(source.port_access),
            port_host: Some(source.port_host.clone()),
            port_rules: Some(source.port_rules.clone()),
            on_suspend_failure: source.on_suspend_failure,
            timeouts: source.timeouts,
            retention: source.retention,
            checkpoints: source.checkpoints.clone(),
            attachments: following(&source.attachments, FollowingVolumes::Same),
            labels: source.labels.clone(),
            annotations: source.annotations.clone(),
            ..Self::new(CreateFrom::Snapshot(snapshot))
        }
    }
}

impl Service {
    /// Creates a sandbox and waits until it runs, including the requested program. This is one
    /// operation: it continues if the caller goes away, and the next daemon starts it over if this
    /// one dies.
    ///
    /// # Errors
    ///
    /// `Spec`, `NameTaken`, `NoProgram`, no such image or snapshot: nothing is recorded then.
    /// `OperationFailed` if its run or its program could not be started: its record contains the
    /// reason, and nothing else is left.
    pub async fn create(&self, asked: CreateSpec) -> Result<SandboxView, ServiceError> {
        if let Some(created) = self.created_by_first_request().await? {
            return Ok(created);
        }
        if let CreateFrom::Snapshot(id) = &asked.from {
            self.is_to_stay(id).await?;
        }
        self.create_as(self.shared.ids().sandbox(), asked).await
    }

    /// Like [`Service::create`], with an id that is on record already.
    pub(crate) async fn create_as(&self, id: SandboxId, asked: CreateSpec) -> Result<SandboxView, ServiceError> {
        let patience = asked.max_wait;
        let began = Instant::now();
        let (asked, _staying) = match patience.is_zero() {
            true => (asked, None),
            // An image that is read for the first time must not hold up those that wait for room.
            false => {
                let (asked, staying) = self.source_resolved(asked).await?;
                self.source(&asked).await?;
                (asked, staying)
            }
        };
        let mut place = self.shared.queue(self.project(), patience.saturating_sub(began.elapsed())).await;
        loop {
            let freed = self.shared.ledger.freed.notified();
            match self.create_now(id.clone(), asked.clone(), &mut place).await {
                Err(ServiceError::NotAdmitted { shortage, .. })
                    if self.shared.may_try_again(&mut place, freed, shortage).await => {}
                other => return other,
            }
        }
    }

    /// Nothing is held or recorded when this is refused for lack of room.
    async fn create_now(
        &self,
        id: SandboxId,
        asked: CreateSpec,
        place: &mut Place<'_>,
    ) -> Result<SandboxView, ServiceError> {
        let shared = &self.shared;
        let (asked, staying) = self.source_resolved(asked).await?;
        let Source { image, layer, resources, origin, bytes, inherited } = self.source(&asked).await?;
        let (program, settings) = self.settings(&asked, inherited, &origin);
        if program == FirstProgram::OfImage && shared.image_config(&image).await.start().is_empty() {
            return Err(ServiceError::NoProgram(image));
        }
        shared.admit_write("create a sandbox", 0).await?;
        let share = Share::of(&resources);
        let room = RoomRequest { what: "create a sandbox", project: self.project(), share, count: 1, of: None };
        let admitted = shared.admit_run(room).await?;
        shared.admit_another("create a sandbox", self.project(), &admitted).await?;
        place.leave();
        let attachments = self.attachments(asked.attachments.clone()).await?;
        // The image of a snapshot has to exist as well, and if it does not, that is not the
        // caller's mistake.
        let referring = match asked.from {
            CreateFrom::Image(_) => shared.refer(&image).await?,
            CreateFrom::Snapshot(_) | CreateFrom::Template(_) => shared.refer(&image).await.map_err(host_part)?,
        };
        let asked_pool = asked.pool.clone();
        let spec = SandboxSpec { attachments, ..spec(asked, settings, image, layer, resources) };
        let context = Context { bytes, ..shared.context() };
        let mut made = create_with(id, self.project().clone(), spec, origin, program, &context)?;
        made.next.pool = asked_pool;
        made.next.created_by = self.caller();
        made.next.spec.secrets = shared.seal_secrets(std::mem::take(&mut made.next.spec.secrets));
        let leasing = shared.grant_leases(None, &made.next).await?;
        let effect = made.effect.clone().unwrap_or(Effect::Stop { run: made.next.run_id() });
        let change = self.first_change(&made, &context);
        let (reply, answer) = oneshot::channel();
        let created = made.next.id.clone();
        let record = SandboxRecord { sandbox: made.next, revision: 1 };
        let (own, request, by) = (shared.clone(), self.request.clone(), self.asked_by(Initiator::User));
        // The caller may go away at any time; what is recorded is started even so.
        let begin = async move {
            let (_staying, _referring, _request, leasing) = (staying, referring, request, leasing);
            let _admitted = admitted;
            let seat = Seat::take(&own, &record.sandbox);
            if let Err(error) = own.commit(change).await {
                own.leave(&record.sandbox.id);
                return Err(error.into());
            }
            drop(leasing);
            Actor::spawn_in(seat, &own, record, by, First::Effect(effect, Some(reply)), Open::default());
            Ok(())
        };
        shared.finish(begin).await?;
        if self.manner.answer == AnswerAt::Beginning {
            return self.describe(&created).await;
        }
        answer.await.unwrap_or(Err(ServiceError::Stopping))
    }

    /// Resolves a tag or a name, once: one that is moved meanwhile stands for one thing. The second
    /// part keeps the snapshot that the sandbox starts from until the sandbox is recorded. Others
    /// may be deleted meanwhile: a snapshot can take long to be complete, to be read, and to be
    /// given room.
    async fn source_resolved(&self, asked: CreateSpec) -> Result<(CreateSpec, Option<Using>), ServiceError> {
        let shared = &self.shared;
        let reading = match &asked.from {
            CreateFrom::Image(reference) if reference.parse::<Digest>().is_ok() => None,
            _ => Some(shared.holding.clone().read_owned().await),
        };
        let asked = self.of_template(asked).await?;
        let asked = CreateSpec { from: self.source_named(asked.from).await?, ..asked };
        let staying = match &asked.from {
            CreateFrom::Snapshot(id) => Some(Using::of(shared, id)),
            CreateFrom::Image(_) | CreateFrom::Template(_) => None,
        };
        drop(reading);
        Ok((asked, staying))
    }

    /// Returns the program that a new sandbox starts, and its settings: those of the request, else
    /// those that its snapshot carries, else the defaults.
    fn settings(
        &self,
        asked: &CreateSpec,
        inherited: Option<InheritedSettings>,
        origin: &Origin,
    ) -> (FirstProgram, InheritedSettings) {
        let inherited = inherited.unwrap_or_else(|| InheritedSettings {
            egress: Egress::default(),
            port_access: self.shared.settings.port_access,
            port_host: None,
            port_rules: PortRules::default(),
            program: FirstProgram::None,
        });
        let (by_default, running) = match origin {
            Origin::Image | Origin::Filesystem { .. } => (inherited.program, FirstProgram::None),
            // The program is in the memory.
            Origin::Snapshot { .. } => (FirstProgram::None, inherited.program),
        };
        let program = asked.program.unwrap_or(by_default);
        let settings = InheritedSettings {
            egress: asked.egress.clone().unwrap_or(inherited.egress).of_project(self.project()),
            port_access: asked.port_access.unwrap_or(inherited.port_access),
            port_host: asked.port_host.clone().unwrap_or(inherited.port_host),
            port_rules: asked.port_rules.clone().unwrap_or(inherited.port_rules),
            program: match program {
                FirstProgram::None => running,
                FirstProgram::OfImage => program,
            },
        };
        (program, settings)
    }

    /// Returns the change that records a new sandbox.
    fn first_change(&self, made: &dorm_lifecycle::Step, context: &Context) -> Change {
        let events = made.events.iter().map(|(kind, detail)| NewEvent {
            project: made.next.project.clone(),
            sandbox: made.next.id.clone(),
            at: context.now,
            kind: *kind,
            initiator: Initiator::User,
            caller: self.caller(),
            operation: Some(context.operation.clone()),
            generation: made.next.generation,
            detail: detail.clone(),
            took: None,
            bytes: None,
        });
        Change {
            sandboxes: vec![SandboxRecord { sandbox: made.next.clone(), revision: 0 }],
            operations: first_operation(&made.next, &self.asked_by(Initiator::User)).into_iter().collect(),
            events: events.collect(),
            requests: self.made(Made::Sandbox(made.next.id.clone())),
            ..Change::default()
        }
    }

    async fn source(&self, asked: &CreateSpec) -> Result<Source, ServiceError> {
        match &asked.from {
            CreateFrom::Image(reference) => {
                let image = self.image(reference).await?;
                fits_host(&image)?;
                self.shared.refuse_damaged(&image.digest, None).await?;
                let resources = asked.resources.unwrap_or_default();
                let (image, origin) = (image.digest, Origin::Image);
                Ok(Source { image, layer: None, resources, origin, bytes: 0, inherited: None })
            }
            CreateFrom::Template(template) => Err(template.missing()),
            CreateFrom::Snapshot(id) => {
                let snapshot = self.complete(id).await?;
                self.can_restore(&snapshot).await?;
                let layer = match snapshot.kind {
                    SnapshotKind::Filesystem => Some(&snapshot.saved_state),
                    SnapshotKind::Memory => snapshot.layer.as_ref(),
                };
                self.shared.refuse_damaged(&snapshot.image, layer).await?;
                from_snapshot(snapshot, asked.resources)
            }
        }
    }
}

/// The image, files and memory that a new sandbox is made from.
struct Source {
    image: Digest,
    layer: Option<SavedStateId>,
    resources: Resources,
    origin: Origin,
    /// How many bytes of memory are read before it runs.
    bytes: u64,
    /// The settings that the snapshot carries.
    inherited: Option<InheritedSettings>,
}

fn from_snapshot(snapshot: SnapshotRecord, asked: Option<Resources>) -> Result<Source, ServiceError> {
    let SnapshotRecord { id, kind, source, saved_state, image, layer, resources, bytes, inherited, .. } = snapshot;
    match kind {
        SnapshotKind::Memory if asked.is_some_and(|asked| asked != resources) => {
            let what = "the resource limits (cpu, memory, disk, processes)";
            Err(ServiceError::FixedBySnapshot { snapshot: id, what })
        }
        SnapshotKind::Memory => {
            let origin = Origin::Snapshot { snapshot: id, saved_state, source };
            Ok(Source { image, layer, resources, origin, bytes, inherited })
        }
        SnapshotKind::Filesystem => {
            let (asked, least) = (asked.unwrap_or(resources), resources.disk_bytes);
            if asked.disk_bytes < least {
                return Err(ServiceError::DiskShrinks { snapshot: id, asked: asked.disk_bytes, least });
            }
            let origin = Origin::Filesystem { snapshot: id, source };
            Ok(Source { image, layer: Some(saved_state), resources: asked, origin, bytes: 0, inherited })
        }
    }
}

fn spec(
    asked: CreateSpec,
    settings: InheritedSettings,
    image: Digest,
    layer: Option<SavedStateId>,
    resources: Resources,
) -> SandboxSpec {
    let defaults = SandboxSpec::new(image, asked.name);
    let InheritedSettings { egress, port_access, port_host, port_rules, program } = settings;
    SandboxSpec {
        layer,
        resources,
        egress,
        program,
        variables: Variables(asked.variables),
        secrets: asked.secrets,
        on_timeout: asked.on_timeout.unwrap_or(defaults.on_timeout),
        on_suspend_failure: asked.on_suspend_failure,
        suspendable: asked.suspendable.unwrap_or(defaults.suspendable),
        wake: asked.wake,
        port_access,
        port_host,
        port_rules,
        timeouts: asked.timeouts,
        retention: asked.retention,
        checkpoints: asked.checkpoints,
        labels: asked.labels,
        annotations: asked.annotations,
        ..defaults
    }
}
