//! The working copy of the database, and replacing the database with it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use dorm_engine::chain;
use dorm_store::UnreadableRow;
use dorm_store_sql::SqlStore;

use super::{Finding, Remedy, RepairError};

pub(crate) use crate::identity::DATABASE;

const DRAFT: &str = "dormouse.db.repair";
const QUARANTINE: &str = "quarantine";
/// The suffixes of the files that SQLite keeps beside a database.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// A copy of the database.
pub(super) struct Draft {
    data: PathBuf,
    pub(super) store: SqlStore,
    /// Whether rows may be missing without a trace, since the database was missing or damaged.
    pub(super) is_lost: bool,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RepairError {
    let path = path.to_owned();
    move |source| RepairError::Io { operation, path, source }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn remove(path: &Path) -> Result<(), RepairError> {
    for path in [path.to_owned(), beside(path, BESIDE[0]), beside(path, BESIDE[1])] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &path)(error)),
            _ => {}
        }
    }
    Ok(())
}

impl Draft {
    pub(super) async fn make(data: &Path) -> Result<Self, RepairError> {
        let (database, draft) = (data.join(DATABASE), data.join(DRAFT));
        // Left by an interrupted repair.
        remove(&draft)?;
        let finding = |problem: String, remedy: &str| Finding {
            kind: "database".to_owned(),
            id: DATABASE.to_owned(),
            problem,
            remedy: Remedy::Anew(remedy.to_owned()),
        };
        let is_there = fs::metadata(&database).is_ok_and(|facts| facts.len() > 0);
        let faults = match is_there {
            false => vec!["it is missing or empty".to_owned()],
            true => match dorm_store_sql::check(&database).await {
                Ok(check) => check.faults,
                Err(error) => vec![chain(&error)],
            },
        };
        let copied = match faults.is_empty() {
            true => dorm_store_sql::copy(&database, &draft).await.map_err(|error| chain(&error)),
            false => Err(faults.join("; ")),
        };
        let (is_lost, findings) = match copied {
            Ok(()) => (false, Vec::new()),
            Err(problem) => {
                remove(&draft)?;
                (true, vec![finding(problem, "a new file with every row that could be read from the old one")])
            }
        };
        let store = SqlStore::open(&draft).await?;
        if is_lost && is_there {
            dorm_store_sql::salvage(&database, &store).await?;
        }
        if let Some(id) = crate::identity::id(data).filter(|_| is_lost) {
            store.set_identity(&id).await?;
        }
        Ok(Self { data: data.to_owned(), store, is_lost, findings })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.data.join(DRAFT)
    }

    /// Replaces the database with the copy, or deletes the copy. Returns the path of the old
    /// database.
    pub(super) async fn finish(self, is_wanted: bool) -> Result<Option<PathBuf>, RepairError> {
        let Self { data, store, .. } = self;
        store.close().await?;
        let draft = data.join(DRAFT);
        if !is_wanted {
            remove(&draft)?;
            return Ok(None);
        }
        let opened = fs::File::open(&draft).and_then(|file| file.sync_all());
        opened.map_err(io_error("sync", &draft))?;
        replace(&data, &draft, "repair")
    }
}

/// Replaces the database with `new`, which is durable and has no files beside it. Returns the path
/// of the old database.
pub(crate) fn replace(data: &Path, new: &Path, why: &str) -> Result<Option<PathBuf>, RepairError> {
    let database = data.join(DATABASE);
    let sync = || fs::File::open(data).and_then(|file| file.sync_all()).map_err(io_error("sync", data));
    let mut kept = None;
    if database.exists() {
        let free = (1u32..).map(|number| data.join(format!("{DATABASE}.before-{why}-{number}")));
        let old = free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| data.join(format!("{DATABASE}.old")));
        fs::hard_link(&database, &old)
            .or_else(|_| fs::copy(&database, &old).map(drop))
            .map_err(io_error("keep", &old))?;
        for end in BESIDE {
            // The log of the old database must never be applied to the new one.
            match fs::rename(beside(&database, end), beside(&old, end)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("set aside", &beside(&database, end))(error));
                }
                _ => {}
            }
        }
        sync()?;
        kept = Some(old);
    }
    fs::rename(new, &database).map_err(io_error("put in place", &database))?;
    sync()?;
    Ok(kept)
}

/// Writes a row durably to a file of its own and returns its path.
pub(super) fn set_aside(data: &Path, row: &UnreadableRow, dry_run: bool) -> Result<PathBuf, RepairError> {
    let directory = data.join(QUARANTINE);
    let legal = |symbol: char| if symbol.is_ascii_alphanumeric() { symbol } else { '_' };
    let id: String = row.id.chars().take(64).map(legal).collect();
    let name = |number: u32| directory.join(format!("{}-{id}-{number}.json", row.kind));
    let path = (1u32..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0));
    if dry_run {
        return Ok(path);
    }
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io_error("create", &directory)(error));
        }
        _ => {}
    }
    let text = serde_json::json!({
        "kind": row.kind.as_str(),
        "id": row.id,
        "revision": row.revision,
        "project": row.project.as_ref().map(ToString::to_string),
        "name": row.name.as_ref().map(ToString::to_string),
        "what": row.what,
        "document": String::from_utf8_lossy(&row.raw),
        "document_base64": base64::engine::general_purpose::STANDARD.encode(&row.raw),
    });
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|mut file| {
        file.write_all(format!("{text:#}\n").as_bytes())?;
        file.sync_all()
    });
    written.map_err(io_error("write", &path))?;
    fs::File::open(&directory).and_then(|file| file.sync_all()).map_err(io_error("sync", &directory))?;
    Ok(path)
}
