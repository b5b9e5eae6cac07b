//! `manifest.json` of an export file. Every later version must be able to read it: any addition
//! makes a format 2.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dorm_lifecycle::{Digest, IdError, Resources, SnapshotId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{ENTRIES_MAX, ExportNote, Exported, ExportedTree, LISTING_MAX, MEMORY_FILES_MAX, refused};
use crate::error::StorageError;
use crate::saved_states::manifest::is_inside;
use crate::saved_states::{self, SavedStateFacts, SavedStateFile, TreeFacts, tree};

const FORMAT: u32 = 1;
/// The maximum length of a name in the header of an entry.
const NAME_MAX: usize = 90;
const PARENTS_MAX: usize = 4096;

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
    kind: KindV1,
    snapshot: String,
    parents: Vec<String>,
    labels: BTreeMap<String, String>,
    engine: String,
    build: String,
    cpu: String,
    image: String,
    image_tags: Vec<String>,
    sandbox: String,
    generation: u64,
    cpu_millis: u32,
    memory_bytes: u64,
    disk_bytes: u64,
    processes: u32,
    taken_ms: u64,
    tree: Option<TreeV1>,
    memory: Vec<FileV1>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindV1 {
    Filesystem,
    Memory,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeV1 {
    entries: u64,
    bytes: u64,
    data_bytes: u64,
    listing_bytes: u64,
    listing_blake3: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileV1 {
    name: String,
    bytes: u64,
    blake3: String,
}

/// Returns the text of the manifest.
pub(super) fn text(of: &Exported) -> Result<Vec<u8>, serde_json::Error> {
    let Exported { note, facts, image_tags, tree, memory } = of;
    let body = BodyV1 {
        kind: if of.is_of_memory() { KindV1::Memory } else { KindV1::Filesystem },
        snapshot: note.snapshot.to_string(),
        parents: note.parents.iter().map(SnapshotId::to_string).collect(),
        labels: note.labels.clone(),
        engine: facts.engine.clone(),
        build: facts.build.clone(),
        cpu: facts.cpu.clone(),
        image: facts.image.to_string(),
        image_tags: image_tags.clone(),
        sandbox: facts.sandbox.to_string(),
        generation: facts.generation,
        cpu_millis: facts.resources.cpu_millis,
        memory_bytes: facts.resources.memory_bytes,
        disk_bytes: facts.resources.disk_bytes,
        processes: facts.resources.processes,
        taken_ms: facts.taken.as_millis(),
        tree: tree.as_ref().map(|tree| TreeV1 {
            entries: tree.facts.entries,
            bytes: tree.facts.bytes,
            data_bytes: tree.data_bytes,
            listing_bytes: tree.listing_bytes,
            listing_blake3: tree.listing_blake3.clone(),
        }),
        memory: memory
            .iter()
            .map(|file| FileV1 {
                name: file.name.to_string_lossy().into_owned(),
                bytes: file.bytes,
                blake3: file.blake3.clone(),
            })
            .collect(),
    };
    let mut text = serde_json::to_vec_pretty(&ManifestV1 { format: FORMAT, blake3: seal(&body)?, body })?;
    text.push(b'\n');
    Ok(text)
}

fn seal(body: &BodyV1) -> Result<String, serde_json::Error> {
    Ok(blake3::hash(&serde_json::to_vec(body)?).to_hex().to_string())
}

/// Parses a manifest with this body and the correct hash.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn of_body(body: &[u8]) -> Option<Exported> {
    understand(serde_json::from_slice(body).ok()?).ok()
}

/// Parses the text of a manifest, and refuses an invalid one.
pub(super) fn read(text: &[u8]) -> Result<Exported, StorageError> {
    let not_one = |error: serde_json::Error| StorageError::Export {
        what: "its manifest cannot be understood".to_owned(),
        source: Some(error.into()),
    };
    let head: Head = serde_json::from_slice(text).map_err(not_one)?;
    if head.format != FORMAT {
        return Err(StorageError::Format { path: super::MANIFEST.into(), found: head.format, known: FORMAT });
    }
    let manifest: ManifestV1 = serde_json::from_slice(text).map_err(not_one)?;
    if manifest.blake3 != seal(&manifest.body).map_err(not_one)? {
        return Err(refused("its manifest has been changed: its own hash differs"));
    }
    let exported = understand(manifest.body)?;
    // A manifest that this program would encode differently was not written by it.
    if self::text(&exported).map_err(not_one)? != text {
        return Err(refused("its manifest is not as it was written"));
    }
    Ok(exported)
}

fn understand(body: BodyV1) -> Result<Exported, StorageError> {
    let wrong = |error: IdError| refused(format!("its manifest cannot be understood ({error})"));
    let resources = Resources {
        cpu_millis: body.cpu_millis,
        memory_bytes: body.memory_bytes,
        disk_bytes: body.disk_bytes,
        processes: body.processes,
    };
    resources.check().map_err(|error| refused(format!("its manifest has limits that cannot be ({error})")))?;
    let image: Digest = body.image.parse().map_err(wrong)?;
    let facts = SavedStateFacts {
        engine: body.engine,
        build: body.build,
        cpu: body.cpu,
        image,
        layer: None,
        sandbox: body.sandbox.parse().map_err(wrong)?,
        generation: body.generation,
        parent: None,
        resources,
        taken: Timestamp::from_millis(body.taken_ms),
    };
    if body.parents.len() > PARENTS_MAX {
        return Err(refused("its manifest names more parents than there can be"));
    }
    let parents = body.parents.iter().map(|parent| parent.parse()).collect::<Result<_, _>>().map_err(wrong)?;
    let tree = body.tree.map(understand_tree).transpose()?;
    let memory = understand_memory(body.memory)?;
    match (body.kind, memory.is_empty(), &tree) {
        (KindV1::Memory, false, _) | (KindV1::Filesystem, true, Some(_)) => {}
        (KindV1::Memory, true, _) => return Err(refused("its manifest names no memory, of which it says to be")),
        (KindV1::Filesystem, _, _) => return Err(refused("its manifest does not name files alone, as it says")),
    }
    let note = ExportNote { snapshot: body.snapshot.parse().map_err(wrong)?, parents, labels: body.labels };
    let exported = Exported { note, facts, image_tags: body.image_tags, tree, memory };
    match exported.need_bytes() {
        Some(_) => Ok(exported),
        None => Err(refused("its manifest says that more is in it than can be")),
    }
}

fn understand_tree(tree: TreeV1) -> Result<ExportedTree, StorageError> {
    let is_possible = tree.entries <= ENTRIES_MAX
        && tree.listing_bytes <= LISTING_MAX
        && tree.data_bytes <= tree.bytes
        && is_hash(&tree.listing_blake3);
    match is_possible {
        true => Ok(ExportedTree {
            facts: TreeFacts { entries: tree.entries, bytes: tree.bytes },
            data_bytes: tree.data_bytes,
            listing_bytes: tree.listing_bytes,
            listing_blake3: tree.listing_blake3,
        }),
        false => Err(refused("its manifest says of its files what cannot be")),
    }
}

fn understand_memory(files: Vec<FileV1>) -> Result<Vec<SavedStateFile>, StorageError> {
    if files.len() > MEMORY_FILES_MAX {
        return Err(refused("its manifest names more files of memory than there can be"));
    }
    let own = [saved_states::MANIFEST, tree::LISTING, tree::ROOT];
    let mut names = BTreeSet::new();
    let mut memory = Vec::new();
    for FileV1 { name, bytes, blake3 } in files {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
        let is_own = own.iter().any(|own| Path::new(&name).starts_with(own));
        // A name with an extra slash would be another one on the disk.
        let is_canonical = Path::new(&name).components().collect::<std::path::PathBuf>().as_os_str() == name.as_str();
        if !is_inside(Path::new(&name)) || !is_plain || is_own || !is_canonical || name.len() > NAME_MAX {
            return Err(refused(format!("its manifest names a file that none can be, '{}'", name.escape_debug())));
        }
        if !is_hash(&blake3) || !names.insert(name.clone()) {
            return Err(refused(format!("its manifest says of '{name}' what cannot be, or names it twice")));
        }
        memory.push(SavedStateFile { name: name.into(), bytes, blake3 });
    }
    Ok(memory)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(raw: Vec<u8>) {
            let _ = read(&raw);
        }

        #[test]
        fn any_change_of_one_byte_is_refused(at in 0usize..2000, to: u8) {
            let text = include_bytes!("tests/manifest-v1.json");
            let mut changed = text.to_vec();
            let at = at % changed.len();
            prop_assume!(changed[at] != to);
            changed[at] = to;
            prop_assert!(read(&changed).is_err());
        }
    }
}
