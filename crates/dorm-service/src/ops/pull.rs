//! Finds an image by its name, on this host or in a registry.

use std::sync::Arc;

use dorm_ports::{PullProgress, RemoteSpec};
use dorm_storage::{Image, Progress, Stage, StorageError, Stored};

use crate::error::ServiceError;
use crate::shared::Service;

/// When a registry is asked for an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PullPolicy {
    /// Always, even if the image is on this host: its tag may have moved.
    Always,
    /// If the image is not on this host, and the reference names its registry.
    #[default]
    Missing,
    /// Never.
    Never,
}

impl Service {
    /// Returns the image that a reference stands for: by tag or digest on this host, otherwise by
    /// its name in a registry.
    ///
    /// # Errors
    ///
    /// [`StorageError::NoImage`] if it is not on this host and no registry may be asked; any
    /// [`RegistryError`](dorm_ports::RegistryError).
    pub async fn find_image(
        &self,
        asked: RemoteSpec,
        policy: PullPolicy,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Image, ServiceError> {
        let here = match policy {
            PullPolicy::Always => None,
            PullPolicy::Missing | PullPolicy::Never => self.image_here(&asked).await?,
        };
        if let Some(image) = here {
            return Ok(image);
        }
        let registry = self.shared.settings.registry.as_ref();
        let named = registry.is_some_and(|registry| registry.names_registry(&asked.reference));
        match policy {
            PullPolicy::Never => {
                Err(self.image(&asked.reference).await.err().unwrap_or_else(|| {
                    StorageError::NoImage { reference: asked.reference, available: Vec::new() }.into()
                }))
            }
            PullPolicy::Missing if !named => self.image(&asked.reference).await,
            PullPolicy::Missing | PullPolicy::Always => self.pull_image(asked, None, policy, progress).await,
        }
    }

    /// Fetches an image from a registry; it gets the tag `tag` in addition to its full name.
    /// Concurrent requests for the same image fetch it once. The pull continues if the caller goes
    /// away.
    ///
    /// # Errors
    ///
    /// Any [`RegistryError`](dorm_ports::RegistryError); nothing is left of an incomplete import,
    /// and parts that were fetched and verified are used by the next pull.
    pub async fn pull_image(
        &self,
        asked: RemoteSpec,
        tag: Option<&str>,
        policy: PullPolicy,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Image, ServiceError> {
        let (registry, asked) = self.registry_for(asked)?;
        let name = self.stored_tag(&registry.whole_name(&asked.reference)?)?;
        let (service, tag) = (self.clone(), tag.map(str::to_owned));
        let progress: PullProgress = Arc::new(progress);
        let work = async move {
            let one = service.shared.pulling.of(&name);
            progress(Progress { stage: Stage::Waiting, entries: 0, bytes: 0, bytes_total: None });
            let _alone = one.lock().await;
            let here = match policy {
                PullPolicy::Always => None,
                PullPolicy::Missing | PullPolicy::Never => service.image_here(&asked).await?,
            };
            let image = match here {
                Some(image) => image,
                None => {
                    service.shared.admit_write("pull an image", 0).await?;
                    service.shared.admit_to_disk_of("pull an image", service.project(), 0).await?;
                    let digest = registry.pull(&asked, &name, progress).await?;
                    let image = service.shared.storage.image(&digest).await?;
                    service.shared.is_sound(&Stored::Image(image.digest.clone())).await;
                    service.prepare(&image.digest);
                    image
                }
            };
            match tag {
                Some(tag) => service.tag_image(&image.digest, &tag).await,
                None => Ok(service.as_seen(image)),
            }
        };
        self.shared.finish_unless_stopped(work).await
    }

    /// Returns the image of that name on this host, unless it has another architecture than
    /// requested.
    pub(super) async fn image_here(&self, asked: &RemoteSpec) -> Result<Option<Image>, ServiceError> {
        let mut names = vec![asked.reference.clone()];
        if let Some(registry) = &self.shared.settings.registry
            && let Ok(whole) = registry.whole_name(&asked.reference)
        {
            names.push(whole);
        }
        for name in names {
            match self.image(&name).await {
                Ok(image) => {
                    let found = image.config.architecture.as_deref();
                    let fits =
                        asked.architecture.as_deref().is_none_or(|wanted| found.is_none_or(|found| found == wanted));
                    return Ok(fits.then_some(image));
                }
                Err(ServiceError::Storage(StorageError::NoImage { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
