//! What the engine writes down about each container before it touches the host, so that a restarted daemon knows what
//! there may be.
//!
//! A *container* is one `runsc` container from its making to its removal: first empty, then a run's. Its directory holds
//! everything that belongs to it on disk:
//!
//! ```text
//! containers/<id>/note.json   this note, removed last
//!            note.copy   the same again, for when the first cannot be read
//!            bundle/     config.json
//!            in, out     the agent's standard input and output
//!            said        its standard error, and that of runsc create
//!            disk/       what the guest writes
//! ```
//! What guests have to pass to lies outside: see [`crate::root`].

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

/// What a container is there for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Duty {
    /// To be taken by a run some time.
    Warm,
    /// A run has it.
    Run { run: String, phase: Phase },
}

/// How far a run is, and what was about to be done with it when this was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// The agent has not answered yet.
    Beginning,
    /// The guest runs.
    Running,
    /// The guest was about to be paused: ask it.
    Pausing,
    /// The guest stands still.
    Paused,
    /// The guest was about to go on: ask it.
    Resuming,
    /// The run was about to be removed.
    Stopping,
}

/// Whether a container has a network of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reach {
    /// It has a lease.
    Networked,
    /// It has loopback only.
    Alone,
}

/// What is known of a container's lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeaseNote {
    /// It has none.
    None,
    /// One was about to be asked for: there may be one that no note names.
    Asking,
    /// It has this one.
    Held(HeldLease),
}

/// A [`Lease`] as it is written down.
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

/// A container's processes, as soon as there are any.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Processes {
    pub(crate) sandbox: Identity,
    pub(crate) gofer: Option<Identity>,
    /// The control socket; begins with NUL in the abstract namespace.
    pub(crate) socket: PathBuf,
}

/// All that is written down about one container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The version of this format.
    pub(crate) format: u32,
    /// The data directory that it belongs to; none in a note of before that was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// The boot of the host it belongs to: after another, nothing of it runs.
    pub(crate) boot: String,
    /// The digest of its image, and the ids of the layers on it.
    pub(crate) image: String,
    pub(crate) reach: Reach,
    pub(crate) disk_bytes: u64,
    /// The guest's memory, once a run has it.
    pub(crate) memory_bytes: u64,
    pub(crate) lease: LeaseNote,
    pub(crate) processes: Option<Processes>,
    pub(crate) duty: Duty,
    /// What its disk has lost of what the guest wrote. The kernel tells of it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost_writes: Option<String>,
    /// The build of `runsc` that runs it; none in a note of before that was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) build: Option<String>,
}

/// What a container's root filesystem is made of, as it is written down.
pub(crate) fn root_key(image: &Digest, layers: &[Layer]) -> String {
    layers.iter().fold(image.as_str().to_owned(), |key, layer| format!("{key}+{}", layer.id))
}

pub(crate) const FORMAT: u32 = 1;

impl Note {
    /// The run that has the container.
    pub(crate) fn run(&self) -> Option<RunId> {
        match &self.duty {
            Duty::Warm => None,
            Duty::Run { run, .. } => run.parse().ok(),
        }
    }

    /// Another data directory that it belongs to: this one is a copy of that.
    pub(crate) fn foreign_owner(&self, own: &str) -> Option<&str> {
        self.owner.as_deref().filter(|owner| *owner != own)
    }

    /// Whether its sandbox still runs, in the boot of the host that is called `boot`.
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

    pub(crate) fn is_for(&self, root: &str, reach: Reach) -> bool {
        self.image == root && self.reach == reach
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
    /// Which run; none for a container that waits for one.
    pub run: Option<RunId>,
    /// The data directory that it belongs to, where the note says so.
    pub owner: Option<String>,
    /// Whether its sandbox runs on this host now.
    pub is_alive: bool,
}

/// What the notes in an engine's directory say, for whoever must know before an engine is opened there. Notes that cannot
/// be read are left out. Changes nothing.
///
/// # Errors
/// When the directory cannot be read. One that is not there holds no notes.
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
    /// The home of a container that does not exist yet.
    pub(crate) fn new(containers: &Path) -> Result<Self, GvisorError> {
        let mut bytes = [0_u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|source| GvisorError::system("get random bytes", source))?;
        let id = format!("h{:016x}", u64::from_ne_bytes(bytes));
        Ok(Self { directory: containers.join(&id), id })
    }

    /// Every container that has a directory under `containers`.
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

    /// The container's id, which is the container's too.
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

    /// Where its root filesystem is mounted, if it has layers.
    pub(crate) fn root(&self) -> PathBuf {
        let containers = self.directory.parent().unwrap_or(&self.directory);
        crate::root::directory(containers).join(&self.id)
    }

    pub(crate) fn note(&self) -> PathBuf {
        self.directory.join("note.json")
    }

    /// The same as the note. It is removed before the note.
    pub(crate) fn copy(&self) -> PathBuf {
        self.directory.join("note.copy")
    }

    /// Writes the note, wholly or not at all. It is not synced: after a crash of the host nothing of it runs.
    pub(crate) fn write(&self, note: &Note) -> Result<(), GvisorError> {
        let draft = self.directory.join("note.draft");
        let text = serde_json::to_vec(note).map_err(|source| GvisorError::Text { path: draft.clone(), source })?;
        for path in [self.note(), self.copy()] {
            fs::write(&draft, &text).map_err(|source| GvisorError::file("write", &draft, source))?;
            fs::rename(&draft, path).map_err(|source| GvisorError::file("rename", &draft, source))?;
        }
        Ok(())
    }

    /// Reads the note, or its copy when the note cannot be read; `None` when there is none (yet, or any more).
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
