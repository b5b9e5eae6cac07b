//! The identity of a data directory, and whether its database belongs to it.
//!
//! Each data directory has an id, created once. The id is in `identity.json`, in the database and
//! in every note of a run, and the names of everything on the host are derived from it. The file
//! also records the inode of the directory, which distinguishes a directory that was moved from a
//! copy of it (decision 0020):
//!
//! ```text
//! the same inode    moved or not: its runs are its own
//! another inode     a copy: it gets an id of its own, and the runs of the original are not its own
//! ```
//!
//! If a daemon finds data without a database, the database of another directory, or a copy whose
//! original has living runs, it does not start until the user says what to do.

use std::fs::File;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dorm_engine_gvisor::NotedRun;
use dorm_store::StoreError;
use dorm_store_sql::SqlStore;
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod facts;

use facts::{Database, Facts, Leavings, Place};

const FILE: &str = "identity.json";
pub(crate) const DATABASE: &str = "dormouse.db";

/// The user's options at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    /// Create a database for data that has none.
    pub(crate) new_store: bool,
    /// Start in a copy, without the runs of the original.
    pub(crate) as_copy: bool,
}

/// The identity of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// Its id.
    pub(crate) id: String,
    /// The common prefix of the names of everything that its daemon creates on the host.
    pub(crate) prefix: String,
}

/// Why the daemon does not start in a directory.
#[derive(Debug, Error)]
pub(crate) enum IdentityError {
    /// An input or output error.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The identity file cannot be parsed.
    #[error("cannot parse {}; delete it to restore the identity from the database and the notes of runs", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// There is data but no database.
    #[error(
        "{} is {}, but the directory contains {leavings} of a database: put the database back (`dorm restore`), \
         rebuild it with `dorm repair`, or start with an empty one, which leaves them alone, with --new-store",
        path.display(),
        if *is_empty { "empty" } else { "missing" }
    )]
    NoStore {
        /// The database.
        path: PathBuf,
        /// Whether the file exists but is empty.
        is_empty: bool,
        /// The data in the directory.
        leavings: Leavings,
    },
    /// A write-ahead log without its database.
    #[error(
        "{} contains changes of a database that is missing: put the database back beside it, or move this file away",
        path.display()
    )]
    LogAlone {
        /// The log.
        path: PathBuf,
    },
    /// A new database was requested, but one exists.
    #[error("--new-store: {} exists and belongs to this directory; move it away first", path.display())]
    StoreThere {
        /// The database.
        path: PathBuf,
    },
    /// The database belongs to another directory.
    #[error(
        "{} belongs to {}, not to this data directory ({own}): put back the database of this directory, or move this file \
         away and start with an empty one with --new-store",
        path.display(),
        found.as_ref().map_or_else(|| "no data directory".to_owned(), |found| format!("the data directory {found}"))
    )]
    ForeignStore {
        /// The database.
        path: PathBuf,
        /// The directory that it belongs to.
        found: Option<String>,
        /// This directory's id.
        own: String,
    },
    /// A copy whose original has living runs.
    #[error(
        "{} is a copy of the data directory {original} ({}), of which {} still run on this host ({runs}): start the \
         daemon there, or move that directory here while its daemon is stopped; with --as-copy this one starts without \
         them and leaves them alone",
        path.display(),
        place.display(),
        if *count == 1 { "1 sandbox".to_owned() } else { format!("{count} sandboxes") }
    )]
    Copy {
        /// This directory.
        path: PathBuf,
        /// The id of the original.
        original: String,
        /// The path of the original.
        place: PathBuf,
        /// The number of its living runs.
        count: usize,
        /// Some of the runs.
        runs: String,
    },
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn wrong(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io { operation, path, source }
}

/// The content of the identity file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Written {
    id: String,
    prefix: String,
    /// The previous id of the database, until the database has the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    place: Place,
}

/// Opens the database of the data directory `data`, whose lock this process holds, and determines
/// the identity of the directory.
pub(crate) async fn open(data: &Path, asked: Asked) -> Result<(Identity, SqlStore), IdentityError> {
    let facts = Facts::of(data)?;
    allowed(data, &facts, asked)?;
    let store = SqlStore::open(&data.join(DATABASE)).await?;
    let stored = store.identity().await?;
    let mut written = decide(data, &facts, stored.as_deref(), asked)?;
    if let Some(was) = written.was.as_ref().filter(|was| **was != written.id) {
        tracing::warn!(id = written.id, copy_of = %was, "this data directory is a copy and now has an id of its own");
    }
    // If the process ends between these writes, the file names the id that the database may still
    // have.
    written.write(data)?;
    if stored.as_deref() != Some(&written.id) {
        store.set_identity(&written.id).await?;
    }
    if written.was.take().is_some() {
        written.write(data)?;
    }
    Ok((Identity { id: written.id, prefix: written.prefix }, store))
}

/// Returns the prefix of all names that the daemon of a directory uses on the host; empty before
/// its first start.
pub(crate) fn prefix(data: &Path) -> String {
    Written::read(data).ok().flatten().map(|written| written.prefix).unwrap_or_default()
}

/// Returns the id of a data directory, or none if its file cannot be read.
pub(crate) fn id(data: &Path) -> Option<String> {
    Written::read(data).ok().flatten().map(|written| written.id)
}

/// Returns the id of the directory, or none if it has none, for `dorm doctor`. Changes nothing.
pub(crate) fn look(data: &Path) -> Result<Option<String>, IdentityError> {
    if !data.is_dir() {
        return Ok(None);
    }
    let facts = Facts::of(data)?;
    allowed(data, &facts, Asked::default())?;
    Ok(facts.written.map(|written| written.id))
}

/// Whether the directory is the one that its file describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sameness {
    /// The same directory, even if it was moved.
    Same,
    /// The same directory on a file system that was mounted again, or on a snapshot of that file
    /// system.
    Remounted,
    /// A copy.
    Copy,
}

impl Place {
    fn sameness(&self, now: &Self) -> Sameness {
        let is_same = self.inode == now.inode && self.born == now.born;
        match is_same {
            false => Sameness::Copy,
            // Device numbers are assigned anew at each boot.
            true if self.device == now.device || self.boot != now.boot => Sameness::Same,
            true => Sameness::Remounted,
        }
    }
}

/// Returns the living runs of `owner`.
fn living<'a>(facts: &'a Facts, owner: &'a str) -> impl Iterator<Item = &'a NotedRun> {
    facts.runs.iter().filter(move |run| run.is_alive && run.run.is_some() && run.owner == owner)
}

/// Returns an error if the user must decide before anything is changed.
fn allowed(data: &Path, facts: &Facts, asked: Asked) -> Result<(), IdentityError> {
    let path = data.join(DATABASE);
    if facts.database != Database::There {
        if facts.has_log {
            return Err(IdentityError::LogAlone { path: facts::log(data) });
        }
        if facts.leavings.is_any() && !asked.new_store {
            let is_empty = facts.database == Database::Empty;
            return Err(IdentityError::NoStore { path, is_empty, leavings: facts.leavings });
        }
    }
    let Some(written) = &facts.written else { return Ok(()) };
    let runs: Vec<_> = living(facts, &written.id).filter_map(|run| run.run.as_ref()).map(ToString::to_string).collect();
    if written.place.sameness(&facts.place) == Sameness::Same || runs.is_empty() || asked.as_copy {
        return Ok(());
    }
    let (original, place, count) = (written.id.clone(), written.place.path.clone(), runs.len());
    let runs = runs.into_iter().take(3).collect::<Vec<_>>().join(", ");
    Err(IdentityError::Copy { path: data.to_owned(), original, place, count, runs })
}

/// Returns the new content of the identity file. `stored` is the id in the database.
fn decide(data: &Path, facts: &Facts, stored: Option<&str>, asked: Asked) -> Result<Written, IdentityError> {
    let path = data.join(DATABASE);
    let was_there = facts.database == Database::There;
    let place = facts.place.clone();
    let Some(written) = &facts.written else {
        if asked.new_store && was_there {
            return Err(IdentityError::StoreThere { path });
        }
        let has_notes = |id: &&str| facts.runs.iter().any(|run| run.owner == **id);
        return Ok(match stored {
            // Only the file was lost.
            Some(id) if has_notes(&id) => Written { id: id.to_owned(), prefix: prefix_of(id), was: None, place },
            Some(id) => Written { was: Some(id.to_owned()), ..Written::fresh(place)? },
            None => Written::fresh(place)?,
        });
    };
    let is_own = |id: &str| id == written.id || written.was.as_deref() == Some(id);
    let fits = match stored {
        Some(id) if asked.new_store && is_own(id) => return Err(IdentityError::StoreThere { path }),
        Some(id) => is_own(id),
        // The database was just created, or the process that created it ended before setting the
        // id.
        None => !was_there || asked.new_store || !facts.leavings.is_any(),
    };
    if !fits {
        let (found, own) = (stored.map(str::to_owned), written.id.clone());
        return Err(IdentityError::ForeignStore { path, found, own });
    }
    let was = stored.map(str::to_owned).or_else(|| written.was.clone());
    let is_copy = match written.place.sameness(&facts.place) {
        Sameness::Same => false,
        Sameness::Copy => true,
        // Nothing of it runs, unless the user said that this is a copy.
        Sameness::Remounted => living(facts, &written.id).next().is_some(),
    };
    match is_copy {
        true => Ok(Written { was: Some(was.unwrap_or_else(|| written.id.clone())), ..Written::fresh(place)? }),
        false => Ok(Written { was: was.filter(|was| *was != written.id), place, ..written.clone() }),
    }
}

impl Written {
    fn fresh(place: Place) -> Result<Self, IdentityError> {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = [0; 20];
        getrandom::fill(&mut bytes)
            .map_err(|error| wrong("choose an id for", &place.path)(io::Error::other(error.to_string())))?;
        let letters = bytes.iter().map(|byte| LETTERS[usize::from(byte & 31)] as char);
        // Every id starts with a letter.
        let id: String = std::iter::once('d').chain(letters.skip(1)).collect();
        let prefix = prefix_of(&id);
        Ok(Self { id, prefix, was: None, place })
    }

    fn read(data: &Path) -> Result<Option<Self>, IdentityError> {
        let path = data.join(FILE);
        match std::fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|source| IdentityError::Unreadable { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(wrong("read", &path)(source)),
        }
    }

    /// Writes the file atomically and durably.
    fn write(&self, data: &Path) -> Result<(), IdentityError> {
        let (draft, path) = (data.join("identity.new"), data.join(FILE));
        let text = serde_json::to_vec_pretty(self).map_err(|error| wrong("write", &path)(error.into()))?;
        let mut file = File::create(&draft).map_err(wrong("write", &draft))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(wrong("write", &draft))?;
        std::fs::rename(&draft, &path).map_err(wrong("write", &path))?;
        File::open(data).and_then(|directory| directory.sync_all()).map_err(wrong("sync", data))
    }
}

/// Returns four letters and digits, which fit into the name of a network interface.
fn prefix_of(id: &str) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let hash = blake3::hash(id.as_bytes());
    hash.as_bytes().iter().take(4).map(|byte| LETTERS[usize::from(*byte) % 36] as char).collect()
}

#[cfg(test)]
mod tests;
