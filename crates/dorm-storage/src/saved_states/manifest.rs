//! `manifest.json`: the description of a saved state, in a form that every later version must be
//! able to read.
//!
//! The body has a hash of its own, so that a changed fact is detected like a changed file. Format 1
//! is frozen: golden files guard it. Any addition makes a format 2.

use std::fs;
use std::io;
use std::path::{Component, Path};

use dorm_lifecycle::{Resources, SavedStateId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{MANIFEST, SavedState, SavedStateFacts, SavedStateFile, SavedStates, TreeFacts};
use crate::error::{StorageError, failed};

const FORMAT: u32 = 1;

/// The part that every format has.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestV1 {
    format: u32,
    /// The hash of the body as compact JSON in the order of its fields.
    blake3: String,
    body: BodyV1,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyV1 {
    saved_state: String,
    engine: String,
    build: String,
    cpu: String,
    image: String,
    sandbox: String,
    generation: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    parent: Option<String>,
    cpu_millis: u32,
    memory_bytes: u64,
    disk_bytes: u64,
    processes: u32,
    taken_ms: u64,
    files: Vec<FileV1>,
    #[serde(deserialize_with = "Option::deserialize")]
    layer: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    tree: Option<TreeV1>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeV1 {
    entries: u64,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileV1 {
    name: String,
    bytes: u64,
    blake3: String,
}

/// Returns the text of the manifest of a saved state.
pub(super) fn text(
    id: &SavedStateId,
    facts: &SavedStateFacts,
    files: &[SavedStateFile],
    tree: Option<TreeFacts>,
) -> Result<Vec<u8>, serde_json::Error> {
    let body = BodyV1 {
        saved_state: id.to_string(),
        engine: facts.engine.clone(),
        build: facts.build.clone(),
        cpu: facts.cpu.clone(),
        image: facts.image.to_string(),
        sandbox: facts.sandbox.to_string(),
        generation: facts.generation,
        parent: facts.parent.as_ref().map(SavedStateId::to_string),
        cpu_millis: facts.resources.cpu_millis,
        memory_bytes: facts.resources.memory_bytes,
        disk_bytes: facts.resources.disk_bytes,
        processes: facts.resources.processes,
        taken_ms: facts.taken.as_millis(),
        files: files
            .iter()
            .map(|file| FileV1 {
                name: file.name.to_string_lossy().into_owned(),
                bytes: file.bytes,
                blake3: file.blake3.clone(),
            })
            .collect(),
        layer: facts.layer.as_ref().map(SavedStateId::to_string),
        tree: tree.map(|TreeFacts { entries, bytes }| TreeV1 { entries, bytes }),
    };
    let mut text = serde_json::to_vec_pretty(&ManifestV1 { format: FORMAT, blake3: seal(&body)?, body })?;
    text.push(b'\n');
    Ok(text)
}

fn seal(body: &BodyV1) -> Result<String, serde_json::Error> {
    Ok(blake3::hash(&serde_json::to_vec(body)?).to_hex().to_string())
}

impl SavedStates {
    /// Reads the manifest of a saved state.
    pub(crate) fn load(&self, id: &SavedStateId) -> Result<SavedState, StorageError> {
        let directory = self.path(id, "");
        let path = directory.join(MANIFEST);
        let damaged = |what: String| StorageError::Damaged { saved_state: id.clone(), file: MANIFEST.into(), what };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match directory.symlink_metadata() {
                    Ok(_) => Err(damaged("is missing".to_owned())),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StorageError::Missing(id.clone())),
                    Err(error) => Err(failed("look at", &directory)(error)),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(damaged("is a directory".to_owned()));
            }
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let unreadable = |error: serde_json::Error| damaged(format!("cannot be understood ({error})"));
        let head: Head = serde_json::from_slice(&text).map_err(unreadable)?;
        if head.format != FORMAT {
            return Err(StorageError::Format { path, found: head.format, known: FORMAT });
        }
        let manifest: ManifestV1 = serde_json::from_slice(&text).map_err(unreadable)?;
        if manifest.blake3 != seal(&manifest.body).map_err(unreadable)? {
            return Err(damaged("has been changed: its own hash differs".to_owned()));
        }
        if manifest.body.saved_state != id.as_str() {
            return Err(damaged(format!("belongs to saved state {}", manifest.body.saved_state)));
        }
        let (facts, files, tree) = understand(manifest.body).map_err(damaged)?;
        Ok(SavedState { id: id.clone(), directory, facts, files, tree })
    }
}

fn understand(body: BodyV1) -> Result<(SavedStateFacts, Vec<SavedStateFile>, Option<TreeFacts>), String> {
    let wrong = |error: dorm_lifecycle::IdError| format!("cannot be understood ({error})");
    let facts = SavedStateFacts {
        engine: body.engine,
        build: body.build,
        cpu: body.cpu,
        image: body.image.parse().map_err(wrong)?,
        layer: body.layer.map(|layer| layer.parse()).transpose().map_err(wrong)?,
        sandbox: body.sandbox.parse().map_err(wrong)?,
        generation: body.generation,
        parent: body.parent.map(|parent| parent.parse()).transpose().map_err(wrong)?,
        resources: Resources {
            cpu_millis: body.cpu_millis,
            memory_bytes: body.memory_bytes,
            disk_bytes: body.disk_bytes,
            processes: body.processes,
        },
        taken: Timestamp::from_millis(body.taken_ms),
    };
    let mut files = Vec::with_capacity(body.files.len());
    for file in body.files {
        if !is_inside(Path::new(&file.name)) {
            return Err(format!("names a file outside of the saved state, '{}'", file.name));
        }
        files.push(SavedStateFile { name: file.name.into(), bytes: file.bytes, blake3: file.blake3 });
    }
    Ok((facts, files, body.tree.map(|TreeV1 { entries, bytes }| TreeFacts { entries, bytes })))
}

/// Returns the manifest with this body.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn sealed(body: &[u8]) -> Option<Vec<u8>> {
    let body: BodyV1 = serde_json::from_slice(body).ok()?;
    serde_json::to_vec_pretty(&ManifestV1 { format: FORMAT, blake3: seal(&body).ok()?, body }).ok()
}

/// Returns whether a relative path stays below the directory it is relative to.
pub(super) fn is_inside(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}
