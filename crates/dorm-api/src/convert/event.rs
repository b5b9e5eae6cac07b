//! Events.

use dorm_api_types as wire;
use dorm_store::EventRecord;

use super::{Convert, Of, time};

impl Of<EventRecord> for wire::Event {
    fn of(record: EventRecord) -> Self {
        let EventRecord { number, event } = record;
        Self {
            number,
            at: time(event.at),
            project: event.project.to_string(),
            sandbox: event.sandbox.to_string(),
            kind: event.kind.as_str().to_owned(),
            initiator: event.initiator.as_str().to_owned(),
            caller: event.caller.map(Convert::convert),
            operation: event.operation.map(|operation| operation.to_string()),
            generation: event.generation,
            detail: event.detail,
            took_ms: event.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            bytes: event.bytes,
        }
    }
}
