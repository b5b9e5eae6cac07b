//! Processes of a sandbox that run as its image specifies.

use std::time::Duration;

use dorm_agent_client::{ProcessSpec, ProcessStarted};
use dorm_lifecycle::SandboxId;
use dorm_storage::ImageConfig;

use crate::activity::Use;
use crate::error::ServiceError;
use crate::image_settings::{start_spec, with_settings};
use crate::shared::Service;

impl Service {
    /// Returns how programs in a sandbox are run by default.
    pub async fn image_config(&self, id: &SandboxId) -> ImageConfig {
        match self.shared.actor(id) {
            Some(handle) => self.shared.image_config(&handle.image).await,
            None => ImageConfig::default(),
        }
    }

    /// Fills in the user and directory of the sandbox's image where a process has none of its own.
    /// A process of another user does not get the directory of the image. Adds the variables of
    /// [`Service::with_trust`].
    ///
    /// # Errors
    ///
    /// Fails if the image names an invalid user or directory.
    pub async fn with_settings(&self, id: &SandboxId, spec: ProcessSpec) -> Result<ProcessSpec, ServiceError> {
        let spec = self.with_trust(id, spec).await?;
        if spec.user.is_some() && spec.directory.is_some() {
            return Ok(spec);
        }
        with_settings(&self.image_config(id).await, spec)
    }

    /// Starts a process that runs independently of its caller. After `limit`, the process and its
    /// group are killed.
    ///
    /// # Errors
    ///
    /// Those of [`Service::agent`], and the agent's for a command that cannot be started.
    pub async fn start(
        &self,
        id: &SandboxId,
        spec: ProcessSpec,
        limit: Option<Duration>,
    ) -> Result<ProcessStarted, ServiceError> {
        let spec = self.with_settings(id, spec).await?;
        let (agent, _in_use) = self.agent(id, Use::Process).await?;
        Ok(match limit {
            None => agent.start(&spec).await?,
            Some(limit) => agent.start_within(&spec, limit).await?,
        })
    }

    /// Starts the program of a sandbox's image, with the label [`START_LABEL`](crate::START_LABEL).
    ///
    /// # Errors
    ///
    /// [`ServiceError::NothingToStart`], and those of [`Service::start`].
    pub(crate) async fn start_image(&self, id: &SandboxId) -> Result<ProcessStarted, ServiceError> {
        let spec = start_spec(&self.image_config(id).await)?;
        self.start(id, spec.ok_or_else(|| ServiceError::NothingToStart(id.clone()))?, None).await
    }
}
