//! Callers: the changes that name one, and that an operation keeps its own.

use dorm_lifecycle::{ApiKeyId, Caller, Credential, DoorId, Initiator, SandboxId};
use dorm_store::{Change, EventRecord};

use super::{Misfortune, Model, State};

/// Returns the caller with this number.
pub(crate) fn caller(number: u64) -> Caller {
    let id = ApiKeyId::from_random([u8::try_from(number).unwrap_or(u8::MAX); 20]);
    Caller { door: DoorId::known("sim"), credential: Credential::ApiKey { id, name: format!("caller-{number}") } }
}

impl Model {
    /// Checks who asked for each change, before the operations of the change are known.
    pub(super) fn callers_committed(&self, state: &State, change: &Change, events: &[EventRecord]) {
        for EventRecord { event, .. } in events {
            let what = format_args!("event {} of {}", event.kind.as_str(), event.sandbox);
            self.has_its_caller(state, what, Some(&event.sandbox), (event.initiator, event.caller.as_ref()));
        }
        for operation in &change.operations {
            let what = format_args!("operation {} ({})", operation.id, operation.kind.as_str());
            self.has_its_caller(
                state,
                what,
                operation.sandbox.as_ref(),
                (operation.initiator, operation.caller.as_ref()),
            );
            // A daemon that cannot read the record of an operation closes it in its own name.
            let known = state.operations.get(operation.id.as_str());
            let known = known.filter(|_| self.misfortune == Misfortune::OnlyDeaths);
            if known.is_some_and(|known| (known.initiator, &known.caller) != (operation.initiator, &operation.caller)) {
                self.trace.wrong(format_args!("{what} has another caller than it began with"));
            }
        }
    }

    /// Checks that a request has a caller, and nothing else has. The daemon itself creates the
    /// members of pools.
    fn has_its_caller(
        &self,
        state: &State,
        what: std::fmt::Arguments<'_>,
        sandbox: Option<&SandboxId>,
        by: (Initiator, Option<&Caller>),
    ) {
        let in_pool = || {
            let known = sandbox.and_then(|sandbox| state.sandboxes.get(sandbox));
            known.is_some_and(|known| known.record.sandbox.pool.is_some())
        };
        match by {
            (Initiator::User, None) if !in_pool() => {
                self.trace.wrong(format_args!("{what} was asked for, and has no caller"));
            }
            (Initiator::Timer | Initiator::Host | Initiator::Recovery, Some(caller)) => {
                self.trace.wrong(format_args!("{what} has {caller} as its caller, who did not ask for it"));
            }
            (Initiator::User | Initiator::Traffic, _)
            | (Initiator::Timer | Initiator::Host | Initiator::Recovery, None) => {}
        }
    }
}
