//! Converts between the files of a guest and a layer on the files that its run began with.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use dorm_agent_proto::{Attribute, GuestBytes, GuestString};
use dorm_engine::{Content as Pieces, Entry, EntryKind, FileSink, NoContent};
use dorm_guest_ids::GuestIds;

use super::{Content, Files, Node};

const OPAQUE: &str = "trusted.overlay.opaque";

struct Whole<'a>(Option<&'a [u8]>);

impl Pieces for Whole<'_> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        Ok(self.0.take().filter(|bytes| !bytes.is_empty()).map(|bytes| (0, bytes)))
    }
}

impl Files {
    /// Passes every change since the run began to `sink`.
    pub(crate) fn changes(&self, sink: &mut dyn FileSink) -> io::Result<()> {
        let all: BTreeSet<&str> = self.base.iter().chain(self.nodes.keys()).map(String::as_str).collect();
        let changed = |path: &&&str| match self.nodes.get(**path) {
            Some(node) => !(node.base && self.base.contains(**path)),
            None => self.shows_through(path),
        };
        let mut told: BTreeSet<&str> = BTreeSet::new();
        for path in all.iter().filter(changed) {
            told.insert(path);
            let mut above = *path;
            while let Some((next, _)) = above.rsplit_once('/') {
                above = next;
                told.insert(if above.is_empty() { "/" } else { above });
            }
        }
        for path in told {
            let was = self.base.contains(path);
            match self.nodes.get(path) {
                Some(node) => {
                    let (kind, mut content) = match &node.content {
                        Content::Directory => (EntryKind::Directory { replaces: was && !node.base }, Whole(None)),
                        Content::File(bytes) => (EntryKind::File { bytes: node.size() }, Whole(Some(bytes))),
                    };
                    sink.take(&entry(path, kind, node), &mut content)?;
                }
                None => sink.take(&entry(path, EntryKind::Removed, &Node::directory()), &mut NoContent)?,
            }
        }
        Ok(())
    }

    /// Returns whether the previous file at `path` would show through if the layer had no entry for
    /// it.
    fn shows_through(&self, path: &str) -> bool {
        let above = path.rsplit_once('/').map(|(above, _)| if above.is_empty() { "/" } else { above });
        above.is_none_or(|above| self.nodes.get(above).is_some_and(|node| node.base && self.base.contains(above)))
    }

    /// Applies the layer in `directory` to the files; the run begins with the result.
    pub(crate) fn add_layer(&mut self, directory: &Path) -> io::Result<()> {
        let mut open = vec![String::new()];
        while let Some(relative) = open.pop() {
            let outside = directory.join(OsStr::from_bytes(relative.trim_start_matches('/').as_bytes()));
            let facts = fs::symlink_metadata(&outside)?;
            let key = if relative.is_empty() { "/".to_owned() } else { relative.clone() };
            if facts.file_type().is_char_device() {
                self.forget(&key);
                self.nodes.remove(&key);
                continue;
            }
            let content = if facts.is_dir() {
                if is_opaque(&outside) || !self.nodes.get(&key).is_some_and(Node::is_directory) {
                    self.forget(&key);
                }
                for child in fs::read_dir(&outside)? {
                    open.push(format!("{relative}/{}", child?.file_name().to_string_lossy()));
                }
                Content::Directory
            } else {
                Content::File(fs::read(&outside)?)
            };
            let node = Node {
                content,
                mode: facts.mode() & 0o7777,
                uid: GuestIds::DEFAULT.guest(facts.uid()).unwrap_or(0),
                gid: GuestIds::DEFAULT.guest(facts.gid()).unwrap_or(0),
                modified_unix_ms: facts.mtime() * 1000 + facts.mtime_nsec() / 1_000_000,
                base: true,
                attributes: attributes_on(&outside),
            };
            self.nodes.insert(key, node);
        }
        self.base = self.nodes.keys().cloned().collect();
        Ok(())
    }

    fn forget(&mut self, key: &str) {
        let below: Vec<String> = self.below(key).map(|(path, _)| path.clone()).collect();
        for path in below {
            self.nodes.remove(&path);
        }
    }
}

impl Node {
    fn directory() -> Self {
        Self {
            content: Content::Directory,
            mode: 0,
            uid: 0,
            gid: 0,
            modified_unix_ms: 0,
            base: false,
            attributes: Vec::new(),
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory)
    }
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0; 4];
    rustix::fs::lgetxattr(path, OPAQUE, &mut value[..]).is_ok_and(|length| value.get(..length) == Some(b"y"))
}

fn entry(path: &str, kind: EntryKind, node: &Node) -> Entry {
    let (seconds, millis) = (node.modified_unix_ms.div_euclid(1000), node.modified_unix_ms.rem_euclid(1000));
    Entry {
        path: path.trim_start_matches('/').as_bytes().to_vec(),
        kind,
        mode: node.mode,
        user: node.uid,
        group: node.gid,
        modified: (seconds, u32::try_from(millis).unwrap_or(0) * 1_000_000),
        attributes: node.attributes.iter().map(|one| (one.name.as_bytes().to_vec(), one.value.0.clone())).collect(),
    }
}

/// Returns the extended attributes of a file on the host that guests can set.
fn attributes_on(path: &Path) -> Vec<Attribute> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, names.as_mut_slice()).unwrap_or(0);
    let mut found: Vec<_> = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(Attribute::PREFIX.as_bytes()))
        .filter_map(|name| {
            let mut value = vec![0; 64 << 10];
            let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).ok()?;
            value.truncate(length);
            Some(Attribute { name: GuestString::new(name).ok()?, value: GuestBytes(value) })
        })
        .collect();
    found.sort();
    found
}
