//! The image's program, as part of a first run.

use dorm_agent_client::Agent;

use super::{Task, reach};
use crate::error::{Failure, ServiceError};
use crate::image_settings::{self, until_ready};
use crate::trust::with_trust;

/// Starts the program of a sandbox's image and waits until it is ready. If this fails, the run is
/// not needed any more.
pub(super) async fn start(task: &Task, agent: &Agent) -> Result<(), Failure> {
    let work = async {
        let config = task.shared.image_config(&task.sandbox.spec.image).await;
        let spec = image_settings::start_spec(&config)?;
        let spec = spec.ok_or_else(|| ServiceError::NothingToStart(task.sandbox.id.clone()))?;
        let spec = with_trust(&task.sandbox, spec);
        let started = tokio::time::timeout(task.patience(), agent.start(&spec)).await;
        started.map_err(|_| reach::silent(task.patience()))??;
        until_ready(agent, &config, task.shared.settings.limits.ready).await
    };
    let started: Result<(), ServiceError> = work.await;
    started.map_err(|error| Failure::from(error).told_as(|why| format!("starting its image's program: {why}")))
}
