//! Connects to the agent of a live run. A run that does not answer is left as it is: it counts as
//! lost only if the engine reports that nothing of it is left.

use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::{Agent, AgentError};
use dorm_lifecycle::{RunCondition, RunId};

use super::{Reason, Task, UNDO, must_end_others, reason, remount, within};
use crate::error::ServiceError;

/// Why the agent was not reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unreached {
    /// The engine reports that nothing is left of the run.
    Over(Reason),
    /// The run did not answer, or its condition is unknown.
    Silent(Reason),
}

impl From<ServiceError> for Unreached {
    fn from(error: ServiceError) -> Self {
        match error.says_that_the_run_is_over() {
            true => Self::Over(reason(&error)),
            false => Self::Silent(reason(&error)),
        }
    }
}

/// Lets `run` continue, wherever it was paused, and returns its agent: over the connection in
/// `task`, which keeps its callers, or else over a new one.
pub(crate) async fn reach(task: &Task, run: &RunId, patience: Duration) -> Result<Agent, Unreached> {
    release(task, run, patience).await?;
    if let Some(agent) = task.agent.as_ref().filter(|agent| !agent.is_closed()) {
        match tokio::time::timeout(patience, agent.unquiesce()).await {
            Ok(Ok(())) => return Ok(agent.clone()),
            Ok(Err(_)) => {}
            Err(_) => return Err(Unreached::Silent(late("its agent", patience))),
        }
    }
    let agent = connect(task, run, patience).await?;
    // The daemon may have stopped between recording a change of volumes and carrying it out.
    if let Err(error) = remount(task, &agent).await {
        tracing::error!(%run, error = %reason(&error), "cannot mount the volumes of a run as recorded; it continues");
    }
    Ok(agent)
}

/// Makes the engine let `run` continue, as soon as no other guest of its sandbox runs.
pub(super) async fn release(task: &Task, run: &RunId, patience: Duration) -> Result<(), Unreached> {
    let others = within(UNDO, "ending another run of it", must_end_others(task, run)).await;
    others.map_err(|failure| Unreached::Silent(failure.reason().to_owned()))?;
    match tokio::time::timeout(patience, task.shared.engine.resume(run)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(ServiceError::from(error).into()),
        Err(_) => Err(Unreached::Silent(late("its engine", patience))),
    }
}

/// Returns whether nothing is left of `run` except remains to be removed, if the engine answers in
/// time.
pub(crate) async fn is_over(task: &Task, run: &RunId, patience: Duration) -> Result<bool, Reason> {
    match tokio::time::timeout(patience, task.shared.engine.condition(run)).await {
        Ok(Ok(condition)) => Ok(matches!(condition, None | Some(RunCondition::Broken))),
        Ok(Err(error)) => Err(reason(&error)),
        Err(_) => Err(late("its engine", patience)),
    }
}

/// Returns a new connection to the agent of a live run.
pub(crate) async fn connect(task: &Task, run: &RunId, patience: Duration) -> Result<Agent, ServiceError> {
    let hello = async {
        let stream = task.shared.engine.agent(run).await?;
        Ok(Agent::connect(stream, task.sandbox.generation).await?)
    };
    tokio::time::timeout(patience, hello).await.unwrap_or_else(|_| Err(silent(patience).into()))
}

/// Returns the error for an agent that has not answered in time.
pub(crate) fn silent(patience: Duration) -> AgentError {
    let source = std::io::Error::new(std::io::ErrorKind::TimedOut, late("it", patience));
    AgentError::Closed { source: Some(Arc::new(source)) }
}

pub(crate) fn late(who: &str, patience: Duration) -> Reason {
    format!("{who} did not answer within {} s", patience.as_secs_f64())
}
