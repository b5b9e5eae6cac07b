//! The egress policy of a run that exists.

use dorm_engine::EngineError;
use dorm_lifecycle::{Egress, RunId};

use crate::error::GvisorError;
use crate::shared::Shared;

impl Shared {
    /// [`dorm_engine::Engine::set_egress`].
    pub(crate) async fn set_egress(&self, id: &RunId, egress: &Egress) -> Result<(), EngineError> {
        const OPERATION: &str = "change the egress of";
        let run = self.runs.get(id)?;
        let _turn = run.turn().await;
        let container = run.living(OPERATION)?;
        let Some(lease) = &container.lease else {
            let condition = "without network, which it cannot get any more";
            return Err(EngineError::Condition { operation: OPERATION, run: id.clone(), condition });
        };
        let allowed = self.host.network.allow(lease.id, egress).await;
        allowed.map_err(|error| GvisorError::from(error).of(OPERATION, id))
    }
}
