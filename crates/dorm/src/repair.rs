//! `dorm repair`: finds unreadable records in a data directory that no daemon uses, and rebuilds
//! them as far as the facts on the disk allow.
//!
//! ```text
//! dormouse.db ─► copy (or what can be saved of a damaged file) ─► findings ─► records written into the copy
//!                                                                               │ dry run: copy deleted
//! dormouse.db.before-repair-N ◄─ the old file ◄─ dormouse.db ◄─ the copy ◄──────┘
//! ```
//!
//! Facts come from record files ([`crate::records`]), from manifests of saved states, whose data is
//! verified completely before a record is created from them, and from the engine's notes on living
//! runs. If the process ends before the last rename, the database is unchanged.

mod facts;
mod gaps;
mod swap;
#[cfg(test)]
pub(crate) mod tests;
mod unreadable;

use std::path::Path;

use dorm_storage::{Storage, StorageError};
use dorm_store::{Change, RowKind, StoreError, UnreadableRow};
use dorm_store_sql::SqlStore;
use thiserror::Error;

use crate::guest_ids::{self, GuestIdsError};
use facts::Facts;

pub(crate) use swap::{DATABASE, replace};

/// Why nothing was repaired.
#[derive(Debug, Error)]
pub(crate) enum RepairError {
    /// An input or output error.
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// An error of the copy of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The saved states cannot be listed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The host ids of guests are unknown.
    #[error(transparent)]
    GuestIds(#[from] GuestIdsError),
}

/// A problem with one item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// `database`, `sandbox`, `snapshot`, …, `saved state`, `image` or `record file`.
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) problem: String,
    pub(crate) remedy: Remedy,
}

/// The remedy for a problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Remedy {
    /// The record is written again.
    Rebuild {
        change: Box<Change>,
        /// The facts that it is rebuilt from.
        from: String,
        /// Values that are unknown, and what is recorded instead.
        unknown: Vec<String>,
    },
    /// The file is created anew.
    Anew(String),
    /// The row was moved to this file.
    Quarantined(String),
    /// There is no remedy, for this reason.
    Nothing(String),
}

impl Remedy {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Rebuild { .. } | Self::Anew(_) => "rebuilt",
            Self::Quarantined(_) => "quarantined",
            Self::Nothing(_) => "none",
        }
    }
}

impl Finding {
    fn of(row: &UnreadableRow, remedy: Remedy) -> Self {
        Self { kind: row.kind.to_string(), id: row.id.clone(), problem: row.what.clone(), remedy }
    }
}

/// The user's options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    /// Change nothing.
    pub(crate) dry_run: bool,
    /// Move rows that cannot be rebuilt to files of their own.
    pub(crate) quarantine: bool,
}

/// The problems that were found, and their remedies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// The previous database, if it was changed.
    pub(crate) kept: Option<std::path::PathBuf>,
}

impl Report {
    /// Returns whether every problem has a remedy.
    pub(crate) fn is_mended(&self) -> bool {
        self.findings.iter().all(|finding| !matches!(finding.remedy, Remedy::Nothing(_)))
    }
}

/// Inspects a data directory that the caller holds, and repairs it unless this is a dry run.
pub(crate) async fn repair(data: &Path, images: &Path, asked: Asked) -> Result<Report, RepairError> {
    let ids = guest_ids::recorded(data)?;
    let storage = Storage::open_for(data, images, ids, dorm_steps::pass())?;
    let mut draft = swap::Draft::make(data).await?;
    let mut findings = std::mem::take(&mut draft.findings);
    let check = dorm_store_sql::check(&draft.path()).await?;
    let facts = Facts::gather(&draft.store, &check, &storage, data, draft.is_lost).await?;
    findings.extend(facts.unreadable_findings());
    let mut changed = draft.is_lost;
    for row in &facts.unreadable {
        let mut finding = Finding::of(row, facts.rebuild(row, &storage).await);
        changed |= apply(&draft.store, &mut finding, Some(row), data, asked).await?;
        findings.push(finding);
    }
    // Rebuilt records are facts for missing ones.
    let check = dorm_store_sql::check(&draft.path()).await?;
    let mut facts = Facts::gather(&draft.store, &check, &storage, data, draft.is_lost).await?;
    while let Some(mut finding) = facts.next_gap(&storage).await {
        changed |= apply(&draft.store, &mut finding, None, data, asked).await?;
        findings.push(finding);
    }
    let kept = draft.finish(changed && !asked.dry_run).await?;
    Ok(Report { findings, kept })
}

/// Writes a remedy to the copy. If the store refuses a record, the finding has no remedy.
async fn apply(
    store: &SqlStore,
    finding: &mut Finding,
    row: Option<&UnreadableRow>,
    data: &Path,
    asked: Asked,
) -> Result<bool, RepairError> {
    use dorm_store::Store as _;
    if let Remedy::Rebuild { change, unknown, .. } = &mut finding.remedy {
        let written = match store.commit((**change).clone()).await {
            // A record file may be older than the snapshot that has the name now.
            Err(StoreError::SnapshotNameTaken { name, holder }) => {
                change.snapshots.iter_mut().for_each(|snapshot| snapshot.name = None);
                unknown.push(format!("its name: none, because snapshot {holder} has '{name}'"));
                store.commit((**change).clone()).await
            }
            written => written,
        };
        match written {
            Ok(_) => return Ok(true),
            Err(error) => finding.remedy = Remedy::Nothing(error.to_string()),
        }
    }
    match (&finding.remedy, row) {
        (Remedy::Nothing(_), Some(row)) if asked.quarantine => {
            let path = swap::set_aside(data, row, asked.dry_run)?;
            store.take_out(row).await?;
            finding.remedy = Remedy::Quarantined(path.display().to_string());
            Ok(true)
        }
        (_, _) => Ok(false),
    }
}

/// Returns whether rows of this kind only record history.
fn is_history(kind: RowKind) -> bool {
    kind == RowKind::Event
}
