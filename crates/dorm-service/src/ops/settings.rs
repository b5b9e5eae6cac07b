//! How programs are run in a sandbox, as its image specifies: user, directory, and the program to
//! start.

use dorm_agent_client::{FirstReader, GuestPath, GuestString, ProcessSpec, ProcessStarted, User};
use dorm_lifecycle::{Digest, SandboxId};
use dorm_storage::{Image, ImageConfig, StorageError, host_architecture};

use crate::activity::Use;
use crate::error::{ServiceError, chain};
use crate::shared::{Service, Shared};

/// The label of the process that an image starts with.
pub const START_LABEL: &str = "start";

/// Rejects an image whose programs cannot run on this host.
pub(super) fn fits_host(image: &Image) -> Result<(), ServiceError> {
    match &image.config.architecture {
        Some(other) if other != host_architecture() => {
            Err(ServiceError::ImageSetting { what: "architecture", value: other.clone() })
        }
        _ => Ok(()),
    }
}

/// Returns a command of an image as arguments for its processes; `what` is its purpose, for errors.
fn guest_words<'a>(
    words: impl IntoIterator<Item = &'a str>,
    what: &'static str,
) -> Result<Vec<GuestString>, ServiceError> {
    let bad = |word: &str| ServiceError::ImageSetting { what, value: word.to_owned() };
    words.into_iter().map(|word| GuestString::new(word.as_bytes().to_vec()).map_err(|_| bad(word))).collect()
}

impl Shared {
    /// Returns how programs of an image are run; the defaults if that cannot be read.
    pub(crate) async fn image_config(&self, image: &Digest) -> ImageConfig {
        match self.storage.image_config(image).await {
            Ok(config) => config,
            // A sandbox that is restored from memory needs nothing else of its image.
            Err(StorageError::NoImage { .. }) => ImageConfig::default(),
            Err(error) => {
                tracing::warn!(%image, error = %chain(&error), "cannot read the configuration of an image; using the defaults");
                ImageConfig::default()
            }
        }
    }
}

impl Service {
    /// Returns how programs in a sandbox are run by default.
    pub async fn image_config(&self, id: &SandboxId) -> ImageConfig {
        match self.shared.actor(id) {
            Some(handle) => self.shared.image_config(&handle.image).await,
            None => ImageConfig::default(),
        }
    }

    /// Fills in the user and directory of the sandbox's image where a process has none of its own.
    /// A process of another user does not get the directory of the image.
    ///
    /// # Errors
    ///
    /// Fails if the image names an invalid user or directory.
    pub async fn with_settings(&self, id: &SandboxId, spec: ProcessSpec) -> Result<ProcessSpec, ServiceError> {
        if spec.user.is_some() && spec.directory.is_some() {
            return Ok(spec);
        }
        with_settings(&self.image_config(id).await, spec)
    }

    /// Starts a process that runs independently of its caller.
    ///
    /// # Errors
    ///
    /// Those of [`Service::agent`], and the agent's for a command that cannot be started.
    pub async fn start(&self, id: &SandboxId, spec: ProcessSpec) -> Result<ProcessStarted, ServiceError> {
        let spec = self.with_settings(id, spec).await?;
        let (agent, _in_use) = self.agent(id, Use::Process).await?;
        Ok(agent.start(&spec).await?)
    }

    /// Starts the program of a sandbox's image, with the label [`START_LABEL`].
    ///
    /// # Errors
    ///
    /// [`ServiceError::NothingToStart`], and those of [`Service::start`].
    pub(super) async fn start_image(&self, id: &SandboxId) -> Result<ProcessStarted, ServiceError> {
        let spec = start_spec(&self.image_config(id).await)?;
        self.start(id, spec.ok_or_else(|| ServiceError::NothingToStart(id.clone()))?).await
    }
}

/// Returns the program of an image; `None` if the image has none.
pub(crate) fn start_spec(config: &ImageConfig) -> Result<Option<ProcessSpec>, ServiceError> {
    let command = config.start();
    if command.is_empty() {
        return Ok(None);
    }
    let mut spec = ProcessSpec::new(guest_words(command.iter().map(String::as_str), "command")?);
    spec.label = Some(START_LABEL.to_owned());
    with_settings(config, spec).map(Some)
}

/// Returns the command that checks whether the image's program is ready.
pub(crate) fn ready_spec(config: &ImageConfig, line: &str) -> Result<ProcessSpec, ServiceError> {
    let mut spec = ProcessSpec::new(guest_words(["/bin/sh", "-c", line], "ready command")?);
    spec.first_reader = FirstReader::Expected;
    with_settings(config, spec)
}

fn with_settings(config: &ImageConfig, mut spec: ProcessSpec) -> Result<ProcessSpec, ServiceError> {
    if let (None, Some(user)) = (&spec.user, &config.user) {
        let user =
            user.parse::<User>().map_err(|_| ServiceError::ImageSetting { what: "user", value: user.clone() })?;
        spec.user = Some(user);
    }
    if let (None, Some(directory)) = (&spec.directory, &config.directory) {
        let path = GuestPath::try_from(directory.as_str());
        spec.directory =
            Some(path.map_err(|_| ServiceError::ImageSetting { what: "directory", value: directory.clone() })?);
    }
    Ok(spec)
}
