//! Services: processes that are started again when they end, and whose health is checked.
//!
//! A thread for each service waits for the end of its process. It belongs to the sandbox: it
//! continues while no host is connected, and across a suspend and a resume. From the moment the
//! host has the agent quiet until the run continues or a new one has its identity, time does not
//! count ([`clock`]) and no process is started again.
//!
//! ```text
//!            ┌── pause ◄── rules say so ◄──┐
//!            ▼                             │
//! start ► process ── ends, or is killed since unhealthy ── rules say no, or stopped ► over
//! ```

mod clock;
mod launcher;
mod probe;
mod supervise;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dorm_agent_proto::{
    Answer, End, Event, Failure, ProcessStarted, ServiceName, ServiceSpec, ServiceStatus, Variable,
};

use self::clock::Clock;
use self::launcher::Launcher;
use self::supervise::Service;
use crate::call::Call;
use crate::link::Gone;
use crate::lock::lock;
use crate::process::{Log, Processes};

/// How many services there may be, with those that are over.
const SERVICES_MAX: usize = 64;
const STACK_BYTES: usize = 256 << 10;

/// All services, by name.
pub(crate) struct Services {
    all: Mutex<BTreeMap<ServiceName, Arc<Service>>>,
    clock: Arc<Clock>,
    launcher: Launcher,
}

impl Services {
    /// None yet. Their processes get these variables, as they are at the time of a start.
    pub(crate) fn new(processes: Arc<Processes>, variables: Arc<Mutex<Vec<Variable>>>) -> Self {
        let launcher = Launcher { processes, variables };
        Self { all: Mutex::default(), clock: Arc::default(), launcher }
    }

    /// Starts a service, and returns its first process.
    pub(crate) fn start(&self, spec: ServiceSpec) -> Result<ProcessStarted, Failure> {
        spec.check()?;
        let mut all = lock(&self.all);
        match all.get(&spec.name) {
            Some(there) if !there.status().state.is_over() => {
                return Err(Failure::ServiceActive { name: spec.name });
            }
            Some(_) => {}
            None if all.len() >= SERVICES_MAX => {
                let reason = format!("there are {SERVICES_MAX} services already: remove some first");
                return Err(Failure::Invalid { reason });
            }
            None => {}
        }
        let name = spec.name.clone();
        let (service, started) = Service::start(&self.launcher, spec, Arc::clone(&self.clock))?;
        let (of_thread, launcher) = (Arc::clone(&service), self.launcher.clone());
        let thread = thread::Builder::new().name("service".to_owned()).stack_size(STACK_BYTES);
        if thread.spawn(move || of_thread.supervise(&launcher)).is_err() {
            // Nothing would supervise it.
            let _ = self.launcher.processes.kill_tree(started.process);
            return Err(Failure::Busy);
        }
        all.insert(name, service);
        Ok(started)
    }

    /// Sends all services, ordered by name.
    pub(crate) fn list(&self, call: &Call) -> Result<(), Gone> {
        let all: Vec<ServiceStatus> = lock(&self.all).values().map(|service| service.status()).collect();
        call.answer(&Ok(Answer::Follows))?;
        for status in all {
            call.event(&Event::Service(status))?;
        }
        call.end(&End::Complete)
    }

    /// Sends the status of one service.
    pub(crate) fn describe(&self, call: &Call, name: &ServiceName) -> Result<(), Gone> {
        match self.find(name) {
            Err(failure) => call.answer(&Err(failure)),
            Ok(service) => {
                call.answer(&Ok(Answer::Follows))?;
                call.event(&Event::Service(service.status()))?;
                call.end(&End::Complete)
            }
        }
    }

    /// Sends the events of a service behind the number `after`.
    pub(crate) fn events(&self, call: &Call, name: &ServiceName, after: u64, most: u32) -> Result<(), Gone> {
        match self.find(name) {
            Err(failure) => call.answer(&Err(failure)),
            Ok(service) => {
                call.answer(&Ok(Answer::Follows))?;
                for event in service.events(after, most as usize) {
                    call.event(&Event::ServiceEvent(event))?;
                }
                call.end(&End::Complete)
            }
        }
    }

    /// Ends a service with all its processes.
    pub(crate) fn stop(&self, name: &ServiceName, grace: Duration) -> Result<(), Failure> {
        self.find(name)?.stop(&self.launcher, grace)
    }

    /// Forgets a service that is over.
    pub(crate) fn remove(&self, name: &ServiceName) -> Result<(), Failure> {
        let mut all = lock(&self.all);
        let service = all.get(name).ok_or_else(|| Failure::NoService { name: name.clone() })?;
        if !service.status().state.is_over() {
            return Err(Failure::ServiceActive { name: name.clone() });
        }
        all.remove(name);
        Ok(())
    }

    pub(crate) fn log(&self, name: &ServiceName) -> Result<Log, Failure> {
        Ok(self.find(name)?.log())
    }

    /// Does not count time, sends no probes and starts nothing again, until [`Services::resume`].
    pub(crate) fn pause(&self) {
        self.clock.stop();
    }

    pub(crate) fn resume(&self) {
        self.clock.resume();
    }

    /// Resumes without [`Services::resume`] if that does not come soon.
    pub(crate) fn resume_soon(&self) {
        self.clock.give_up_soon();
    }

    fn find(&self, name: &ServiceName) -> Result<Arc<Service>, Failure> {
        lock(&self.all).get(name).cloned().ok_or_else(|| Failure::NoService { name: name.clone() })
    }
}
