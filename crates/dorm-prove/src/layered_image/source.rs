//! The image that is imported: three layers that change, remove and link files of the layers below
//! them, as an OCI layout.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

const FILES: u32 = 20;
const LARGE_BYTES: usize = 1 << 20;

/// Names of one file: in one layer, and across two.
pub(crate) const LINKED: [(&str, &str); 2] = [("srv/linked", "srv/file-0"), ("srv/linked-later", "srv/file-1")];

enum Part {
    Directory(&'static str),
    File(String, String),
    Link(&'static str, &'static str),
}

fn file(path: impl Into<String>, content: impl Into<String>) -> Part {
    Part::File(path.into(), content.into())
}

fn content(number: u32) -> String {
    format!("file {number} of the lowest layer\n").repeat(50)
}

fn large() -> String {
    "a line of a large file, which takes a while\n".repeat(LARGE_BYTES / 44)
}

fn layers() -> [Vec<Part>; 3] {
    let mut lowest = vec![Part::Directory("srv"), Part::Directory("srv/old")];
    lowest.extend((0..FILES).map(|number| file(format!("srv/file-{number}"), content(number))));
    lowest.extend([file("srv/removed", "gone"), file("srv/old/removed", "gone"), Part::Link(LINKED[0].0, LINKED[0].1)]);
    let middle = vec![
        file("srv/.wh.removed", ""),
        Part::Directory("srv/old"),
        file("srv/old/.wh..wh.opq", ""),
        file("srv/old/new", "new"),
        Part::Link(LINKED[1].0, LINKED[1].1),
    ];
    let highest = vec![file("srv/file-2", "changed"), file("srv/large", large())];
    [lowest, middle, highest]
}

/// Files of the image by their paths; those without content must not exist.
pub(crate) fn expected() -> BTreeMap<String, Option<String>> {
    let mut files: BTreeMap<_, _> =
        (0..FILES).map(|number| (format!("srv/file-{number}"), Some(content(number)))).collect();
    let more = [
        ("srv/linked", Some(content(0))),
        ("srv/linked-later", Some(content(1))),
        ("srv/file-2", Some("changed".to_owned())),
        ("srv/old/new", Some("new".to_owned())),
        ("srv/large", Some(large())),
        ("srv/removed", None),
        ("srv/old/removed", None),
    ];
    files.extend(more.map(|(path, content)| (path.to_owned(), content)));
    files
}

/// The names of the layers on disk: the sums of their archives.
pub(crate) fn layer_names() -> Vec<String> {
    let archives = layers().iter().filter_map(|layer| archive(layer).ok()).collect::<Vec<_>>();
    archives.iter().map(|archive| sum(archive)).collect()
}

fn sum(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn archive(layer: &[Part]) -> Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for part in layer {
        let mut header = Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header.set_mode(0o755);
        match part {
            Part::Directory(path) => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, path, std::io::empty())?;
            }
            Part::File(path, content) => {
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_bytes())?;
            }
            Part::Link(path, to) => {
                header.set_entry_type(EntryType::Link);
                builder.append_link(&mut header, path, to)?;
            }
        }
    }
    builder.into_inner().context("end an archive")
}

/// Writes the image.
pub(super) fn write(layout: &Path) -> Result<()> {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("make {}", blobs.display()))?;
    let write =
        |path: &Path, content: &[u8]| fs::write(path, content).with_context(|| format!("write {}", path.display()));
    let blob = |kind: &str, content: &[u8]| {
        let digest = sum(content);
        write(&blobs.join(&digest), content)?;
        let media_type = format!("application/vnd.oci.image.{kind}");
        anyhow::Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": content.len() }))
    };
    let mut described = Vec::new();
    for layer in layers() {
        described.push(blob("layer.v1.tar", &archive(&layer)?)?);
    }
    let diff_ids: Vec<_> = described.iter().map(|layer| layer["digest"].clone()).collect();
    let config = json!({ "os": "linux", "config": {}, "rootfs": { "type": "layers", "diff_ids": diff_ids } });
    let config = blob("config.v1+json", config.to_string().as_bytes())?;
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": described });
    let manifest = blob("manifest.v1+json", manifest.to_string().as_bytes())?;
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    write(&layout.join("index.json"), index.to_string().as_bytes())?;
    write(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)
}
