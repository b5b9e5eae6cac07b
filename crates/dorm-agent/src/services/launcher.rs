//! Starts the processes of services.

use std::sync::{Arc, Mutex};

use dorm_agent_proto::{Failure, ProcessSpec, Variable};

use crate::lock::lock;
use crate::process::{Log, Process, Processes};

/// The processes of the sandbox, and its present variables.
#[derive(Clone)]
pub(super) struct Launcher {
    pub(super) processes: Arc<Processes>,
    pub(super) variables: Arc<Mutex<Vec<Variable>>>,
}

impl Launcher {
    /// Starts a process whose output is also added to a log.
    pub(super) fn start(&self, spec: ProcessSpec, log: Log) -> Result<Arc<Process>, Failure> {
        let variables = lock(&self.variables).clone();
        self.processes.start_logged(spec, &variables, log)
    }
}
