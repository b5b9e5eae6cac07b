//! The names of images, per project. Images are stored once, by their content; a project sees those
//! that it has named itself, those that its records need, and those that the daemon's own project
//! has named for all.
//!
//! A tag of another project than `local` is stored as `@PROJECT/TAG`, which nobody can ask for:
//! names that are asked for do not begin with `@`.

use std::collections::BTreeSet;

use dorm_lifecycle::{Digest, ProjectId};
use dorm_storage::{Image, StorageError};
use dorm_store::{PoolSource, SnapshotFilter, TemplateSource};

use crate::error::ServiceError;
use crate::shared::Service;

impl Service {
    pub(crate) fn is_of_daemon(&self) -> bool {
        *self.project() == ProjectId::local()
    }

    /// Returns a tag as it is stored.
    pub(crate) fn stored_tag(&self, tag: &str) -> Result<String, ServiceError> {
        if tag.starts_with('@') {
            return Err(StorageError::Tag(tag.to_owned()).into());
        }
        if self.is_of_daemon() {
            return Ok(tag.to_owned());
        }
        Ok(format!("@{}/{tag}", self.project()))
    }

    /// Returns an image with the tags that this project sees.
    pub(crate) fn as_seen(&self, mut image: Image) -> Image {
        if !self.is_of_daemon() {
            let own = format!("@{}/", self.project());
            let seen = |tag: String| match tag.strip_prefix(&own) {
                Some(tag) => Some(tag.to_owned()),
                None => (!tag.starts_with('@')).then_some(tag),
            };
            image.tags = image.tags.into_iter().filter_map(seen).collect();
            image.tags.sort_unstable();
            image.tags.dedup();
        }
        image
    }

    /// Returns every image that this project sees.
    ///
    /// # Errors
    ///
    /// Fails if the images or the records cannot be read.
    pub async fn images(&self) -> Result<Vec<Image>, ServiceError> {
        let images = self.shared.storage.images().await?;
        if self.is_of_daemon() {
            return Ok(images);
        }
        let own = self.own_images().await?;
        let mut seen: Vec<_> = images.into_iter().map(|image| self.as_seen(image)).collect();
        seen.retain(|image| !image.tags.is_empty() || own.contains(&image.digest));
        Ok(seen)
    }

    /// Returns the image that this project calls `reference`: by its own tag, by one of the
    /// daemon's own project, by digest or the beginning of one.
    ///
    /// # Errors
    ///
    /// An error of the storage, such as that there is no such image.
    pub async fn image(&self, reference: &str) -> Result<Image, ServiceError> {
        if self.is_of_daemon() {
            return Ok(self.shared.storage.resolve(reference).await?);
        }
        if !reference.starts_with('@') {
            for name in [format!("@{}/{reference}", self.project()), reference.to_owned()] {
                if let Ok(image) = self.shared.storage.resolve(&name).await {
                    let image = self.as_seen(image);
                    if !image.tags.is_empty() {
                        return Ok(image);
                    }
                }
            }
        }
        let seen = self.images().await?;
        let is_prefix = reference.len() >= 8 && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
        let matches: Vec<_> =
            seen.iter().filter(|image| is_prefix && image.digest.as_str().starts_with(reference)).collect();
        match matches.as_slice() {
            [image] => Ok((*image).clone()),
            [] => {
                let available = seen.iter().flat_map(|image| image.tags.iter().cloned()).collect();
                Err(StorageError::NoImage { reference: reference.to_owned(), available }.into())
            }
            several => {
                let matches = several.iter().map(|image| image.digest.to_string()).collect();
                Err(StorageError::Ambiguous { reference: reference.to_owned(), matches }.into())
            }
        }
    }

    /// Gives an image a tag of this project. If the tag named another image before, it now names
    /// this one.
    ///
    /// # Errors
    ///
    /// An error of the storage; `Store` with `SnapshotNameTaken`.
    pub async fn tag_image(&self, image: &Digest, tag: &str) -> Result<Image, ServiceError> {
        let tagged = self.shared.storage.tag(image, &self.free_tag(tag).await?).await?;
        Ok(self.as_seen(tagged))
    }

    /// Removes an image for this project: its tags, and the image itself if it has no other tag and
    /// nothing needs it. The daemon's own project removes the image with the tags of all projects.
    ///
    /// # Errors
    ///
    /// An error of the storage, with the list of holders if it is in use.
    pub async fn delete_image(&self, reference: &str) -> Result<(), ServiceError> {
        let seen = self.image(reference).await?;
        if self.is_of_daemon() {
            return self.remove_image(&seen.digest).await;
        }
        let own = format!("@{}/", self.project());
        let whole = self.shared.storage.image(&seen.digest).await?;
        if !whole.tags.iter().any(|tag| tag.starts_with(&own)) {
            let available = Vec::new();
            return Err(StorageError::NoImage { reference: reference.to_owned(), available }.into());
        }
        if self.own_images_in_use().await?.contains(&seen.digest) {
            let held_by = vec!["a sandbox, snapshot, pool, template or build of this project".to_owned()];
            return Err(StorageError::InUse { image: seen.digest, held_by }.into());
        }
        self.shared.storage.untag_image(&seen.digest, &own).await?;
        let whole = self.shared.storage.image(&seen.digest).await?;
        match whole.tags.is_empty() {
            true => match self.remove_image(&seen.digest).await {
                // Others use it without a name.
                Err(ServiceError::Storage(StorageError::InUse { .. } | StorageError::Referred { .. })) => Ok(()),
                other => other,
            },
            false => Ok(()),
        }
    }

    /// Returns the images that records of this project name.
    async fn own_images(&self) -> Result<BTreeSet<Digest>, ServiceError> {
        let mut own = self.own_images_in_use().await?;
        let builds = self.shared.store.builds().await?;
        own.extend(builds.into_iter().filter(|build| build.project == *self.project()).filter_map(|build| build.image));
        Ok(own)
    }

    /// Returns the images that this project needs.
    async fn own_images_in_use(&self) -> Result<BTreeSet<Digest>, ServiceError> {
        let (shared, project) = (&self.shared, self.project());
        let of = |sandbox: &dorm_lifecycle::Sandbox| (sandbox.project == *project).then(|| sandbox.spec.image.clone());
        let mut own: BTreeSet<Digest> = shared.of_living(of).await?.into_iter().collect();
        let filter = SnapshotFilter { project: Some(project.clone()), ..SnapshotFilter::default() };
        own.extend(shared.store.find_snapshots(&filter).await?.into_iter().map(|snapshot| snapshot.image));
        let pools = shared.store.pools().await?.into_iter();
        let pools = pools.filter(|pool| pool.project == *project && !pool.removed);
        own.extend(pools.filter_map(|pool| match pool.source {
            PoolSource::Image(image) => Some(image),
            PoolSource::Snapshot(_) => None,
        }));
        for template in shared.store.templates().await? {
            if template.project == *project {
                own.extend(template.tags.into_values().filter_map(|version| match version.source {
                    TemplateSource::Image(image) => Some(image),
                    TemplateSource::Snapshot(_) => None,
                }));
            }
        }
        let builds = shared.store.builds().await?.into_iter();
        let builds = builds.filter(|build| build.project == *project && !build.state.has_ended());
        own.extend(builds.flat_map(|build| [build.base, build.image]).flatten());
        Ok(own)
    }
}
