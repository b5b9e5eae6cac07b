//! Bringing a guest back: from where it is parked, else from its image.

use dorm_agent_client::{Agent, Identity, Variable};
use dorm_engine::RunSpec;
use dorm_lifecycle::{CaptureId, Observation, RunId, SleepImage};
use dorm_pool::Expected;

use super::{Reason, Seen, Task, end, introduce, reason, spec, within};

pub(super) async fn wake(task: &Task, parked: &RunId, fresh: &RunId, image: &SleepImage) -> Seen {
    let limit = task.shared.settings.limits.resume;
    match within(limit, "resuming", attempt(task, parked, fresh, image)).await {
        Ok((run, agent)) => Seen::with(Observation::Woken { run: run.generation }, agent),
        Err(reason) => {
            end(task, parked).await;
            end(task, fresh).await;
            Seen::of(Observation::WakeFailed(reason))
        }
    }
}

async fn attempt(task: &Task, parked: &RunId, fresh: &RunId, image: &SleepImage) -> Result<(RunId, Agent), Reason> {
    if task.shared.parking.holds(&task.sandbox.id) {
        match thaw(task, parked).await {
            Ok(agent) => return Ok((parked.clone(), agent)),
            // Nothing is lost: what was parked is a cache of the image, from which it begins again.
            Err(reason) => tracing::warn!(run = %parked, reason, "a parked run did not go on; its image is restored"),
        }
    }
    end(task, parked).await;
    let spec = spec(task, fresh).await?;
    restore(task, &spec, &image.capture).await?;
    let agent = introduce(task, fresh).await.map_err(|error| reason(&error))?;
    Ok((fresh.clone(), agent))
}

async fn thaw(task: &Task, run: &RunId) -> Result<Agent, Reason> {
    task.shared.engine.go_on(run).await.map_err(|error| error.chain())?;
    introduce(task, run).await.map_err(|error| reason(&error))
}

/// Checks a capture to its last byte, then starts a run from it. No code of the guest runs before that.
pub(super) async fn restore(task: &Task, spec: &RunSpec, capture: &CaptureId) -> Result<(), Reason> {
    let capabilities = task.shared.engine.capabilities();
    let expected = Expected {
        engine: capabilities.name.to_owned(),
        build: capabilities.build.clone(),
        cpu: capabilities.cpu.clone(),
    };
    let capture = task.shared.pool.verify(capture, &expected).await.map_err(|error| reason(&error))?;
    task.shared.engine.restore(spec, &capture.directory).await.map_err(|error| error.chain())
}

/// What the agent tells the sandbox about itself when a run begins or goes on.
pub(super) fn identity(task: &Task) -> Identity {
    let sandbox = &task.sandbox;
    let hostname = sandbox.spec.name.as_ref().map_or_else(|| sandbox.id.as_str(), |name| name.as_str());
    let pairs = sandbox.spec.variables.0.iter();
    // A name or value that no variable can have was refused when the sandbox was asked for.
    let variables = pairs.filter_map(|(name, value)| Variable::new(name.as_str(), value.as_str()).ok()).collect();
    Identity {
        generation: sandbox.generation,
        hostname: hostname.to_owned(),
        unix_time_us: task.shared.now().as_millis().saturating_mul(1000),
        entropy: task.shared.ids().random(),
        variables,
    }
}
