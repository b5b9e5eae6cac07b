//! Pushes snapshot files to a registry and fetches them, part by part: one part is in memory at a
//! time. Parts that the registry already has are not sent again, so an interrupted push is resumed
//! by the next one.

use bytes::Bytes;
use dorm_ports::{FileContent, PullProgress, Pushed, RegistryError};
use dorm_storage::{BlobDigest, Progress, Stage};
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::artifact::{self, PART_BYTES, Part};
use crate::client::RegistryClient;
use crate::reference::{Reference, Version};
use crate::sending::{self, BodyError, Failed, Tries};

/// Pushes a file of `bytes`, and tags it.
pub(crate) async fn push(
    client: &RegistryClient<'_>,
    reference: &Reference,
    mut content: FileContent,
    bytes: u64,
    progress: &PullProgress,
) -> Result<Pushed, RegistryError> {
    let Version::Tag(tag) = &reference.version else {
        let what = "a push needs a tag, as the digest follows from the content";
        return Err(RegistryError::Reference { reference: reference.to_string(), what });
    };
    let mut sending = Sending { client, parts: Vec::new(), done: 0, sent: 0, total: bytes, progress };
    let mut piece = Vec::with_capacity(PART_BYTES);
    sending.tell();
    while let Some(next) = content.next().await {
        let next = next.map_err(|source| RegistryError::Io {
            operation: "read the snapshot for",
            path: reference.to_string().into(),
            source,
        })?;
        let mut next = &next[..];
        while !next.is_empty() {
            let (now, later) = next.split_at(next.len().min(PART_BYTES - piece.len()));
            piece.extend_from_slice(now);
            next = later;
            if piece.len() == PART_BYTES {
                let whole = std::mem::replace(&mut piece, Vec::with_capacity(PART_BYTES));
                sending.part(whole.into()).await?;
            }
        }
    }
    if !piece.is_empty() {
        sending.part(piece.into()).await?;
    }
    let cannot = |error: serde_json::Error| RegistryError::Io {
        operation: "describe the snapshot for",
        path: reference.to_string().into(),
        source: error.into(),
    };
    let (parts, length) = (std::mem::take(&mut sending.parts), sending.done);
    let config = sending.send(artifact::config(length).map_err(cannot)?.into()).await?;
    let text = artifact::manifest(&config, &parts).map_err(cannot)?;
    let manifest = BlobDigest::from_bytes(&Sha256::digest(&text));
    client.put_manifest(tag, artifact::MANIFEST_TYPE, text.into()).await?;
    Ok(Pushed { name: reference.to_string(), manifest: manifest.to_string(), bytes: length, sent_bytes: sending.sent })
}

struct Sending<'a> {
    client: &'a RegistryClient<'a>,
    parts: Vec<Part>,
    /// The bytes of the file that are in the registry.
    done: u64,
    /// The bytes that had to be sent.
    sent: u64,
    total: u64,
    progress: &'a PullProgress,
}

impl Sending<'_> {
    async fn part(&mut self, content: Bytes) -> Result<(), RegistryError> {
        let part = self.send(content).await?;
        self.done += part.bytes;
        self.parts.push(part);
        self.tell();
        Ok(())
    }

    /// Uploads a blob unless the registry has it.
    async fn send(&mut self, content: Bytes) -> Result<Part, RegistryError> {
        let digest = BlobDigest::from_bytes(&Sha256::digest(&content));
        let part = Part { digest, bytes: content.len() as u64 };
        if !self.client.has_blob(&part.digest).await? {
            self.client.upload(&part.digest, content).await?;
            self.sent += part.bytes;
        }
        Ok(part)
    }

    fn tell(&self) {
        (self.progress)(told(self.done, self.total));
    }
}

fn told(bytes: u64, total: u64) -> Progress {
    Progress { stage: Stage::Fetching, entries: 0, bytes, bytes_total: Some(total) }
}

/// Fetches a file and passes each part to `to` once its digest is checked. Stops when the receiver
/// is gone.
pub(crate) async fn fetch(
    client: &RegistryClient<'_>,
    reference: &Reference,
    to: &mpsc::Sender<std::io::Result<Bytes>>,
    progress: &PullProgress,
) -> Result<(), RegistryError> {
    let (text, _) = client.manifest(&reference.version).await?;
    let refused = |what: String| RegistryError::Refused {
        registry: client.whom.registry.clone(),
        name: client.whom.name.clone(),
        what,
    };
    let (config, parts) = artifact::read_manifest(&text).map_err(refused)?;
    let config = blob(client, &config).await?;
    let total = artifact::read_config(&config, &parts).map_err(|what| client.whom.lies(what))?;
    let mut done = 0;
    progress(told(done, total));
    for part in &parts {
        let content = blob(client, part).await?;
        if to.send(Ok(content)).await.is_err() {
            return Ok(());
        }
        done += part.bytes;
        progress(told(done, total));
    }
    Ok(())
}

/// Fetches a complete blob and checks its digest.
async fn blob(client: &RegistryClient<'_>, part: &Part) -> Result<Bytes, RegistryError> {
    let mut tries = Tries::new(client.config);
    loop {
        match blob_once(client, part).await {
            Ok(content) => return Ok(content),
            Err(failed) => tries.next(failed).await?,
        }
    }
}

async fn blob_once(client: &RegistryClient<'_>, part: &Part) -> Result<Bytes, Failed> {
    let response = client.blob(&part.digest, 0).await?;
    let most = usize::try_from(part.bytes).unwrap_or(usize::MAX);
    let content = sending::body(response, most).await.map_err(|error| match error {
        BodyError::TooLong => {
            Failed::Final(client.whom.lies(format!("more than the {} bytes of {}", part.bytes, part.digest)))
        }
        BodyError::Broken(error) => Failed::Passing(client.whom.unreachable(error), None),
    })?;
    let found = BlobDigest::from_bytes(&Sha256::digest(&content));
    match found == part.digest {
        true => Ok(content.into()),
        false => {
            Err(Failed::Final(client.whom.lies(format!("a blob with the digest {found} instead of {}", part.digest))))
        }
    }
}
