//! A fake memory image on disk: real files, so that a test can damage them, and their hashes, so
//! that the damage is found.

use std::fs;
use std::path::Path;

use dorm_engine::{Capabilities, RunSpec, SavedFile};
use dorm_lifecycle::SnapshotKind;
use serde::{Deserialize, Serialize};

use crate::error::FakeError;
use crate::guest::{Files, Guest};

/// The file of a memory image with the guest, except for its files.
pub const MEMORY: &str = "memory.json";
/// The file of a memory image with the guest's files and their contents.
pub const FILES: &str = "files.json";
/// The file of a memory image with its dependencies, and the hashes of the other two files.
pub const ENGINE: &str = "engine.json";

#[derive(Serialize, Deserialize)]
struct Description {
    engine: String,
    build: String,
    image: String,
    memory: String,
    files: String,
}

/// The content of a memory image to write.
pub(crate) struct Image {
    memory: Option<Vec<u8>>,
    files: Vec<u8>,
    description: Vec<u8>,
}

impl Image {
    /// Returns the image of a paused guest. One of its files lacks its memory.
    pub(crate) fn of(
        guest: &Guest,
        spec: &RunSpec,
        engine: &Capabilities,
        kind: SnapshotKind,
    ) -> Result<Self, FakeError> {
        let memory = serde_json::to_vec(guest)?;
        let files = serde_json::to_vec(&guest.files)?;
        let description = serde_json::to_vec(&Description {
            engine: engine.name.to_owned(),
            build: engine.build.clone(),
            image: spec.image.to_string(),
            memory: sum(&memory),
            files: sum(&files),
        })?;
        let memory = (kind == SnapshotKind::Memory).then_some(memory);
        Ok(Self { memory, files, description })
    }

    /// Writes the files into `into` and returns their full sizes. With a `limit`, the disk is full
    /// after that many bytes.
    pub(crate) fn write(&self, into: &Path, limit: Option<usize>) -> Result<Vec<SavedFile>, FakeError> {
        let mut room = limit.unwrap_or(usize::MAX);
        let mut written = Vec::new();
        let memory = self.memory.as_ref().map(|memory| (MEMORY, memory));
        for (name, bytes) in memory.into_iter().chain([(FILES, &self.files), (ENGINE, &self.description)]) {
            let path = into.join(name);
            let fits = &bytes[..bytes.len().min(room)];
            room -= fits.len();
            fs::write(&path, fits).map_err(|source| FakeError::File { path: path.clone(), source })?;
            if fits.len() < bytes.len() {
                return Err(FakeError::File { path, source: std::io::ErrorKind::StorageFull.into() });
            }
            written.push(SavedFile { name: name.into(), bytes: bytes.len() as u64, shared_with: None, blake3: None });
        }
        Ok(written)
    }

    /// Returns half of its size, in bytes.
    pub(crate) fn half(&self) -> usize {
        (self.memory.as_ref().map_or(0, Vec::len) + self.files.len()) / 2
    }
}

/// Reads the guest from an image, for a run with `spec`.
pub(crate) fn read(from: &Path, spec: &RunSpec, engine: &Capabilities) -> Result<Guest, FakeError> {
    let description: Description = parse(from, ENGINE, &load(from, ENGINE)?)?;
    for (what, needed, found) in [
        ("engine", &description.engine, engine.name),
        ("engine build", &description.build, &engine.build),
        ("image", &description.image, spec.image.as_str()),
    ] {
        if needed != found {
            return Err(FakeError::Dependency { what, needed: needed.clone(), found: found.to_owned() });
        }
    }
    let (memory, files) = (load(from, MEMORY)?, load(from, FILES)?);
    for (name, bytes, known) in [(MEMORY, &memory, &description.memory), (FILES, &files, &description.files)] {
        if sum(bytes) != *known {
            return Err(FakeError::Damaged { path: from.join(name) });
        }
    }
    let mut guest: Guest = parse(from, MEMORY, &memory)?;
    guest.files = parse::<Files>(from, FILES, &files)?;
    guest.limit(&spec.resources);
    Ok(guest)
}

/// Reads the files from an image that any build has written.
pub(crate) fn read_files(from: &Path) -> Result<Files, FakeError> {
    let description: Description = parse(from, ENGINE, &load(from, ENGINE)?)?;
    let files = load(from, FILES)?;
    match sum(&files) == description.files {
        true => parse(from, FILES, &files),
        false => Err(FakeError::Damaged { path: from.join(FILES) }),
    }
}

fn load(from: &Path, name: &str) -> Result<Vec<u8>, FakeError> {
    let path = from.join(name);
    fs::read(&path).map_err(|source| FakeError::File { path, source })
}

fn parse<T: for<'de> Deserialize<'de>>(from: &Path, name: &str, bytes: &[u8]) -> Result<T, FakeError> {
    serde_json::from_slice(bytes).map_err(|_| FakeError::Damaged { path: from.join(name) })
}

fn sum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
