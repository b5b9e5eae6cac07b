//! The state that all calls share.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dorm_agent_proto::{Failure, ProcessSpec, ProcessStarted, Signal, Target, Variable};

use crate::connections::Connections;
use crate::files::Watchers;
use crate::link::Link;
use crate::lock::lock;
use crate::mounts::Mounts;
use crate::places::Places;
use crate::process::Processes;
use crate::services::Services;
use crate::workers::Workers;

/// How many searches may be made at the same time.
const SEARCHES_MAX: u32 = 32;

/// The agent.
pub(crate) struct Agent {
    pub(crate) root: PathBuf,
    pub(crate) link: Arc<Link>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) connections: Arc<Connections>,
    /// The variables of every process.
    pub(crate) variables: Arc<Mutex<Vec<Variable>>>,
    /// The generation of the last `Resumed`.
    pub(crate) generation: AtomicU64,
    /// The mounted volumes.
    pub(crate) mounts: Mounts,
    /// The directories whose changes are kept for the host.
    pub(crate) watchers: Watchers,
    /// The processes that are started again when they end.
    pub(crate) services: Services,
    /// The searches in files.
    pub(crate) searches: Arc<Places>,
    /// Held while an identity is being applied.
    pub(crate) resuming: Mutex<()>,
}

impl Agent {
    pub(crate) fn new(root: PathBuf) -> io::Result<Self> {
        use std::os::unix::ffi::OsStringExt;

        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Variable::new(name.into_vec(), value.into_vec()).ok())
            .collect();
        let variables = Arc::new(Mutex::new(variables));
        let processes = Processes::start_threads()?;
        let services = Services::new(Arc::clone(&processes), Arc::clone(&variables));
        Ok(Self {
            root,
            link: Arc::new(Link::new()),
            processes,
            workers: Arc::new(Workers::new()),
            connections: Connections::start_thread()?,
            variables,
            generation: AtomicU64::new(0),
            mounts: Mounts::default(),
            watchers: Watchers::default(),
            services,
            searches: Places::new("searches", SEARCHES_MAX),
            resuming: Mutex::new(()),
        })
    }

    /// Starts a process with the sandbox's variables.
    pub(crate) fn start(&self, spec: ProcessSpec) -> Result<ProcessStarted, Failure> {
        let variables = lock(&self.variables).clone();
        self.processes.start(spec, &variables)
    }

    /// Starts a process that is killed, with its group, after some time.
    pub(crate) fn start_within(&self, spec: ProcessSpec, limit: Duration) -> Result<ProcessStarted, Failure> {
        let started = self.start(spec)?;
        self.limit(started, limit)
    }

    /// Starts a process with all of its input, and a time limit if it has one.
    pub(crate) fn start_with_input(
        &self,
        spec: ProcessSpec,
        input: Vec<u8>,
        limit: Option<Duration>,
    ) -> Result<ProcessStarted, Failure> {
        let variables = lock(&self.variables).clone();
        let started = self.processes.start_with_input(spec, &variables, input)?;
        limit.map_or(Ok(started), |limit| self.limit(started, limit))
    }

    fn limit(&self, started: ProcessStarted, limit: Duration) -> Result<ProcessStarted, Failure> {
        if let Err(failure) = self.processes.limit(started.process, limit) {
            // It may have ended already.
            let _ = self.processes.signal(started.process, Signal::KILL, Target::Group);
            return Err(failure);
        }
        Ok(started)
    }
}
