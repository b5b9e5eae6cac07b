#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! The files of volumes: storage that outlives sandboxes, each with a size that it cannot exceed.
//!
//! ```text
//! volumes/<id>/disk.img   a file system of the volume's size
//!              mnt        where it is mounted as long as a run may have it
//!              plain      its content instead, on a host that cannot limit sizes
//! volumes/.new-<id>       one that is being made
//! ```
//!
//! It knows no sandbox and no lease: whoever keeps the records says what is to be mounted and what is to go. Every call may
//! be repeated after a crash in the middle of it.

mod error;
mod files;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dorm_disk::{DiskError, KeptDisk};
use dorm_lifecycle::{SubPath, VolumeId};
use dorm_steps::AnySteps;
use tokio::sync::Mutex;

pub use error::VolumeError;
pub use files::{FileEntry, FileKind, NewFile};

/// Host id of the guests' root, who owns what is on a volume.
const GUEST_ROOT: u32 = 100_000;
const PLAIN: &str = "plain";
const NEW: &str = ".new-";

/// Whether sizes are limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limiting {
    /// Where the host can; else a warning is logged.
    WherePossible,
    /// Never: for tests without loop devices.
    Never,
}

/// How a volume is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// It is whole, and nobody has it mounted.
    Idle,
    /// It is mounted.
    Mounted {
        /// What fits on it, in bytes.
        size_bytes: u64,
        /// What is used of that.
        used_bytes: u64,
    },
    /// Its files are gone or cannot be used; the reason.
    Broken(String),
}

/// All volumes of a daemon.
#[derive(Clone, Debug)]
pub struct Volumes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    limiting: Limiting,
    steps: AnySteps,
    has_mounted: AtomicBool,
    /// Held by whoever makes, mounts, unmounts or removes.
    at_work: Mutex<()>,
}

impl Volumes {
    /// The volumes in `directory`, which is made with the first of them.
    pub fn new(directory: impl Into<PathBuf>, limiting: Limiting) -> Self {
        Self::with_steps(directory, limiting, dorm_steps::pass())
    }

    /// [`Volumes::new`], with somebody who is asked at each step of everything that changes the disk.
    pub fn with_steps(directory: impl Into<PathBuf>, limiting: Limiting, steps: AnySteps) -> Self {
        Self(Arc::new(Inner {
            directory: directory.into(),
            limiting,
            steps,
            has_mounted: AtomicBool::new(false),
            at_work: Mutex::default(),
        }))
    }

    /// Whether anything was mounted through this.
    pub fn has_mounted(&self) -> bool {
        self.0.has_mounted.load(Ordering::Relaxed)
    }

    /// Makes the files of a volume of `bytes`, durable, whole or not at all.
    ///
    /// # Errors
    /// When there are some already, or the host refuses.
    pub async fn make(&self, id: &VolumeId, bytes: u64) -> Result<(), VolumeError> {
        let id = id.clone();
        self.blocking(move |inner| inner.make(&id, bytes)).await
    }

    /// Makes a volume's files reachable on the host and answers where they are. With `part`, that directory is made where
    /// it is missing.
    ///
    /// # Errors
    /// [`VolumeError::Gone`], or the host refuses.
    pub async fn mount(&self, id: &VolumeId, part: Option<&SubPath>) -> Result<PathBuf, VolumeError> {
        let (id, part) = (id.clone(), part.cloned());
        self.blocking(move |inner| {
            let top = inner.mount(&id)?;
            if let Some(part) = part.filter(|part| !part.is_whole()) {
                files::make_directories(&top, &id, part.as_str(), &inner.steps)?;
            }
            Ok(top)
        })
        .await
    }

    /// Unmounts every volume but those in `keep`. One that the host still needs stays; a later call comes back to it.
    /// Answers how many stay so.
    pub async fn settle(&self, keep: BTreeSet<VolumeId>) -> usize {
        let settled = self.blocking(move |inner| Ok(inner.settle(&keep)));
        settled.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "volumes that nobody uses stay mounted");
            0
        })
    }

    /// Removes a volume's files, whatever there is of them.
    ///
    /// # Errors
    /// When the host refuses.
    pub async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let id = id.clone();
        self.blocking(move |inner| inner.remove(&id)).await
    }

    /// How a volume is.
    pub async fn health(&self, id: &VolumeId) -> Health {
        let looked = id.clone();
        match self.blocking(move |inner| inner.health(&looked)).await {
            Ok(health) => health,
            Err(error) => Health::Broken(chain(&error)),
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let inner = self.0.clone();
        if inner.steps.in_place() {
            let _at_work = inner.at_work.lock().await;
            return work(&inner);
        }
        // To its end, even if nobody waits any more.
        let done = tokio::spawn(async move {
            let _at_work = inner.at_work.lock().await;
            let working = inner.clone();
            tokio::task::spawn_blocking(move || work(&working)).await
        });
        match done.await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) | Err(error) => {
                Err(VolumeError::host("use", &self.0.directory, io::Error::other(error.to_string())))
            }
        }
    }
}

impl Inner {
    fn home(&self, id: &VolumeId) -> PathBuf {
        self.directory.join(id.as_str())
    }

    fn reach(&self, step: &'static str) -> Result<(), VolumeError> {
        let stopped = self.steps.reach(step);
        stopped.map_err(|stopped| VolumeError::host("go on past a step of", &self.directory, stopped.into()))
    }

    fn disk(&self, id: &VolumeId) -> KeptDisk {
        KeptDisk::at(&self.home(id))
    }

    fn make(&self, id: &VolumeId, bytes: u64) -> Result<(), VolumeError> {
        let home = self.home(id);
        if home.exists() {
            return Err(VolumeError::Exists(id.clone()));
        }
        let draft = self.directory.join(format!("{NEW}{id}"));
        make_private(&self.directory)?;
        let filled = remove_draft(id, &draft).and_then(|()| self.fill(id, &draft, bytes));
        let filled = filled.and_then(|()| self.reach("volume: draft made"));
        filled.inspect_err(|_| {
            if let Err(error) = remove_draft(id, &draft) {
                tracing::warn!(%id, error = %chain(&error), "a volume that could not be made was left behind");
            }
        })?;
        fs::rename(&draft, &home).map_err(|source| VolumeError::host("rename to its place", &draft, source))?;
        self.reach("volume: renamed")?;
        sync(&self.directory)
    }

    fn fill(&self, id: &VolumeId, draft: &Path, bytes: u64) -> Result<(), VolumeError> {
        let wrong = |source| VolumeError::Disk { operation: "make", id: id.clone(), source };
        let made = match self.limiting {
            Limiting::WherePossible => KeptDisk::make(draft, bytes).map(Some),
            Limiting::Never => Ok(None),
        };
        let disk = match made {
            Err(error @ DiskError::NoLoop { .. }) => {
                tracing::warn!(%id, error = %chain(&error), "a volume has no limit on this host");
                None
            }
            made => made.map_err(wrong)?,
        };
        match disk {
            Some(disk) => {
                // What mkfs puts there is in the way of programs that want an empty directory.
                disk.mount().map_err(wrong)?;
                let emptied = fs::remove_dir(disk.path().join("lost+found"));
                disk.unmount().map_err(wrong)?;
                emptied.map_err(|source| VolumeError::host("empty", &disk.path(), source))?;
            }
            None => {
                let content = draft.join(PLAIN);
                let made = fs::create_dir_all(&content)
                    .and_then(|()| fs::set_permissions(&content, fs::Permissions::from_mode(0o755)))
                    .and_then(|()| give_to_guests(&content));
                made.map_err(|source| VolumeError::host("create", &content, source))?;
            }
        }
        sync(draft)
    }

    /// Where its content is, mounted or not.
    fn content(&self, id: &VolumeId) -> Result<Content, VolumeError> {
        let (disk, plain) = (self.disk(id), self.home(id).join(PLAIN));
        if disk.exists() {
            return Ok(Content::Disk(disk));
        }
        match plain.is_dir() {
            true => Ok(Content::Plain(plain)),
            false => Err(VolumeError::Gone { id: id.clone(), path: self.home(id) }),
        }
    }

    fn mount(&self, id: &VolumeId) -> Result<PathBuf, VolumeError> {
        match self.content(id)? {
            Content::Plain(path) => Ok(path),
            Content::Disk(disk) => {
                self.has_mounted.store(true, Ordering::Relaxed);
                disk.mount().map_err(|source| VolumeError::Disk { operation: "mount", id: id.clone(), source })?;
                self.reach("volume: mounted")?;
                Ok(disk.path())
            }
        }
    }

    fn settle(&self, keep: &BTreeSet<VolumeId>) -> usize {
        let mut left = 0;
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<VolumeId>().ok()) else { continue };
            if keep.contains(&id) {
                continue;
            }
            let disk = self.disk(&id);
            if disk.is_mounted().is_ok_and(|is_mounted| !is_mounted) {
                continue;
            }
            let unmounted = disk.unmount();
            let unmounted =
                unmounted.map_err(|source| VolumeError::Disk { operation: "unmount", id: id.clone(), source });
            if let Err(error) = unmounted.and_then(|()| self.reach("volume: unmounted")) {
                tracing::debug!(%id, error = %chain(&error), "a volume that nobody uses stays mounted for now");
                left += 1;
            }
        }
        left
    }

    fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        remove_draft(id, &self.directory.join(format!("{NEW}{id}")))?;
        remove_draft(id, &self.home(id))?;
        self.reach("volume: removed")?;
        match self.directory.exists() {
            true => sync(&self.directory),
            false => Ok(()),
        }
    }

    fn health(&self, id: &VolumeId) -> Result<Health, VolumeError> {
        let wrong = |source| VolumeError::Disk { operation: "look at", id: id.clone(), source };
        let Content::Disk(disk) = self.content(id)? else { return Ok(Health::Idle) };
        if !disk.is_mounted().map_err(wrong)? {
            return Ok(Health::Idle);
        }
        let usage = disk.usage().map_err(wrong)?;
        let used_bytes = usage.size_bytes.saturating_sub(usage.available_bytes);
        Ok(Health::Mounted { size_bytes: usage.size_bytes, used_bytes })
    }
}

enum Content {
    Disk(KeptDisk),
    Plain(PathBuf),
}

fn remove_draft(id: &VolumeId, home: &Path) -> Result<(), VolumeError> {
    let removed = KeptDisk::at(home).remove();
    removed.map_err(|source| VolumeError::Disk { operation: "remove", id: id.clone(), source })
}

fn make_private(directory: &Path) -> Result<(), VolumeError> {
    let made =
        fs::create_dir_all(directory).and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)));
    made.map_err(|source| VolumeError::host("create", directory, source))
}

/// Without the right to do so (in tests) they stay ours.
fn give_to_guests(path: &Path) -> io::Result<()> {
    match std::os::unix::fs::lchown(path, Some(GUEST_ROOT), Some(GUEST_ROOT)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

fn sync(directory: &Path) -> Result<(), VolumeError> {
    let synced = fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| VolumeError::host("sync", directory, source))
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests;
