//! Snapshots that are pushed to a registry and pulled from it: the file of an export, in parts.

use std::sync::Arc;

use dorm_lifecycle::SnapshotId;
use dorm_ports::{Logins, PullProgress, Pushed, Registry, RegistryError, RemoteSpec};
use dorm_storage::Progress;
use dorm_store::{Made, SnapshotRecord};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::transfer::ImportSpec;
use crate::error::ServiceError;
use crate::shared::Service;

/// How many parts are buffered for the slower side.
const PARTS: usize = 1;

impl Service {
    /// Pushes a snapshot to a registry. Parts that the registry has already are not sent again.
    ///
    /// # Errors
    ///
    /// Those of [`Service::export_snapshot`]; any [`RegistryError`], and then no name refers to it.
    pub async fn push_snapshot(
        &self,
        id: &SnapshotId,
        to: RemoteSpec,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Pushed, ServiceError> {
        let (registry, to) = self.registry_for(to)?;
        let file = self.export_snapshot(id).await?;
        let progress: PullProgress = Arc::new(progress);
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => Err(ServiceError::Stopping),
            pushed = registry.push_file(&to, file.content.boxed(), file.bytes, progress) => Ok(pushed?),
        }
    }

    /// Pulls a snapshot from a registry and imports it.
    ///
    /// # Errors
    ///
    /// Any [`RegistryError`]; those of [`Service::import_snapshot`]. Nothing of it is left then.
    pub async fn pull_snapshot(
        &self,
        from: RemoteSpec,
        settings: ImportSpec,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<SnapshotRecord, ServiceError> {
        if let Some(Made::Snapshot(earlier)) = self.earlier() {
            return self.taken_earlier(earlier).await;
        }
        let (registry, from) = self.registry_for(from)?;
        let (send, receive) = mpsc::channel(PARTS);
        let progress: PullProgress = Arc::new(progress);
        let fetch = async move {
            // A failed fetch ends the file early, so that the import fails.
            let fetched = registry.fetch_file(&from, &send, progress).await;
            drop(send);
            fetched
        };
        let (fetched, imported) = tokio::join!(fetch, self.import_snapshot(ReceiverStream::new(receive), settings));
        match (fetched, imported) {
            (_, Ok(snapshot)) => Ok(snapshot),
            (Err(error), Err(_)) => Err(error.into()),
            (Ok(()), Err(error)) => Err(error),
        }
    }

    /// Returns the registries, and the request as this project may make it. The logins are those of
    /// the daemon's owner.
    pub(super) fn registry_for(&self, asked: RemoteSpec) -> Result<(Arc<dyn Registry>, RemoteSpec), ServiceError> {
        let registry = self.shared.settings.registry.clone();
        let registry = registry.ok_or_else(|| RegistryError::NoRegistries(asked.reference.clone()))?;
        let logins = if self.is_of_daemon() { asked.logins } else { Logins::None };
        Ok((registry, RemoteSpec { logins, ..asked }))
    }
}
