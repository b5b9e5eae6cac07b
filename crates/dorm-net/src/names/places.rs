//! How many look-ups may be under way, so that the names of sandboxes cannot use up the daemon's descriptors.
//!
//! A look-up takes places, one for each descriptor that it opens: first the few that belong to its sandbox, then those
//! that all sandboxes of the daemon share. So a sandbox that takes all it can get leaves every other its own.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptors that the look-ups of all sandboxes share.
pub(crate) const SHARED_MAX: usize = 256;
/// Descriptors that belong to each sandbox alone.
pub(crate) const OWN: usize = 4;
/// Questions of one sandbox over UDP that may be under way at once.
pub(crate) const QUESTIONS_MAX: usize = 64;
/// Connections of one sandbox that may be open at once.
pub(crate) const CONNECTIONS_MAX: usize = 8;
/// A question over UDP opens one socket, a connection is one and opens another.
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

/// A place taken, free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _counted: OwnedSemaphorePermit,
    _descriptors: OwnedSemaphorePermit,
}

impl Places {
    /// Those of a sandbox, beside what all share.
    pub(crate) fn new(shared: &Arc<Semaphore>) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            questions: places(QUESTIONS_MAX),
            connections: places(CONNECTIONS_MAX),
            own: places(OWN),
            shared: Arc::clone(shared),
        }
    }

    /// A place for a question over UDP, if there is one.
    pub(crate) fn question(&self) -> Option<Place> {
        self.take(&self.questions, PER_QUESTION)
    }

    /// A place for a connection, if there is one.
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
