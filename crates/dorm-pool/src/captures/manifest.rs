//! `manifest.json`: what a capture is, in a form that every later version must be able to read.
//!
//! The body is covered by a hash of its own, so that a changed fact is found like a changed file. Format 1 is frozen:
//! golden files guard it. Whatever has to be added makes a format 2.

use std::fs;
use std::io;
use std::path::{Component, Path};

use dorm_lifecycle::{CaptureId, Resources, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Capture, CaptureFacts, CaptureFile, Captures, MANIFEST, TreeFacts};
use crate::error::{PoolError, failed};

const FORMAT: u32 = 1;

/// The part that is the same in every format.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestV1 {
    format: u32,
    /// Of the body as compact JSON in the order of its fields.
    blake3: String,
    body: BodyV1,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyV1 {
    capture: String,
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

/// The text of the manifest of a capture.
pub(super) fn text(
    id: &CaptureId,
    facts: &CaptureFacts,
    files: &[CaptureFile],
    tree: Option<TreeFacts>,
) -> Result<Vec<u8>, serde_json::Error> {
    let body = BodyV1 {
        capture: id.to_string(),
        engine: facts.engine.clone(),
        build: facts.build.clone(),
        cpu: facts.cpu.clone(),
        image: facts.image.to_string(),
        sandbox: facts.sandbox.to_string(),
        generation: facts.generation,
        parent: facts.parent.as_ref().map(CaptureId::to_string),
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
        layer: facts.layer.as_ref().map(CaptureId::to_string),
        tree: tree.map(|TreeFacts { entries, bytes }| TreeV1 { entries, bytes }),
    };
    let mut text = serde_json::to_vec_pretty(&ManifestV1 { format: FORMAT, blake3: seal(&body)?, body })?;
    text.push(b'\n');
    Ok(text)
}

fn seal(body: &BodyV1) -> Result<String, serde_json::Error> {
    Ok(blake3::hash(&serde_json::to_vec(body)?).to_hex().to_string())
}

impl Captures {
    /// What is written about a capture.
    pub(crate) fn load(&self, id: &CaptureId) -> Result<Capture, PoolError> {
        let directory = self.path(id, "");
        let path = directory.join(MANIFEST);
        let damaged = |what: String| PoolError::Damaged { capture: id.clone(), file: MANIFEST.into(), what };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match directory.symlink_metadata() {
                    Ok(_) => Err(damaged("is missing".to_owned())),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Err(PoolError::Missing(id.clone())),
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
            return Err(PoolError::Format { path, found: head.format, known: FORMAT });
        }
        let manifest: ManifestV1 = serde_json::from_slice(&text).map_err(unreadable)?;
        if manifest.blake3 != seal(&manifest.body).map_err(unreadable)? {
            return Err(damaged("has been changed: its own hash differs".to_owned()));
        }
        if manifest.body.capture != id.as_str() {
            return Err(damaged(format!("belongs to capture {}", manifest.body.capture)));
        }
        let (facts, files, tree) = understand(manifest.body).map_err(damaged)?;
        Ok(Capture { id: id.clone(), directory, facts, files, tree })
    }
}

fn understand(body: BodyV1) -> Result<(CaptureFacts, Vec<CaptureFile>, Option<TreeFacts>), String> {
    let wrong = |error: dorm_lifecycle::IdError| format!("cannot be understood ({error})");
    let facts = CaptureFacts {
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
            return Err(format!("names a file outside of the capture, '{}'", file.name));
        }
        files.push(CaptureFile { name: file.name.into(), bytes: file.bytes, blake3: file.blake3 });
    }
    Ok((facts, files, body.tree.map(|TreeV1 { entries, bytes }| TreeFacts { entries, bytes })))
}

/// The manifest that has this body.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn sealed(body: &[u8]) -> Option<Vec<u8>> {
    let body: BodyV1 = serde_json::from_slice(body).ok()?;
    serde_json::to_vec_pretty(&ManifestV1 { format: FORMAT, blake3: seal(&body).ok()?, body }).ok()
}

/// Whether a relative path stays below the directory it is relative to.
pub(super) fn is_inside(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}
