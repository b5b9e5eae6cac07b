//! Damage that was found on the disk.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::Sandbox;
use dorm_storage::{Damage, Stored};

/// The things that were found damaged, and have not been found sound or gone since.
#[derive(Debug, Default)]
pub(crate) struct Soundness(Mutex<BTreeMap<Stored, Damage>>);

impl Soundness {
    pub(crate) fn known(&self) -> MutexGuard<'_, BTreeMap<Stored, Damage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of damaged things, by kind.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::from([("image", 0), ("image_layer", 0), ("saved_state", 0)]);
        for stored in self.known().keys() {
            *counts.entry(stored.kind()).or_default() += 1;
        }
        counts
    }

    /// Returns the damage to the data of this sandbox, as text for people.
    pub(crate) fn of(&self, sandbox: &Sandbox) -> Vec<String> {
        self.known().values().filter(|damage| needs(sandbox, &damage.stored)).map(Damage::sentence).collect()
    }
}

/// Returns whether a sandbox uses something, or would be restored from it.
pub(crate) fn needs(sandbox: &Sandbox, stored: &Stored) -> bool {
    match stored {
        Stored::Image(digest) => sandbox.spec.image == *digest,
        Stored::SavedState(id) => sandbox.saved_states().chain(sandbox.layers()).any(|held| held == id),
        // The images made of the layer have its files by hard links of their own.
        Stored::ImageLayer(_) => false,
    }
}
