//! Types for services: processes that the agent starts again, and whose health it checks. The
//! decision whether and when to start again is here, without a clock.

mod check;
mod record;

pub use record::ServiceRecord;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::guest::GuestString;
use crate::name::ServiceName;
use crate::process::{ExitStatus, Offsets, ProcessSpec};

/// A service to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServiceSpec {
    /// Its name.
    pub name: ServiceName,
    /// Its process, without a terminal and without input.
    pub process: ProcessSpec,
    /// When it is started again.
    pub restart: RestartRules,
    /// How its health is checked, if it is.
    pub health: Option<HealthCheck>,
}

/// The ends of a process that are followed by another start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// None.
    #[default]
    Never,
    /// All but an exit with code 0.
    OnFailure,
    /// All.
    Always,
}

/// When a service is started again. Times count only while the sandbox runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RestartRules {
    /// After which ends.
    pub restart: Restart,
    /// The pause before the first restart, in milliseconds. It doubles with each restart of a
    /// process that has not run for as long as the longest pause.
    pub delay_ms: u64,
    /// The longest pause.
    pub delay_max_ms: u64,
    /// How many restarts there may be within a window of time.
    pub most: u32,
    /// The length of the window, in milliseconds.
    pub window_ms: u64,
}

impl Default for RestartRules {
    fn default() -> Self {
        Self { restart: Restart::Never, delay_ms: 1000, delay_max_ms: 60_000, most: 10, window_ms: 600_000 }
    }
}

/// The restarts of a service that still count.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Restarts {
    at_ms: VecDeque<u64>,
    /// How many restarts have followed each other without a long run.
    quick: u32,
}

/// The consequence of the end of a process of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterEnd {
    /// It is started again after a pause.
    Restart {
        /// The pause, in milliseconds.
        after_ms: u64,
    },
    /// Nothing: such an end needs no restart.
    Finish,
    /// Nothing: there were as many restarts as may be.
    GiveUp,
}

/// Whether a process of a service has ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It exited with code 0.
    Succeeded,
    /// Any other end, and an end because of its health.
    Failed,
}

impl Outcome {
    /// The outcome of a process that ended by itself.
    pub fn of(status: ExitStatus) -> Self {
        if status == ExitStatus::Code(0) { Self::Succeeded } else { Self::Failed }
    }
}

impl RestartRules {
    /// Decides what follows an end at the time `now_ms`, after a run of `ran_ms`.
    pub fn after(&self, restarts: &mut Restarts, outcome: Outcome, now_ms: u64, ran_ms: u64) -> AfterEnd {
        match (self.restart, outcome) {
            (Restart::Never, _) | (Restart::OnFailure, Outcome::Succeeded) => return AfterEnd::Finish,
            (Restart::OnFailure, Outcome::Failed) | (Restart::Always, _) => {}
        }
        while restarts.at_ms.front().is_some_and(|at| now_ms.saturating_sub(*at) >= self.window_ms) {
            restarts.at_ms.pop_front();
        }
        if restarts.at_ms.len() >= self.most as usize {
            return AfterEnd::GiveUp;
        }
        if ran_ms >= self.delay_max_ms {
            restarts.quick = 0;
        }
        let doubled = 1_u64.checked_shl(restarts.quick).unwrap_or(u64::MAX);
        let after_ms = self.delay_ms.saturating_mul(doubled).min(self.delay_max_ms);
        restarts.quick = restarts.quick.saturating_add(1);
        restarts.at_ms.push_back(now_ms);
        AfterEnd::Restart { after_ms }
    }
}

/// How the health of a service is checked. Times count only while the sandbox runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HealthCheck {
    /// The probe.
    pub probe: Probe,
    /// The time between the end of a probe and the next one, in milliseconds.
    pub interval_ms: u64,
    /// The time after which a probe has failed, in milliseconds.
    pub timeout_ms: u64,
    /// After how many failed probes in a row the process is unhealthy.
    pub failures: u32,
    /// The time after a start in which failed probes do not count, in milliseconds.
    pub grace_ms: u64,
}

/// A probe of a service, on the sandbox's loopback.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// A TCP connection can be opened.
    Tcp {
        /// The port.
        port: u16,
    },
    /// A request GET is answered with a status from 200 to 399.
    Http {
        /// The port.
        port: u16,
        /// The path, with its query. It begins with `/`.
        path: String,
    },
}

/// The status of a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: ServiceName,
    /// Its command and arguments: as many as [`crate::ProcessStatus`] has.
    pub arguments: Vec<GuestString>,
    /// When it is started again.
    pub restart: RestartRules,
    /// How its health is checked.
    pub check: Option<HealthCheck>,
    /// Its state.
    pub state: ServiceState,
    /// Its health.
    pub health: Health,
    /// The handle of its process: the present or the last one.
    pub process: u64,
    /// When that started, in milliseconds since 1970, by the sandbox's clock.
    pub started_unix_ms: u64,
    /// How many times it was started again.
    pub restarts: u64,
    /// How its last process ended that has ended.
    pub last_exit: Option<ExitStatus>,
    /// The number of bytes in its log so far.
    pub written: Offsets,
    /// The number of its newest event.
    pub last_event: u64,
}

/// The state of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// Its process runs.
    Running,
    /// Its process has ended and will be started again.
    Waiting,
    /// It is being stopped by a caller.
    Stopping,
    /// A caller has stopped it.
    Stopped,
    /// Its process has ended as it should.
    Finished,
    /// Its process has failed, and is not started again.
    Failed,
}

impl ServiceState {
    /// Whether the agent does nothing more for it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Finished | Self::Failed)
    }
}

/// The health of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It is not checked, or no process runs.
    Unknown,
    /// No probe has succeeded since the start.
    Starting,
    /// The last probe succeeded, or not enough have failed since.
    Healthy,
    /// As many probes in a row have failed as make it unhealthy.
    Unhealthy,
}

/// Something that happened to a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServiceEvent {
    /// Its number: the events of a service are counted from 1.
    pub number: u64,
    /// When, in milliseconds since 1970, by the sandbox's clock.
    pub at_unix_ms: u64,
    /// The event.
    pub event: ServiceChange,
}

/// An event of a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceChange {
    /// A process was started.
    Started {
        /// Its handle.
        process: u64,
    },
    /// The process could not be started again.
    NotStarted {
        /// The reason.
        reason: String,
    },
    /// The process has ended.
    Exited {
        /// Its handle.
        process: u64,
        /// How it ended.
        status: ExitStatus,
    },
    /// The process will be started again.
    Restarting {
        /// After this pause, in milliseconds.
        after_ms: u64,
    },
    /// It is not started again, because of too many restarts.
    GaveUp,
    /// It is not started again, because its process has ended as it should or has no restart.
    Finished,
    /// A probe has succeeded, for the first time since the start or after it was unhealthy.
    Healthy,
    /// Too many probes in a row have failed.
    Unhealthy {
        /// Why the last one failed.
        reason: String,
    },
    /// A caller has stopped it.
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::{AfterEnd, Outcome, Restart, RestartRules, Restarts};

    const RULES: RestartRules =
        RestartRules { restart: Restart::OnFailure, delay_ms: 100, delay_max_ms: 1000, most: 6, window_ms: 10_000 };

    #[test]
    fn pauses_double_until_a_long_run_and_the_budget_belongs_to_a_window() {
        let mut restarts = Restarts::default();
        let mut after = |now, ran| match RULES.after(&mut restarts, Outcome::Failed, now, ran) {
            AfterEnd::Restart { after_ms } => Some(after_ms),
            AfterEnd::GiveUp => None,
            AfterEnd::Finish => panic!("a failure is no success"),
        };
        assert_eq!([after(0, 1), after(1, 1), after(2, 1), after(3, 1)], [Some(100), Some(200), Some(400), Some(800)]);
        assert_eq!([after(4, 1), after(5, 1000), after(6, 1)], [Some(1000), Some(100), None]);
        assert_eq!([after(10_000, 1), after(10_000, 1)], [Some(200), None]);
    }

    #[test]
    fn only_ends_that_the_rules_name_are_followed_by_a_start() {
        let mut restarts = Restarts::default();
        let mut after = |restart, outcome| RestartRules { restart, ..RULES }.after(&mut restarts, outcome, 0, 0);
        assert_eq!(after(Restart::Never, Outcome::Failed), AfterEnd::Finish);
        assert_eq!(after(Restart::OnFailure, Outcome::Succeeded), AfterEnd::Finish);
        assert_eq!(after(Restart::Always, Outcome::Succeeded), AfterEnd::Restart { after_ms: 100 });
        let long = RestartRules { restart: Restart::Always, delay_ms: u64::MAX, delay_max_ms: u64::MAX, ..RULES };
        let mut many = Restarts { quick: u32::MAX, ..Restarts::default() };
        assert_eq!(long.after(&mut many, Outcome::Failed, 0, 0), AfterEnd::Restart { after_ms: u64::MAX });
    }
}
