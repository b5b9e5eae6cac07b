//! The end of a change of the egress or of the limits of a sandbox.

use dorm_lifecycle::{EventKind, Initiator, State};

use super::Actor;

impl Actor {
    /// Notes that the parked run of a suspended sandbox is gone, if it could not be changed and was
    /// ended for that reason.
    pub(super) async fn parked_run_changed(&mut self) {
        let sandbox = &self.record.sandbox;
        if !matches!(sandbox.state, State::Suspended { .. }) || !self.shared.parking.holds(&sandbox.id) {
            return;
        }
        let run = sandbox.run_id();
        if matches!(self.shared.engine.condition(&run).await, Ok(None)) && self.shared.parking.leave(&run.sandbox) {
            self.note(EventKind::Evicted, Initiator::Host, None).await;
        }
    }
}
