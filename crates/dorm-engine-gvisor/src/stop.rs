//! Ends a run.

use dorm_engine::EngineError;
use dorm_lifecycle::RunId;

use crate::error::chain;
use crate::notes::Phase;
use crate::shared::Shared;

impl Shared {
    /// [`dorm_engine::Engine::stop`].
    pub(crate) async fn stop(&self, id: &RunId) -> Result<(), EngineError> {
        const OPERATION: &str = "stop";
        let Ok(run) = self.runs.get(id) else { return Ok(()) };
        run.begin_stopping();
        run.cut(None);
        if let Some(container) = run.container() {
            // Does not wait for its turn, so that any operation on the container ends at once.
            self.host
                .end_processes(&container.home, Some(&container.processes))
                .await
                .map_err(|error| error.of(OPERATION, id))?;
        }
        let mut turn = run.turn().await;
        if let Some(home) = turn.home() {
            // A full disk must not prevent freeing space.
            if let Err(error) = turn.set(Phase::Stopping) {
                tracing::debug!(run = %id, error = %chain(&error), "cannot record the end of a run");
            }
            self.host.reach("gvisor: end noted").map_err(|error| error.of(OPERATION, id))?;
            self.host.destroy(&home).await.map_err(|error| error.of(OPERATION, id))?;
            turn.forget();
        }
        self.runs.remove(&run);
        Ok(())
    }
}
