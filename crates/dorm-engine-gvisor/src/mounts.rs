//! The volumes of a run that exists.

use dorm_engine::{EngineError, Mount};
use dorm_lifecycle::RunId;

use crate::shared::Shared;

impl Shared {
    /// [`dorm_engine::Engine::mount`].
    pub(crate) async fn mount(&self, id: &RunId, mounts: &[Mount]) -> Result<(), EngineError> {
        const OPERATION: &str = "mount volumes in";
        let run = self.runs.get(id)?;
        let _turn = run.turn().await;
        let container = run.living(OPERATION)?;
        self.host.set_mounts(&container.home, mounts).await.map_err(|error| error.of(OPERATION, id))
    }
}
