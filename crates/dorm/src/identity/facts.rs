//! The content of a data directory that determines its identity. Changes nothing.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use dorm_engine_gvisor::NotedRun;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use super::{DATABASE, IdentityError, Written, wrong};

/// Everything that is inspected.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) written: Option<Written>,
    /// The current place of the directory.
    pub(super) place: Place,
    pub(super) database: Database,
    /// Whether there is a write-ahead log, beside the database or without it.
    pub(super) has_log: bool,
    pub(super) leavings: Leavings,
    pub(super) runs: Vec<NotedRun>,
}

/// Whether there is a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Database {
    Missing,
    /// A file without content.
    Empty,
    There,
}

/// The facts that identify a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Place {
    /// The last known path, shown to users.
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    /// When the inode was created, in nanoseconds since 1970, or none if the file system does not
    /// record it. A copy cannot have the same time, even if it has the same inode number on another
    /// file system.
    pub(super) born: Option<i128>,
    pub(super) device: u64,
    /// The boot of the host during which the device had this number.
    pub(super) boot: String,
}

/// Data that only a database describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Leavings {
    pub(super) saved: usize,
    pub(super) runs: usize,
    pub(super) volumes: usize,
}

impl Leavings {
    pub(super) fn is_any(self) -> bool {
        self != Self::default()
    }
}

impl fmt::Display for Leavings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [(self.saved, "saved state"), (self.runs, "run"), (self.volumes, "volume")];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> =
            parts.map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" })).collect();
        f.write_str(&parts.join(", "))
    }
}

impl Facts {
    pub(super) fn of(data: &Path) -> Result<Self, IdentityError> {
        let database = match std::fs::metadata(data.join(DATABASE)) {
            Ok(found) if found.len() == 0 => Database::Empty,
            Ok(_) => Database::There,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Database::Missing,
            Err(error) => return Err(wrong("read the metadata of", &data.join(DATABASE))(error)),
        };
        let engine = data.join("gvisor");
        let runs = dorm_engine_gvisor::noted_runs(&engine).map_err(wrong("read the notes in", &engine))?;
        let leavings = Leavings {
            saved: entries(&data.join("saved_states"))?,
            runs: runs.iter().filter(|run| run.run.is_some()).count(),
            volumes: entries(&data.join("volumes"))?,
        };
        let has_log = std::fs::metadata(log(data)).is_ok_and(|found| found.len() > 0);
        Ok(Self { written: Written::read(data)?, place: Place::of(data)?, database, has_log, leavings, runs })
    }
}

/// Returns the path of the database's write-ahead log.
pub(super) fn log(data: &Path) -> PathBuf {
    data.join(format!("{DATABASE}-wal"))
}

impl Place {
    fn of(data: &Path) -> Result<Self, IdentityError> {
        let found = std::fs::metadata(data).map_err(wrong("read the metadata of", data))?;
        let more = statx(CWD, data, AtFlags::empty(), StatxFlags::BTIME).ok();
        let born = more.filter(|more| more.stx_mask & StatxFlags::BTIME.bits() != 0);
        let born =
            born.map(|more| i128::from(more.stx_btime.tv_sec) * 1_000_000_000 + i128::from(more.stx_btime.tv_nsec));
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        Ok(Self { path: data.to_owned(), inode: found.ino(), born, device: found.dev(), boot })
    }
}

/// Returns the number of entries in a directory, without those being created or set aside.
fn entries(directory: &Path) -> Result<usize, IdentityError> {
    let found = match std::fs::read_dir(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(wrong("read", directory)(error)),
    };
    let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| !name.starts_with('.')).count())
}
