//! Limits on concurrent connections, so that one sandbox cannot exhaust the daemon's file
//! descriptors and memory: each sandbox has a few places of its own, and shares the others.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of connections of one sandbox.
const MOST: usize = 128;
/// The connections that each sandbox can have whatever the others do.
const OWN: usize = 8;
/// The connections that all sandboxes share.
const SHARED: usize = 1024;

/// The places that all sandboxes share.
#[derive(Debug)]
pub(crate) struct SharedPlaces(Arc<Semaphore>);

impl Default for SharedPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED)))
    }
}

/// The places of one sandbox.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// A taken place, which is freed when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _counted: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(shared: &SharedPlaces) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { all: places(MOST), own: places(OWN), shared: Arc::clone(&shared.0) }
    }

    /// Takes a place, if there is one.
    pub(crate) fn take(&self) -> Option<Place> {
        let _counted = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let own = Arc::clone(&self.own).try_acquire_owned();
        let _place = own.or_else(|_| Arc::clone(&self.shared).try_acquire_owned()).ok()?;
        Some(Place { _counted, _place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_sandboxes_leave_the_others_their_own_places() {
        let shared = SharedPlaces::default();
        let greedy: Vec<_> = (0..20).map(|_| Places::new(&shared)).collect();
        let taken: Vec<_> =
            greedy.iter().map(|places| std::iter::from_fn(|| places.take()).collect::<Vec<_>>()).collect();
        assert!(taken.iter().all(|places| (OWN..=MOST).contains(&places.len())));
        assert_eq!(taken[0].len(), MOST);
        let other = Places::new(&shared);
        assert_eq!(std::iter::from_fn(|| other.take()).collect::<Vec<_>>().len(), OWN);
    }
}
