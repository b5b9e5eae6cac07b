//! The known damage, stored in `damaged.json` of the data directory, so that it is available after
//! a restart, and while no daemon runs. It decides nothing: the storage reads files before it uses
//! them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dorm_lifecycle::Timestamp;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::error::{StorageError, failed};
use crate::stored::{DamagedFile, Stored};

/// The name of the file in the data directory.
pub const DAMAGED: &str = "damaged.json";

/// A damaged object on the disk, as of its last check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The object.
    pub stored: Stored,
    /// Its damaged files, or the first of them.
    pub files: Vec<DamagedFile>,
    /// When the damage was found.
    pub found: Timestamp,
}

impl Damage {
    /// A sentence about the first file.
    pub fn sentence(&self) -> String {
        let first = self.files.first().map(|file| format!(": {} {}", file.file.display(), file.what));
        let more = self.files.len().saturating_sub(1);
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        format!("{} is damaged{}{more}", self.stored, first.unwrap_or_default())
    }
}

#[derive(Serialize, Deserialize)]
struct Row {
    kind: String,
    id: String,
    found_ms: u64,
    files: Vec<FileRow>,
}

#[derive(Serialize, Deserialize)]
struct FileRow {
    file: PathBuf,
    what: String,
}

/// Reads the known damage in the data directory `data`. Blocks.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn damage_in(data: &Path) -> io::Result<Vec<Damage>> {
    let text = match fs::read(data.join(DAMAGED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let rows: Vec<Row> = serde_json::from_slice(&text)?;
    let damage = rows.into_iter().map(|row| {
        let stored = Stored::named(&row.kind, &row.id).ok_or_else(|| io::Error::other("it names an unknown thing"))?;
        let files = row.files.into_iter().map(|FileRow { file, what }| DamagedFile { file, what });
        Ok(Damage { stored, files: files.collect(), found: Timestamp::from_millis(row.found_ms) })
    });
    damage.collect()
}

/// Replaces the stored damage.
pub(crate) fn keep(data: &Path, damage: &[Damage]) -> Result<(), StorageError> {
    let path = data.join(DAMAGED);
    if damage.is_empty() {
        return disk::remove_file(&path);
    }
    let rows: Vec<_> = damage
        .iter()
        .map(|damage| Row {
            kind: damage.stored.kind().to_owned(),
            id: damage.stored.id().to_owned(),
            found_ms: damage.found.as_millis(),
            files: damage
                .files
                .iter()
                .map(|DamagedFile { file, what }| FileRow { file: file.clone(), what: what.clone() })
                .collect(),
        })
        .collect();
    let text =
        serde_json::to_vec_pretty(&rows).map_err(|error| failed("put together", &path)(io::Error::from(error)))?;
    let part = path.with_extension("part");
    fs::write(&part, text).map_err(failed("write", &part))?;
    fs::rename(&part, &path).map_err(failed("name", &path))
}
