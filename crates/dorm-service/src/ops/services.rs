//! Services inside a sandbox. Its agent supervises them, so that nothing is recorded here.

use dorm_agent_client::{ProcessStarted, ServiceSpec};
use dorm_lifecycle::SandboxId;

use crate::activity::Use;
use crate::error::ServiceError;
use crate::shared::Service;

impl Service {
    /// Starts a service, whose process runs as the image of the sandbox specifies.
    ///
    /// # Errors
    ///
    /// Those of [`Service::agent`], and the agent's for a service that cannot be started.
    pub async fn start_service(&self, id: &SandboxId, spec: ServiceSpec) -> Result<ProcessStarted, ServiceError> {
        let process = self.with_settings(id, spec.process).await?;
        let (agent, _in_use) = self.agent(id, Use::Process).await?;
        Ok(agent.start_service(ServiceSpec { process, ..spec }).await?)
    }
}
