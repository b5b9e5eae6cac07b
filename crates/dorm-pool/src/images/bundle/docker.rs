//! Docker's own archives: a list of images with the names of their files in the archive.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{Blobs, Bundle, DOCUMENT_BYTES_MAX, named};
use crate::error::PoolError;
use crate::images::documents::{BlobDigest, Configuration};
use crate::images::import::Job;
use crate::images::layers::LayerBlob;
use crate::images::settings::ImageSource;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

pub(super) fn read(job: &Job<'_>, blobs: &dyn Blobs) -> Result<Bundle, PoolError> {
    let refused = |what: &str| job.refused(what, None);
    let text = named(job, blobs, "manifest.json")?;
    let entries: Vec<Entry> =
        serde_json::from_slice(&text).map_err(|error| refused(&format!("its manifest.json is invalid: {error}")))?;
    let entry = match entries.as_slice() {
        [] => return Err(refused("it contains no image")),
        [one] => one,
        several => {
            let names: Vec<_> = several.iter().flat_map(|entry| entry.repo_tags.iter().flatten()).take(20).collect();
            let names = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            let names = names.escape_debug();
            return Err(refused(&format!("it contains several images ({names}): save only one of them")));
        }
    };
    let text = named(job, blobs, &entry.config)?;
    debug_assert!(text.len() as u64 <= DOCUMENT_BYTES_MAX);
    let sum = BlobDigest::from_bytes(&Sha256::digest(&text));
    let said = entry.config.trim_start_matches("blobs/sha256/").trim_end_matches(".json");
    if said.len() == 64 && said != sum.hex() {
        return Err(refused(&format!("its configuration does not match its name: its digest is {sum}")));
    }
    let configuration = Configuration::parse(&text).map_err(|what| refused(&what))?;
    if configuration.diff_ids.len() != entry.layers.len() {
        let (layers, known) = (entry.layers.len(), configuration.diff_ids.len());
        return Err(refused(&format!("its manifest has {layers} layers, but its configuration {known}")));
    }
    let mut layers = Vec::new();
    for (name, diff_id) in entry.layers.iter().zip(configuration.diff_ids) {
        let blob = blobs.open(name).map_err(|error| job.refused("a layer cannot be read", Some(error)))?;
        let blob = blob.ok_or_else(|| refused(&format!("its layer {} is missing", name.escape_debug())))?;
        layers.push(LayerBlob { diff_id, digest: None, packing: None, blob: Some(blob) });
    }
    let reference = entry.repo_tags.iter().flatten().next().cloned();
    Ok(Bundle { config: configuration.settings, source: ImageSource { reference, ..ImageSource::default() }, layers })
}
