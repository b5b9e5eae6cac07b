//! The records that could not be read at the last check.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dorm_lifecycle::{RunId, SavedStateId, SnapshotKind};
use dorm_store::{Removal, RowKind, SnapshotRecord, StoreError, UnreadableRow};
use tokio::time::Instant;

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

    /// Records the result of a check.
    pub(crate) fn set(&self, rows: Vec<UnreadableRow>) -> Unreadable {
        let rows = Unreadable(Arc::new(rows));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (Some(Instant::now()), rows.clone());
        rows
    }

    /// Returns the last result and its time.
    pub(crate) fn looked(&self) -> (Option<Instant>, Unreadable) {
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
        self.0.iter().filter(|row| row.kind.may_hold_saved_states())
    }

    /// Returns whether a saved state may be needed although no readable record needs it.
    pub(crate) fn may_hold_saved_states(&self) -> bool {
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
    /// files of a memory snapshot, and templates, builds, pools and environments are based on no
    /// files: a snapshot is needed only if it is mentioned, or if a recorded removal deletes it as
    /// soon as no record names it.
    pub(crate) fn holders_of(&self, snapshot: &SnapshotRecord) -> Vec<String> {
        let is_due = snapshot.removal == Removal::WhenFree;
        let needs = |row: &&UnreadableRow| {
            let may_stand_on_it = snapshot.kind == SnapshotKind::Filesystem && row.kind.may_hold_saved_states();
            let names_it = || row.mentions(snapshot.id.as_str()) || row.mentions(snapshot.saved_state.as_str());
            row.kind.may_hold_snapshots() && (is_due || may_stand_on_it || names_it())
        };
        self.0.iter().filter(needs).map(title).collect()
    }

    /// Returns the records that may need an image, as text for people.
    pub(crate) fn holders_of_images(&self) -> Vec<String> {
        self.0.iter().filter(|row| row.kind.may_hold_snapshots()).map(title).collect()
    }

    /// Refuses to write a record of this kind, id and name if it may be one of these: it would
    /// replace what cannot be read now.
    pub(crate) fn refuse(&self, kind: RowKind, id: &str, name: &str) -> Result<(), StoreError> {
        let unread = self.0.iter().find(|row| row.may_be(kind, id, name));
        unread.map_or(Ok(()), |row| Err(row.error()))
    }

    /// Returns every sandbox among them, as text for people.
    pub(crate) fn sandboxes(&self) -> Vec<String> {
        self.0.iter().filter(|row| row.kind == RowKind::Sandbox).map(title).collect()
    }

    /// Returns whether the text of one of them mentions the saved state.
    pub(crate) fn mention(&self, saved_state: &SavedStateId) -> bool {
        self.0.iter().any(|row| row.kind != RowKind::Discard && row.mentions(saved_state.as_str()))
    }
}

fn title(row: &UnreadableRow) -> String {
    format!("{}, whose record cannot be read (see `dorm repair`)", row.title())
}
