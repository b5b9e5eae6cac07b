//! The representation of a snapshot's file in a registry: an OCI artifact whose layers are the
//! parts of the file, in order.
//!
//! ```text
//! manifest   artifactType application/vnd.dormouse.snapshot.v1
//!   config   the length of the file
//!   layers   the file, split into parts of 8 MiB; the same snapshot gives the same parts
//! ```
//!
//! The content of the file is checked by the importer; this module only checks that it is the file
//! that was pushed.

use dorm_pool::{BlobDigest, DOCUMENT_BYTES_MAX};
use serde::{Deserialize, Serialize};

pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const ARTIFACT_TYPE: &str = "application/vnd.dormouse.snapshot.v1";
const CONFIG_TYPE: &str = "application/vnd.dormouse.snapshot.config.v1+json";
const PART_TYPE: &str = "application/vnd.dormouse.snapshot.part.v1";
/// The length of each part except the last one.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// The maximum length of a part, which is held in memory until its digest is checked.
const PART_BYTES_MAX: u64 = 64 << 20;
const FORMAT: u32 = 1;

/// One part of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) digest: BlobDigest,
    pub(crate) bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    config: Described,
    layers: Vec<Described>,
}

#[derive(Serialize, Deserialize)]
struct Config {
    format: u32,
    bytes: u64,
}

/// Returns the configuration of a file with this length.
pub(crate) fn config(bytes: u64) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Config { format: FORMAT, bytes })
}

/// Returns the manifest of a file.
pub(crate) fn manifest(config: &Part, parts: &[Part]) -> Result<Vec<u8>, serde_json::Error> {
    let described = |part: &Part, kind: &str| Described {
        media_type: kind.to_owned(),
        digest: part.digest.to_string(),
        size: part.bytes,
    };
    serde_json::to_vec(&Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE.to_owned(),
        artifact_type: ARTIFACT_TYPE.to_owned(),
        config: described(config, CONFIG_TYPE),
        layers: parts.iter().map(|part| described(part, PART_TYPE)).collect(),
    })
}

/// Returns the configuration and the parts that a manifest names.
///
/// # Errors
/// A phrase that says what the registry sent instead.
pub(crate) fn read_manifest(text: &[u8]) -> Result<(Part, Vec<Part>), String> {
    let manifest: Manifest = serde_json::from_slice(text)
        .map_err(|error| format!("a manifest that does not describe a snapshot ({error})"))?;
    if manifest.artifact_type != ARTIFACT_TYPE || manifest.config.media_type != CONFIG_TYPE {
        let found: String = manifest.artifact_type.chars().take(80).collect();
        return Err(format!("an artifact of the type '{}', which is not a snapshot", found.escape_debug()));
    }
    let read = |described: Described, kind: &str, most: u64| -> Result<Part, String> {
        let part = Part { digest: described.digest.parse()?, bytes: described.size };
        match described.media_type == kind && part.bytes <= most {
            true => Ok(part),
            false => Err(format!("a part of a snapshot with an invalid type or size, {}", part.digest)),
        }
    };
    let config = read(manifest.config, CONFIG_TYPE, DOCUMENT_BYTES_MAX)?;
    let parts = manifest.layers.into_iter().map(|layer| read(layer, PART_TYPE, PART_BYTES_MAX));
    Ok((config, parts.collect::<Result<_, _>>()?))
}

/// Returns the length of the file.
///
/// # Errors
/// A phrase that says what is wrong with the configuration.
pub(crate) fn read_config(text: &[u8], parts: &[Part]) -> Result<u64, String> {
    let config: Config = serde_json::from_slice(text).map_err(|error| format!("an invalid configuration ({error})"))?;
    if config.format != FORMAT {
        return Err(format!("a snapshot of format {}, while this version supports format {FORMAT}", config.format));
    }
    let found = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.bytes));
    match found == Some(config.bytes) {
        true => Ok(config.bytes),
        false => Err(format!("parts whose sizes do not add up to the {} bytes in its configuration", config.bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u8, bytes: u64) -> Part {
        Part { digest: BlobDigest::from_bytes(&[number; 32]), bytes }
    }

    #[test]
    fn what_is_written_is_read_and_everything_else_is_refused() {
        let parts = [part(1, 8), part(2, 3)];
        let text = manifest(&part(3, 20), &parts).unwrap();
        assert_eq!(read_manifest(&text), Ok((part(3, 20), parts.to_vec())));
        assert_eq!(read_config(&config(11).unwrap(), &parts), Ok(11));
        assert!(read_config(&config(12).unwrap(), &parts).unwrap_err().contains("do not add up to"));
        assert!(read_config(br#"{"format":2,"bytes":11}"#, &parts).unwrap_err().contains("format 2"));
        let text = String::from_utf8(text).unwrap();
        for (from, to, expected) in [
            (ARTIFACT_TYPE, "application/other", "'application/other', which is not a snapshot"),
            (PART_TYPE, "application/other", "invalid type or size"),
            ("\"size\":8", "\"size\":99999999999", "invalid type or size"),
            ("sha256:0101", "sha256:../1", "64 lower-case hexadecimal"),
            ("\"layers\"", "\"manifests\"", "does not describe a snapshot"),
        ] {
            let error = read_manifest(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
