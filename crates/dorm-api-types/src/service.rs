//! Services inside a sandbox.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::process::ExitStatus;
use crate::text::{Text, Time};

/// Starts a service: a process that is started again when it ends, and whose health is checked.
/// Exactly one of `argv` and `shell` is required. Times count only while the sandbox runs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartService {
    /// Name, 1 to 64 letters, digits, `.`, `_` and `-`. A service of this name that is over is
    /// replaced.
    pub name: String,
    /// The command and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<Text>>,
    /// Command line for `/bin/sh -c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory. Default: that of the image if the user is the image's, otherwise the home
    /// directory of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When the process is started again. Default `on_failure`.
    pub restart: Restart,
    /// Pause before the first restart, at least 0.001. It doubles with each restart of a process
    /// that has not run for `restart_delay_max_secs`. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_delay_secs: Option<f64>,
    /// Longest pause before a restart. Default 60, or the first pause if that is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_delay_max_secs: Option<f64>,
    /// Number of restarts within `restart_window_secs` after which the service has failed. Default
    /// 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_restarts: Option<u32>,
    /// Default 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_window_secs: Option<f64>,
    /// Checks the health of the process. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    /// How many bytes of each output stream are kept for readers, over all restarts. Default 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_kept_bytes: Option<u32>,
}

/// When the process of a service is started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Never.
    Never,
    /// After any end but an exit with code 0, and when it is unhealthy.
    #[default]
    OnFailure,
    /// After any end, and when it is unhealthy.
    Always,
}

/// A health check: a connection to a port on the loopback of the sandbox, or a request to it. An
/// unhealthy process is ended and started again, unless `restart` is `never`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// TCP port.
    pub port: u16,
    /// Path of an HTTP request GET, whose response must have a status from 200 to 399. Default: it
    /// is enough that the port accepts a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Time between two checks. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_secs: Option<f64>,
    /// Time after which a check has failed, at most 60. Default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Number of failed checks in a row that make the process unhealthy. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// Time after a start during which failed checks do not count. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_secs: Option<f64>,
}

/// A service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Service {
    /// Name.
    pub name: String,
    /// The command and its arguments.
    pub argv: Vec<Text>,
    /// State of the service.
    pub state: ServiceState,
    /// Health of its process.
    pub health: ServiceHealth,
    /// Handle of its process, the present or the last one.
    pub process: u64,
    /// When that process started, by the clock of the sandbox.
    pub started_at: Time,
    /// Number of times that the process was started again.
    pub restarts: u64,
    /// How the last process ended that has ended. Null if none has.
    pub last_exit: Option<ExitStatus>,
    /// When the process is started again.
    pub restart: Restart,
    /// Pause before the first restart.
    pub restart_delay_secs: f64,
    /// Longest pause before a restart.
    pub restart_delay_max_secs: f64,
    /// Number of restarts within the window after which the service has failed.
    pub max_restarts: u32,
    /// The window in which restarts are counted.
    pub restart_window_secs: f64,
    /// How its health is checked. Null if it is not.
    pub check: Option<HealthCheck>,
    /// Number of bytes written to standard output, over all restarts.
    pub stdout_bytes: u64,
    /// Number of bytes written to standard error, over all restarts.
    pub stderr_bytes: u64,
    /// Number of the newest event.
    pub last_event: u64,
}

/// State of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// The process runs.
    Running,
    /// The process has ended and will be started again.
    Waiting,
    /// It is being stopped by a request.
    Stopping,
    /// A request has stopped it.
    Stopped,
    /// The process has exited with code 0 and is not started again.
    Finished,
    /// The process has failed and is not started again.
    Failed,
}

/// Health of the process of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceHealth {
    /// It is not checked, or does not run.
    Unknown,
    /// No check has succeeded since its start.
    Starting,
    /// It is healthy.
    Healthy,
    /// Too many checks in a row have failed.
    Unhealthy,
}

/// All services of a sandbox, ordered by name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServiceList {
    /// The services, at most 64.
    pub services: Vec<Service>,
}

/// Stops a service.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StopService {
    /// Time that the process gets to end after SIGTERM, at most 300. Then all its processes are
    /// killed. Default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_secs: Option<f64>,
}

/// Something that happened to a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServiceEvent {
    /// Number of the event: the events of a service are counted from 1.
    pub number: u64,
    /// When it happened, by the clock of the sandbox.
    pub at: Time,
    /// Kind of the event.
    pub kind: ServiceEventKind,
    /// Handle of the process that was started or has ended.
    pub process: Option<u64>,
    /// How the process ended.
    pub exit: Option<ExitStatus>,
    /// Why it could not be started or is unhealthy; the pause before a restart.
    pub detail: Option<String>,
}

/// Kind of an event of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceEventKind {
    /// A process was started.
    Started,
    /// The process could not be started again.
    NotStarted,
    /// The process has ended.
    Exited,
    /// The process will be started again after a pause.
    Restarting,
    /// The process is not started again, because of too many restarts.
    GaveUp,
    /// The process is not started again, because it has ended as it should or `restart` is `never`.
    Finished,
    /// A check has succeeded, for the first time since the start or since the process was
    /// unhealthy.
    Healthy,
    /// Too many checks in a row have failed.
    Unhealthy,
    /// A request has stopped the service.
    Stopped,
}

/// Events of a service, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServiceEvents {
    /// The events. About 1,000 are kept; a gap in their numbers is where older ones are missing.
    pub events: Vec<ServiceEvent>,
    /// Cursor: `after` of the next request.
    pub next: String,
    /// Whether there are more events already.
    pub more: bool,
}
