//! `dorm repair`: finds what cannot be read in a data directory that no daemon uses, and brings back what facts on the disk
//! allow.
//!
//! ```text
//! dormouse.db ─► copy (or what can be saved of a damaged file) ─► findings ─► records written into the copy
//!                                                                               │ dry run: the copy goes
//! dormouse.db.before-repair-N ◄─ the old file ◄─ dormouse.db ◄─ the copy ◄──────┘
//! ```
//!
//! Facts come from record files ([`crate::records`]), from manifests of saved states, which are read to their last byte
//! before a record is made of them, and from the engine's notes on living runs. A process that ends in the middle leaves
//! the database as it was.

mod facts;
mod gaps;
mod swap;
#[cfg(test)]
pub(crate) mod tests;
mod unreadable;

use std::path::Path;

use dorm_pool::{Pool, PoolError};
use dorm_store::{Change, RowKind, StoreError, UnreadableRow};
use dorm_store_sql::SqlStore;
use thiserror::Error;

use crate::guest_ids::{self, GuestIdsError};
use facts::Facts;

pub(crate) use swap::{DATABASE, replace};

/// Why nothing could be repaired.
#[derive(Debug, Error)]
pub(crate) enum RepairError {
    /// The disk refused.
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The copy of the database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The saved states cannot be listed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// It is not known whose the files of guests are.
    #[error(transparent)]
    GuestIds(#[from] GuestIdsError),
}

/// What is wrong with one thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// `database`, `sandbox`, `snapshot`, …, `saved state`, `image` or `record file`.
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) problem: String,
    pub(crate) remedy: Remedy,
}

/// What can be done about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Remedy {
    /// The record is written again.
    Rebuild {
        change: Box<Change>,
        /// From which facts.
        from: String,
        /// What could not be known, and what stands there instead.
        unknown: Vec<String>,
    },
    /// The file is made anew.
    Anew(String),
    /// It was taken out and is in this file.
    Quarantined(String),
    /// Nothing; why.
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

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    /// Nothing is changed.
    pub(crate) dry_run: bool,
    /// Rows that cannot be rebuilt are moved into files of their own.
    pub(crate) quarantine: bool,
}

/// What was found and done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// The database as it was before, if it was changed.
    pub(crate) kept: Option<std::path::PathBuf>,
}

impl Report {
    /// Whether everything is as it should be, or will be.
    pub(crate) fn is_mended(&self) -> bool {
        self.findings.iter().all(|finding| !matches!(finding.remedy, Remedy::Nothing(_)))
    }
}

/// Looks at a data directory that is held by the caller, and repairs it unless it is only asked.
pub(crate) async fn repair(data: &Path, images: &Path, asked: Asked) -> Result<Report, RepairError> {
    let ids = guest_ids::recorded(data)?;
    let pool = Pool::open_for(data, images, ids, dorm_steps::pass())?;
    let mut draft = swap::Draft::make(data).await?;
    let mut findings = std::mem::take(&mut draft.findings);
    let check = dorm_store_sql::check(&draft.path()).await?;
    let facts = Facts::gather(&draft.store, &check, &pool, data, draft.is_lost).await?;
    findings.extend(facts.unreadable_findings());
    let mut changed = draft.is_lost;
    for row in &facts.unreadable {
        let mut finding = Finding::of(row, facts.rebuild(row, &pool).await);
        changed |= apply(&draft.store, &mut finding, Some(row), data, asked).await?;
        findings.push(finding);
    }
    // What was rebuilt is a fact for what is missing.
    let check = dorm_store_sql::check(&draft.path()).await?;
    let mut facts = Facts::gather(&draft.store, &check, &pool, data, draft.is_lost).await?;
    while let Some(mut finding) = facts.next_gap(&pool).await {
        changed |= apply(&draft.store, &mut finding, None, data, asked).await?;
        findings.push(finding);
    }
    let kept = draft.finish(changed && !asked.dry_run).await?;
    Ok(Report { findings, kept })
}

/// Writes what a remedy says into the copy. A record that the store refuses is a finding without a remedy.
async fn apply(
    store: &SqlStore,
    finding: &mut Finding,
    row: Option<&UnreadableRow>,
    data: &Path,
    asked: Asked,
) -> Result<bool, RepairError> {
    use dorm_store::Store as _;
    if let Remedy::Rebuild { change, .. } = &finding.remedy {
        match store.commit((**change).clone()).await {
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

/// Whether rows of this kind only tell what happened.
fn is_history(kind: RowKind) -> bool {
    kind == RowKind::Event
}
