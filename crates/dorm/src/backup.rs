//! `dorm backup` and `dorm restore`: copies the records of a data directory to one file, optionally
//! with the saved states that they refer to.
//!
//! A backup is read from the database while a daemon runs: SQLite provides a consistent view. The
//! backup file is itself a database, with the small files of the data directory (its key among
//! them) in a table of their own. Saved states never change, so their files are hard links, which
//! garbage collection does not affect. If a saved state disappears between the copy of the records
//! and its link, both are repeated. A restore changes the data directory with one rename.

mod unfinished;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use dorm_lifecycle::SavedStateId;
use dorm_store::{RowKind, SandboxFilter, SnapshotStatus, Store as _, StoreError};
use dorm_store_sql::{PackedFile, SqlStore};
use thiserror::Error;

use crate::records;
use crate::repair::{DATABASE, RepairError, replace};

/// The records in a backup that is a directory.
const RECORDS: &str = "records.db";
const SAVED_STATES: &str = "saved_states";
/// Small files of the data directory that belong to one daemon, or that are created anew.
const LEFT_OUT: [&str; 3] = ["lock", "address", dorm_storage::MARKS];
/// Files that a data directory keeps instead of taking those of the backup.
const STAYS: [&str; 3] = ["key", "identity.json", dorm_guest_ids::RECORD];
const SMALL: u64 = 64 << 10;
/// How many times copying the records and the saved states is attempted.
const ATTEMPTS: usize = 20;

/// The error of a backup or a restore.
#[derive(Debug, Error)]
pub(crate) enum BackupError {
    /// The target exists.
    #[error("{} exists already", .0.display())]
    There(PathBuf),
    /// There is no database to copy.
    #[error("there is no database in {}", .0.display())]
    NoDatabase(PathBuf),
    /// The source was not written by `dorm backup`.
    #[error("{} is not a backup", .0.display())]
    NoBackup(PathBuf),
    /// Saved states were added and removed faster than they were linked.
    #[error("saved states changed while they were copied, {ATTEMPTS} times in a row")]
    Busy,
    /// The backup is damaged.
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    /// Files could not be copied.
    #[error("cannot copy {}: {said}", path.display())]
    Copy { path: PathBuf, said: String },
    /// An input or output error.
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backup could not be put in place.
    #[error(transparent)]
    Place(#[from] RepairError),
}

impl BackupError {
    /// Returns what the user can do next.
    pub(crate) fn next_step(&self) -> &'static str {
        match self {
            Self::There(path) if path.ends_with(DATABASE) => {
                "choose an empty --data directory, or use --replace to replace this database"
            }
            Self::There(_) => "choose another name",
            Self::NoDatabase(_) => "give the data directory with --data",
            Self::NoBackup(_) => "give the file or directory that `dorm backup` wrote",
            Self::Busy => "try again when fewer sandboxes are suspended and resumed",
            Self::Damaged { .. } => "use another backup, or rebuild the records with `dorm repair`",
            Self::Copy { .. } | Self::Io { .. } => "check the free space and permissions there",
            Self::Store(_) => "see `dorm repair --dry-run`",
            Self::Place(_) => "",
        }
    }
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { operation, path, source }
}

/// A summary of a written backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) sandboxes: u64,
    pub(crate) snapshots: u64,
    pub(crate) saved_states: usize,
    /// The size of the records.
    pub(crate) bytes: u64,
}

/// Copies the records of `data`, and with `saved_states` the saved states that they refer to, to
/// `to`, which must not exist.
pub(crate) async fn backup(data: &Path, to: &Path, saved_states: bool) -> Result<Written, BackupError> {
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::There(to.to_owned()));
    }
    if !data.join(DATABASE).is_file() {
        return Err(BackupError::NoDatabase(data.to_owned()));
    }
    let draft = draft_of(to);
    clear(&draft)?;
    let done = match saved_states {
        false => copy_records(data, &draft).await,
        true => copy_all(data, &draft).await,
    };
    let written = match done {
        Ok(written) => written,
        Err(error) => {
            clear(&draft)?;
            return Err(error);
        }
    };
    fs::rename(&draft, to).map_err(io_error("rename to", to))?;
    sync_parent(to)?;
    Ok(written)
}

fn draft_of(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn clear(path: &Path) -> Result<(), BackupError> {
    let removed = match path.symlink_metadata() {
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    removed.map_err(io_error("remove", path))
}

fn sync_parent(path: &Path) -> Result<(), BackupError> {
    let path = std::path::absolute(path).map_err(io_error("resolve", path))?;
    let parent = path.parent().unwrap_or(&path);
    fs::File::open(parent).and_then(|directory| directory.sync_all()).map_err(io_error("sync", parent))
}

async fn copy_records(data: &Path, to: &Path) -> Result<Written, BackupError> {
    // It contains keys and secrets: no other user may read it, from its first byte on.
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(io_error("create", to))?;
    dorm_store_sql::copy(&data.join(DATABASE), to).await?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o600)).map_err(io_error("set the mode of", to))?;
    dorm_store_sql::pack(to, &small_files(data)?).await?;
    let file = fs::File::open(to).map_err(io_error("open", to))?;
    file.sync_all().map_err(io_error("sync", to))?;
    let check = dorm_store_sql::check(to).await?;
    let count = |kind| check.rows.get(&kind).copied().unwrap_or_default();
    let bytes = file.metadata().map_err(io_error("read the size of", to))?.len();
    Ok(Written { sandboxes: count(RowKind::Sandbox), snapshots: count(RowKind::Snapshot), saved_states: 0, bytes })
}

/// Returns the key and the other small files that describe the directory.
fn small_files(data: &Path) -> Result<Vec<PackedFile>, BackupError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(data).map_err(io_error("list", data))? {
        let entry = entry.map_err(io_error("list", data))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let facts = entry.metadata().map_err(io_error("read the metadata of", &path))?;
        let is_wanted = facts.is_file()
            && facts.len() <= SMALL
            && !LEFT_OUT.contains(&name.as_str())
            && !name.starts_with(DATABASE)
            && !name.ends_with(".new");
        if is_wanted {
            files.push(PackedFile { name, content: fs::read(&path).map_err(io_error("read", &path))? });
        }
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

async fn copy_all(data: &Path, to: &Path) -> Result<Written, BackupError> {
    for _ in 0..ATTEMPTS {
        clear(to)?;
        for directory in [to.to_owned(), to.join(SAVED_STATES)] {
            fs::DirBuilder::new().mode(0o700).create(&directory).map_err(io_error("create", &directory))?;
        }
        let records = to.join(RECORDS);
        let mut written = copy_records(data, &records).await?;
        let wanted = named_states(&records).await?;
        if let Some(count) = link_all(data, to, wanted)? {
            written.saved_states = count;
            sync_all(to)?;
            return Ok(written);
        }
    }
    Err(BackupError::Busy)
}

fn sync_all(path: &Path) -> Result<(), BackupError> {
    let synced = fs::File::open(path).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
    synced.map_err(io_error("sync the file system of", path))
}

/// Returns the saved states that the records of a backup refer to.
async fn named_states(records: &Path) -> Result<Vec<SavedStateId>, BackupError> {
    let store = SqlStore::open(records).await?;
    let (sandboxes, snapshots) = (store.sandboxes(&SandboxFilter::default()).await?, store.snapshots(None).await?);
    store.close().await?;
    let mut named = BTreeSet::new();
    for record in &sandboxes {
        let is_over = matches!(record.sandbox.state, dorm_lifecycle::State::Terminated { .. });
        if !is_over {
            named.extend(record.sandbox.saved_states().chain(record.sandbox.layers()).cloned());
        }
    }
    for snapshot in snapshots.into_iter().filter(|snapshot| snapshot.status == SnapshotStatus::Completed) {
        named.insert(snapshot.saved_state);
        named.extend(snapshot.layer);
    }
    Ok(named.into_iter().collect())
}

/// Links or copies saved states and those that they are based on. Returns `None` if one is gone.
fn link_all(data: &Path, to: &Path, mut wanted: Vec<SavedStateId>) -> Result<Option<usize>, BackupError> {
    let mut done = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        if !done.insert(id.clone()) {
            continue;
        }
        let (from, to) = (data.join(SAVED_STATES).join(id.as_str()), to.join(SAVED_STATES).join(id.as_str()));
        if let Err(error) = copy_tree(&from, &to) {
            return if from.is_dir() { Err(error) } else { Ok(None) };
        }
        if !from.is_dir() {
            return Ok(None);
        }
        wanted.extend(below(&to));
    }
    Ok(Some(done.len()))
}

/// Returns the saved state that another one is based on.
fn below(saved_state: &Path) -> Option<SavedStateId> {
    let text = fs::read(saved_state.join("manifest.json")).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&text).ok()?;
    manifest["body"]["layer"].as_str()?.parse().ok()
}

/// Links the files of a directory if possible, or copies them, with owners, modes and attributes.
fn copy_tree(from: &Path, to: &Path) -> Result<(), BackupError> {
    let mut said = String::new();
    for way in ["--link", "--reflink=auto"] {
        clear(to)?;
        let output =
            Command::new("cp").args(["--archive", way, "--no-target-directory", "--"]).arg(from).arg(to).output();
        let output = output.map_err(io_error("run cp for", from))?;
        if output.status.success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    Err(BackupError::Copy { path: from.to_owned(), said })
}

/// Restores a backup into a data directory that the caller holds. Returns the path of the database
/// that was replaced.
pub(crate) async fn restore(from: &Path, data: &Path, may_replace: bool) -> Result<Option<PathBuf>, BackupError> {
    let records = if from.is_dir() { from.join(RECORDS) } else { from.to_owned() };
    if !records.is_file() {
        return Err(BackupError::NoBackup(from.to_owned()));
    }
    let database = data.join(DATABASE);
    if database.exists() && !may_replace {
        return Err(BackupError::There(database));
    }
    let draft = data.join(format!("{DATABASE}.restore"));
    for end in ["", "-wal", "-shm"] {
        clear(&data.join(format!("{DATABASE}.restore{end}")))?;
    }
    fs::copy(&records, &draft).map_err(io_error("copy", &records))?;
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o600)).map_err(io_error("set the mode of", &draft))?;
    let check = dorm_store_sql::check(&draft).await.map_err(|_| BackupError::NoBackup(from.to_owned()))?;
    if let Some(what) = check.faults.first() {
        clear(&draft)?;
        return Err(BackupError::Damaged { path: records, what: what.clone() });
    }
    let files = dorm_store_sql::unpack(&draft).await.map_err(|_| BackupError::NoBackup(from.to_owned()))?;
    // Migrate the database now, and close it, so that no other files belong to it.
    let store = SqlStore::open(&draft).await?;
    if let Some(id) = crate::identity::id(data) {
        // The directory keeps its identity, whichever directory the records came from.
        store.set_identity(&id).await?;
    }
    unfinished::let_go(&store).await?;
    store.close().await?;
    fs::File::open(&draft).and_then(|file| file.sync_all()).map_err(io_error("sync", &draft))?;
    if from.is_dir() {
        put_states(&from.join(SAVED_STATES), &data.join(SAVED_STATES))?;
    }
    for file in &files {
        put_file(data, file, may_replace)?;
    }
    let files = data.join(records::DIRECTORY);
    if files.is_dir() {
        // They describe what happened after the backup; the daemon writes them anew.
        let mut free = (1u32..).map(|number| data.join(format!("{}.before-restore-{number}", records::DIRECTORY)));
        let aside = free.find(|path| !path.exists()).unwrap_or_else(|| files.clone());
        fs::rename(&files, &aside).map_err(io_error("set aside", &files))?;
    }
    Ok(replace(data, &draft, "restore")?)
}

fn put_states(from: &Path, to: &Path) -> Result<(), BackupError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(io_error("create", to))?;
    for entry in fs::read_dir(from).map_err(io_error("list", from))? {
        let entry = entry.map_err(io_error("list", from))?;
        let place = to.join(entry.file_name());
        if place.exists() {
            continue;
        }
        let draft = to.join(format!("{}.restore", entry.file_name().to_string_lossy()));
        copy_tree(&entry.path(), &draft)?;
        sync_all(to)?;
        fs::rename(&draft, &place).map_err(io_error("rename to", &place))?;
    }
    sync_all(to)
}

/// Writes a small file. An existing key is kept, since clients have it, and so is the identity of
/// the directory.
fn put_file(data: &Path, file: &PackedFile, may_replace: bool) -> Result<(), BackupError> {
    let path = data.join(&file.name);
    // No backup contains a name with a directory in it.
    if Path::new(&file.name).file_name().is_none_or(|name| name != file.name.as_str()) {
        return Ok(());
    }
    if path.exists() && (!may_replace || STAYS.contains(&file.name.as_str())) {
        return Ok(());
    }
    let draft = data.join(format!("{}.new", file.name));
    let written = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft);
    let written = written.and_then(|mut new| {
        new.write_all(&file.content)?;
        new.sync_all()
    });
    written.map_err(io_error("write", &draft))?;
    fs::rename(&draft, &path).map_err(io_error("write", &path))
}

#[cfg(test)]
mod tests;
