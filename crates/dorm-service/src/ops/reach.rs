//! Reaching what runs inside: the agent, and ports.

use dorm_agent_client::Agent;
use dorm_engine::{BoxStream, EngineError};
use dorm_lifecycle::{Actor, SandboxId, StateName};

use crate::activity::{InUse, Use};
use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::Service;

/// How often one connection may wake a sandbox that falls asleep again before it is used.
const WAKES: usize = 3;

impl Service {
    /// The agent of a running sandbox, to use it for `what`. The sandbox counts as in use until the second part is dropped. Waits while the
    /// sandbox is on its way to running.
    ///
    /// # Errors
    /// `NotRunning` for one that is suspended or over.
    pub async fn agent(&self, id: &SandboxId, what: Use) -> Result<(Agent, InUse), ServiceError> {
        match self.ask(id, |reply| Message::Use { what, reply }).await {
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
        let (agent, in_use) = self.agent_awake(id).await?;
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

    /// The agent, after a resume where one is needed and allowed. It may fall asleep again in between, but not for ever.
    async fn agent_awake(&self, id: &SandboxId) -> Result<(Agent, InUse), ServiceError> {
        for _ in 0..WAKES {
            match self.agent(id, Use::Traffic).await {
                Err(ServiceError::NotRunning { state: StateName::Suspended | StateName::Suspending, .. })
                    if self.describe(id).await?.sandbox.spec.auto_resume =>
                {
                    self.resume(id, Actor::Traffic).await?;
                }
                other => return other,
            }
        }
        self.agent(id, Use::Traffic).await
    }
}
