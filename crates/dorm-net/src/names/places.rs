//! Limits on concurrent DNS queries, so that sandboxes cannot exhaust the daemon's file
//! descriptors.
//!
//! A query takes one place for each descriptor that it opens: first from the few that belong to its
//! sandbox, then from those that all sandboxes of the daemon share. So a sandbox that takes all it
//! can get leaves every other sandbox its own.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The descriptors that the queries of all sandboxes share.
pub(crate) const SHARED_MAX: usize = 256;
/// The descriptors that are reserved for each sandbox.
pub(crate) const OWN: usize = 4;
/// The maximum number of concurrent UDP queries of one sandbox.
pub(crate) const QUESTIONS_MAX: usize = 64;
/// The maximum number of open connections of one sandbox.
pub(crate) const CONNECTIONS_MAX: usize = 8;
/// A UDP query opens one socket; a connection is one and opens another.
const PER_QUESTION: u32 = 1;
const PER_CONNECTION: u32 = 2;

/// The places of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    questions: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// A taken place, which is freed when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _counted: OwnedSemaphorePermit,
    _descriptors: OwnedSemaphorePermit,
}

impl Places {
    /// Creates the places of a sandbox, in addition to the shared ones.
    pub(crate) fn new(shared: &Arc<Semaphore>) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            questions: places(QUESTIONS_MAX),
            connections: places(CONNECTIONS_MAX),
            own: places(OWN),
            shared: Arc::clone(shared),
        }
    }

    /// Takes a place for a UDP query, if there is one.
    pub(crate) fn question(&self) -> Option<Place> {
        self.take(&self.questions, PER_QUESTION)
    }

    /// Takes a place for a connection, if there is one.
    pub(crate) fn connection(&self) -> Option<Place> {
        self.take(&self.connections, PER_CONNECTION)
    }

    fn take(&self, counted: &Arc<Semaphore>, descriptors: u32) -> Option<Place> {
        let _counted = Arc::clone(counted).try_acquire_owned().ok()?;
        let own = Arc::clone(&self.own).try_acquire_many_owned(descriptors);
        let _descriptors = own.or_else(|_| Arc::clone(&self.shared).try_acquire_many_owned(descriptors)).ok()?;
        Some(Place { _counted, _descriptors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greedy_sandbox_leaves_the_others_their_own_places() {
        let shared = Arc::new(Semaphore::new(8));
        let (greedy, other) = (Places::new(&shared), Places::new(&shared));
        let taken: Vec<_> = std::iter::from_fn(|| greedy.question()).collect();
        assert_eq!(taken.len(), 8 + OWN);
        let kept: Vec<_> = std::iter::from_fn(|| other.connection()).collect();
        assert_eq!(kept.len(), OWN / 2);
        drop(taken);
        assert!(other.question().is_some());
    }

    #[test]
    fn no_sandbox_has_more_than_its_connections_and_questions() {
        let places = Places::new(&Arc::new(Semaphore::new(10_000)));
        assert_eq!(std::iter::from_fn(|| places.connection()).collect::<Vec<_>>().len(), CONNECTIONS_MAX);
        assert_eq!(std::iter::from_fn(|| places.question()).collect::<Vec<_>>().len(), QUESTIONS_MAX);
    }
}
