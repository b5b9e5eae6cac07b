//! Sandboxes.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_api_types as wire;
use dorm_lifecycle as life;
use dorm_lifecycle::StateName;
use dorm_service::{AnswerAt, Changed, CreateFrom, IfBusy, Manner, SandboxView, SecretSpec};
use dorm_store::OnPartialFailure;

use super::{Convert, Of, checkpoints, time};
use crate::error::ApiError;
use crate::extract::seconds;

/// The longest time that a request waits for room.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The sandbox that a request asks for. `base` has the defaults for resources that the request
/// leaves out.
pub(crate) fn create(
    asked: wire::CreateSandbox,
    from: CreateFrom,
    base: life::Resources,
) -> Result<dorm_service::CreateSpec, ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: life::IdError| ApiError::invalid(error.to_string(), ""))?;
    let defaults = dorm_service::CreateSpec::new(from);
    Ok(dorm_service::CreateSpec {
        program: asked.start.map(Convert::convert),
        name,
        resources: asked.resources.map(|asked| resources(asked, base)),
        egress: asked.egress.map(Convert::convert),
        variables: asked.env,
        secrets: life::Variables(asked.secrets.into_iter().map(|(name, secret)| (name, secret.0)).collect()),
        on_timeout: asked.on_timeout.map(Convert::convert),
        on_suspend_failure: match asked.on_suspend_failure.unwrap_or_default() {
            wire::OnSuspendFailure::Keep => life::OnSuspendFailure::Keep,
            wire::OnSuspendFailure::Terminate => life::OnSuspendFailure::Terminate,
        },
        suspendable: asked.suspendable,
        wake: asked.wake.map_or(defaults.wake, Convert::convert),
        port_access: asked.port_access.map(Convert::convert),
        port_host: asked.port_host.as_deref().map(super::port_host_or_none).transpose()?,
        port_rules: asked.port_rules.map(super::port_rules).transpose()?,
        timeouts: life::Timeouts {
            after_wake: after_wake(asked.timeout_after_wake_secs)?,
            ..timeouts(asked.timeout_secs, asked.idle_timeout_secs, asked.max_run_secs)?
        },
        retention: retention(asked.keep_generations, asked.on_unrestorable, life::SleepRetention::default())?,
        checkpoints: asked.checkpoints.map(|asked| checkpoints(asked, None)).transpose()?,
        attachments: asked.volumes.into_iter().map(super::attach).collect::<Result<_, _>>()?,
        labels: asked.labels,
        annotations: life::Annotations(asked.annotations),
        max_wait: wait(asked.max_wait_secs)?,
        ..defaults
    })
}

/// The secrets of a request for a clone or a child.
pub(crate) fn secrets(asked: BTreeMap<String, wire::NamedSecret>) -> dorm_service::SecretSpecs {
    let one = |secret: wire::NamedSecret| secret.0.map_or(SecretSpec::Kept, |secret| SecretSpec::Value(secret.0));
    asked.into_iter().map(|(name, secret)| (name, one(secret))).collect()
}

/// Resource limits. `base` has those that the request leaves out.
pub(crate) fn resources(asked: wire::ResourcesRequest, base: life::Resources) -> life::Resources {
    life::Resources {
        cpu_millis: asked.cpu_millis.unwrap_or(base.cpu_millis),
        memory_bytes: asked.memory_bytes.unwrap_or(base.memory_bytes),
        disk_bytes: asked.disk_bytes.unwrap_or(base.disk_bytes),
        processes: asked.processes.unwrap_or(base.processes),
    }
}

/// Time limits.
pub(crate) fn timeouts(
    total: Option<f64>,
    idle: Option<f64>,
    max_run: Option<f64>,
) -> Result<life::Timeouts, ApiError> {
    Ok(life::Timeouts {
        total: total.map(|value| seconds("timeout_secs", value)).transpose()?,
        idle: idle.map(|value| seconds("idle_timeout_secs", value)).transpose()?,
        max_run: max_run.map(|value| seconds("max_run_secs", value)).transpose()?,
        after_wake: None,
    })
}

/// The limit of a run that a call has woken.
pub(crate) fn after_wake(asked: Option<f64>) -> Result<Option<Duration>, ApiError> {
    asked.map(|value| seconds("timeout_after_wake_secs", value)).transpose()
}

/// The part of a sandbox that a suspend keeps.
pub(crate) fn keep(asked: Option<wire::Kept>) -> life::Keep {
    match asked.unwrap_or_default() {
        wire::Kept::Memory => life::Keep::Memory,
        wire::Kept::Files => life::Keep::Files,
    }
}

/// The change of limits that a request asks for, if it asks for nothing else.
pub(crate) fn resize(asked: &wire::UpdateSandbox) -> Result<Option<life::Resize>, ApiError> {
    let Some(wire::ResizeRequest { cpu_millis, memory_bytes }) = asked.resources else { return Ok(None) };
    if *asked != (wire::UpdateSandbox { resources: asked.resources, ..wire::UpdateSandbox::default() }) {
        let message = "resources cannot be changed together with other properties";
        return Err(ApiError::invalid(message, "send two requests"));
    }
    Ok(Some(life::Resize { cpu_millis, memory_bytes }))
}

/// How long a request waits for room.
pub(crate) fn wait(asked: Option<f64>) -> Result<Duration, ApiError> {
    let wait = asked.filter(|seconds| *seconds != 0.0).map(|value| seconds("max_wait_secs", value));
    Ok(wait.transpose()?.unwrap_or_default().min(WAIT_MAX))
}

/// How a command is carried out.
pub(crate) fn manner(wait: Option<bool>, if_busy: Option<wire::IfBusy>) -> Manner {
    Manner {
        answer: if wait == Some(false) { AnswerAt::Beginning } else { AnswerAt::End },
        if_busy: match if_busy.unwrap_or_default() {
            wire::IfBusy::Wait => IfBusy::Wait,
            wire::IfBusy::Refuse => IfBusy::Refuse,
        },
    }
}

/// A change of properties.
pub(crate) fn update(asked: wire::UpdateSandbox) -> Result<life::Update, ApiError> {
    let wire::UpdateSandbox {
        name,
        on_timeout,
        wake,
        port_access,
        port_host,
        port_rules,
        labels,
        annotations,
        resources: _,
    } = asked;
    let name = name.map(|name| name.parse()).transpose();
    Ok(life::Update {
        secrets: None,
        name: name.map_err(|error: life::IdError| ApiError::invalid(error.to_string(), ""))?,
        on_timeout: on_timeout.map(Convert::convert),
        wake: wake.map(Convert::convert),
        port_access: port_access.map(Convert::convert),
        port_host: port_host.as_deref().map(super::port_host_or_none).transpose()?,
        port_rules: port_rules
            .into_iter()
            .map(|(port, rule)| match rule == wire::PortRule::default() {
                true => Ok((port, None)),
                false => Ok((port, Some(super::port_rule(port, rule)?))),
            })
            .collect::<Result<_, ApiError>>()?,
        labels,
        annotations,
    })
}

impl Of<wire::Wake> for life::Wake {
    fn of(wake: wire::Wake) -> Self {
        match wake {
            wire::Wake::Never => Self::Never,
            wire::Wake::Traffic => Self::Traffic,
            wire::Wake::Any => Self::Any,
        }
    }
}

impl Of<life::Wake> for wire::Wake {
    fn of(wake: life::Wake) -> Self {
        match wake {
            life::Wake::Never => Self::Never,
            life::Wake::Traffic => Self::Traffic,
            life::Wake::Any => Self::Any,
        }
    }
}

/// The retention of sleep images. Fields that the request leaves out are taken from `now`.
pub(crate) fn retention(
    generations: Option<u32>,
    on_unrestorable: Option<wire::OnUnrestorable>,
    now: life::SleepRetention,
) -> Result<life::SleepRetention, ApiError> {
    let on_unrestorable = match on_unrestorable {
        None => now.on_unrestorable,
        Some(wire::OnUnrestorable::Fail) => life::OnUnrestorable::Fail,
        Some(wire::OnUnrestorable::Fresh) => life::OnUnrestorable::Fresh,
        Some(wire::OnUnrestorable::Filesystem) => {
            let message = "on_unrestorable is filesystem, but the engine keeps no files apart from memory";
            return Err(ApiError::invalid(message, "use fail or fresh, and keep more generations"));
        }
    };
    Ok(life::SleepRetention { generations: generations.unwrap_or(now.generations), on_unrestorable })
}

impl Of<life::Hold> for wire::Hold {
    fn of(hold: life::Hold) -> Self {
        Self { id: hold.id.to_string(), reason: hold.reason, until: time(hold.until) }
    }
}

/// Parses the name of a state.
pub(crate) fn state_name(word: &str) -> Option<StateName> {
    StateName::ALL.into_iter().find(|state| state.as_str() == word)
}

impl Of<wire::OnTimeout> for life::OnTimeout {
    fn of(on_timeout: wire::OnTimeout) -> Self {
        match on_timeout {
            wire::OnTimeout::Terminate => Self::Terminate,
            wire::OnTimeout::Suspend => Self::Suspend,
            wire::OnTimeout::SuspendFiles => Self::SuspendFiles,
        }
    }
}

impl Of<life::OnTimeout> for wire::OnTimeout {
    fn of(on_timeout: life::OnTimeout) -> Self {
        match on_timeout {
            life::OnTimeout::Terminate => Self::Terminate,
            life::OnTimeout::Suspend => Self::Suspend,
            life::OnTimeout::SuspendFiles => Self::SuspendFiles,
        }
    }
}

impl Of<wire::OnPartialFailure> for OnPartialFailure {
    fn of(action: wire::OnPartialFailure) -> Self {
        match action {
            wire::OnPartialFailure::Keep => Self::Keep,
            wire::OnPartialFailure::RollBack => Self::RollBack,
        }
    }
}

impl Of<StateName> for wire::State {
    fn of(state: StateName) -> Self {
        match state {
            StateName::Pending => Self::Pending,
            StateName::Running => Self::Running,
            StateName::Snapshotting => Self::Snapshotting,
            StateName::Suspending => Self::Suspending,
            StateName::Suspended => Self::Suspended,
            StateName::Resuming => Self::Resuming,
            StateName::Terminating => Self::Terminating,
            StateName::Terminated => Self::Terminated,
        }
    }
}

impl Of<dorm_service::Residence> for wire::Residence {
    fn of(residence: dorm_service::Residence) -> Self {
        match residence {
            dorm_service::Residence::Running => Self::Running,
            dorm_service::Residence::Parked => Self::Parked,
            dorm_service::Residence::Evicted => Self::Evicted,
            dorm_service::Residence::None => Self::None,
        }
    }
}

impl Of<bool> for life::FirstProgram {
    fn of(start: bool) -> Self {
        if start { Self::OfImage } else { Self::None }
    }
}

impl Of<life::FirstProgram> for bool {
    fn of(program: life::FirstProgram) -> Self {
        match program {
            life::FirstProgram::None => false,
            life::FirstProgram::OfImage => true,
        }
    }
}

impl Of<life::Resources> for wire::Resources {
    fn of(resources: life::Resources) -> Self {
        let life::Resources { cpu_millis, memory_bytes, disk_bytes, processes } = resources;
        Self { cpu_millis, memory_bytes, disk_bytes, processes }
    }
}

impl Of<&life::SleepImage> for wire::SleepImage {
    fn of(image: &life::SleepImage) -> Self {
        let keeps = match image.keeps() {
            life::Keep::Memory => wire::Kept::Memory,
            life::Keep::Files => wire::Kept::Files,
        };
        Self { generation: image.generation, bytes: image.bytes, taken_at: time(image.taken), keeps }
    }
}

impl Of<&life::Cause> for wire::Cause {
    fn of(cause: &life::Cause) -> Self {
        let (kind, reason) = match cause {
            life::Cause::Requested => (wire::CauseKind::Requested, None),
            life::Cause::Timeout => (wire::CauseKind::Timeout, None),
            life::Cause::Failed { reason } => (wire::CauseKind::Failed, Some(reason.clone())),
        };
        Self { kind, reason }
    }
}

/// The fields that only some states have.
#[derive(Default)]
struct OfState {
    running_since: Option<wire::Time>,
    operation: Option<wire::CurrentOperation>,
    cause: Option<wire::Cause>,
    terminated_at: Option<wire::Time>,
}

fn of_state(state: &life::State) -> OfState {
    let at_work = |id: &life::OperationId, deadline: &life::Timestamp| {
        Some(wire::CurrentOperation { id: id.to_string(), deadline: time(*deadline) })
    };
    let in_background = |background: Option<&life::Background>| {
        background.and_then(|background| at_work(&background.operation, &background.deadline))
    };
    match state {
        life::State::Pending { operation, deadline, .. } | life::State::Resuming { operation, deadline, .. } => {
            OfState { operation: at_work(operation, deadline), ..OfState::default() }
        }
        life::State::Running { since, background, .. } => OfState {
            operation: in_background(background.as_deref()),
            running_since: Some(time(*since)),
            ..OfState::default()
        },
        life::State::Snapshotting { operation, deadline, since, .. }
        | life::State::Suspending { operation, deadline, since, .. } => {
            OfState { operation: at_work(operation, deadline), running_since: Some(time(*since)), ..OfState::default() }
        }
        life::State::Suspended { background, .. } => {
            OfState { operation: in_background(background.as_deref()), ..OfState::default() }
        }
        life::State::Terminating { operation, deadline, cause, .. } => {
            OfState { operation: at_work(operation, deadline), cause: Some(cause.convert()), ..OfState::default() }
        }
        life::State::Terminated { cause, at } => {
            OfState { cause: Some(cause.convert()), terminated_at: Some(time(*at)), ..OfState::default() }
        }
    }
}

impl Of<SandboxView> for wire::Sandbox {
    fn of(view: SandboxView) -> Self {
        let SandboxView { sandbox, revision, residence, expires, paused_for_disk, changed } = view;
        let OfState { running_since, operation, cause, terminated_at } = of_state(&sandbox.state);
        let life::Sandbox {
            id,
            project,
            spec,
            origin,
            created,
            generation,
            last_active,
            started,
            holds,
            restored,
            rewound,
            older,
            unreachable,
            suspend_failures,
            pool,
            created_by,
            state,
            run: _,
            timeouts_set: _,
            woken: _,
        } = sandbox;
        let (restored, restored_generation) = match restored {
            life::Restored::Nothing => (wire::Restored::None, None),
            life::Restored::Filesystem => (wire::Restored::Filesystem, None),
            life::Restored::Files { generation } => (wire::Restored::Files, Some(generation)),
            life::Restored::Memory { generation } => (wire::Restored::Memory, generation),
        };
        Self {
            id: id.to_string(),
            name: spec.name.map(|name| name.to_string()),
            project: project.to_string(),
            state: state.name().convert(),
            residence: residence.convert(),
            paused_for_disk,
            revision,
            unreachable: unreachable
                .map(|silent| wire::Unreachable { since: time(silent.since), reason: silent.reason }),
            suspend_failures: suspend_failures.map(|failed| wire::SuspendFailures {
                count: failed.count,
                since: time(failed.since),
                reason: failed.reason,
                next_attempt_at: time(failed.next),
            }),
            generation,
            restored,
            restored_generation,
            image: spec.image.to_string(),
            start: spec.program.convert(),
            snapshot: origin.snapshot().map(|snapshot| snapshot.to_string()),
            source: origin.source().map(|source| source.to_string()),
            rewound_to: rewound.map(|rewound| rewound.to.to_string()),
            resources: spec.resources.convert(),
            egress: spec.egress.convert(),
            env: spec.variables.0.into_keys().collect(),
            secrets: spec.secrets.0.into_keys().collect(),
            on_timeout: spec.on_timeout.convert(),
            on_suspend_failure: match spec.on_suspend_failure {
                life::OnSuspendFailure::Keep => wire::OnSuspendFailure::Keep,
                life::OnSuspendFailure::Terminate => wire::OnSuspendFailure::Terminate,
            },
            suspendable: spec.suspendable,
            wake: spec.wake.convert(),
            port_access: spec.port_access.convert(),
            port_host: spec.port_host.map(|host| host.to_string()),
            port_rules: spec.port_rules.convert(),
            timeout_secs: spec.timeouts.total.map(|limit| limit.as_secs_f64()),
            idle_timeout_secs: spec.timeouts.idle.map(|limit| limit.as_secs_f64()),
            timeout_after_wake_secs: spec.timeouts.after_wake.map(|limit| limit.as_secs_f64()),
            max_run_secs: spec.timeouts.max_run.map(|limit| limit.as_secs_f64()),
            holds: holds.into_iter().map(Convert::convert).collect(),
            keep_generations: spec.retention.generations,
            on_unrestorable: match spec.retention.on_unrestorable {
                life::OnUnrestorable::Fail => wire::OnUnrestorable::Fail,
                life::OnUnrestorable::Fresh => wire::OnUnrestorable::Fresh,
            },
            older_images: older.iter().map(Convert::convert).collect(),
            checkpoints: spec.checkpoints.map(Convert::convert),
            volumes: spec.attachments.into_iter().map(Convert::convert).collect(),
            waits_in_pool: pool.as_ref().is_some_and(|member| !member.is_claimed) && cause.is_none(),
            pool: pool.map(|member| member.pool.to_string()),
            labels: spec.labels,
            annotations: spec.annotations.0,
            expires_at: expires.map(time),
            created_at: time(created),
            created_by: created_by.map(Convert::convert),
            last_active_at: time(last_active),
            running_since,
            last_started_at: started.map(time),
            sleep_image: state.image().map(Convert::convert),
            operation,
            cause,
            terminated_at,
            changed: changed.map(|changed| changed == Changed::Yes),
        }
    }
}
