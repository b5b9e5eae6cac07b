//! The images that are being fetched.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Names that are being fetched: further requests for the same name wait.
#[derive(Default)]
pub(crate) struct Pulling(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Pulling {
    pub(crate) fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|_, lock| Arc::strong_count(lock) > 1);
        names.entry(name.to_owned()).or_default().clone()
    }
}
