//! `dorm backup` and `dorm restore`.

use std::path::PathBuf;

use serde::Serialize;

use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::shown;
use crate::backup::{BackupError, Written};
use crate::data::Data;
use crate::exit;

/// Options of `dorm backup`.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupOptions {
    /// The new file; with --saved-states, the new directory
    #[arg(value_name = "FILE|DIRECTORY")]
    to: PathBuf,
    /// The data directory
    #[arg(long, env = "DORM_DATA", value_name = "DIRECTORY", default_value = crate::data::DEFAULT)]
    data: PathBuf,
    /// Also copy the saved states that the records refer to: memory and files of suspended
    /// sandboxes and snapshots. Without this, a backup contains only the records and the key. No
    /// backup contains images or the content of volumes
    #[arg(long)]
    saved_states: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// Options of `dorm restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreOptions {
    /// A backup written by `dorm backup`
    #[arg(value_name = "FILE|DIRECTORY")]
    from: PathBuf,
    /// The data directory. No daemon may use it meanwhile
    #[arg(long, env = "DORM_DATA", value_name = "DIRECTORY", default_value = crate::data::DEFAULT)]
    data: PathBuf,
    /// Replace the existing database, which is kept beside the new one. The records then end at the
    /// time of the backup; `dorm repair` finds saved states without a record
    #[arg(long)]
    replace: bool,
}

#[derive(Serialize)]
struct Printed {
    path: PathBuf,
    /// `records` or `records and saved states`.
    content: &'static str,
    sandboxes: u64,
    snapshots: u64,
    saved_states: usize,
    bytes: u64,
}

/// Writes a backup and prints a summary.
pub(super) async fn backup(options: BackupOptions) -> Done {
    let BackupOptions { to, data, saved_states, output } = options;
    let written = crate::backup::backup(&data, &to, saved_states).await.map_err(problem)?;
    let Written { sandboxes, snapshots, saved_states: count, bytes } = written;
    let content = if saved_states { "records and saved states" } else { "records" };
    match output {
        Format::Json => {
            output::json(&Printed { path: to, content, sandboxes, snapshots, saved_states: count, bytes })?;
        }
        Format::Table => output::talk(&format!(
            "wrote {content} to {}: {sandboxes} sandboxes (including terminated ones), {snapshots} snapshots, {count} saved \
             states, {}",
            to.display(),
            shown::size(bytes)
        )),
    }
    Ok(exit::OK)
}

/// Restores a backup.
pub(super) async fn restore(options: RestoreOptions) -> Done {
    let RestoreOptions { from, data, replace } = options;
    let held = Data::take(&data)?;
    let kept = crate::backup::restore(&from, held.path(), replace).await.map_err(problem)?;
    if let Some(kept) = kept {
        output::talk(&format!("the previous database is kept as {}", kept.display()));
    }
    output::talk(&format!("restored into {}; start the daemon with `dorm serve`", held.path().display()));
    Ok(exit::OK)
}

fn problem(error: BackupError) -> Problem {
    let next = error.next_step();
    match error {
        BackupError::There(_) | BackupError::NoDatabase(_) | BackupError::NoBackup(_) => {
            Problem::usage(error.to_string(), next)
        }
        BackupError::Busy
        | BackupError::Damaged { .. }
        | BackupError::Copy { .. }
        | BackupError::Io { .. }
        | BackupError::Store(_)
        | BackupError::Place(_) => Problem::failed(super::problem::message(&error), next),
    }
}
