//! The host: what all containers share, where their files are, and which of them the notes name.
//!
//! This module does not know how containers are created or removed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dorm_cgroup::{Cgroup, IoLimits};
use dorm_engine::{ForeignRun, Mount, Network};
use dorm_guest_ids::GuestIds;
use dorm_steps::AnySteps;
use serde::Deserialize;
use tokio::sync::RwLock;

use crate::agents::Agents;
use crate::blocking::blocking;
use crate::builds::Builds;
use crate::container::Container;
use crate::control::Control;
use crate::error::{GvisorError, chain};
use crate::notes::{Home, Note, Processes};
use crate::process::Identity;
use crate::said::Said;
use crate::slots;

/// The shared settings and state for creating containers on this host.
pub(crate) struct Host {
    pub(crate) builds: Builds,
    pub(crate) agents: Agents,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) containers: PathBuf,
    /// The directory passed as `runsc --root`.
    pub(crate) root: PathBuf,
    /// The directory of formatted, empty disks, by size.
    pub(crate) blanks: PathBuf,
    pub(crate) cgroup_prefix: String,
    /// The host IDs of guests.
    pub(crate) guest_ids: GuestIds,
    /// The ID of the data directory, which every note contains.
    pub(crate) owner: String,
    pub(crate) unlimited_disks: bool,
    pub(crate) io: IoLimits,
    pub(crate) boot: String,
    /// Held for reading while a lease has been requested from the network and is not yet in a note.
    pub(crate) leasing: RwLock<()>,
    /// The homes of all containers that this daemon process has created.
    pub(crate) made: Mutex<HashSet<PathBuf>>,
    pub(crate) steps: AnySteps,
}

impl Host {
    /// Marks that everything before `step` has been done to the host.
    pub(crate) fn reach(&self, step: &'static str) -> Result<(), GvisorError> {
        Ok(self.steps.reach(step)?)
    }

    pub(crate) fn group_name(&self, home: &Home) -> String {
        format!("{}/{}", self.cgroup_prefix, home.id())
    }

    /// Returns the processes of the container from the state file of `runsc`.
    pub(crate) fn processes(&self, home: &Home, said: &Said) -> Result<Processes, GvisorError> {
        let path = self.state_file(home);
        let state = match read_state(&path)? {
            Some(state) => state,
            None => return Err(GvisorError::file("read", path, io::ErrorKind::NotFound)),
        };
        match Identity::of(state.sandbox.pid) {
            Some(sandbox) => Ok(Processes { sandbox, gofer: Identity::of(state.gofer), socket: state.sandbox.socket }),
            None => Err(GvisorError::Died { said: said.last_words() }),
        }
    }

    /// Returns the processes that may belong to the container, from the state file of `runsc`. Used
    /// when the note does not name them yet.
    pub(crate) fn stray_processes(&self, home: &Home) -> Vec<Identity> {
        let Ok(Some(state)) = read_state(&self.state_file(home)) else { return Vec::new() };
        [state.sandbox.pid, state.gofer].into_iter().filter_map(Identity::of).collect()
    }

    /// Returns the present path of a control socket whose path is in a note. The data directory may
    /// have been moved since the note was written.
    pub(crate) fn socket_now(&self, noted: &Path) -> PathBuf {
        match noted.file_name() {
            Some(name) if noted.is_absolute() => self.root.join(name),
            // A socket in the abstract namespace.
            Some(_) | None => noted.to_owned(),
        }
    }

    fn state_file(&self, home: &Home) -> PathBuf {
        self.root.join(format!("{id}_sandbox:{id}.state", id = home.id()))
    }

    /// Returns the files that `runsc` keeps outside the container's home.
    pub(crate) fn runsc_files(&self, home: &Home) -> [PathBuf; 3] {
        let id = home.id();
        [
            self.state_file(home),
            self.root.join(format!("{id}_sandbox:{id}.lock")),
            self.root.join(format!("runsc-{id}.sock")),
        ]
    }

    /// Returns the notes of this data directory.
    pub(crate) fn own_notes(&self) -> Result<Vec<(Home, Note)>, GvisorError> {
        let mut noted = self.noted()?;
        noted.retain(|(_, note)| note.foreign_owner(&self.owner).is_none());
        Ok(noted)
    }

    /// Returns the live runs of other data directories that have notes here.
    pub(crate) fn foreign_runs(&self) -> Result<Vec<ForeignRun>, GvisorError> {
        let foreign = |(_, note): (Home, Note)| {
            let owner = note.foreign_owner(&self.owner)?.to_owned();
            note.is_alive(&self.boot).then(|| note.run()).flatten().map(|run| ForeignRun { run, owner })
        };
        Ok(self.noted()?.into_iter().filter_map(foreign).collect())
    }

    /// Returns all readable notes.
    fn noted(&self) -> Result<Vec<(Home, Note)>, GvisorError> {
        let mut noted = Vec::new();
        for home in Home::all(&self.containers)? {
            match home.read() {
                Ok(Some(note)) => noted.push((home, note)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(container = home.id(), error = %chain(&error), "cannot read the note of a container");
                }
            }
        }
        Ok(noted)
    }

    /// Returns whether a container has processes, regardless of its note.
    pub(crate) fn has_processes(&self, home: &Home) -> bool {
        let group = Cgroup::find(&self.group_name(home)).ok().flatten();
        // If a group cannot be read, it may have processes.
        group.is_some_and(|group| group.pids().map_or(true, |pids| !pids.is_empty()))
    }

    /// Returns the container that `note` describes; `None` if its creation was not completed, or it
    /// belongs to an earlier boot.
    pub(crate) fn find_container(&self, home: &Home, note: &Note) -> Result<Option<Container>, GvisorError> {
        let Some(processes) = note.processes.clone().filter(|_| note.boot == self.boot) else { return Ok(None) };
        let Some(group) = Cgroup::find(&self.group_name(home))? else { return Ok(None) };
        let processes = Processes { socket: self.socket_now(&processes.socket), ..processes };
        let control = Control::new(processes.socket.clone());
        let said = match Said::open(home) {
            Ok(said) => Some(said),
            Err(error) => {
                tracing::warn!(container = home.id(), error = %chain(&error), "cannot read the standard error of a sandbox");
                None
            }
        };
        let (home, lease, steps) = (home.clone(), note.lease(), self.steps.clone());
        Ok(Some(Container { home, processes, control, lease, group, said, io: self.io, steps }))
    }

    /// Makes `mounts` the only mounts of a container.
    pub(crate) async fn set_mounts(&self, home: &Home, mounts: &[Mount]) -> Result<(), GvisorError> {
        let (home, mounts) = (home.clone(), mounts.to_vec());
        blocking(move || slots::set(&home, &mounts)).await?;
        self.reach("gvisor: volumes mounted")
    }
}

#[derive(Deserialize)]
struct State {
    sandbox: SandboxState,
    #[serde(rename = "goferPid")]
    gofer: i32,
}

#[derive(Deserialize)]
struct SandboxState {
    pid: i32,
    #[serde(rename = "controlSocketPath")]
    socket: PathBuf,
}

#[allow(clippy::disallowed_methods, reason = "it is called in place or on a thread that may block")]
fn read_state(path: &Path) -> Result<Option<State>, GvisorError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| GvisorError::Text { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(GvisorError::file("read", path, source)),
    }
}
