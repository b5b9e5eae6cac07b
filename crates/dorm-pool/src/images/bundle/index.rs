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
pub(in crate::images) struct Index {
    file: Arc<File>,
    bytes: u64,
    places: BTreeMap<String, Place>,
}

pub(in crate::images) enum Place {
    /// Where it begins, and how long it is.
    At(u64, u64),
    /// The name of another.
    Same(String),
}

impl Index {
    /// One without any file yet, of an archive that is `file`.
    pub(in crate::images) fn of(file: File) -> Self {
        let bytes = file.metadata().map_or(0, |facts| facts.len());
        Self { file: Arc::new(file), bytes, places: BTreeMap::new() }
    }

    /// Adds a file; `None` when it cannot be one of an image.
    pub(in crate::images) fn add(&mut self, name: &[u8], place: Place) -> Option<()> {
        let name = self::name(name).filter(|name| fits(name))?;
        if let Place::At(offset, bytes) = &place
            && offset.checked_add(*bytes)? > self.bytes
        {
            return None;
        }
        self.places.insert(name, place);
        (self.places.len() <= ENTRIES_MAX).then_some(())
    }

    pub(in crate::images) fn places(&self) -> impl Iterator<Item = (&String, &Place)> {
        self.places.iter()
    }

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
        Err(io::Error::other("its links form a loop"))
    }
}

/// The places of all files; `None` when this is not the archive of an image.
pub(in crate::images) fn read(mut file: File) -> Option<Index> {
    file.rewind().ok()?;
    let mut index = Index::of(file);
    let file = index.file.clone();
    let mut archive = Archive::new(file.as_ref());
    for entry in archive.entries_with_seek().ok()? {
        let mut entry = entry.ok()?;
        if entry.pax_extensions().ok()?.is_some_and(|all| all.flatten().any(|one| one.key_bytes().starts_with(b"GNU.")))
        {
            return None;
        }
        match entry.header().entry_type() {
            EntryType::Directory if name(&entry.path_bytes()).is_some_and(|name| fits(&name)) => {}
            EntryType::Regular => {
                index.add(&entry.path_bytes(), Place::At(entry.raw_file_position(), entry.size()))?;
            }
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name_bytes()?.into_owned();
                let target = String::from_utf8(target).ok()?;
                let target = target.strip_prefix("../").map_or(target.clone(), str::to_owned);
                index.add(&entry.path_bytes(), Place::Same(target))?;
            }
            EntryType::XGlobalHeader => {}
            _ => return None,
        }
    }
    let is_image = index.has("manifest.json") || (index.has(super::LAYOUT) && index.has(super::INDEX));
    is_image.then_some(index)
}

/// Whether an archive may be that of an image, as far as the first entry with a name tells.
pub(in crate::images) fn begins_like_one(from: impl Read) -> bool {
    // What a header may take is bounded where a parser believes what it says.
    let mut archive = Archive::new(BufReader::new(from.take(1 << 20)));
    let Ok(entries) = archive.entries() else { return false };
    // The first that tells something: many tools name the directory that is packed before what is in it.
    let names = entries.map(|entry| entry.ok().and_then(|entry| name(&entry.path_bytes())));
    let first = names.take(ENTRIES_MAX).find(|name| name.as_deref() != Some(""));
    first.flatten().is_some_and(|name| fits(&name))
}

fn name(raw: &[u8]) -> Option<String> {
    let raw = if raw == b"." { b"" } else { raw.strip_prefix(b"./").unwrap_or(raw) };
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
