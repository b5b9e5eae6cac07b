//! Access to the inside of a sandbox: the agent, and ports.

use std::time::Duration;

use dorm_agent_client::Agent;
use dorm_engine::{BoxStream, EngineError};
use dorm_lifecycle::{Initiator, SandboxId, StateName};

use crate::activity::{InUse, Use};
use crate::error::ServiceError;
use crate::messages::Message;
use crate::shared::Service;

/// How many times one connection may wake a sandbox that is suspended again before it is used.
const WAKES: usize = 3;

/// An agent that was heard this recently is used without a ping.
const FRESH: Duration = Duration::from_secs(5);

/// How long a port inside may take to answer.
const CONNECT: Duration = Duration::from_secs(60);

impl Service {
    /// Returns the agent of a running sandbox, to use it for `what`. The sandbox counts as in use
    /// until the second part is dropped. Waits while the sandbox is about to run.
    ///
    /// # Errors
    ///
    /// `NotRunning` for a suspended or terminated sandbox; `Unreachable` for one that runs but does
    /// not answer.
    pub async fn agent(&self, id: &SandboxId, what: Use) -> Result<(Agent, InUse), ServiceError> {
        match self.ask(id, |reply| Message::Use { what, reply }).await {
            Err(ServiceError::NoSandbox(_)) => {
                let view = self.describe(id).await?;
                Err(ServiceError::NotRunning { sandbox: id.clone(), state: view.sandbox.state.name() })
            }
            Ok((agent, in_use)) if !agent.was_heard_within(FRESH) => self.proven(id, what, agent, in_use).await,
            other => other,
        }
    }

    /// Pings an agent that has not been heard for some time before it is used.
    async fn proven(
        &self,
        id: &SandboxId,
        what: Use,
        agent: Agent,
        in_use: InUse,
    ) -> Result<(Agent, InUse), ServiceError> {
        match tokio::time::timeout(self.shared.settings.agent, agent.ping()).await {
            Ok(Ok(())) => Ok((agent, in_use)),
            Ok(Err(_)) => self.ask(id, |reply| Message::Use { what, reply }).await,
            Err(_) => self.ask(id, |reply| Message::Unanswered { silent: agent, what, reply }).await,
        }
    }

    /// Connects to a TCP port inside. A suspended sandbox is resumed if its auto-resume is on; any
    /// number of concurrent callers cause one resume.
    ///
    /// # Errors
    ///
    /// `NotRunning`, `StillWaking` if the resume takes longer than traffic waits, or `Refused` if
    /// nothing listens on the port.
    pub async fn connect(&self, id: &SandboxId, port: u16) -> Result<(BoxStream, InUse), ServiceError> {
        for _ in 0..WAKES {
            let awake = tokio::time::timeout(self.shared.settings.wake, self.agent_awake(id)).await;
            let (agent, in_use) = awake.map_err(|_| ServiceError::StillWaking(id.clone()))??;
            let run = self.record(id).await?.sandbox.run_id();
            // A sandbox that is being suspended just now answers only after its next resume, and
            // perhaps over another path.
            let connected = tokio::select! {
                biased;
                connected = tokio::time::timeout(CONNECT, self.shared.engine.connect(&run, port)) => connected,
                () = agent.closed() => continue,
            };
            return match connected {
                Ok(Ok(stream)) => Ok((stream, in_use)),
                // A run without a network is reached through its agent.
                Ok(Err(EngineError::Condition { .. })) => Ok((Box::new(agent.dial(port).await?), in_use)),
                Ok(Err(error)) => Err(error.into()),
                Err(late) => Err(EngineError::failed("connect to", &run, late).into()),
            };
        }
        let view = self.describe(id).await?;
        Err(ServiceError::NotRunning { sandbox: id.clone(), state: view.sandbox.state.name() })
    }

    /// Returns the agent, after a resume if one is needed and permitted. The sandbox may be
    /// suspended again in between, but not indefinitely.
    async fn agent_awake(&self, id: &SandboxId) -> Result<(Agent, InUse), ServiceError> {
        for _ in 0..WAKES {
            match self.agent(id, Use::Traffic).await {
                Err(ServiceError::NotRunning { state: StateName::Suspended | StateName::Suspending, .. })
                    if self.describe(id).await?.sandbox.spec.auto_resume =>
                {
                    self.resume(id, Initiator::Traffic).await?;
                }
                other => return other,
            }
        }
        self.agent(id, Use::Traffic).await
    }
}
