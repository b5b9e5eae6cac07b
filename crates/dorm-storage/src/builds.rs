//! The files of builds: the contexts that steps copy from, and logs.
//!
//! ```text
//! DATA/builds/new-N/             a context being unpacked
//! DATA/builds/contexts/PROJECT/KEY/
//!     content                    the contents of all files, one after the other
//!     index.json                 paths, modes, hashes, and where each content begins
//! DATA/builds/logs/ID            lines of JSON
//! ```
//!
//! A context is complete or absent: it gets its name by one rename. Its content is compared with
//! the hashes whenever it is read.

mod log;

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use dorm_build::context::{Context, Entry, FileEntry};
use dorm_lifecycle::{Digest, ProjectId};
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::error::{StorageError, failed};
use crate::images::Images;
use crate::steps::{Step, Steps};

pub use self::log::{LogId, LogLine, LogPage, LogStream};

const DIRECTORY: &str = "builds";
const CONTEXTS: &str = "contexts";
const LOGS: &str = "logs";
const NEW: &str = "new-";
const CONTENT: &str = "content";
const INDEX: &str = "index.json";
const FORMAT: u32 = 1;

/// The files of builds in one data directory.
pub(crate) struct Builds {
    directory: PathBuf,
    steps: Steps,
    next: AtomicU64,
}

/// A context on the disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ListedContext {
    /// The project it belongs to.
    pub project: ProjectId,
    /// The hash that its uploader named it by.
    pub key: Digest,
    /// The length of all its files.
    pub bytes: u64,
    /// How long ago it was uploaded, in seconds.
    pub age_secs: u64,
}

/// A context that steps can copy from.
#[derive(Clone, Debug)]
pub struct StoredContext {
    /// Its entries.
    pub context: Context,
    content: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    format: u32,
    entries: Vec<IndexEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum IndexEntry {
    Directory { path: String },
    Link { path: String, target: String },
    File { path: String, mode: u32, bytes: u64, hash: [u8; 32], offset: u64 },
}

impl Builds {
    /// Opens the directory, and removes what interrupted uploads left.
    pub(crate) fn open(data: &Path, steps: Steps) -> Result<Self, StorageError> {
        let directory = data.join(DIRECTORY);
        for part in [CONTEXTS, LOGS] {
            disk::make_directories(&directory.join(part))?;
        }
        for name in disk::names(&directory)? {
            if name.starts_with(NEW) {
                disk::remove_tree(&directory.join(name))?;
            }
        }
        let builds = Self { directory, steps, next: AtomicU64::new(0) };
        builds.finish_removals()?;
        Ok(builds)
    }

    /// Removes contexts whose removal was interrupted.
    fn finish_removals(&self) -> Result<(), StorageError> {
        let top = self.directory.join(CONTEXTS);
        for project in disk::names(&top)? {
            for key in disk::names(&top.join(&project))? {
                let place = top.join(&project).join(&key);
                if key.parse::<Digest>().is_ok() && !place.join(INDEX).exists() {
                    disk::remove_tree(&place)?;
                }
            }
        }
        Ok(())
    }

    fn place(&self, project: &ProjectId, key: &Digest) -> PathBuf {
        self.directory.join(CONTEXTS).join(project.as_str()).join(key.as_str())
    }

    /// Makes a context of an archive. One with this key that exists already stays as it is, unless
    /// it is damaged.
    pub(crate) fn import(
        &self,
        images: &Images,
        (project, key): (&ProjectId, &Digest),
        archive: &Path,
    ) -> Result<StoredContext, StorageError> {
        let staging = self.directory.join(format!("{NEW}{}", self.next.fetch_add(1, Ordering::Relaxed)));
        disk::make_directory(&staging).map_err(failed("create the directory", &staging))?;
        let made = self.fill(images, archive, &staging).and_then(|()| self.publish(&staging, project, key));
        if self.steps.alive() {
            disk::remove_tree(&staging)?;
        }
        made?;
        self.context(project, key)?.ok_or_else(|| missing(project, key))
    }

    fn fill(&self, images: &Images, archive: &Path, staging: &Path) -> Result<(), StorageError> {
        let content = staging.join(CONTENT);
        let context = images.unpack_context(archive, &content)?;
        self.steps.durable(&content);
        self.steps.reach(Step::ContextUnpacked)?;
        let index = Index { format: FORMAT, entries: context.entries().map(IndexEntry::from).collect() };
        let text = serde_json::to_vec(&index).map_err(|error| failed("write", staging)(std::io::Error::from(error)))?;
        disk::write_new(&staging.join(INDEX), &text, &self.steps)?;
        disk::sync_directory(staging, &self.steps)
    }

    fn publish(&self, staging: &Path, project: &ProjectId, key: &Digest) -> Result<(), StorageError> {
        let place = self.place(project, key);
        let parent = self.directory.join(CONTEXTS).join(project.as_str());
        disk::make_directories(&parent)?;
        let named = match disk::rename_new(staging, &place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if self.is_whole(project, key)? {
                    return Ok(());
                }
                self.remove_context(project, key)?;
                disk::rename_new(staging, &place)
            }
            named => named,
        };
        named.map_err(failed("rename the new context", &place))?;
        disk::sync_directory(&parent, &self.steps)?;
        disk::sync_directory(&self.directory.join(CONTEXTS), &self.steps)?;
        self.steps.reach(Step::ContextNamed)
    }

    /// Whether a context exists and has the content that was uploaded.
    fn is_whole(&self, project: &ProjectId, key: &Digest) -> Result<bool, StorageError> {
        let stored = match self.context(project, key) {
            Ok(Some(stored)) => stored,
            Ok(None) | Err(StorageError::Source { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut files = stored.context.entries().filter_map(|(_, entry)| match entry {
            Entry::File(file) => Some(file),
            Entry::Directory | Entry::Link(_) => None,
        });
        Ok(files.all(|file| stored.open(file).and_then(|mut open| io::copy(&mut open, &mut io::sink())).is_ok()))
    }

    /// Returns a context, if it exists.
    pub(crate) fn context(&self, project: &ProjectId, key: &Digest) -> Result<Option<StoredContext>, StorageError> {
        let place = self.place(project, key);
        let path = place.join(INDEX);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let damaged = |what: String| StorageError::Source { path: path.clone(), what, source: None };
        let index: Index = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if index.format > FORMAT {
            return Err(StorageError::Format { path, found: index.format, known: FORMAT });
        }
        let mut context = Context::default();
        for entry in index.entries {
            let (path, entry) = entry.into();
            context.insert(&path, entry).map_err(|error| damaged(error.to_string()))?;
        }
        Ok(Some(StoredContext { context, content: place.join(CONTENT) }))
    }

    /// Returns all contexts, in order.
    pub(crate) fn contexts(&self) -> Result<Vec<ListedContext>, StorageError> {
        let top = self.directory.join(CONTEXTS);
        let mut found = Vec::new();
        for name in disk::names(&top)? {
            let Ok(project) = name.parse::<ProjectId>() else { continue };
            for key in disk::names(&top.join(&name))? {
                let Ok(key) = key.parse::<Digest>() else { continue };
                let content = self.place(&project, &key).join(CONTENT);
                let Ok(facts) = fs::metadata(&content) else { continue };
                let age = facts.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
                let age_secs = age.unwrap_or_default().as_secs();
                found.push(ListedContext { project: project.clone(), key, bytes: facts.len(), age_secs });
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Removes a context. Succeeds if there is none.
    pub(crate) fn remove_context(&self, project: &ProjectId, key: &Digest) -> Result<(), StorageError> {
        // Without its index it is none, so that one that is partly removed is not used.
        disk::remove_file(&self.place(project, key).join(INDEX))?;
        self.steps.reach(Step::ContextSetAside)?;
        disk::remove_tree(&self.place(project, key))
    }

    fn log_path(&self, id: &LogId) -> PathBuf {
        self.directory.join(LOGS).join(id.as_str())
    }
}

fn missing(project: &ProjectId, key: &Digest) -> StorageError {
    let path = PathBuf::from(format!("context {key} of project {project}"));
    StorageError::Source { path, what: "it was removed at once".to_owned(), source: None }
}

impl StoredContext {
    /// Reads the content of a file, and compares it with its hash at the end.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self, file: &FileEntry) -> io::Result<impl Read + Send + use<>> {
        let mut content = fs::File::open(&self.content)?;
        content.seek(SeekFrom::Start(file.offset))?;
        Ok(Checked {
            inner: content.take(file.bytes),
            left: file.bytes,
            hasher: blake3::Hasher::new(),
            wanted: file.hash,
        })
    }
}

/// A file of a context that is compared with its hash as it is read.
struct Checked<R> {
    inner: R,
    left: u64,
    hasher: blake3::Hasher,
    wanted: [u8; 32],
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.hasher.update(into.get(..read).unwrap_or_default());
        self.left = self.left.saturating_sub(read as u64);
        if read == 0 && !into.is_empty() && (self.left > 0 || *self.hasher.finalize().as_bytes() != self.wanted) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the stored context is damaged: upload it again"));
        }
        Ok(read)
    }
}

impl From<(&str, &Entry)> for IndexEntry {
    fn from((path, entry): (&str, &Entry)) -> Self {
        let path = path.to_owned();
        match entry {
            Entry::Directory => Self::Directory { path },
            Entry::Link(target) => Self::Link { path, target: target.clone() },
            Entry::File(FileEntry { mode, bytes, hash, offset }) => {
                Self::File { path, mode: *mode, bytes: *bytes, hash: *hash, offset: *offset }
            }
        }
    }
}

impl From<IndexEntry> for (String, Entry) {
    fn from(entry: IndexEntry) -> Self {
        match entry {
            IndexEntry::Directory { path } => (path, Entry::Directory),
            IndexEntry::Link { path, target } => (path, Entry::Link(target)),
            IndexEntry::File { path, mode, bytes, hash, offset } => {
                (path, Entry::File(FileEntry { mode, bytes, hash, offset }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
