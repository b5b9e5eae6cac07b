//! Access to the inside of a sandbox: the agent, and ports.

use std::time::Duration;

use dorm_agent_client::{Agent, AgentError};
use dorm_engine::{BoxStream, EngineError, PortStream};
use dorm_lifecycle::{Command, Initiator, SandboxId, StateName, Wake};

use crate::activity::{InUse, Use};
use crate::error::ServiceError;
use crate::messages::Message;
use crate::ops::resume::ResumeSpec;
use crate::shared::Service;

/// How many times one call may wake a sandbox that is suspended again before it is used.
const WAKES: usize = 3;

/// An agent that was heard this recently is used without a ping.
const FRESH: Duration = Duration::from_secs(5);

/// How long a port inside may take to answer.
const CONNECT: Duration = Duration::from_secs(60);

impl Service {
    /// Returns the agent of a sandbox, to use it for `what`. The sandbox counts as in use until the
    /// second part is dropped. Waits while the sandbox is about to run. A suspended sandbox is
    /// resumed if its wake policy, or the one of this handle, says so; any number of concurrent
    /// callers cause one resume.
    ///
    /// # Errors
    ///
    /// `NotRunning` for a terminated sandbox, and for a suspended one that the call does not wake;
    /// `StillWaking` if the resume takes longer than calls wait; those of [`Service::resume`];
    /// `Unreachable` for a sandbox that runs but does not answer.
    pub async fn agent(&self, id: &SandboxId, what: Use) -> Result<(Agent, InUse), ServiceError> {
        for _ in 0..WAKES {
            match self.agent_of_running(id, what).await {
                Err(ServiceError::NotRunning { state: StateName::Suspended | StateName::Suspending, .. })
                    if self.wakes(id, what).await? =>
                {
                    self.wake_up(id, what).await?;
                }
                other => return other,
            }
        }
        self.agent_of_running(id, what).await
    }

    /// Returns whether a use of a suspended sandbox resumes it.
    async fn wakes(&self, id: &SandboxId, what: Use) -> Result<bool, ServiceError> {
        let wake = match self.wake {
            Some(wake) => wake,
            None => self.record(id).await?.sandbox.spec.wake,
        };
        Ok(match wake {
            Wake::Never => false,
            Wake::Traffic => what == Use::Traffic,
            Wake::Any => true,
        })
    }

    /// Resumes a sandbox for a use of it, and waits for room in turn with others. The resume
    /// continues if the caller goes away or does not wait any longer.
    async fn wake_up(&self, id: &SandboxId, what: Use) -> Result<(), ServiceError> {
        let by = match what {
            Use::Traffic => Initiator::Traffic,
            Use::Exec | Use::Process | Use::Output | Use::Terminal | Use::Files | Use::Watch => Initiator::User,
        };
        let patience = self.shared.settings.wake;
        let asked = ResumeSpec { max_wait: patience, ..ResumeSpec::default() };
        let awake = tokio::time::timeout(patience, self.wake_with(id, by, asked, Command::Wake)).await;
        awake.map_err(|_| ServiceError::StillWaking(id.clone()))?.map(drop)
    }

    /// Returns the agent of a running sandbox, or of one that is about to run.
    async fn agent_of_running(&self, id: &SandboxId, what: Use) -> Result<(Agent, InUse), ServiceError> {
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

    /// Connects to a TCP port inside. A suspended sandbox is resumed as by [`Service::agent`]. The
    /// connection breaks when the sandbox is suspended or rewound.
    ///
    /// # Errors
    ///
    /// Those of [`Service::agent`], or `Refused` if nothing listens on the port.
    pub async fn connect(&self, id: &SandboxId, port: u16) -> Result<(BoxStream, InUse), ServiceError> {
        for _ in 0..WAKES {
            let awake = tokio::time::timeout(self.shared.settings.wake, self.agent(id, Use::Traffic)).await;
            let (agent, in_use) = awake.map_err(|_| ServiceError::StillWaking(id.clone()))??;
            let end = in_use.connection_end();
            let run = self.record(id).await?.sandbox.run_id();
            // A sandbox that is being suspended just now answers only after its next resume, and
            // perhaps over another path.
            let connected = tokio::select! {
                biased;
                connected = tokio::time::timeout(CONNECT, self.shared.engine.connect(&run, port)) => connected,
                () = agent.closed() => continue,
            };
            return match connected {
                Ok(Ok(stream)) => Ok((Box::new(PortStream::new(stream, end)), in_use)),
                // A run without a network is reached through its agent.
                Ok(Err(EngineError::Condition { .. })) => Ok((Box::new(agent.dial(port).await?), in_use)),
                // The program may listen on the loopback address inside, which only the agent
                // reaches.
                Ok(Err(refused @ EngineError::Refused { .. })) => match agent.dial(port).await {
                    Ok(stream) => Ok((Box::new(stream), in_use)),
                    Err(AgentError::Closed { .. }) => continue,
                    Err(_) => Err(refused.into()),
                },
                Ok(Err(error)) => Err(error.into()),
                Err(late) => Err(EngineError::failed("connect to", &run, late).into()),
            };
        }
        let view = self.describe(id).await?;
        Err(ServiceError::NotRunning { sandbox: id.clone(), state: view.sandbox.state.name() })
    }
}
