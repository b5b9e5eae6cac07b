//! Services inside a sandbox.

use dorm_agent_client as agent;
use dorm_api_types as wire;

use super::process::{Command, command};
use super::{Convert, Of};
use crate::error::ApiError;
use crate::extract::{milliseconds, service_name};

/// The longest time of any setting: a week.
const WEEK_MS: u64 = 7 * 24 * 60 * 60 * 1000;
const PROBE_MAX_MS: u64 = 60_000;

/// A service to start.
pub(crate) fn service_spec(asked: wire::StartService) -> Result<agent::ServiceSpec, ApiError> {
    let restart = rules(&asked)?;
    let health = asked.health.map(health_check).transpose()?;
    let wire::StartService { name, argv, shell, env, cwd, user, output_kept_bytes, .. } = asked;
    let mut process = command(Command { argv, shell, env, cwd, user })?;
    process.output_kept = output_kept_bytes.unwrap_or(process.output_kept);
    process.label = Some(format!("service:{name}"));
    Ok(agent::ServiceSpec { name: service_name(name)?, process, restart, health })
}

fn rules(asked: &wire::StartService) -> Result<agent::RestartRules, ApiError> {
    let defaults = agent::RestartRules::default();
    let time = |field, value: Option<f64>, default| match value {
        Some(value) => milliseconds(field, value, WEEK_MS),
        None => Ok(default),
    };
    let delay_ms = time("restart_delay_secs", asked.restart_delay_secs, defaults.delay_ms)?;
    let longest = defaults.delay_max_ms.max(delay_ms);
    Ok(agent::RestartRules {
        restart: asked.restart.convert(),
        delay_ms,
        delay_max_ms: time("restart_delay_max_secs", asked.restart_delay_max_secs, longest)?,
        most: asked.max_restarts.unwrap_or(defaults.most),
        window_ms: time("restart_window_secs", asked.restart_window_secs, defaults.window_ms)?,
    })
}

fn health_check(asked: wire::HealthCheck) -> Result<agent::HealthCheck, ApiError> {
    let wire::HealthCheck { port, path, interval_secs, timeout_secs, failures, grace_secs } = asked;
    let probe = match path {
        Some(path) => agent::Probe::Http { port, path },
        None => agent::Probe::Tcp { port },
    };
    Ok(agent::HealthCheck {
        probe,
        interval_ms: milliseconds("health.interval_secs", interval_secs.unwrap_or(10.0), WEEK_MS)?,
        timeout_ms: milliseconds("health.timeout_secs", timeout_secs.unwrap_or(5.0), PROBE_MAX_MS)?,
        failures: failures.unwrap_or(3),
        grace_ms: match grace_secs {
            None => 0,
            Some(grace) => milliseconds("health.grace_secs", grace, WEEK_MS)?,
        },
    })
}

#[allow(clippy::cast_precision_loss)]
fn secs(ms: u64) -> f64 {
    // At most a week, which a number of this type holds exactly.
    ms as f64 / 1000.0
}

impl Of<wire::Restart> for agent::Restart {
    fn of(restart: wire::Restart) -> Self {
        match restart {
            wire::Restart::Never => Self::Never,
            wire::Restart::OnFailure => Self::OnFailure,
            wire::Restart::Always => Self::Always,
        }
    }
}

impl Of<agent::Restart> for wire::Restart {
    fn of(restart: agent::Restart) -> Self {
        match restart {
            agent::Restart::Never => Self::Never,
            agent::Restart::OnFailure => Self::OnFailure,
            agent::Restart::Always => Self::Always,
        }
    }
}

impl Of<agent::HealthCheck> for wire::HealthCheck {
    fn of(check: agent::HealthCheck) -> Self {
        let (port, path) = match check.probe {
            agent::Probe::Tcp { port } => (port, None),
            agent::Probe::Http { port, path } => (port, Some(path)),
        };
        Self {
            port,
            path,
            interval_secs: Some(secs(check.interval_ms)),
            timeout_secs: Some(secs(check.timeout_ms)),
            failures: Some(check.failures),
            grace_secs: Some(secs(check.grace_ms)),
        }
    }
}

impl Of<agent::ServiceState> for wire::ServiceState {
    fn of(state: agent::ServiceState) -> Self {
        match state {
            agent::ServiceState::Running => Self::Running,
            agent::ServiceState::Waiting => Self::Waiting,
            agent::ServiceState::Stopping => Self::Stopping,
            agent::ServiceState::Stopped => Self::Stopped,
            agent::ServiceState::Finished => Self::Finished,
            agent::ServiceState::Failed => Self::Failed,
        }
    }
}

impl Of<agent::Health> for wire::ServiceHealth {
    fn of(health: agent::Health) -> Self {
        match health {
            agent::Health::Unknown => Self::Unknown,
            agent::Health::Starting => Self::Starting,
            agent::Health::Healthy => Self::Healthy,
            agent::Health::Unhealthy => Self::Unhealthy,
        }
    }
}

impl Of<agent::ServiceStatus> for wire::Service {
    fn of(status: agent::ServiceStatus) -> Self {
        Self {
            name: status.name.to_string(),
            argv: status.arguments.iter().map(|word| wire::Text::from_bytes(word.as_bytes())).collect(),
            state: status.state.convert(),
            health: status.health.convert(),
            process: status.process,
            started_at: wire::Time::from_millis(status.started_unix_ms),
            restarts: status.restarts,
            last_exit: status.last_exit.map(Convert::convert),
            restart: status.restart.restart.convert(),
            restart_delay_secs: secs(status.restart.delay_ms),
            restart_delay_max_secs: secs(status.restart.delay_max_ms),
            max_restarts: status.restart.most,
            restart_window_secs: secs(status.restart.window_ms),
            check: status.check.map(Convert::convert),
            stdout_bytes: status.written.stdout,
            stderr_bytes: status.written.stderr,
            last_event: status.last_event,
        }
    }
}

impl Of<agent::ServiceEvent> for wire::ServiceEvent {
    fn of(event: agent::ServiceEvent) -> Self {
        use agent::ServiceChange;
        use wire::ServiceEventKind as Kind;

        let reason = |reason: &str| Some(agent::legible(reason));
        let (kind, process, exit, detail) = match event.event {
            ServiceChange::Started { process } => (Kind::Started, Some(process), None, None),
            ServiceChange::NotStarted { reason: why } => (Kind::NotStarted, None, None, reason(&why)),
            ServiceChange::Exited { process, status } => (Kind::Exited, Some(process), Some(status.convert()), None),
            ServiceChange::Restarting { after_ms } => {
                (Kind::Restarting, None, None, Some(format!("after {} seconds", secs(after_ms))))
            }
            ServiceChange::GaveUp => (Kind::GaveUp, None, None, None),
            ServiceChange::Finished => (Kind::Finished, None, None, None),
            ServiceChange::Healthy => (Kind::Healthy, None, None, None),
            ServiceChange::Unhealthy { reason: why } => (Kind::Unhealthy, None, None, reason(&why)),
            ServiceChange::Stopped => (Kind::Stopped, None, None, None),
        };
        Self { number: event.number, at: wire::Time::from_millis(event.at_unix_ms), kind, process, exit, detail }
    }
}
