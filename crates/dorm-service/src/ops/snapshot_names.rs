//! Names of snapshots, under which they serve as images.
//!
//! ```text
//! image NAME ─► a tag or digest of an image that the project sees ─► the snapshot of the project with that name
//!            ─► a registry, if NAME names one
//! ```
//!
//! A tag goes first, so that no snapshot changes what a tag stands for. Neither of them is given a
//! name that the other one has. The store makes sure that no two snapshots hold one name.

use dorm_lifecycle::{Digest, SnapshotId, SnapshotName};
use dorm_ports::{Logins, RemoteSpec, Transport};
use dorm_storage::{Image, Progress, StorageError};
use dorm_store::{SnapshotFilter, SnapshotRecord, StoreError};

use super::create::CreateFrom;
use super::pull::PullPolicy;
use super::templates::TemplateReference;
use crate::error::{BuildProblem, ServiceError};
use crate::shared::Service;

/// The image or the snapshot that a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NamedSource {
    /// An image.
    Image(Box<Image>),
    /// A snapshot.
    Snapshot(Box<SnapshotRecord>),
}

impl Service {
    /// Returns the image or the snapshot that a name stands for, or else fetches the image from the
    /// registry that it names.
    ///
    /// # Errors
    ///
    /// Those of [`Service::find_image`].
    pub async fn find_source(
        &self,
        asked: RemoteSpec,
        policy: PullPolicy,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<NamedSource, ServiceError> {
        if policy != PullPolicy::Always {
            if let Some(image) = self.image_here(&asked).await? {
                return Ok(NamedSource::Image(Box::new(image)));
            }
            if let Some(snapshot) = self.snapshot_named(&asked.reference).await? {
                return Ok(NamedSource::Snapshot(Box::new(snapshot)));
            }
        }
        Ok(NamedSource::Image(Box::new(self.find_image(asked, policy, progress).await?)))
    }

    /// Returns the source that a name stands for now: an image by its digest, or a snapshot by its
    /// id.
    ///
    /// # Errors
    ///
    /// An error of the storage if neither has the name.
    pub async fn source_named(&self, from: CreateFrom) -> Result<CreateFrom, ServiceError> {
        let CreateFrom::Image(reference) = &from else { return Ok(from) };
        if reference.parse::<Digest>().is_ok() {
            return Ok(from);
        }
        match self.image(reference).await {
            Ok(image) => Ok(CreateFrom::Image(image.digest.to_string())),
            Err(error @ ServiceError::Storage(StorageError::NoImage { .. })) => {
                let snapshot = self.snapshot_named(reference).await?;
                snapshot.map(|snapshot| CreateFrom::Snapshot(snapshot.id)).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the id that a text is, or that of the snapshot of this project that holds it as its
    /// name.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn snapshot_id(&self, named: &str) -> Result<Option<SnapshotId>, ServiceError> {
        match named.parse() {
            Ok(id) => Ok(Some(id)),
            Err(_) => Ok(self.snapshot_named(named).await?.map(|snapshot| snapshot.id)),
        }
    }

    /// Returns the snapshot of this project that holds a name.
    pub(crate) async fn snapshot_named(&self, name: &str) -> Result<Option<SnapshotRecord>, ServiceError> {
        let Ok(name) = name.parse::<SnapshotName>() else { return Ok(None) };
        let project = Some(self.project().clone());
        let filter = SnapshotFilter { project, name: Some(name), ..SnapshotFilter::default() };
        Ok(self.shared.store.find_snapshots(&filter).await?.pop())
    }

    /// Rejects a name for a snapshot that an image or a template has.
    pub(super) async fn may_be_named(&self, name: Option<&SnapshotName>) -> Result<(), ServiceError> {
        let Some(name) = name else { return Ok(()) };
        let refused = |of| Err(ServiceError::NotASnapshotName { name: name.clone(), of });
        let asked = RemoteSpec {
            reference: name.to_string(),
            architecture: None,
            transport: Transport::Secure,
            logins: Logins::None,
            login: None,
        };
        if self.image_here(&asked).await?.is_some() {
            return refused("an image");
        }
        let Ok(TemplateReference { name: template, tag }) = name.as_str().parse() else { return Ok(()) };
        match self.template(template.as_str()).await {
            Ok(template) if template.tags.contains_key(&tag) => refused("a template"),
            Ok(_) | Err(ServiceError::Build(BuildProblem::NoTemplate(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns a tag as it is stored, unless a snapshot of this project has it as its name.
    pub(super) async fn free_tag(&self, tag: &str) -> Result<String, ServiceError> {
        let stored = self.stored_tag(tag)?;
        match self.snapshot_named(tag).await? {
            Some(SnapshotRecord { id, name: Some(name), .. }) => {
                Err(StoreError::SnapshotNameTaken { name, holder: id }.into())
            }
            Some(_) | None => Ok(stored),
        }
    }
}
