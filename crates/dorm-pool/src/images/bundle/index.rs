//! The positions of the files in an archive, if all of them are typical of an image's archive.

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
    /// Its position and its length.
    At(u64, u64),
    /// A link to another name.
    Same(String),
}

impl Index {
    /// Creates an empty index of the archive `file`.
    pub(in crate::images) fn of(file: File) -> Self {
        let bytes = file.metadata().map_or(0, |facts| facts.len());
        Self { file: Arc::new(file), bytes, places: BTreeMap::new() }
    }

    /// Adds a file; `None` if an image's archive cannot contain it.
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

/// Returns the positions of all files; `None` if this is not an image's archive.
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

/// Returns whether an archive may be that of an image, judging by the first informative name.
pub(in crate::images) fn begins_like_one(from: impl Read) -> bool {
    // Limits the headers, since the parser trusts their lengths.
    let mut archive = Archive::new(BufReader::new(from.take(1 << 20)));
    let Ok(entries) = archive.entries() else { return false };
    // The first informative one: many tools store the packed directory itself before its content.
    let names = entries.map(|entry| entry.ok().and_then(|entry| name(&entry.path_bytes())));
    let first = names.take(ENTRIES_MAX).find(|name| name.as_deref() != Some(""));
    first.flatten().is_some_and(|name| fits(&name))
}

fn name(raw: &[u8]) -> Option<String> {
    let raw = if raw == b"." { b"" } else { raw.strip_prefix(b"./").unwrap_or(raw) };
    let text = std::str::from_utf8(raw).ok()?.trim_end_matches('/');
    (text.len() <= NAME_MAX && !text.split('/').any(|part| part == ".." || part == ".")).then(|| text.to_owned())
}

/// Returns whether an image's archive can contain a file or directory of that name.
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
