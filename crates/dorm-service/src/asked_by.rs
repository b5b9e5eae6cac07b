//! Who asked for a change, from the handle of a request to the records of the change.

use std::sync::Arc;

use dorm_lifecycle::{Caller, Initiator};

/// Who asked for a change: its initiator, and the caller if a request asked for it.
#[derive(Clone, Debug)]
pub(crate) struct AskedBy {
    pub(crate) initiator: Initiator,
    caller: Option<Arc<Caller>>,
}

impl AskedBy {
    /// Returns who asks for a change on behalf of `caller`. Work that the daemon does of its own
    /// accord has no caller, even if a request led to it.
    pub(crate) fn new(initiator: Initiator, caller: Option<&Arc<Caller>>) -> Self {
        let caller = match initiator {
            Initiator::User | Initiator::Traffic => caller.cloned(),
            Initiator::Timer | Initiator::Host | Initiator::Recovery => None,
        };
        Self { initiator, caller }
    }

    /// Returns the caller, for a record.
    pub(crate) fn caller(&self) -> Option<Caller> {
        self.caller.as_deref().cloned()
    }
}

impl From<Initiator> for AskedBy {
    fn from(initiator: Initiator) -> Self {
        Self { initiator, caller: None }
    }
}
