//! Where the files of an archive are, when all of them are such as the archive of an image has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::sync::Arc;

use tar::{Archive, EntryType};

use super::Blobs;
use crate::images::layers::Blob;

const ENTRIES_MAX: usize = 20_000;
const NAME_MAX: usize = 200;

/// The files of an archive, by name.
pub(super) struct Index {
    file: Arc<File>,
    places: BTreeMap<String, Place>,
}

enum Place {
    At(u64, u64),
    /// The name of another.
    Same(String),
}

impl Index {
    pub(super) fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }
}

impl Blobs for Index {
    fn open(&self, name: &str) -> io::Result<Option<Blob>> {
        let mut name = name;
        for _ in 0..4 {
            match self.places.get(name) {
                None => return Ok(None),
                Some(Place::At(offset, bytes)) => {
                    return Ok(Some(Blob { file: self.file.clone(), offset: *offset, bytes: *bytes }));
                }
                Some(Place::Same(other)) => name = other,
            }
        }
        Err(io::Error::other("its links lead in a circle"))
    }
}

/// The places of all files; `None` when this is not the archive of an image.
pub(super) fn read(mut file: File) -> Option<Index> {
    let bytes = file.metadata().ok()?.len();
    file.rewind().ok()?;
    let file = Arc::new(file);
    let mut places = BTreeMap::new();
    let mut archive = Archive::new(file.as_ref());
    for entry in archive.entries_with_seek().ok()? {
        let mut entry = entry.ok()?;
        if entry.pax_extensions().ok()?.is_some_and(|all| all.flatten().any(|one| one.key_bytes().starts_with(b"GNU.")))
        {
            return None;
        }
        let name = name(&entry.path_bytes())?;
        match entry.header().entry_type() {
            EntryType::Directory if fits(&name) => continue,
            EntryType::Regular if fits(&name) => {
                let (at, length) = (entry.raw_file_position(), entry.size());
                if at.checked_add(length)? > bytes {
                    return None;
                }
                places.insert(name, Place::At(at, length));
            }
            EntryType::Symlink | EntryType::Link if fits(&name) => {
                let target = entry.link_name_bytes()?.into_owned();
                let target = String::from_utf8(target).ok()?;
                let target = target.strip_prefix("../").map_or(target.clone(), str::to_owned);
                places.insert(name, Place::Same(target));
            }
            EntryType::XGlobalHeader => continue,
            _ => return None,
        }
        if places.len() > ENTRIES_MAX {
            return None;
        }
    }
    let is_image = places.contains_key("manifest.json")
        || (places.contains_key(super::LAYOUT) && places.contains_key(super::INDEX));
    is_image.then_some(Index { file, places })
}

/// Whether an archive may be that of an image, as far as its first entry tells.
pub(super) fn begins_like_one(from: impl Read) -> bool {
    // What a header may take is bounded where a parser believes what it says.
    let mut archive = Archive::new(BufReader::new(from.take(1 << 20)));
    let Ok(mut entries) = archive.entries() else { return false };
    match entries.next() {
        Some(Ok(entry)) => name(&entry.path_bytes()).is_some_and(|name| fits(&name)),
        _ => false,
    }
}

fn name(raw: &[u8]) -> Option<String> {
    let raw = raw.strip_prefix(b"./").unwrap_or(raw);
    let text = std::str::from_utf8(raw).ok()?.trim_end_matches('/');
    (text.len() <= NAME_MAX && !text.split('/').any(|part| part == ".." || part == ".")).then(|| text.to_owned())
}

/// Whether the archive of an image could have a file or directory of that name.
fn fits(name: &str) -> bool {
    let hex = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["" | "oci-layout" | "index.json" | "manifest.json" | "repositories" | "blobs"] => true,
        ["blobs", _] => true,
        ["blobs", _, digest] => hex(digest),
        [one] => {
            hex(one)
                || one.strip_suffix(".json").is_some_and(hex)
                || one.strip_suffix(".tar").is_some_and(hex)
                || one.strip_suffix(".tar.gz").is_some_and(hex)
                || one.strip_prefix("sha256:").is_some_and(hex)
        }
        [one, "VERSION" | "json" | "layer.tar"] => hex(one),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_tools_give_are_those_of_an_image() {
        let hex = "ab".repeat(32);
        for good in ["oci-layout", "blobs", "blobs/sha256", &format!("blobs/sha256/{hex}"), &format!("{hex}/layer.tar")]
        {
            assert!(fits(good), "{good}");
        }
        for bad in ["bin", "etc/passwd", "blobs/sha256/x", "blobs/a/b/c", "manifest.json/x"] {
            assert!(!fits(bad), "{bad}");
        }
    }
}
