//! Makes an image from a filesystem snapshot, and tries it: the image gets its tag after a sandbox
//! of it was suspended and resumed.

use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::{GuestPath, ProcessStatus, User};
use dorm_lifecycle::{Initiator, OnTimeout, SandboxId, SnapshotKind, Timeouts};
use dorm_storage::{Image, ImageConfig, Progress, Stage, StorageError};

use super::create::{CreateFrom, CreateSpec};
use crate::activity::Use;
use crate::error::{ServiceError, chain, host_part};
use crate::image_settings::{self, fits_host};
use crate::shared::Service;

/// The time limit of a trial sandbox; one whose daemon has died is ended by the next daemon.
const TRIAL_OVER: Duration = Duration::from_secs(1800);
/// The label of trial sandboxes.
pub(crate) const TRIAL_LABEL: &str = "dorm.trial";

/// A request to make an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composition {
    /// An image, or a filesystem snapshot.
    pub from: CreateFrom,
    /// How its programs are run.
    pub config: ImageConfig,
    /// Its tag, which may be moved from another image.
    pub tag: Option<String>,
    /// An identifier of what it is made from, given by the caller. If a tagged image with the same
    /// identifier exists, it is returned instead.
    pub build: Option<String>,
}

type Report = Arc<dyn Fn(Progress) + Send + Sync>;
/// The meaning of an error of the storage for a caller.
type Refusal = fn(StorageError) -> ServiceError;

impl Service {
    /// Makes an image from a filesystem snapshot or from another image, with settings of its own. A
    /// sandbox of it is started, suspended, evicted and resumed before the image gets its tag. The
    /// operation continues if the caller goes away.
    ///
    /// # Errors
    ///
    /// [`ServiceError::ImageSetting`], [`ServiceError::MemorySnapshot`], those of the storage;
    /// [`ServiceError::TrialFailed`] if its sandbox could not be suspended or resumed: then the
    /// image is removed.
    pub async fn compose_image(
        &self,
        asked: Composition,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Image, ServiceError> {
        let service = self.clone();
        let work = async move { service.compose(asked, Arc::new(progress)).await };
        self.shared.finish_unless_stopped(work).await
    }

    async fn compose(&self, asked: Composition, report: Report) -> Result<Image, ServiceError> {
        check(&asked.config)?;
        if let Some(tag) = &asked.tag {
            self.free_tag(tag).await?;
        }
        self.shared.admit_write("make an image", 0).await?;
        self.shared.admit_to_disk_of("make an image", self.project(), 0).await?;
        let storage = &self.shared.storage;
        if let Some(image) = self.tried(asked.build.as_deref()).await? {
            return self.named(image, asked.tag.as_deref()).await;
        }
        // By the clock that dates the image.
        let began = self.shared.clock.wall();
        let tell = report.clone();
        let tell = move |progress| tell(progress);
        let (made, refused): (_, Refusal) = match &self.source_named(asked.from).await? {
            CreateFrom::Image(reference) => {
                let base = self.image(reference).await?;
                fits_host(&base)?;
                let made = storage.compose_image(&base.digest, None, asked.config, asked.build, tell);
                (made.await, ServiceError::from)
            }
            CreateFrom::Template(template) => {
                return Err(template.unfit("an image can only be made from an image or a snapshot"));
            }
            CreateFrom::Snapshot(id) => {
                let (_using, snapshot) = self.use_snapshot(id).await?;
                if snapshot.kind != SnapshotKind::Filesystem {
                    return Err(ServiceError::MemorySnapshot(id.clone()));
                }
                let (image, over) = (&snapshot.image, Some(&snapshot.saved_state));
                (storage.compose_image(image, over, asked.config, asked.build, tell).await, host_part)
            }
        };
        if let Err(error) = &made {
            self.shared.is_damaged(error).await;
        }
        let image = made.map_err(refused)?;
        report(Progress { stage: Stage::Trying, entries: image.files, bytes: image.bytes, bytes_total: None });
        self.prepare(&image.digest);
        let Err(error) = self.try_image(&image).await else { return self.named(image, asked.tag.as_deref()).await };
        // It may have existed before, and be in use.
        if image.tags.is_empty()
            && image.created >= began
            && let Err(error) = self.remove_image(&image.digest).await
        {
            tracing::warn!(image = %image.digest, error = %chain(&error), "cannot remove an image that failed its trial");
        }
        Err(ServiceError::TrialFailed { image: image.digest, source: Box::new(error) })
    }

    /// Returns the image made from the same content. An image without a tag does not count: it may
    /// not have been tried yet.
    pub(crate) async fn tried(&self, build: Option<&str>) -> Result<Option<Image>, ServiceError> {
        let Some(build) = build else { return Ok(None) };
        let images = self.shared.storage.images().await?.into_iter();
        let mut same = images.filter(|image| image.source.build.as_deref() == Some(build) && !image.tags.is_empty());
        Ok(same.next())
    }

    async fn named(&self, image: Image, tag: Option<&str>) -> Result<Image, ServiceError> {
        match tag {
            Some(tag) => self.tag_image(&image.digest, tag).await,
            None => Ok(image),
        }
    }

    /// Suspends and resumes a sandbox of an image.
    async fn try_image(&self, image: &Image) -> Result<(), ServiceError> {
        let asked = CreateSpec {
            suspendable: Some(true),
            on_timeout: Some(OnTimeout::Terminate),
            timeouts: Timeouts { max_run: Some(TRIAL_OVER), ..Timeouts::default() },
            labels: [(TRIAL_LABEL.to_owned(), image.digest.to_string())].into(),
            ..CreateSpec::new(CreateFrom::Image(image.digest.to_string()))
        };
        let id = self.create(asked).await?.sandbox.id;
        let tried = self.sleep_and_wake(&id, &image.config).await;
        let ended = self.terminate(&id).await;
        tried?;
        ended.map(drop)
    }

    pub(crate) async fn sleep_and_wake(&self, id: &SandboxId, config: &ImageConfig) -> Result<(), ServiceError> {
        if config.ready.is_some() {
            self.start_image(id).await?;
        }
        if let Some(user) = &config.user
            && user.parse::<User>().is_err()
        {
            return Err(ServiceError::ImageSetting { what: "user", value: user.clone() });
        }
        self.until_ready(id, config).await?;
        let before = self.all_processes(id).await?;
        self.suspend(id).await?;
        self.evict(id).await?;
        self.resume(id, Initiator::User).await?;
        let after = self.all_processes(id).await?;
        // The resume itself adds processes: the hooks of the image.
        let is_kept = |old: &ProcessStatus| after.iter().any(|new| old.process == new.process && old.pid == new.pid);
        if !before.iter().all(is_kept) {
            return Err(ServiceError::NotTheSame(id.clone()));
        }
        self.until_ready(id, config).await
    }

    async fn all_processes(&self, id: &SandboxId) -> Result<Vec<ProcessStatus>, ServiceError> {
        let (agent, _in_use) = self.agent(id, Use::Process).await?;
        Ok(agent.processes().await?)
    }

    /// Waits until the image's program is ready, if the image has a ready command.
    ///
    /// # Errors
    ///
    /// [`ServiceError::NotReady`] if it takes too long.
    async fn until_ready(&self, id: &SandboxId, config: &ImageConfig) -> Result<(), ServiceError> {
        let (agent, _in_use) = self.agent(id, Use::Exec).await?;
        image_settings::until_ready(&agent, config, self.shared.settings.limits.ready).await
    }
}

/// Rejects settings with which no program could be run.
pub(crate) fn check(config: &ImageConfig) -> Result<(), ServiceError> {
    let bad = |what: &'static str, value: &str| Err(ServiceError::ImageSetting { what, value: value.to_owned() });
    if let Some(directory) = &config.directory
        && (!directory.starts_with('/') || GuestPath::try_from(directory.as_str()).is_err())
    {
        return bad("directory", directory);
    }
    if let Some(line) = &config.ready
        && config.start().is_empty()
    {
        return bad("ready command", line);
    }
    if let Some(word) = config.start().iter().chain(&config.ready).find(|word| word.contains('\0')) {
        return bad("command", word);
    }
    let is_variable = |line: &&String| line.contains('\0') || line.find('=').is_none_or(|at| at == 0);
    match config.env.iter().find(is_variable) {
        Some(line) => bad("variable", line),
        None => Ok(()),
    }
}
