//! The limits of CPU time and memory of a run that exists.
//!
//! They are limits of its control group only: inside, a guest sees the memory and the CPUs of the
//! host, as it does from its boot on.

use dorm_cgroup::Limits;
use dorm_engine::EngineError;
use dorm_lifecycle::{Resources, RunId};

use crate::error::GvisorError;
use crate::limits;
use crate::shared::Shared;

impl Shared {
    /// [`dorm_engine::Engine::set_limits`].
    pub(crate) async fn set_limits(&self, id: &RunId, resources: &Resources) -> Result<(), EngineError> {
        const OPERATION: &str = "change the limits of";
        let run = self.runs.get(id)?;
        let mut turn = run.turn().await;
        let container = run.living(OPERATION)?;
        let wanted = limits::for_guest(resources);
        let before = turn.note().map_or(0, |note| note.memory_bytes);
        let changed = async {
            container
                .group(move |group| {
                    let now = group.memory_limit()?;
                    // A limit that is raised for a while becomes the noted one when that is over.
                    let is_raised = before > 0 && now > before + (before >> 4);
                    let memory_bytes = if is_raised { now.max(wanted.memory_bytes) } else { wanted.memory_bytes };
                    group.set_limits(&Limits { memory_bytes, ..wanted })
                })
                .await?;
            turn.set_memory(wanted.memory_bytes)
        };
        let Err(error) = changed.await else {
            run.resized.notify_one();
            return Ok(());
        };
        if before > 0 {
            let restored = container.group(move |group| group.set_memory_limit(before)).await;
            if let Err(error) = restored {
                tracing::warn!(run = %id, error = %crate::error::chain(&error), "cannot restore the memory limit of a run");
            }
        }
        Err(GvisorError::of(error, OPERATION, id))
    }
}
