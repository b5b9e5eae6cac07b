//! Environments.

use std::time::Duration;

use dorm_api_types as wire;
use dorm_lifecycle as life;
use dorm_lifecycle::environment as env;
use dorm_lifecycle::environment::Code;
use dorm_ports::SecretValue;
use dorm_service::{CreateFrom, EnsureExplanation, EnsureSpec, Ensured, EnsuredBy, TokenSpec, WorkspaceSpec};
use dorm_storage::{LogLine, LogStream};
use dorm_store::{
    Attempt, AttemptEnd, AttemptResult, EnvironmentLease, EnvironmentRecord, Phase, RestoredFrom, SetupState,
    SetupStepRecord,
};

use super::{Convert, Of, digest, time};
use crate::error::ApiError;
use crate::extract::seconds;

/// The time limit of a step without another.
const STEP_LIMIT: Duration = Duration::from_secs(1800);
/// The directory of the code without another.
const DIRECTORY: &str = "/workspace";

/// The environment that a request asks for. `base` has the resources that the request leaves out.
pub(crate) fn ensure(
    asked: wire::EnsureRequest,
    from: CreateFrom,
    base: life::Resources,
) -> Result<EnsureSpec, ApiError> {
    let lifecycle = asked.lifecycle.unwrap_or_default();
    let reuse = lifecycle.reuse.unwrap_or(wire::Reuse::Thread);
    let key = match (asked.key, asked.thread, reuse) {
        (Some(key), None, wire::Reuse::Thread) => Some(env::Key::Own(key)),
        (None, Some(thread), wire::Reuse::Thread) => Some(env::Key::Thread(thread.convert())),
        (Some(_), Some(_), _) => return Err(ApiError::invalid("give either key or thread, not both", "")),
        (None, None, wire::Reuse::Thread) => {
            let what = "an environment that is used again needs a key";
            return Err(ApiError::invalid(what, "give key or thread, or set lifecycle.reuse to none"));
        }
        (None, None, wire::Reuse::None) => None,
        (_, _, wire::Reuse::None) => {
            let what = "an environment that is not used again has no key";
            return Err(ApiError::invalid(what, "leave out key and thread, or set lifecycle.reuse to thread"));
        }
    };
    let (code, token) = code(asked.source)?;
    Ok(EnsureSpec {
        key,
        client_key: asked.client_key,
        workspace: WorkspaceSpec {
            from,
            resources: asked.resources.map(|asked| super::resources(asked, base)),
            egress: asked.egress.map(Convert::convert),
            variables: asked.env,
            directory: asked.directory.unwrap_or_else(|| DIRECTORY.to_owned()),
            user: asked.user,
            code,
            setup: asked.setup.into_iter().map(Convert::convert).collect(),
            start: asked.start_command,
            ready: asked.ready_command,
            step_limit: asked.step_timeout_secs.map_or(Ok(STEP_LIMIT), |limit| seconds("step_timeout_secs", limit))?,
        },
        secrets: asked
            .secrets
            .into_iter()
            .map(|(name, of)| Ok((name, secret(&of)?)))
            .collect::<Result<_, ApiError>>()?,
        values: life::Variables(asked.secret_values.into_iter().map(|(name, value)| (name, value.0)).collect()),
        token,
        policy: policy(lifecycle)?,
        labels: asked.labels,
        on_leave: match asked.on_leave {
            Some(wire::OnLeave::Cancel) => env::OnLeave::Cancel,
            Some(wire::OnLeave::Continue) | None => env::OnLeave::Continue,
        },
        lease: asked.lease_secs.map(|time| seconds("lease_secs", time)).transpose()?,
    })
}

fn secret(name: &str) -> Result<life::SecretName, ApiError> {
    name.parse().map_err(|error: life::IdError| ApiError::invalid(error.to_string(), ""))
}

fn code(source: Option<wire::EnvironmentSource>) -> Result<(Option<Code>, Option<TokenSpec>), ApiError> {
    match source {
        None => Ok((None, None)),
        Some(wire::EnvironmentSource { git: Some(git), context: None }) => {
            let wire::GitSource { url, reference, depth, full_history, token, token_secret } = git;
            let depth = match (depth, full_history) {
                (None, true) => None,
                (Some(_), true) => return Err(ApiError::invalid("give either depth or full_history, not both", "")),
                (depth, false) => Some(depth.unwrap_or(1)),
            };
            let token = match (token, token_secret) {
                (None, None) => None,
                (Some(token), None) => Some(TokenSpec::Value(SecretValue::new(token.0))),
                (None, Some(name)) => Some(TokenSpec::Secret(secret(&name)?)),
                (Some(_), Some(_)) => {
                    return Err(ApiError::invalid("give either token or token_secret, not both", ""));
                }
            };
            Ok((Some(Code::Git { url, reference, depth }), token))
        }
        Some(wire::EnvironmentSource { git: None, context: Some(hash) }) => {
            Ok((Some(Code::Upload(digest("source.context", &hash)?)), None))
        }
        Some(_) => Err(ApiError::invalid("a source has exactly one of git and context", "omit it for no code")),
    }
}

fn policy(asked: wire::EnvironmentLifecycle) -> Result<env::Policy, ApiError> {
    let defaults = env::Policy::default();
    let snapshot = match asked.snapshot {
        Some(wire::SnapshotWhen::AfterSetup) | None => env::SnapshotWhen::AfterSetup,
        Some(wire::SnapshotWhen::AfterRun) => env::SnapshotWhen::AfterRun,
        Some(wire::SnapshotWhen::None) => env::SnapshotWhen::Never,
    };
    let kind = match snapshot {
        env::SnapshotWhen::AfterRun => life::SnapshotKind::Filesystem,
        env::SnapshotWhen::AfterSetup | env::SnapshotWhen::Never => defaults.snapshot_kind,
    };
    let time = |field: &str, time: Option<f64>| time.map(|time| seconds(field, time)).transpose();
    Ok(env::Policy {
        snapshot,
        snapshot_kind: asked.snapshot_kind.map_or(kind, Convert::convert),
        snapshot_max_age: time("lifecycle.snapshot_max_age_secs", asked.snapshot_max_age_secs)?,
        sandbox_max_age: time("lifecycle.sandbox_max_age_secs", asked.sandbox_max_age_secs)?,
        keep_alive: time("lifecycle.keep_alive_secs", asked.keep_alive_secs)?,
        destroy_on_complete: asked.destroy_on_complete,
        on_drift: match asked.on_drift {
            Some(wire::OnDrift::Rebuild) | None => env::OnDrift::Rebuild,
            Some(wire::OnDrift::Keep) => env::OnDrift::Keep,
            Some(wire::OnDrift::Refuse) => env::OnDrift::Refuse,
        },
        on_broken: match asked.on_broken {
            Some(wire::OnBroken::Refuse) | None => env::OnBroken::Refuse,
            Some(wire::OnBroken::Next) => env::OnBroken::Next,
        },
        keep_failed: asked.keep_failed,
    })
}

impl Of<env::Policy> for wire::EnvironmentLifecycle {
    fn of(policy: env::Policy) -> Self {
        Self {
            reuse: None,
            snapshot: Some(match policy.snapshot {
                env::SnapshotWhen::AfterSetup => wire::SnapshotWhen::AfterSetup,
                env::SnapshotWhen::AfterRun => wire::SnapshotWhen::AfterRun,
                env::SnapshotWhen::Never => wire::SnapshotWhen::None,
            }),
            snapshot_kind: Some(policy.snapshot_kind.convert()),
            snapshot_max_age_secs: policy.snapshot_max_age.map(|age| age.as_secs_f64()),
            sandbox_max_age_secs: policy.sandbox_max_age.map(|age| age.as_secs_f64()),
            keep_alive_secs: policy.keep_alive.map(|time| time.as_secs_f64()),
            destroy_on_complete: policy.destroy_on_complete,
            on_drift: Some(match policy.on_drift {
                env::OnDrift::Rebuild => wire::OnDrift::Rebuild,
                env::OnDrift::Keep => wire::OnDrift::Keep,
                env::OnDrift::Refuse => wire::OnDrift::Refuse,
            }),
            on_broken: Some(match policy.on_broken {
                env::OnBroken::Refuse => wire::OnBroken::Refuse,
                env::OnBroken::Next => wire::OnBroken::Next,
            }),
            keep_failed: policy.keep_failed,
        }
    }
}

impl Of<wire::EnvironmentThread> for env::Thread {
    fn of(asked: wire::EnvironmentThread) -> Self {
        let wire::EnvironmentThread { thread, definition, user, organization } = asked;
        Self { thread, definition, user, organization }
    }
}

impl Of<env::Thread> for wire::EnvironmentThread {
    fn of(thread: env::Thread) -> Self {
        let env::Thread { thread, definition, user, organization } = thread;
        Self { thread, definition, user, organization }
    }
}

impl Of<wire::SetupStep> for env::SetupStep {
    fn of(step: wire::SetupStep) -> Self {
        match step {
            wire::SetupStep::Command(command) => Self::Serial(command),
            wire::SetupStep::Parallel(wire::ParallelSetup { parallel }) => Self::Parallel(parallel),
        }
    }
}

impl Of<env::Considered> for wire::Considered {
    fn of(considered: env::Considered) -> Self {
        let way = match considered.way {
            env::Way::Live => wire::Way::Live,
            env::Way::Resume => wire::Way::Resume,
            env::Way::OwnSnapshot => wire::Way::OwnSnapshot,
            env::Way::WorkspaceSnapshot => wire::Way::WorkspaceSnapshot,
            env::Way::Create => wire::Way::Create,
        };
        let (verdict, reason) = match considered.verdict {
            env::Verdict::Taken => (wire::Verdict::Taken, None),
            env::Verdict::Unavailable(reason) => (wire::Verdict::Unavailable, Some(reason)),
            env::Verdict::Broken(reason) => (wire::Verdict::Broken, Some(reason)),
        };
        Self { way, verdict, reason }
    }
}

fn all<T: Convert<U>, U>(from: Vec<T>) -> Vec<U> {
    from.into_iter().map(Convert::convert).collect()
}

impl Of<Ensured> for wire::Ensured {
    fn of(ensured: Ensured) -> Self {
        Self {
            environment: ensured.environment.convert(),
            sandbox: ensured.sandbox.convert(),
            by: match ensured.by {
                EnsuredBy::Live => wire::EnsuredBy::Live,
                EnsuredBy::Resumed => wire::EnsuredBy::Resumed,
                EnsuredBy::Restored => wire::EnsuredBy::Restored,
                EnsuredBy::Created => wire::EnsuredBy::Created,
            },
            considered: all(ensured.considered),
            restored: ensured.restored.map(Convert::convert),
            lost: ensured.lost,
            drift: ensured.drift,
            phases: all(ensured.phases),
            steps: all(ensured.steps),
            snapshot_failure: ensured.snapshot_failure.map(|failure| failure.reason),
            joined: ensured.joined,
            lease: ensured.lease.map(Convert::convert),
        }
    }
}

impl Of<RestoredFrom> for wire::RestoredFrom {
    fn of(restored: RestoredFrom) -> Self {
        let RestoredFrom { snapshot, of, age } = restored;
        Self {
            snapshot: snapshot.to_string(),
            shared: of == Some(env::SnapshotOf::Workspace),
            new: of.is_none(),
            age_secs: age.as_secs_f64(),
        }
    }
}

impl Of<Phase> for wire::EnsurePhase {
    fn of(Phase { name, took }: Phase) -> Self {
        Self { name, took_secs: took.as_secs_f64() }
    }
}

impl Of<SetupStepRecord> for wire::SetupStepView {
    fn of(step: SetupStepRecord) -> Self {
        let SetupStepRecord { title, state, exit_code, began, ended } = step;
        let state = match state {
            SetupState::Waiting => wire::SetupState::Waiting,
            SetupState::Running => wire::SetupState::Running,
            SetupState::Done => wire::SetupState::Done,
            SetupState::Failed => wire::SetupState::Failed,
        };
        Self { title, state, exit_code, began_at: began.map(time), ended_at: ended.map(time) }
    }
}

impl Of<EnvironmentLease> for wire::EnvironmentLease {
    fn of(EnvironmentLease { id, until }: EnvironmentLease) -> Self {
        Self { id: id.to_string(), expires_at: time(until) }
    }
}

impl Of<EnsureExplanation> for wire::EnsureExplanation {
    fn of(explanation: EnsureExplanation) -> Self {
        let EnsureExplanation { environment, decision, drift, workspace } = explanation;
        let refused = match decision.choice {
            env::Choice::RefuseDrift => Some(format!("the definition has changed: {}", drift.join(", "))),
            env::Choice::RefuseBroken(reason) => Some(reason),
            env::Choice::Live | env::Choice::Resume | env::Choice::Restore { .. } | env::Choice::Create => None,
        };
        Self {
            joins: environment.as_ref().is_some_and(|environment| environment.attempt.is_some()),
            environment: environment.map(|environment| environment.id.to_string()),
            considered: all(decision.considered),
            refused,
            drift: drift.into_iter().map(str::to_owned).collect(),
            workspace,
        }
    }
}

impl Of<EnvironmentRecord> for wire::Environment {
    fn of(record: EnvironmentRecord) -> Self {
        let state = match &record {
            EnvironmentRecord { attempt: Some(_), .. } => wire::EnvironmentState::Working,
            EnvironmentRecord { ending: Some(_), .. } => wire::EnvironmentState::Ending,
            EnvironmentRecord { sandbox: Some(_), .. } => wire::EnvironmentState::Ready,
            EnvironmentRecord { .. } => wire::EnvironmentState::Idle,
        };
        let workspace = dorm_store::workspace_hash(&record.workspace, record.policy.snapshot_kind);
        let (key, thread) = match record.key {
            env::Key::Own(key) => (Some(key), None),
            env::Key::Thread(thread) => (None, Some(thread.convert())),
            env::Key::Once(_) => (None, None),
        };
        let attempt = record.attempt.map(|attempt| of_attempt(attempt, None));
        Self {
            id: record.id.to_string(),
            project: record.project.to_string(),
            key,
            thread,
            client_key: record.client_key,
            state,
            sandbox: record.sandbox.map(|sandbox| sandbox.to_string()),
            snapshot: record.snapshot.map(|snapshot| snapshot.to_string()),
            commit: record.commit,
            workspace,
            lifecycle: record.policy.convert(),
            attempt: attempt.or_else(|| {
                record.last.map(|AttemptEnd { attempt, ended, result }| of_attempt(attempt, Some((ended, result))))
            }),
            leases: all(record.leases),
            retired: record.retired.into_iter().map(|retired| retired.sandbox.to_string()).collect(),
            created_at: time(record.created),
        }
    }
}

fn of_attempt(attempt: Attempt, end: Option<(life::Timestamp, AttemptResult)>) -> wire::EnvironmentAttempt {
    let (state, failure) = match end.as_ref().map(|(_, result)| result) {
        None => (wire::AttemptState::Running, None),
        Some(AttemptResult::Ready) => (wire::AttemptState::Ready, None),
        Some(AttemptResult::Cancelled) => (wire::AttemptState::Cancelled, None),
        Some(AttemptResult::Failed(failure)) => (
            wire::AttemptState::Failed,
            Some(wire::AttemptFailure {
                code: failure.failure.code.as_str().to_owned(),
                reason: failure.failure.reason.clone(),
                step: failure.step,
                exit_code: failure.exit_code,
                kept: failure.kept.as_ref().map(ToString::to_string),
            }),
        ),
    };
    wire::EnvironmentAttempt {
        id: attempt.id.to_string(),
        state,
        caller: attempt.caller.map(Convert::convert),
        considered: all(attempt.considered),
        steps: all(attempt.steps),
        phases: all(attempt.phases),
        failure,
        began_at: time(attempt.began),
        ended_at: end.map(|(ended, _)| time(ended)),
    }
}

impl Of<(u64, LogLine)> for wire::EnvironmentLogLine {
    fn of((offset, line): (u64, LogLine)) -> Self {
        let stream = match line.stream {
            LogStream::Build => wire::EnvironmentLogStream::Daemon,
            LogStream::Stdout => wire::EnvironmentLogStream::Stdout,
            LogStream::Stderr => wire::EnvironmentLogStream::Stderr,
        };
        Self { offset, at: time(line.at()), step: line.step, stream, text: line.text }
    }
}
