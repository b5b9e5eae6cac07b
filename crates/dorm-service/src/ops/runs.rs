//! Runs on this host that the daemon leaves alone: no record names them, or they belong to another
//! data directory.
//!
//! A database may be older than the runs, or be lost. The lack of a record is no reason to end a
//! run: it is reported, and ended when a user requests that.

use std::collections::BTreeSet;

use dorm_lifecycle::{RunId, SandboxId};
use dorm_store::StoreError;

use super::collect::{CollectorItem, CollectorItemKind, Verdict};
use crate::error::{ServiceError, chain};
use crate::shared::{LeftAlone, Service, Shared};

/// The relation of a run on the host to the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Belonging {
    /// Its sandbox is not terminated.
    Living,
    /// Its sandbox is terminated, so the run is a leftover.
    Over,
    /// No readable record names its sandbox.
    Unrecorded,
}

/// Returns the runs that are left alone, as things on the disk.
pub(super) fn items(left_alone: &LeftAlone) -> Vec<CollectorItem> {
    let item = |(run, owner): (&RunId, &Option<String>)| {
        let why = match owner {
            None => "no record names its sandbox: it is left alone until `dorm gc --runs`".to_owned(),
            Some(owner) => format!("it belongs to the data directory {owner}: it is left alone"),
        };
        CollectorItem {
            kind: CollectorItemKind::Run,
            id: run.to_string(),
            bytes: 0,
            verdict: Verdict::Unknown,
            why: vec![why],
        }
    };
    left_alone.all().iter().map(item).collect()
}

impl Shared {
    /// Returns the relation of `run` to the records; `living` are the sandboxes that are not
    /// terminated.
    pub(crate) async fn belonging(&self, living: &BTreeSet<SandboxId>, run: &RunId) -> Result<Belonging, StoreError> {
        if living.contains(&run.sandbox) {
            return Ok(Belonging::Living);
        }
        match self.store.sandbox(&run.sandbox).await {
            Ok(Some(_)) => Ok(Belonging::Over),
            Ok(None) | Err(StoreError::Unreadable { .. }) => Ok(Belonging::Unrecorded),
            Err(error) => Err(error),
        }
    }
}

impl Service {
    /// Ends the runs of this data directory that no record names; returns them.
    ///
    /// # Errors
    ///
    /// Fails if the engine cannot end one. Those before it are ended.
    pub async fn end_unrecorded_runs(&self) -> Result<Vec<CollectorItem>, ServiceError> {
        let mut ended = Vec::new();
        let unreadable = self.shared.look_for_unreadable().await?;
        for run in self.shared.left_alone.own() {
            if unreadable.may_need_run(&run) {
                tracing::warn!(%run, "the record of its sandbox cannot be read; the run is left alone");
                continue;
            }
            self.shared.engine.stop(&run).await?;
            self.shared.left_alone.forget(&run);
            tracing::info!(%run, "a run that no record names was ended on request");
            let why = vec!["no record names its sandbox".to_owned()];
            ended.push(CollectorItem {
                kind: CollectorItemKind::Run,
                id: run.to_string(),
                bytes: 0,
                verdict: Verdict::Freed,
                why,
            });
        }
        Ok(ended)
    }
}

/// Lets a run without a record continue that was paused because of memory pressure: there is no
/// sandbox to choose an OOM victim in.
pub(crate) async fn relieve_pressure_unrecorded(shared: &Shared, run: &RunId) {
    /// An id that no process has.
    const NO_PROCESS: u32 = u32::MAX >> 1;
    if let Err(error) = shared.engine.relieve_memory_pressure(run, Some(NO_PROCESS)).await {
        tracing::warn!(%run, error = %chain(&error), "cannot continue a run without a record that is paused because of memory pressure");
    }
}
