#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! The files of volumes: storage that outlives sandboxes, each volume with a size limit.
//!
//! ```text
//! volumes/<id>/disk.img     a file system of the volume's size
//!              mnt          its mount point, as long as a run may use it
//!              plain        the content instead, on a host that cannot limit sizes
//!              lost-writes  exists if the disk has lost writes
//!              guest-ids    the host IDs with which it was created; they are changed when it is mounted with others
//! volumes/.new-<id>         a volume that is being created
//! ```
//!
//! This crate does not know sandboxes or leases: the caller, which keeps the records, says what to
//! mount and what to remove. Every call may be repeated after a crash in the middle of it.

mod error;
mod files;
mod path;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dorm_disk::{DiskError, KeptDisk, OpenDisk};
use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{SubPath, VolumeId};
use dorm_steps::AnySteps;
use tokio::sync::Mutex;

pub use error::VolumeError;
pub use files::entries::{DEPTH_MAX, ENTRIES_MAX, EntryChange, EntryStat, IfExists, NewEntry, Ownership, Parents};
pub use files::{FileEntry, FileKind, NewFile};
pub use path::{BadPath, EntryPath};

const PLAIN: &str = "plain";
const NEW: &str = ".new-";
/// The journal of a change of the host IDs.
const OWNERS: &str = "owners.journal";

/// Whether sizes are limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limiting {
    /// Creating a volume without a size limit is an error.
    Always,
    /// If the host supports it; otherwise a warning is logged.
    WherePossible,
    /// Never: for tests without loop devices.
    Never,
}

/// The state of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// It is intact and not mounted.
    Idle,
    /// It is mounted.
    Mounted {
        /// Its size in bytes.
        size_bytes: u64,
        /// The used bytes.
        used_bytes: u64,
    },
    /// Its files are missing or cannot be used, for this reason.
    Broken(String),
}

/// All volumes of a daemon.
#[derive(Clone, Debug)]
pub struct Volumes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    limiting: Limiting,
    ids: GuestIds,
    steps: AnySteps,
    has_mounted: AtomicBool,
    /// Held while a volume is created, mounted, unmounted or removed. Each volume has its own lock,
    /// since the disk of one may hang and must not delay others.
    at_work: std::sync::Mutex<BTreeMap<VolumeId, Arc<Mutex<()>>>>,
    /// The same for syncing, which may run while another call mounts the volume.
    syncing: std::sync::Mutex<BTreeMap<VolumeId, Arc<Mutex<()>>>>,
    /// The same for work on the entries of a mounted volume, which can take long: it is taken
    /// before `at_work`, which is not held meanwhile.
    content: std::sync::Mutex<BTreeMap<VolumeId, Arc<Mutex<()>>>>,
    /// The descriptors through which volumes are synced, opened before anything is written: a
    /// failed write that another program has been told of is still reported to these.
    open: std::sync::Mutex<BTreeMap<VolumeId, Arc<Opened>>>,
}

/// The descriptors of a volume that may be written to.
#[derive(Debug)]
enum Opened {
    Disk(OpenDisk),
    Plain(fs::File),
}

/// The top of a mounted volume, which stays mounted as long as this exists.
struct Top {
    path: PathBuf,
    fd: OwnedFd,
}

/// The permissions of the top of a new volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TopMode {
    /// Only the guests' root can write to it. The default.
    #[default]
    Root,
    /// Every user of a guest can write to it.
    Everyone,
}

impl TopMode {
    const fn bits(self) -> u32 {
        match self {
            Self::Root => 0o755,
            Self::Everyone => 0o777,
        }
    }
}

/// Returns the lock of a volume, which is created on first use.
fn lock_of(locks: &std::sync::Mutex<BTreeMap<VolumeId, Arc<Mutex<()>>>>, id: &VolumeId) -> Arc<Mutex<()>> {
    let mut locks = locks.lock().unwrap_or_else(PoisonError::into_inner);
    // A lock that is neither held nor waited for has only this one handle.
    locks.retain(|known, lock| known == id || Arc::strong_count(lock) > 1);
    locks.entry(id.clone()).or_default().clone()
}

/// How long `settle` waits for the disk of an unused volume; unmounting continues in the
/// background.
const SETTLE: Duration = Duration::from_secs(1);

impl Volumes {
    /// Returns the volumes in `directory`, which is created with the first of them.
    pub fn new(directory: impl Into<PathBuf>, limiting: Limiting) -> Self {
        Self::with_steps(directory, limiting, dorm_steps::pass())
    }

    /// Like [`Volumes::new`], with a hook for each step that changes the disk.
    pub fn with_steps(directory: impl Into<PathBuf>, limiting: Limiting, steps: AnySteps) -> Self {
        Self::for_guests(directory, limiting, GuestIds::DEFAULT, steps)
    }

    /// Like [`Volumes::with_steps`], for guests with these host IDs. A volume that was created with
    /// others is changed to these when it is mounted; no run with other IDs may exist then.
    pub fn for_guests(directory: impl Into<PathBuf>, limiting: Limiting, ids: GuestIds, steps: AnySteps) -> Self {
        Self(Arc::new(Inner {
            directory: directory.into(),
            limiting,
            ids,
            steps,
            has_mounted: AtomicBool::new(false),
            at_work: std::sync::Mutex::default(),
            syncing: std::sync::Mutex::default(),
            content: std::sync::Mutex::default(),
            open: std::sync::Mutex::default(),
        }))
    }

    /// Returns whether anything was mounted through this value.
    pub fn has_mounted(&self) -> bool {
        self.0.has_mounted.load(Ordering::Relaxed)
    }

    /// Creates the files of a volume of `bytes`, atomically and durably.
    ///
    /// # Errors
    /// When they already exist, or the host refuses.
    pub async fn make(&self, id: &VolumeId, bytes: u64, top: TopMode) -> Result<(), VolumeError> {
        let own = id.clone();
        self.at_work(id, move |inner| inner.make(&own, bytes, top)).await
    }

    /// Mounts a volume and returns the path of its content. With `part`, returns that directory,
    /// which is created if it is missing.
    ///
    /// # Errors
    /// [`VolumeError::Gone`], or the host refuses.
    pub async fn mount(&self, id: &VolumeId, part: Option<&SubPath>) -> Result<PathBuf, VolumeError> {
        let (own, part) = (id.clone(), part.cloned());
        self.at_work(id, move |inner| {
            let top = inner.mount(&own)?;
            if let Some(part) = part.filter(|part| !part.is_whole()) {
                files::make_part(inner, &top, &own, part.as_str())?;
            }
            Ok(top)
        })
        .await
    }

    /// Writes the cached data of a mounted volume to the host's disk. A volume that is not mounted
    /// has nothing to write.
    ///
    /// # Errors
    /// When any written data is lost.
    pub async fn sync(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let own = id.clone();
        let lock = lock_of(&self.0.syncing, id);
        self.blocking(Some(lock), move |inner| inner.sync(&own)).await
    }

    /// Unmounts every volume except those in `keep`. A volume that the host still uses stays, and a
    /// later call tries again. Returns how many stay mounted.
    pub async fn settle(&self, keep: BTreeSet<VolumeId>) -> usize {
        let idle = match self.blocking(None, move |inner| Ok(inner.idle(&keep))).await {
            Ok(idle) => idle,
            Err(error) => {
                tracing::warn!(%error, "cannot unmount unused volumes");
                return 0;
            }
        };
        let unmounted = idle.into_iter().map(|id| async move {
            let own = id.clone();
            let unmounting = self.at_work(&id, move |inner| Ok(inner.unmount(&own)));
            matches!(tokio::time::timeout(SETTLE, unmounting).await, Ok(Ok(true)))
        });
        let unmounted = futures_util::future::join_all(unmounted).await;
        unmounted.into_iter().filter(|is_unmounted| !is_unmounted).count()
    }

    /// Removes a volume's files, complete or not.
    ///
    /// # Errors
    /// When the host refuses.
    pub async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let (volumes, own) = (self.clone(), id.clone());
        let lock = lock_of(&self.0.content, id);
        self.detached(async move {
            // Work on its entries keeps it mounted.
            let _held = lock.lock_owned().await;
            let id = own.clone();
            volumes.at_work(&own, move |inner| inner.remove(&id)).await
        })
        .await
    }

    /// Returns whether the files of a volume exist. They are complete if they do.
    pub async fn exists(&self, id: &VolumeId) -> bool {
        let looked = id.clone();
        self.blocking(None, move |inner| Ok(inner.content(&looked).is_ok())).await.is_ok_and(|exists| exists)
    }

    /// Returns the state of a volume.
    pub async fn health(&self, id: &VolumeId) -> Health {
        let looked = id.clone();
        match self.blocking(None, move |inner| inner.health(&looked)).await {
            Ok(health) => health,
            Err(error) => Health::Broken(chain(&error)),
        }
    }

    async fn at_work<T: Send + 'static>(
        &self,
        id: &VolumeId,
        work: impl FnOnce(&Inner) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        self.blocking(Some(lock_of(&self.0.at_work, id)), work).await
    }

    /// Runs blocking `work` on the content of a volume. It may take long: a run can get the volume
    /// mounted meanwhile.
    async fn with_content<T: Send + 'static>(
        &self,
        id: &VolumeId,
        work: impl FnOnce(&Inner, &Top) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let (volumes, own) = (self.clone(), id.clone());
        let lock = lock_of(&self.0.content, id);
        self.detached(async move {
            let _held = lock.lock_owned().await;
            let id = own.clone();
            let top = volumes.at_work(&own, move |inner| inner.open_top(&id)).await?;
            volumes.blocking(None, move |inner| work(inner, &top)).await
        })
        .await
    }

    /// Awaits `work`, which completes even if the caller is gone.
    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, VolumeError>> + Send + 'static,
    ) -> Result<T, VolumeError> {
        if self.0.steps.in_place() {
            return work.await;
        }
        let done = tokio::spawn(work).await;
        done.unwrap_or_else(|error| {
            Err(VolumeError::host("use", &self.0.directory, io::Error::other(error.to_string())))
        })
    }

    /// Runs blocking `work`. Waiting for the lock takes no thread, so a disk that hangs holds one
    /// at most.
    async fn blocking<T: Send + 'static>(
        &self,
        lock: Option<Arc<Mutex<()>>>,
        work: impl FnOnce(&Inner) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let inner = self.0.clone();
        let held = async move {
            match lock {
                Some(lock) => Some(lock.lock_owned().await),
                None => None,
            }
        };
        if inner.steps.in_place() {
            let _held = held.await;
            let done = if inner.steps.alive() { Some(work(&inner)) } else { None };
            return match done {
                Some(done) if inner.steps.alive() => done,
                // A dead daemon gets no answer.
                Some(_) | None => std::future::pending().await,
            };
        }
        self.detached(async move {
            let _held = held.await;
            let working = inner.clone();
            let done = tokio::task::spawn_blocking(move || work(&working)).await;
            done.unwrap_or_else(|error| {
                Err(VolumeError::host("use", &inner.directory, io::Error::other(error.to_string())))
            })
        })
        .await
    }
}

#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see `Volumes::blocking`")]
impl Inner {
    fn home(&self, id: &VolumeId) -> PathBuf {
        self.directory.join(id.as_str())
    }

    fn reach(&self, step: &'static str) -> Result<(), VolumeError> {
        let stopped = self.steps.reach(step);
        stopped.map_err(|stopped| VolumeError::host("continue past a step of", &self.directory, stopped.into()))
    }

    fn disk(&self, id: &VolumeId) -> KeptDisk {
        KeptDisk::at(&self.home(id))
    }

    fn make(&self, id: &VolumeId, bytes: u64, top: TopMode) -> Result<(), VolumeError> {
        let home = self.home(id);
        if home.exists() {
            return Err(VolumeError::Exists(id.clone()));
        }
        let draft = self.directory.join(format!("{NEW}{id}"));
        make_private(&self.directory)?;
        let filled = remove_draft(id, &draft).and_then(|()| self.fill(id, &draft, bytes, top));
        let filled = filled.and_then(|()| self.reach("volume: draft made"));
        filled.inspect_err(|_| {
            if let Err(error) = remove_draft(id, &draft) {
                tracing::warn!(%id, error = %chain(&error), "cannot remove a volume whose creation failed");
            }
        })?;
        fs::rename(&draft, &home).map_err(|source| VolumeError::host("rename into place", &draft, source))?;
        self.reach("volume: renamed")?;
        sync(&self.directory)
    }

    fn fill(&self, id: &VolumeId, draft: &Path, bytes: u64, top: TopMode) -> Result<(), VolumeError> {
        let wrong = |source| VolumeError::Disk { operation: "make", id: id.clone(), source };
        let made = match self.limiting {
            Limiting::Always | Limiting::WherePossible => KeptDisk::make(draft, self.ids, bytes).map(Some),
            Limiting::Never => Ok(None),
        };
        let disk = match made {
            Err(error @ DiskError::NoLoop { .. }) if self.limiting == Limiting::WherePossible => {
                tracing::warn!(%id, error = %chain(&error), "a volume has no size limit on this host");
                None
            }
            made => made.map_err(wrong)?,
        };
        let permissions = fs::Permissions::from_mode(top.bits());
        match disk {
            Some(disk) => {
                // A program that expects an empty directory must not find `lost+found` there.
                disk.mount().map_err(wrong)?;
                let emptied = fs::remove_dir(disk.path().join("lost+found"))
                    .and_then(|()| fs::set_permissions(disk.path(), permissions));
                disk.unmount().map_err(wrong)?;
                emptied.map_err(|source| VolumeError::host("empty", &disk.path(), source))?;
            }
            None => {
                let content = draft.join(PLAIN);
                let made = fs::create_dir_all(&content)
                    .and_then(|()| fs::set_permissions(&content, permissions))
                    .and_then(|()| give_to_guests(&content, self.ids));
                made.map_err(|source| VolumeError::host("create", &content, source))?;
            }
        }
        dorm_disk::record(draft, self.ids).map_err(wrong)?;
        sync(draft)
    }

    /// Returns the content of a volume, mounted or not.
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
        let path = match self.content(id)? {
            Content::Plain(path) => path,
            Content::Disk(disk) => {
                self.has_mounted.store(true, Ordering::Relaxed);
                disk.mount().map_err(|source| VolumeError::Disk { operation: "mount", id: id.clone(), source })?;
                self.reach("volume: mounted")?;
                disk.path()
            }
        };
        self.open(id)?;
        self.own(id, &path)?;
        Ok(path)
    }

    /// Returns the descriptors of a volume, which are opened if necessary, or `None` if it is not
    /// mounted.
    fn open(&self, id: &VolumeId) -> Result<Option<Arc<Opened>>, VolumeError> {
        let content = self.content(id)?;
        if let Some(opened) = self.opened().get(id) {
            return Ok(Some(opened.clone()));
        }
        let opened = match content {
            Content::Disk(disk) => disk.open().map_err(|error| lost_or("open", id, error))?.map(Opened::Disk),
            Content::Plain(path) => {
                let top = fs::File::open(&path).map_err(|source| VolumeError::host("open", &path, source))?;
                Some(Opened::Plain(top))
            }
        };
        Ok(opened.map(|opened| self.opened().entry(id.clone()).or_insert_with(|| Arc::new(opened)).clone()))
    }

    fn close(&self, id: &VolumeId) {
        let closed = self.opened().remove(id);
        // Closing may wait for the disk, and not with the lock.
        drop(closed);
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, BTreeMap<VolumeId, Arc<Opened>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_top(&self, id: &VolumeId) -> Result<Top, VolumeError> {
        let path = self.mount(id)?;
        let fd = files::open_top(&path).map_err(|source| VolumeError::host("open", &path, source))?;
        Ok(Top { path, fd })
    }

    /// Changes the owners of a volume's files to the present host IDs, if it was created with
    /// others.
    fn own(&self, id: &VolumeId, content: &Path) -> Result<(), VolumeError> {
        let home = self.home(id);
        let (journal, wrong) = (home.join(OWNERS), |source| VolumeError::Disk {
            operation: "change the host IDs of",
            id: id.clone(),
            source,
        });
        let made_for = dorm_disk::recorded(&home).map_err(wrong)?;
        if made_for != self.ids || journal.exists() {
            tracing::info!(%id, from = %made_for, to = %self.ids, "changing the owners of a volume's files to the present host IDs");
            dorm_disk::change_owners(content, &journal, made_for, self.ids).map_err(wrong)?;
            dorm_disk::record(&home, self.ids).map_err(wrong)?;
        }
        dorm_disk::finish_change(&journal).map_err(wrong)
    }

    fn sync(&self, id: &VolumeId) -> Result<(), VolumeError> {
        self.write_back(id)?;
        self.reach("volume: synced")
    }

    fn write_back(&self, id: &VolumeId) -> Result<(), VolumeError> {
        if let Some(cause) = self.recorded_loss(id)? {
            return Err(VolumeError::LostWrites { id: id.clone(), cause });
        }
        match self.open(id)?.as_deref() {
            Some(Opened::Disk(disk)) => disk.sync().map_err(|error| lost_or("sync", id, error)),
            Some(Opened::Plain(top)) => {
                let synced = rustix::fs::syncfs(top);
                synced.map_err(|error| VolumeError::host("sync", &self.home(id), error.into()))
            }
            None => Ok(()),
        }
    }

    fn recorded_loss(&self, id: &VolumeId) -> Result<Option<String>, VolumeError> {
        self.disk(id).recorded_loss().map_err(|error| lost_or("read the state of", id, error))
    }

    /// Returns the mounted volumes that are not in `keep`.
    fn idle(&self, keep: &BTreeSet<VolumeId>) -> Vec<VolumeId> {
        self.opened().retain(|id, opened| keep.contains(id) || matches!(**opened, Opened::Disk(_)));
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<VolumeId>().ok());
        let idle = ids.filter(|id| !keep.contains(id));
        idle.filter(|id| !self.disk(id).is_mounted().is_ok_and(|is_mounted| !is_mounted)).collect()
    }

    /// Unmounts a volume. Returns whether it is unmounted now.
    fn unmount(&self, id: &VolumeId) -> bool {
        // Unmounting writes the cached data too, but does not say if it is lost.
        if let Err(error) = self.write_back(id) {
            tracing::debug!(%id, error = %chain(&error), "cannot sync an unused volume");
        }
        self.close(id);
        let unmounted = self.disk(id).unmount();
        let unmounted = unmounted.map_err(|source| VolumeError::Disk { operation: "unmount", id: id.clone(), source });
        let unmounted = unmounted.and_then(|()| self.reach("volume: unmounted"));
        if let Err(error) = &unmounted {
            tracing::debug!(%id, error = %chain(error), "cannot unmount an unused volume yet");
        }
        unmounted.is_ok()
    }

    fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        self.close(id);
        remove_draft(id, &self.directory.join(format!("{NEW}{id}")))?;
        remove_draft(id, &self.home(id))?;
        self.reach("volume: removed")?;
        match self.directory.exists() {
            true => sync(&self.directory),
            false => Ok(()),
        }
    }

    fn health(&self, id: &VolumeId) -> Result<Health, VolumeError> {
        let wrong = |source| VolumeError::Disk { operation: "read the state of", id: id.clone(), source };
        let Content::Disk(disk) = self.content(id)? else { return Ok(Health::Idle) };
        if let Some(cause) = self.recorded_loss(id)? {
            return Ok(Health::Broken(VolumeError::LostWrites { id: id.clone(), cause }.to_string()));
        }
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

fn lost_or(operation: &'static str, id: &VolumeId, error: DiskError) -> VolumeError {
    match error {
        DiskError::LostWrites(cause) => VolumeError::LostWrites { id: id.clone(), cause },
        source => VolumeError::Disk { operation, id: id.clone(), source },
    }
}

fn remove_draft(id: &VolumeId, home: &Path) -> Result<(), VolumeError> {
    let removed = KeptDisk::at(home).remove();
    removed.map_err(|source| VolumeError::Disk { operation: "remove", id: id.clone(), source })
}

#[allow(clippy::disallowed_methods, reason = "it runs on threads that may block")]
fn make_private(directory: &Path) -> Result<(), VolumeError> {
    let made =
        fs::create_dir_all(directory).and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)));
    made.map_err(|source| VolumeError::host("create", directory, source))
}

/// Without the permission to do so (in tests) the owner stays unchanged.
#[allow(clippy::disallowed_methods, reason = "it runs on threads that may block")]
fn give_to_guests(path: &Path, ids: GuestIds) -> io::Result<()> {
    match std::os::unix::fs::lchown(path, Some(ids.base()), Some(ids.base())) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

#[allow(clippy::disallowed_methods, reason = "it runs on threads that may block")]
fn sync(directory: &Path) -> Result<(), VolumeError> {
    let synced = fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| VolumeError::host("sync", directory, source))
}

/// Returns an error and its causes in one line.
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
