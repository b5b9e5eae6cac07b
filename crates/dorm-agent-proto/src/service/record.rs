//! The state of a service, and its last events.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Health, Restart, ServiceChange, ServiceEvent, ServiceSpec, ServiceState};
use crate::process::ExitStatus;

/// How many events are kept.
const EVENTS_KEPT: usize = 1024;

/// The changing part of a service. Each change is an event, at a time of the sandbox's clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// Its state.
    pub state: ServiceState,
    /// Its health.
    pub health: Health,
    /// How many times it was started again.
    pub restarts: u64,
    /// How its last process ended that has ended.
    pub last_exit: Option<ExitStatus>,
    restart: Restart,
    is_checked: bool,
    events: VecDeque<ServiceEvent>,
    last_event: u64,
}

impl ServiceRecord {
    /// That of a service whose first process was just started.
    pub fn new(spec: &ServiceSpec, process: u64, unix_ms: u64) -> Self {
        let mut record = Self {
            state: ServiceState::Running,
            health: Health::Unknown,
            restarts: 0,
            last_exit: None,
            restart: spec.restart.restart,
            is_checked: spec.health.is_some(),
            events: VecDeque::new(),
            last_event: 0,
        };
        record.started(process, unix_ms);
        record
    }

    /// It was started again.
    pub fn restarted(&mut self, process: u64, unix_ms: u64) {
        self.restarts += 1;
        // A stop may have begun meanwhile.
        if self.state == ServiceState::Waiting {
            self.state = ServiceState::Running;
        }
        self.started(process, unix_ms);
    }

    /// It could not be started again.
    pub fn not_started(&mut self, reason: String, unix_ms: u64) {
        self.note(ServiceChange::NotStarted { reason }, unix_ms);
    }

    /// Its process has ended.
    pub fn exited(&mut self, process: u64, status: ExitStatus, unix_ms: u64) {
        self.last_exit = Some(status);
        self.health = Health::Unknown;
        self.note(ServiceChange::Exited { process, status }, unix_ms);
    }

    /// It waits for its next start.
    pub fn waits(&mut self, after_ms: u64, unix_ms: u64) {
        if self.state == ServiceState::Running {
            self.state = ServiceState::Waiting;
        }
        self.note(ServiceChange::Restarting { after_ms }, unix_ms);
    }

    /// A probe has succeeded.
    pub fn is_well(&mut self, unix_ms: u64) {
        if self.health != Health::Healthy {
            self.health = Health::Healthy;
            self.note(ServiceChange::Healthy, unix_ms);
        }
    }

    /// Enough probes have failed.
    pub fn is_unwell(&mut self, reason: String, unix_ms: u64) {
        if self.health != Health::Unhealthy {
            self.health = Health::Unhealthy;
            self.note(ServiceChange::Unhealthy { reason }, unix_ms);
        }
    }

    /// It is over, in this state. The first such state stays.
    pub fn over(&mut self, state: ServiceState, unix_ms: u64) {
        if self.state.is_over() {
            return;
        }
        self.state = state;
        self.health = Health::Unknown;
        let event = match state {
            ServiceState::Stopped => ServiceChange::Stopped,
            ServiceState::Failed if self.restart != Restart::Never => ServiceChange::GaveUp,
            _ => ServiceChange::Finished,
        };
        self.note(event, unix_ms);
    }

    /// Returns at most `most` of the events behind the number `after`.
    pub fn events(&self, after: u64, most: usize) -> Vec<ServiceEvent> {
        self.events.iter().filter(|event| event.number > after).take(most).cloned().collect()
    }

    /// The number of the newest event.
    pub fn last_event(&self) -> u64 {
        self.last_event
    }

    fn started(&mut self, process: u64, unix_ms: u64) {
        self.health = if self.is_checked { Health::Starting } else { Health::Unknown };
        self.note(ServiceChange::Started { process }, unix_ms);
    }

    fn note(&mut self, event: ServiceChange, at_unix_ms: u64) {
        self.last_event += 1;
        self.events.push_back(ServiceEvent { number: self.last_event, at_unix_ms, event });
        if self.events.len() > EVENTS_KEPT {
            self.events.pop_front();
        }
    }
}
