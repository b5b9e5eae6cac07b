//! Archives that do not depend on the host or the time.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::contents::Entry;

/// A tar archive of `entries` and the directories above them, sorted.
pub(super) fn tar(entries: &[Entry], mtime: u64) -> Result<Vec<u8>> {
    let mut sorted: BTreeMap<String, Option<&Entry>> = BTreeMap::from([("./".to_owned(), None)]);
    for entry in entries {
        for (end, _) in entry.path.match_indices('/') {
            sorted.insert(format!("./{}/", &entry.path[..end]), None);
        }
        if sorted.insert(format!("./{}", entry.path), Some(entry)).is_some() {
            bail!("{} is packed twice", entry.path);
        }
    }
    let mut builder = Builder::new(Vec::new());
    for (path, entry) in sorted {
        let mut header = Header::new_ustar();
        // Debian's tools expect the leading `./`, which `set_path` removes.
        let fields = header.as_ustar_mut().context("a header has another format")?;
        let (prefix, name) = divided(&path, (fields.prefix.len(), fields.name.len()))
            .with_context(|| format!("{path} is too long for a tar header"))?;
        for (field, text) in [(&mut fields.prefix[..], prefix), (&mut fields.name[..], name)] {
            field[..text.len()].copy_from_slice(text.as_bytes());
        }
        header.set_entry_type(if entry.is_some() { EntryType::Regular } else { EntryType::Directory });
        header.set_mode(entry.map_or(0o755, |entry| entry.mode));
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root").context("set the owner")?;
        header.set_groupname("root").context("set the group")?;
        header.set_mtime(mtime);
        let bytes = entry.map_or(&[][..], |entry| &entry.bytes);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, bytes).with_context(|| format!("pack {path}"))?;
    }
    builder.into_inner().context("finish an archive")
}

/// `bytes`, compressed. The header names neither a time nor a system.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes).context("compress")?;
    encoder.finish().context("compress")
}

/// Divides a path into the two fields of a header, with a slash between them.
fn divided(path: &str, (prefix, name): (usize, usize)) -> Option<(&str, &str)> {
    if path.len() <= name {
        return Some(("", path));
    }
    let fits = |(above, below): &(&str, &str)| above.len() <= prefix && (1..=name).contains(&below.len());
    path.match_indices('/').map(|(at, _)| (&path[..at], &path[at + 1..])).find(fits)
}
