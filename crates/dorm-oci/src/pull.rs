//! A pull: first the documents, which name the layers, then the missing layers, then the import.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use dorm_lifecycle::Digest;
use dorm_ports::{
    FileContent, Login, Logins, PullProgress, Pushed, Registry, RegistryError, RegistryOperation, RemoteSpec,
};
use dorm_storage::{
    BlobDigest, Configuration, DOCUMENT_BYTES_MAX, Descriptor, Document, Image, ImageSource, Manifest, Progress, Stage,
    Storage, StorageError, choose, host_architecture,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::ClientBuilder;
use tokio::sync::mpsc;

use crate::blobs::Blobs;
use crate::client::RegistryClient;
use crate::hops::Clients;
use crate::reference::{Reference, Version};
use crate::{Config, credentials, files};

/// How many layers are fetched at once.
const AT_ONCE: usize = 4;
/// The maximum nesting of indexes.
const INDEXES_MAX: usize = 3;
/// How many bytes are between two progress reports.
const REPORT_EVERY: i64 = 1 << 20;

/// The registries, contacted according to a [`Config`].
#[derive(Debug)]
pub struct OciRegistry {
    config: Config,
    blobs: Blobs,
    storage: StorageRef,
    clients: Clients,
}

struct StorageRef(Storage);

impl std::fmt::Debug for StorageRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the storage")
    }
}

/// An image as described by the registry.
struct Wanted {
    manifest: BlobDigest,
    layers: Vec<(Descriptor, BlobDigest)>,
    /// All blobs that were fetched for it.
    blobs: Vec<BlobDigest>,
}

impl OciRegistry {
    pub(crate) fn open(config: Config, storage: Storage) -> io::Result<Self> {
        let client = || {
            ClientBuilder::new()
                .user_agent(concat!("dormouse/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(config.stall.min(std::time::Duration::from_secs(10)))
                .read_timeout(config.stall)
        };
        let clients = Clients::new(client, config.destinations.clone()).map_err(io::Error::other)?;
        let blobs = Blobs::open(config.directory.clone(), config.steps.clone(), storage.room().clone())?;
        Ok(Self { config, blobs, storage: StorageRef(storage), clients })
    }

    /// Returns a client for the registry of `reference`.
    async fn client(
        &self,
        reference: &Reference,
        asked: &RemoteSpec,
        operation: fn(Box<str>) -> RegistryOperation,
    ) -> RegistryClient<'_> {
        let (directory, key) = (self.config.docker_config.clone(), reference.key().to_owned());
        let credentials = match (&asked.login, asked.logins) {
            (Some(Login { user, password }), _) => {
                credentials::Credentials::Given { user: user.clone(), password: password.clone() }
            }
            (None, Logins::None) => credentials::Credentials::None,
            (None, Logins::Daemon) => {
                // A credential helper of Docker is a program, and may be slow.
                let found = tokio::task::spawn_blocking(move || credentials::find(directory.as_deref(), &key)).await;
                found.unwrap_or(credentials::Credentials::None)
            }
        };
        let access = (asked.transport, asked.logins);
        RegistryClient::new(&self.config, &self.clients, reference, access, credentials, operation)
    }

    /// Follows indexes to the manifest of the image for `architecture`.
    async fn find(
        &self,
        client: &RegistryClient<'_>,
        reference: &Reference,
        architecture: &str,
    ) -> Result<(Manifest, BlobDigest, Vec<u8>), RegistryError> {
        let mut version = reference.version.clone();
        for _ in 0..=INDEXES_MAX {
            let (text, digest) = client.manifest(&version).await?;
            match Document::parse(&text).map_err(|what| client.whom.lies(format!("an invalid document: {what}")))? {
                Document::Manifest(manifest) => return Ok((manifest, digest, text)),
                Document::Index(list) => {
                    let chosen = choose(&list, architecture).map_err(|what| RegistryError::NotFound {
                        registry: client.whom.registry.clone(),
                        name: client.whom.name.clone(),
                        what,
                    })?;
                    version = Version::Digest(chosen.digest.clone());
                }
            }
        }
        Err(client.whom.lies("indexes that are nested too deeply"))
    }

    async fn documents(
        &self,
        client: &RegistryClient<'_>,
        reference: &Reference,
        architecture: &str,
    ) -> Result<Wanted, RegistryError> {
        let (manifest, digest, text) = self.find(client, reference, architecture).await?;
        if manifest.config.bytes > DOCUMENT_BYTES_MAX {
            return Err(client.whom.lies(format!("a configuration of {} bytes", manifest.config.bytes)));
        }
        self.blobs.put(&digest, &text)?;
        self.blobs.fetch(client, &manifest.config, &|_| {}).await?;
        let text = self.blobs.read(&manifest.config.digest)?;
        let unreadable = |what| client.whom.lies(format!("an invalid document: {what}"));
        let configuration = Configuration::parse(&text).map_err(unreadable)?;
        if configuration.diff_ids.len() != manifest.layers.len() {
            let (layers, known) = (manifest.layers.len(), configuration.diff_ids.len());
            return Err(client.whom.lies(format!("a manifest with {layers} layers and a configuration with {known}")));
        }
        let blobs = [&digest, &manifest.config.digest].into_iter().chain(manifest.layers.iter().map(|it| &it.digest));
        let blobs = blobs.cloned().collect();
        let layers = manifest.layers.into_iter().zip(configuration.diff_ids).collect();
        Ok(Wanted { manifest: digest, layers, blobs })
    }

    async fn fetch(
        &self,
        client: &RegistryClient<'_>,
        layers: &[&Descriptor],
        progress: &PullProgress,
    ) -> Result<(), RegistryError> {
        let total: u64 = layers.iter().map(|layer| layer.bytes).fold(0, u64::saturating_add);
        let here: u64 = layers.iter().map(|layer| self.blobs.here(layer)).sum();
        let need_bytes = total.saturating_sub(here);
        let name = || client.whom.name.clone();
        let free_bytes = self
            .storage
            .0
            .free_bytes()
            .await
            .map_err(|source| RegistryError::Storage { name: name(), source: source.into() })?;
        if need_bytes > free_bytes {
            return Err(RegistryError::NoRoom { name: name(), need_bytes, free_bytes });
        }
        let done = AtomicI64::new(i64::try_from(here).unwrap_or(i64::MAX));
        let told = AtomicI64::new(0);
        let tell = |now: i64| {
            let bytes = u64::try_from(now).unwrap_or(0);
            progress(Progress { stage: Stage::Fetching, entries: 0, bytes, bytes_total: Some(total) });
        };
        tell(done.load(Ordering::Relaxed));
        let more = |bytes: i64| {
            let now = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if now - told.load(Ordering::Relaxed) >= REPORT_EVERY || now == i64::try_from(total).unwrap_or(0) {
                told.store(now, Ordering::Relaxed);
                tell(now);
            }
        };
        let more: &(dyn Fn(i64) + Send + Sync) = &more;
        // The largest first, so that the pull does not end with one of them alone.
        let mut order = layers.to_vec();
        order.sort_by_key(|layer| std::cmp::Reverse(layer.bytes));
        order.dedup_by(|a, b| a.digest == b.digest);
        let mut fetches = Vec::new();
        for layer in order {
            fetches.push(self.blobs.fetch(client, layer, more));
        }
        stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
    }

    async fn import(
        &self,
        wanted: &Wanted,
        reference: &Reference,
        tag: &str,
        progress: &PullProgress,
    ) -> Result<Image, StorageError> {
        let source = ImageSource {
            reference: Some(reference.to_string()),
            manifest: Some(wanted.manifest.to_string()),
            build: None,
        };
        let progress = progress.clone();
        let report = move |state: Progress| progress(state);
        self.storage.0.import_blobs(self.blobs.directory(), &wanted.manifest, source, Some(tag), report).await
    }
}

#[async_trait]
impl Registry for OciRegistry {
    fn whole_name(&self, reference: &str) -> Result<String, RegistryError> {
        Ok(Reference::parse(reference)?.to_string())
    }

    fn names_registry(&self, reference: &str) -> bool {
        Reference::names_registry(reference)
    }

    async fn pull(&self, asked: &RemoteSpec, tag: &str, progress: PullProgress) -> Result<Digest, RegistryError> {
        let reference = Reference::parse(&asked.reference)?;
        let client = self.client(&reference, asked, RegistryOperation::Pull).await;
        let _using = self.blobs.use_them();
        let architecture = asked.architecture.as_deref().unwrap_or_else(|| host_architecture());
        let wanted = self.documents(&client, &reference, architecture).await?;
        let storage_error =
            |source: StorageError| RegistryError::Storage { name: client.whom.name.clone(), source: source.into() };
        let mut missing = Vec::new();
        for (layer, diff_id) in &wanted.layers {
            if !self.storage.0.has_layer(diff_id).await.map_err(storage_error)? {
                missing.push(layer);
            }
        }
        self.fetch(&client, &missing, &progress).await?;
        let mut imported = self.import(&wanted, &reference, tag, &progress).await;
        let refused = |error: &StorageError| matches!(error, StorageError::Source { .. } | StorageError::Entry { .. });
        if imported.as_ref().is_err_and(refused) && missing.len() < wanted.layers.len() {
            // A layer that was present may have been deleted, or found to be damaged.
            let all: Vec<_> = wanted.layers.iter().map(|(layer, _)| layer).collect();
            self.fetch(&client, &all, &progress).await?;
            imported = self.import(&wanted, &reference, tag, &progress).await;
        }
        if imported.is_ok() || imported.as_ref().is_err_and(refused) {
            self.blobs.spend(wanted.blobs);
        }
        imported.map(|image| image.digest).map_err(storage_error)
    }

    async fn push_file(
        &self,
        to: &RemoteSpec,
        content: FileContent,
        bytes: u64,
        progress: PullProgress,
    ) -> Result<Pushed, RegistryError> {
        let reference = Reference::parse(&to.reference)?;
        let client = self.client(&reference, to, RegistryOperation::Push).await;
        files::push(&client, &reference, content, bytes, &progress).await
    }

    async fn fetch_file(
        &self,
        from: &RemoteSpec,
        to: &mpsc::Sender<io::Result<Bytes>>,
        progress: PullProgress,
    ) -> Result<(), RegistryError> {
        let reference = Reference::parse(&from.reference)?;
        let client = self.client(&reference, from, RegistryOperation::Pull).await;
        files::fetch(&client, &reference, to, &progress).await
    }
}

/// For the construction of a daemon.
impl OciRegistry {
    /// Returns it as a registry of the service.
    pub fn shared(self) -> Arc<dyn Registry> {
        Arc::new(self)
    }
}
