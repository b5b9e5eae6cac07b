//! The note of each container, which the engine writes before it changes the host, so that a
//! restarted daemon knows what may exist.
//!
//! A *container* is one `runsc` container from its creation to its removal; it is first empty and
//! then assigned to a run. Its directory contains everything that belongs to it on disk:
//!
//! ```text
//! containers/<id>/note.json   this note, removed last
//!            note.copy   a copy, used if the note cannot be read
//!            bundle/     config.json
//!            in, out     the agent's standard input and output
//!            said        standard error of the agent and of runsc create
//!            disk/       the files that the guest writes
//! ```
//! Files that guests must be able to traverse are elsewhere: see [`crate::root`].

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use dorm_engine::{Layer, Lease, LeaseId};
use dorm_lifecycle::{Digest, RunId};
use serde::{Deserialize, Serialize};

use crate::error::GvisorError;
use crate::process::Identity;

/// The purpose of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Duty {
    /// Kept warm, to be taken by a run.
    Warm,
    /// Assigned to a run.
    Run { run: String, phase: Phase },
}

/// The phase of a run, or the operation that was about to be executed when the note was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// The agent has not answered yet.
    Beginning,
    /// The guest runs.
    Running,
    /// The guest was about to be paused; its state must be queried.
    Pausing,
    /// The guest is paused.
    Paused,
    /// The guest was about to be resumed; its state must be queried.
    Resuming,
    /// The run was about to be removed.
    Stopping,
}

/// Whether a container has a network of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reach {
    /// The container has a lease.
    Networked,
    /// The container has only a loopback interface.
    Alone,
}

/// The recorded state of a container's lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeaseNote {
    /// The container has no lease.
    None,
    /// A lease was about to be requested. There may be one that no note names.
    Asking,
    /// The container has this lease.
    Held(HeldLease),
}

/// A [`Lease`] as stored in the note.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct HeldLease {
    id: u16,
    namespace: PathBuf,
    interface: String,
    mac: [u8; 6],
    address: Ipv4Addr,
    prefix: u8,
    gateway: Ipv4Addr,
}

impl From<Lease> for HeldLease {
    fn from(lease: Lease) -> Self {
        let Lease { id, namespace, interface, mac, address, prefix, gateway } = lease;
        Self { id: id.0, namespace, interface, mac, address, prefix, gateway }
    }
}

impl From<HeldLease> for Lease {
    fn from(held: HeldLease) -> Self {
        let HeldLease { id, namespace, interface, mac, address, prefix, gateway } = held;
        Self { id: LeaseId(id), namespace, interface, mac, address, prefix, gateway }
    }
}

/// A container's processes, once it has some.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Processes {
    pub(crate) sandbox: Identity,
    pub(crate) gofer: Option<Identity>,
    /// The control socket; begins with NUL if it is in the abstract namespace.
    pub(crate) socket: PathBuf,
}

/// The note of one container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The version of this format.
    pub(crate) format: u32,
    /// The data directory that the container belongs to.
    pub(crate) owner: String,
    /// The boot of the host. After another boot, the container has no processes.
    pub(crate) boot: String,
    /// The digest of its image, and the IDs of the layers above it.
    pub(crate) image: String,
    pub(crate) reach: Reach,
    pub(crate) disk_bytes: u64,
    /// The guest's memory limit, once the container is assigned to a run.
    pub(crate) memory_bytes: u64,
    pub(crate) lease: LeaseNote,
    pub(crate) processes: Option<Processes>,
    pub(crate) duty: Duty,
    /// The writes of the guest that its disk has lost. The kernel reports each loss only once.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) lost_writes: Option<String>,
    /// The build of `runsc` that runs it.
    pub(crate) build: String,
}

/// Returns the key of a container's root file system, as stored in notes.
pub(crate) fn root_key(image: &Digest, layers: &[Layer]) -> String {
    layers.iter().fold(image.as_str().to_owned(), |key, layer| format!("{key}+{}", layer.id))
}

pub(crate) const FORMAT: u32 = 1;

impl Note {
    /// Returns the run that the container is assigned to.
    pub(crate) fn run(&self) -> Option<RunId> {
        match &self.duty {
            Duty::Warm => None,
            Duty::Run { run, .. } => run.parse().ok(),
        }
    }

    /// Returns the other data directory that the container belongs to, if this one is a copy of it.
    pub(crate) fn foreign_owner(&self, own: &str) -> Option<&str> {
        (self.owner != own).then_some(self.owner.as_str())
    }

    /// Returns whether its sandbox still runs in the boot `boot` of the host.
    pub(crate) fn is_alive(&self, boot: &str) -> bool {
        self.boot == boot && self.processes.as_ref().is_some_and(|processes| processes.sandbox.is_alive())
    }

    pub(crate) fn phase(&self) -> Phase {
        match &self.duty {
            Duty::Warm => Phase::Beginning,
            Duty::Run { phase, .. } => *phase,
        }
    }

    pub(crate) fn lease(&self) -> Option<Lease> {
        match &self.lease {
            LeaseNote::Held(held) => Some(held.clone().into()),
            LeaseNote::None | LeaseNote::Asking => None,
        }
    }

    pub(crate) fn is_for(&self, root: &str, disk_bytes: u64) -> bool {
        self.image == root && self.disk_bytes == disk_bytes
    }
}

/// The directory of one container.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Home {
    directory: PathBuf,
    id: String,
}

/// A run that a note names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotedRun {
    /// The run; `None` for a warm container.
    pub run: Option<RunId>,
    /// The data directory that it belongs to.
    pub owner: String,
    /// Whether its sandbox runs on this host now.
    pub is_alive: bool,
}

/// Returns the content of the notes in an engine's directory, for callers that need it before an
/// engine is opened there. Skips notes that cannot be read. Changes nothing.
///
/// # Errors
/// When the directory cannot be read. A missing directory contains no notes.
pub fn noted_runs(directory: &Path) -> io::Result<Vec<NotedRun>> {
    let boot = crate::process::boot();
    let homes = match fs::read_dir(directory.join("containers")) {
        Ok(homes) => homes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut noted = Vec::new();
    for home in homes {
        let home = home?;
        let home = Home { directory: home.path(), id: home.file_name().to_string_lossy().into_owned() };
        let Some(note) = home.read().ok().flatten() else { continue };
        noted.push(NotedRun { run: note.run(), is_alive: note.is_alive(&boot), owner: note.owner });
    }
    Ok(noted)
}

impl Home {
    /// Creates the home of a container that does not exist yet.
    pub(crate) fn new(containers: &Path) -> Result<Self, GvisorError> {
        let mut bytes = [0_u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|source| GvisorError::system("get random bytes", source))?;
        let id = format!("h{:016x}", u64::from_ne_bytes(bytes));
        Ok(Self { directory: containers.join(&id), id })
    }

    /// Returns every container that has a directory below `containers`.
    pub(crate) fn all(containers: &Path) -> Result<Vec<Self>, GvisorError> {
        let entries = fs::read_dir(containers).map_err(|source| GvisorError::file("read", containers, source))?;
        let mut homes = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| GvisorError::file("read", containers, source))?;
            if let Ok(id) = entry.file_name().into_string() {
                homes.push(Self { directory: entry.path(), id });
            }
        }
        Ok(homes)
    }

    /// Returns the container's ID.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn bundle(&self) -> PathBuf {
        self.directory.join("bundle")
    }

    pub(crate) fn input(&self) -> PathBuf {
        self.directory.join("in")
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.directory.join("out")
    }

    pub(crate) fn said(&self) -> PathBuf {
        self.directory.join("said")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.directory.join("disk")
    }

    /// Returns the mount point of its root file system.
    pub(crate) fn root(&self) -> PathBuf {
        let containers = self.directory.parent().unwrap_or(&self.directory);
        crate::root::directory(containers).join(&self.id)
    }

    pub(crate) fn note(&self) -> PathBuf {
        self.directory.join("note.json")
    }

    /// Returns the path of the copy of the note. It is removed before the note.
    pub(crate) fn copy(&self) -> PathBuf {
        self.directory.join("note.copy")
    }

    /// Writes the note atomically. It is not synced: after a crash of the host the container has no
    /// processes.
    pub(crate) fn write(&self, note: &Note) -> Result<(), GvisorError> {
        let draft = self.directory.join("note.draft");
        let text = serde_json::to_vec(note).map_err(|source| GvisorError::Text { path: draft.clone(), source })?;
        for path in [self.note(), self.copy()] {
            fs::write(&draft, &text).map_err(|source| GvisorError::file("write", &draft, source))?;
            fs::rename(&draft, path).map_err(|source| GvisorError::file("rename", &draft, source))?;
        }
        Ok(())
    }

    /// Reads the note, or its copy if the note cannot be read; `None` if there is no note.
    pub(crate) fn read(&self) -> Result<Option<Note>, GvisorError> {
        let error = match read(self.note()) {
            Ok(note) => return Ok(note),
            Err(error) => error,
        };
        match read(self.copy()) {
            Ok(Some(note)) => {
                tracing::warn!(container = self.id, error = %crate::error::chain(&error), "cannot read a note; using its copy");
                Ok(Some(note))
            }
            Ok(None) | Err(_) => Err(error),
        }
    }
}

fn read(path: PathBuf) -> Result<Option<Note>, GvisorError> {
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(GvisorError::file("read", path, source)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|source| GvisorError::Text { path, source })
}
