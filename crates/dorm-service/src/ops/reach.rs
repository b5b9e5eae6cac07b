//! Reaching what runs inside: the agent, and ports.

use dorm_agent_client::Agent;
use dorm_engine::{BoxStream, EngineError};
use dorm_lifecycle::{Actor, SandboxId};

use crate::activity::InUse;
use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::Residence;

impl Service {
    /// The agent of a running sandbox. The sandbox counts as in use until the second part is dropped. Waits while the
    /// sandbox is on its way to running.
    ///
    /// # Errors
    /// `NotRunning` for one that is suspended or over.
    pub async fn agent(&self, id: &SandboxId) -> Result<(Agent, InUse), ServiceError> {
        match self.ask(id, |reply| Message::Use { reply }).await {
            Err(ServiceError::NoSandbox(_)) => {
                let view = self.describe(id).await?;
                Err(ServiceError::NotRunning { sandbox: id.clone(), state: view.sandbox.state.name() })
            }
            other => other,
        }
    }

    /// Connects to a TCP port inside. A suspended sandbox is woken by it when its auto-resume is on; any number of
    /// callers at once cause one resume.
    ///
    /// # Errors
    /// `NotRunning`, or `Refused` when nobody listens there.
    pub async fn connect(&self, id: &SandboxId, port: u16) -> Result<(BoxStream, InUse), ServiceError> {
        let view = self.describe(id).await?;
        if matches!(view.residence, Residence::Parked | Residence::Evicted) && view.sandbox.spec.auto_resume {
            self.resume(id, Actor::Traffic).await?;
        }
        let (agent, in_use) = self.agent(id).await?;
        let run = self.record(id).await?.sandbox.run_id();
        match self.shared.engine.connect(&run, port).await {
            Ok(stream) => Ok((stream, in_use)),
            // A run without a network is reached through its agent.
            Err(EngineError::Condition { .. }) => {
                let stream = agent.dial(port).await?;
                Ok((Box::new(stream), in_use))
            }
            Err(error) => Err(error.into()),
        }
    }
}
