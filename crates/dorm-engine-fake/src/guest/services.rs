//! Services of a fake guest. Whether a process is well depends on whether it listens.

use std::collections::BTreeMap;

use dorm_agent_proto::{
    AfterEnd, Failure, Outcome, Probe, ProcessStarted, Restart, Restarts, ServiceEvent, ServiceName, ServiceRecord,
    ServiceSpec, ServiceState, ServiceStatus, Signal,
};
use serde::{Deserialize, Serialize};

use super::{Guest, Moved, Process};

const SERVICES_MAX: usize = 64;

/// All services, by name.
pub(super) type Services = BTreeMap<ServiceName, Service>;

/// A service.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Service {
    spec: ServiceSpec,
    record: ServiceRecord,
    restarts: Restarts,
    /// The present or last process.
    process: u64,
    started_unix_ms: u64,
    began_us: u64,
    /// When the next process is started, while it waits.
    due_us: u64,
    probe_us: u64,
    failed: u32,
    is_killed: bool,
    /// The output of all processes, as if one had written it; it is never listed.
    pub(super) log: Process,
}

/// Adds output of a process to the log of its service.
pub(super) fn add_to_log(services: &mut Services, process: u64, out: &[u8], err: &[u8]) {
    if let Some(service) = services.values_mut().find(|service| service.process == process) {
        service.log.print(out, err);
    }
}

impl Guest {
    pub(crate) fn start_service(&mut self, spec: ServiceSpec) -> Result<ProcessStarted, Failure> {
        spec.check()?;
        match self.services.get(&spec.name) {
            Some(there) if !there.record.state.is_over() => return Err(Failure::ServiceActive { name: spec.name }),
            None if self.services.len() >= SERVICES_MAX => {
                let reason = format!("there are {SERVICES_MAX} services already: remove some first");
                return Err(Failure::Invalid { reason });
            }
            _ => {}
        }
        let started = self.start(spec.process.clone())?;
        let handle = self.next_handle;
        let log = self.process(started.process)?.log(handle);
        self.next_handle += 1;
        let service = Service {
            record: ServiceRecord::new(&spec, started.process, self.unix_us() / 1000),
            restarts: Restarts::default(),
            process: started.process,
            started_unix_ms: self.unix_us() / 1000,
            began_us: self.clock_us,
            due_us: 0,
            probe_us: self.clock_us + interval_us(&spec),
            failed: 0,
            is_killed: false,
            log,
            spec,
        };
        self.services.insert(service.spec.name.clone(), service);
        Ok(started)
    }

    pub(crate) fn list_services(&self) -> Vec<ServiceStatus> {
        self.services.values().map(|service| service.status()).collect()
    }

    pub(crate) fn service(&self, name: &ServiceName) -> Result<ServiceStatus, Failure> {
        self.services.get(name).map(Service::status).ok_or_else(|| Failure::NoService { name: name.clone() })
    }

    /// Returns the handle of the log of a service.
    pub(crate) fn service_log(&self, name: &ServiceName) -> Result<u64, Failure> {
        let service = self.services.get(name).ok_or_else(|| Failure::NoService { name: name.clone() })?;
        Ok(service.log.handle)
    }

    pub(crate) fn service_events(
        &self,
        name: &ServiceName,
        after: u64,
        most: u32,
    ) -> Result<Vec<ServiceEvent>, Failure> {
        let service = self.services.get(name).ok_or_else(|| Failure::NoService { name: name.clone() })?;
        Ok(service.record.events(after, most as usize))
    }

    pub(crate) fn stop_service(&mut self, name: &ServiceName) -> Result<(), Failure> {
        let unix_ms = self.unix_us() / 1000;
        let status = self.service(name)?;
        if status.state.is_over() {
            return Ok(());
        }
        // It may have ended.
        let _ = self.signal(status.process, Signal::TERMINATE);
        let exit = self.processes.get(&status.process).and_then(|process| process.exit);
        if let Some(service) = self.services.get_mut(name) {
            if let Some(exit) = exit.filter(|_| status.state == ServiceState::Running) {
                service.record.exited(status.process, exit, unix_ms);
            }
            service.over(ServiceState::Stopped, unix_ms);
        }
        Ok(())
    }

    pub(crate) fn remove_service(&mut self, name: &ServiceName) -> Result<(), Failure> {
        if !self.service(name)?.state.is_over() {
            return Err(Failure::ServiceActive { name: name.clone() });
        }
        self.services.remove(name);
        Ok(())
    }

    /// Lets services do what they can at this time. Returns when there is more to do.
    pub(super) fn settle_services(&mut self) -> (Moved, Option<u64>) {
        let unix_ms = self.unix_us() / 1000;
        let (mut moved, mut wake): (Moved, Option<u64>) = (Moved::No, None);
        let names: Vec<ServiceName> = self.services.keys().cloned().collect();
        for name in names {
            let Some(mut service) = self.services.remove(&name) else { continue };
            if service.log.flush(unix_ms) == super::Flushed::Some {
                moved = Moved::Yes;
            }
            let next = match service.record.state {
                ServiceState::Running => self.attend(&mut service, unix_ms),
                ServiceState::Waiting => self.start_again(&mut service, unix_ms),
                _ => (Moved::No, None),
            };
            if next.0 == Moved::Yes {
                moved = Moved::Yes;
            }
            wake = [wake, next.1].into_iter().flatten().min();
            self.services.insert(name, service);
        }
        (moved, wake)
    }

    fn attend(&mut self, service: &mut Service, unix_ms: u64) -> (Moved, Option<u64>) {
        let exit = self.processes.get(&service.process).and_then(|process| process.exit);
        if let Some(status) = exit {
            let outcome = if service.is_killed { Outcome::Failed } else { Outcome::of(status) };
            service.record.exited(service.process, status, unix_ms);
            service.ended(outcome, self.clock_us, unix_ms);
            return (Moved::Yes, None);
        }
        let Some(check) = service.spec.health.clone() else { return (Moved::No, None) };
        if self.clock_us < service.probe_us {
            return (Moved::No, Some(service.probe_us));
        }
        service.probe_us = self.clock_us + interval_us(&service.spec);
        let (Probe::Tcp { port } | Probe::Http { port, .. }) = check.probe;
        if self.listens(port).is_some() {
            service.failed = 0;
            service.record.is_well(unix_ms);
        } else if self.clock_us - service.began_us >= check.grace_ms.saturating_mul(1000) {
            service.failed += 1;
            if service.failed >= check.failures && !service.is_killed {
                service.record.is_unwell(Failure::Refused { port }.to_string(), unix_ms);
                if service.spec.restart.restart != Restart::Never {
                    service.is_killed = self.signal(service.process, Signal::TERMINATE).is_ok();
                    return (Moved::Yes, None);
                }
            }
        }
        (Moved::No, Some(service.probe_us))
    }

    fn start_again(&mut self, service: &mut Service, unix_ms: u64) -> (Moved, Option<u64>) {
        if self.clock_us < service.due_us {
            return (Moved::No, Some(service.due_us));
        }
        match self.start(service.spec.process.clone()) {
            Ok(started) => {
                service.process = started.process;
                service.started_unix_ms = unix_ms;
                (service.failed, service.is_killed) = (0, false);
                service.began_us = self.clock_us;
                service.probe_us = self.clock_us + interval_us(&service.spec);
                service.record.restarted(started.process, unix_ms);
            }
            Err(failure) => {
                service.record.not_started(failure.to_string(), unix_ms);
                service.began_us = self.clock_us;
                service.ended(Outcome::Failed, self.clock_us, unix_ms);
            }
        }
        (Moved::Yes, None)
    }
}

impl Service {
    fn status(&self) -> ServiceStatus {
        ServiceStatus {
            name: self.spec.name.clone(),
            arguments: self.spec.process.arguments.clone(),
            restart: self.spec.restart,
            check: self.spec.health.clone(),
            state: self.record.state,
            health: self.record.health,
            process: self.process,
            started_unix_ms: self.started_unix_ms,
            restarts: self.record.restarts,
            last_exit: self.record.last_exit,
            written: dorm_agent_proto::Offsets { stdout: self.log.stdout.end(), stderr: self.log.stderr.end() },
            last_event: self.record.last_event(),
        }
    }

    fn ended(&mut self, outcome: Outcome, now_us: u64, unix_ms: u64) {
        let ran_ms = (now_us - self.began_us) / 1000;
        match self.spec.restart.after(&mut self.restarts, outcome, now_us / 1000, ran_ms) {
            AfterEnd::Restart { after_ms } => {
                self.due_us = now_us.saturating_add(after_ms.saturating_mul(1000));
                self.record.waits(after_ms, unix_ms);
            }
            AfterEnd::Finish if outcome == Outcome::Succeeded => self.over(ServiceState::Finished, unix_ms),
            AfterEnd::Finish | AfterEnd::GiveUp => self.over(ServiceState::Failed, unix_ms),
        }
    }

    fn over(&mut self, state: ServiceState, unix_ms: u64) {
        self.record.over(state, unix_ms);
        let killed = dorm_agent_proto::ExitStatus::Signal(Signal::KILL.number());
        self.log.exit = Some(self.record.last_exit.unwrap_or(killed));
    }
}

fn interval_us(spec: &ServiceSpec) -> u64 {
    spec.health.as_ref().map_or(u64::MAX / 2, |check| check.interval_ms.saturating_mul(1000))
}
