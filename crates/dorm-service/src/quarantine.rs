//! Records that cannot be read: they are left as they are, and so is everything that they may need.
//!
//! The store omits such rows from its lists, so a decision based on a list alone would take what
//! they need for unused. Every decision to end, unmount or delete something therefore checks here
//! after it has read its lists. Rows are repaired by `dorm repair`, while no daemon runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dorm_lifecycle::{CaptureId, RunId, SnapshotKind};
use dorm_store::{Removal, RowKind, SandboxRecord, SnapshotRecord, StoreError, UnreadableRow};

use tokio::time::Instant;

use crate::error::ServiceError;
use crate::shared::{Service, Shared};

/// How long the result of a check is used.
const LOOK: Duration = Duration::from_secs(60);

/// The unreadable records at the last check, and the time of that check.
#[derive(Debug, Default)]
pub(crate) struct Quarantined(Mutex<(Option<Instant>, Unreadable)>);

impl Quarantined {
    /// Returns how many there were of each kind.
    pub(crate) fn counts(&self) -> BTreeMap<RowKind, usize> {
        let mut counts: BTreeMap<RowKind, usize> = BTreeMap::new();
        for row in self.last().rows() {
            *counts.entry(row.kind).or_default() += 1;
        }
        counts
    }

    /// Returns the last result, for deletions that a record requires, which are too frequent for a
    /// check each time.
    pub(crate) fn last(&self) -> Unreadable {
        self.looked().1
    }

    fn looked(&self) -> (Option<Instant>, Unreadable) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The unreadable records of one check.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unreadable(Arc<Vec<UnreadableRow>>);

impl Unreadable {
    pub(crate) fn rows(&self) -> &[UnreadableRow] {
        &self.0
    }

    fn holding(&self) -> impl Iterator<Item = &UnreadableRow> {
        self.0.iter().filter(|row| row.kind.may_hold_captures())
    }

    /// Returns whether a saved state may be needed although no readable record needs it.
    pub(crate) fn may_hold_captures(&self) -> bool {
        self.holding().next().is_some()
    }

    /// Returns whether sandboxes are among them.
    pub(crate) fn has_sandboxes(&self) -> bool {
        self.0.iter().any(|row| row.kind == RowKind::Sandbox)
    }

    /// Returns whether a run may belong to a sandbox whose record cannot be read.
    pub(crate) fn may_need_run(&self, run: &RunId) -> bool {
        self.0.iter().any(|row| row.may_be_sandbox(&run.sandbox))
    }

    /// Returns the records that may need a saved state, as text for people.
    pub(crate) fn holders(&self) -> Vec<String> {
        self.holding().map(title).collect()
    }

    /// Returns the records that may need a snapshot, as text for people. No layer is based on the
    /// files of a memory snapshot, so it is needed only if it is mentioned, or if a recorded
    /// removal deletes it as soon as no record names it.
    pub(crate) fn holders_of(&self, snapshot: &SnapshotRecord) -> Vec<String> {
        let may_be_stood_on = snapshot.kind == SnapshotKind::Filesystem || snapshot.removal == Removal::WhenFree;
        let needs = |row: &&UnreadableRow| {
            may_be_stood_on || row.mentions(snapshot.id.as_str()) || row.mentions(snapshot.capture.as_str())
        };
        self.holding().filter(needs).map(title).collect()
    }

    /// Returns every sandbox among them, as text for people.
    pub(crate) fn sandboxes(&self) -> Vec<String> {
        self.0.iter().filter(|row| row.kind == RowKind::Sandbox).map(title).collect()
    }

    /// Returns whether the text of one of them mentions the saved state.
    pub(crate) fn mention(&self, capture: &CaptureId) -> bool {
        self.0.iter().any(|row| row.kind != RowKind::Discard && row.mentions(capture.as_str()))
    }
}

fn title(row: &UnreadableRow) -> String {
    format!("{}, whose record cannot be read (see `dorm repair`)", row.title())
}

impl Shared {
    /// Returns the unreadable records, as of a check that is at most a minute old: rows are damaged
    /// between two starts, hardly ever between two checks. Call this after reading the lists that a
    /// decision is based on.
    pub(crate) async fn unreadable(&self) -> Result<Unreadable, StoreError> {
        let (at, last) = self.quarantined.looked();
        match at.is_some_and(|at| at.elapsed() < LOOK) {
            true => Ok(last),
            false => self.look_for_unreadable().await,
        }
    }

    /// Checks which records cannot be read. This reads every record except history.
    pub(crate) async fn look_for_unreadable(&self) -> Result<Unreadable, StoreError> {
        Ok(self.quarantine(self.store.unreadable().await?))
    }

    /// Reads the records of sandboxes that are not terminated, and the unreadable ones, before
    /// anything is served.
    pub(crate) async fn read_all(&self) -> Result<(Vec<SandboxRecord>, Unreadable), StoreError> {
        let unreadable = self.quarantine(self.living.read(&*self.store).await?);
        Ok((self.living().await?, unreadable))
    }

    fn quarantine(&self, rows: Vec<UnreadableRow>) -> Unreadable {
        let rows = Unreadable(Arc::new(rows));
        *self.quarantined.0.lock().unwrap_or_else(PoisonError::into_inner) = (Some(Instant::now()), rows.clone());
        rows
    }
}

impl Service {
    /// Returns the records that cannot be read. They are left as they are, with everything that
    /// they may need.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn unreadable(&self) -> Result<Vec<UnreadableRow>, ServiceError> {
        Ok(self.shared.look_for_unreadable().await?.rows().to_vec())
    }
}
