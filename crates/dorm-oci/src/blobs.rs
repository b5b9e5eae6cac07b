//! Blobs on the disk: fetched piece by piece, resumed after an interruption, and renamed to their
//! final name only when the digest matches.

#![allow(clippy::disallowed_methods, reason = "every call is made in place or on a thread that may block")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dorm_ports::RegistryError;
use dorm_steps::AnySteps;
use dorm_storage::{BlobDigest, Descriptor, Meter, Room, StorageError};
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use sha2::{Digest as _, Sha256};

use crate::blocking::in_place;
use crate::client::RegistryClient;
use crate::sending::{Failed, Tries};

/// A blob that has not been requested again for this long is deleted.
const KEPT: Duration = Duration::from_secs(24 * 3600);
const PART: &str = ".part";
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The directory of blobs, which belongs to this process.
#[derive(Debug)]
pub(crate) struct Blobs {
    directory: PathBuf,
    steps: AnySteps,
    room: Room,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Blobs that are being fetched. Other pulls of the same blob wait.
    fetching: BTreeMap<BlobDigest, Arc<tokio::sync::Mutex<()>>>,
    pulls: usize,
    /// Blobs from which images have been created.
    spent: BTreeSet<BlobDigest>,
}

/// A pull in progress: the blobs it needs are kept.
pub(crate) struct Using<'a>(&'a Blobs);

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.pulls -= 1;
        if state.pulls == 0 {
            // Under the lock: a pull that begins now must not use a blob that is being deleted.
            in_place(|| {
                for digest in std::mem::take(&mut state.spent) {
                    self.0.remove(&digest);
                    if self.0.steps.reach("oci: blob removed").is_err() {
                        return;
                    }
                }
            });
        }
    }
}

impl Blobs {
    /// Opens the directory. Fetched blobs leave free what `room` reserves.
    pub(crate) fn open(directory: PathBuf, steps: AnySteps, room: Room) -> io::Result<Self> {
        let blobs = Self { directory, steps, room, state: Mutex::default() };
        let place = blobs.place();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
        for entry in fs::read_dir(&place)? {
            let entry = entry?;
            // A partial document of an earlier process: it cannot be resumed.
            let is_document = entry.file_name().to_string_lossy().contains('-');
            let age = SystemTime::now().duration_since(entry.metadata()?.modified()?).unwrap_or_default();
            if is_document || age > KEPT {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(blobs)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn use_them(&self) -> Using<'_> {
        self.state().pulls += 1;
        Using(self)
    }

    /// Marks the blobs of a created image. They are deleted when no pull is in progress.
    pub(crate) fn spend(&self, digests: impl IntoIterator<Item = BlobDigest>) {
        self.state().spent.extend(digests);
    }

    /// Returns how many bytes of a blob are on the disk.
    pub(crate) fn here(&self, blob: &Descriptor) -> u64 {
        let length = |path: PathBuf| fs::metadata(path).map(|facts| facts.len()).unwrap_or(0);
        in_place(|| length(self.path(&blob.digest)).max(length(self.part(&blob.digest)).min(blob.bytes)))
    }

    /// Stores a document whose digest has been checked.
    pub(crate) fn put(&self, digest: &BlobDigest, content: &[u8]) -> Result<(), RegistryError> {
        // Concurrent pulls may do this: each uses a file of its own, with the same content.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let part = self.place().join(format!("{}-{number}{PART}", digest.hex()));
        let write = || {
            let mut file = open_part(&part)?;
            file.set_len(0)?;
            file.write_all(content)?;
            file.sync_all()?;
            self.steps.reach("oci: document written")?;
            fs::rename(&part, self.path(digest))?;
            File::open(self.place())?.sync_all()?;
            Ok(self.steps.reach("oci: document kept")?)
        };
        in_place(write).map_err(io_error("write", &part))
    }

    pub(crate) fn read(&self, digest: &BlobDigest) -> Result<Vec<u8>, RegistryError> {
        let path = self.path(digest);
        in_place(|| fs::read(&path)).map_err(io_error("read", &path))
    }

    /// Fetches a blob unless it is on the disk, and reports its additional bytes.
    pub(crate) async fn fetch(
        &self,
        client: &RegistryClient<'_>,
        blob: &Descriptor,
        more: &(dyn Fn(i64) + Send + Sync),
    ) -> Result<(), RegistryError> {
        let one = self.state().fetching.entry(blob.digest.clone()).or_default().clone();
        let _alone = one.lock().await;
        let path = self.path(&blob.digest);
        if in_place(|| fs::metadata(&path)).is_ok_and(|facts| facts.len() == blob.bytes) {
            return Ok(());
        }
        let mut fetching = Fetching {
            blobs: self,
            client,
            blob,
            more,
            draft: Draft::open(self.part(&blob.digest), blob.bytes).await?,
            meter: self.room.meter(&self.place()),
        };
        let begun = self.steps.reach("oci: blob begun");
        begun.map_err(|stopped| io_error("continue past a step of", &path)(stopped.into()))?;
        let mut tries = Tries::new(client.config);
        let mut lied = false;
        loop {
            let before = fetching.draft.have;
            let failed = match fetching.once().await {
                Ok(()) if fetching.draft.sum() == blob.digest => return fetching.keep(),
                // The bytes from an earlier pull may be the damaged ones.
                Ok(()) if before > 0 && !lied => {
                    lied = true;
                    fetching.begin_anew()?;
                    continue;
                }
                Ok(()) => {
                    let found = fetching.draft.sum();
                    fetching.begin_anew()?;
                    return Err(client.whom.lies(format!("a blob with the digest {found} instead of {}", blob.digest)));
                }
                Err(failed) => failed,
            };
            if fetching.draft.have > before {
                tries.start_again();
            }
            tries.next(failed).await?;
        }
    }

    /// Renames a complete blob to its final name.
    fn name(&self, digest: &BlobDigest) -> io::Result<()> {
        self.steps.reach("oci: blob whole")?;
        fs::rename(self.part(digest), self.path(digest))?;
        File::open(self.place())?.sync_all()?;
        Ok(self.steps.reach("oci: blob kept")?)
    }

    fn remove(&self, digest: &BlobDigest) {
        for path in [self.path(digest), self.part(digest)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a blob; it is removed when it is a day old");
                }
                _ => {}
            }
        }
    }

    /// Returns the directory of the blobs in an OCI layout.
    fn place(&self) -> PathBuf {
        self.directory.join("blobs/sha256")
    }

    fn path(&self, digest: &BlobDigest) -> PathBuf {
        self.place().join(digest.hex())
    }

    fn part(&self, digest: &BlobDigest) -> PathBuf {
        self.place().join(format!("{}{PART}", digest.hex()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A partial blob, and its hash so far.
struct Draft {
    path: PathBuf,
    file: File,
    have: u64,
    hasher: Sha256,
}

impl Draft {
    async fn open(path: PathBuf, bytes: u64) -> Result<Self, RegistryError> {
        let at = path.clone();
        let open = move || {
            let mut draft = Self { file: open_part(&path)?, path, have: 0, hasher: Sha256::new() };
            if draft.file.metadata()?.len() > bytes {
                draft.file.set_len(0)?;
            }
            let mut buffer = vec![0; 256 << 10];
            loop {
                let read = draft.file.read(&mut buffer)?;
                if read == 0 {
                    return Ok(draft);
                }
                draft.hasher.update(&buffer[..read]);
                draft.have += read as u64;
            }
        };
        let opened = tokio::task::spawn_blocking(open).await.unwrap_or_else(|error| Err(io::Error::other(error)));
        opened.map_err(io_error("read", &at))
    }

    fn sum(&self) -> BlobDigest {
        BlobDigest::from_bytes(&self.hasher.clone().finalize())
    }

    fn add(&mut self, chunk: &[u8]) -> io::Result<()> {
        in_place(|| self.file.write_all(chunk))?;
        self.hasher.update(chunk);
        self.have += chunk.len() as u64;
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.have = 0;
        self.hasher = Sha256::new();
        Ok(())
    }
}

struct Fetching<'a> {
    blobs: &'a Blobs,
    client: &'a RegistryClient<'a>,
    blob: &'a Descriptor,
    more: &'a (dyn Fn(i64) + Send + Sync),
    draft: Draft,
    meter: Meter,
}

impl Fetching<'_> {
    /// Requests the missing bytes and writes what arrives. On success the blob is complete.
    async fn once(&mut self) -> Result<(), Failed> {
        if self.draft.have == self.blob.bytes {
            return Ok(());
        }
        let mut response = self.client.blob(&self.blob.digest, self.draft.have).await?;
        if !self.continues(&response) {
            self.begin_anew().map_err(Failed::Final)?;
        }
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            let error = self.client.whom.lies(format!("fewer bytes of {} than announced", self.blob.digest));
            return Err(Failed::Passing(error, None));
        }
        let missing = self.blob.bytes - self.draft.have;
        if let Some(length) = response.content_length()
            && length > missing
        {
            let (whole, bytes) = (self.draft.have + length, self.blob.bytes);
            let what = format!("{whole} bytes for {}, which should have {bytes}", self.blob.digest);
            return Err(Failed::Final(self.client.whom.lies(what)));
        }
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => {
                    return Err(self.broken(if error.is_timeout() { "timed out" } else { "stopped" }));
                }
            };
            if self.draft.have + chunk.len() as u64 > self.blob.bytes {
                self.begin_anew().map_err(Failed::Final)?;
                let what = format!("more than the {} bytes of {}", self.blob.bytes, self.blob.digest);
                return Err(Failed::Final(self.client.whom.lies(what)));
            }
            self.charge(chunk.len()).map_err(Failed::Final)?;
            let added = self.draft.add(&chunk);
            added.map_err(io_error("write", &self.draft.path)).map_err(Failed::Final)?;
            (self.more)(i64::try_from(chunk.len()).unwrap_or(0));
        }
        if self.draft.have < self.blob.bytes { Err(self.broken("stopped")) } else { Ok(()) }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), RegistryError> {
        let charged: Result<(), StorageError> = in_place(|| self.meter.charge_bytes(bytes as u64));
        charged.map_err(|source| RegistryError::Storage { name: self.client.whom.name.clone(), source: source.into() })
    }

    /// Returns whether a response continues at the present position.
    fn continues(&self, response: &Response) -> bool {
        let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                range.is_some_and(|range| range.starts_with(&format!("bytes {}-", self.draft.have)))
            }
            _ => self.draft.have == 0,
        }
    }

    fn begin_anew(&mut self) -> Result<(), RegistryError> {
        (self.more)(-i64::try_from(self.draft.have).unwrap_or(0));
        in_place(|| self.draft.clear()).map_err(io_error("empty", &self.draft.path))
    }

    fn keep(&self) -> Result<(), RegistryError> {
        let kept = || self.draft.file.sync_all().and_then(|()| self.blobs.name(&self.blob.digest));
        in_place(kept).map_err(io_error("keep", &self.draft.path))
    }

    fn broken(&self, how: &'static str) -> Failed {
        let error = RegistryError::Interrupted {
            registry: self.client.whom.registry.clone(),
            name: self.client.whom.name.clone(),
            how,
            got: self.draft.have,
            bytes: self.blob.bytes,
            digest: self.blob.digest.to_string(),
            tries: self.client.config.tries,
        };
        Failed::Passing(error, None)
    }
}

fn open_part(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RegistryError {
    let path = path.to_owned();
    move |source| RegistryError::Io { operation, path, source }
}
