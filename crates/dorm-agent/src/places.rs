//! Limits on what may be open at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dorm_agent_proto::Failure;

/// The places for open calls of one kind.
pub(crate) struct Places {
    of: &'static str,
    most: u32,
    taken: AtomicU32,
}

/// One place, which is free again when this is dropped.
pub(crate) struct Place(Arc<Places>);

impl Places {
    /// `of` names what is counted, in the plural.
    pub(crate) fn new(of: &'static str, most: u32) -> Arc<Self> {
        Arc::new(Self { of, most, taken: AtomicU32::new(0) })
    }

    pub(crate) fn take(self: &Arc<Self>) -> Result<Place, Failure> {
        let free = |taken: u32| (taken < self.most).then_some(taken + 1);
        match self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free) {
            Ok(_) => Ok(Place(Arc::clone(self))),
            Err(_) => Err(Failure::TooManyOpen { of: self.of.to_owned(), most: self.most }),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use dorm_agent_proto::Failure;

    use super::Places;

    #[test]
    fn a_place_is_free_again_after_its_use() {
        let places = Places::new("doors", 2);
        let first = places.take().unwrap();
        let _second = places.take().unwrap();
        assert_eq!(places.take().err(), Some(Failure::TooManyOpen { of: "doors".to_owned(), most: 2 }));
        drop(first);
        assert!(places.take().is_ok());
    }
}
