//! The files of a fake guest: a map from path to node. It supports no permissions, links or
//! devices. Its failures (missing parents, directories in the way, a full disk) are those of the
//! real agent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dorm_agent_proto::{
    Attribute, DetailedEntry, Entry, Failure, FileKind, FileStat, GuestPath, Parents, RemoveScope, WatchEvent,
    WatchEventKind,
};
use serde::{Deserialize, Serialize};

use super::bytes;

mod in_place;
mod layer;
mod search;
mod volumes;
mod watchers;

pub(crate) use volumes::Volume;

/// The number of changes kept for watchers.
const CHANGES_KEPT: usize = 4096;

/// The files of one guest.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Files {
    nodes: BTreeMap<String, Node>,
    /// The paths that existed when the run began.
    base: BTreeSet<String>,
    /// The limit on the bytes that the guest may write.
    room: u64,
    #[serde(skip)]
    volumes: Vec<Volume>,
    #[serde(default)]
    watchers: watchers::Watchers,
    #[serde(skip)]
    changes: Vec<WatchEvent>,
    #[serde(skip)]
    changes_dropped: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Node {
    content: Content,
    mode: u32,
    uid: u32,
    gid: u32,
    modified_unix_ms: i64,
    /// Whether the node came with the image, so that it does not count against the limit.
    base: bool,
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Content {
    Directory,
    File(#[serde(with = "bytes")] Vec<u8>),
}

/// The owner of a new file, and the time of its creation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) unix_ms: i64,
}

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";

impl Files {
    /// Returns the files of every fake image.
    pub(crate) fn of_an_image(room: u64, unix_ms: i64) -> Self {
        let mut files = Self { room, ..Self::default() };
        let node = |content, mode| Node {
            content,
            mode,
            uid: 0,
            gid: 0,
            modified_unix_ms: unix_ms,
            base: true,
            attributes: Vec::new(),
        };
        for (path, mode) in [
            ("/", 0o755),
            ("/bin", 0o755),
            ("/etc", 0o755),
            ("/home", 0o755),
            ("/home/user", 0o755),
            ("/root", 0o700),
            ("/run", 0o755),
            ("/tmp", 0o1777),
            ("/usr", 0o755),
            ("/var", 0o755),
        ] {
            files.nodes.insert(path.to_owned(), node(Content::Directory, mode));
        }
        for (path, text) in [("/etc/passwd", PASSWD), ("/etc/hostname", "sandbox\n"), ("/etc/os-release", "ID=fake\n")]
        {
            files.nodes.insert(path.to_owned(), node(Content::File(text.into()), 0o644));
        }
        if let Some(home) = files.nodes.get_mut("/home/user") {
            (home.uid, home.gid) = (1000, 1000);
        }
        files.base = files.nodes.keys().cloned().collect();
        files
    }

    /// Sets the limit of a new run, in bytes.
    pub(crate) fn set_room(&mut self, room: u64) {
        self.room = room;
    }

    /// Returns the limit and the bytes in use.
    pub(crate) fn disk(&self) -> (u64, u64) {
        (self.room, self.used())
    }

    pub(crate) fn read(&self, path: &GuestPath) -> Result<Cow<'_, [u8]>, Failure> {
        if let Some(outside) = self.outside(path) {
            return outside.read().map(Cow::Owned);
        }
        match &self.node(path)?.content {
            Content::File(bytes) => Ok(Cow::Borrowed(bytes)),
            Content::Directory => Err(Failure::IsADirectory { path: path.clone() }),
        }
    }

    pub(crate) fn stat(&self, path: &GuestPath) -> Result<FileStat, Failure> {
        match self.outside(path) {
            Some(outside) => outside.stat(),
            None => self.node(path).map(|node| self.describe(node)),
        }
    }

    /// Creates or replaces a file.
    pub(crate) fn write(
        &mut self,
        path: &GuestPath,
        bytes: Vec<u8>,
        mode: Option<u32>,
        stamp: Stamp,
        parents: Parents,
    ) -> Result<FileStat, Failure> {
        let key = normal(path);
        if let Some(outside) = self.outside(path) {
            let kind = if outside.stat().is_ok() { WatchEventKind::Modified } else { WatchEventKind::Created };
            let written = outside.write(&bytes, parents)?;
            self.note(kind, &key);
            return Ok(written);
        }
        let before = match self.nodes.get(&key) {
            Some(Node { content: Content::Directory, .. }) => return Err(Failure::IsADirectory { path: path.clone() }),
            Some(node) => Some((node.mode, if node.base { 0 } else { node.size() })),
            None => None,
        };
        let grown = (self.used() + bytes.len() as u64).saturating_sub(before.map_or(0, |(_, size)| size));
        if grown > self.room {
            return Err(Failure::NoSpace { path: path.clone() });
        }
        self.need_parent(path, &key, stamp, parents)?;
        let mode = mode.or(before.map(|(mode, _)| mode)).unwrap_or(0o644);
        self.note(if before.is_some() { WatchEventKind::Modified } else { WatchEventKind::Created }, &key);
        self.nodes.insert(key, new_node(Content::File(bytes), mode, stamp));
        self.stat(path)
    }

    /// Appends to a file, creating it if necessary.
    pub(crate) fn append(&mut self, path: &GuestPath, bytes: &[u8], stamp: Stamp) -> Result<(), Failure> {
        let mut whole = self.read(path).map(Cow::into_owned).unwrap_or_default();
        whole.extend_from_slice(bytes);
        self.write(path, whole, None, stamp, Parents::Require).map(drop)
    }

    pub(crate) fn make_directory(
        &mut self,
        path: &GuestPath,
        parents: Parents,
        stamp: Stamp,
    ) -> Result<FileStat, Failure> {
        let key = normal(path);
        if let Some(outside) = self.outside(path) {
            let made = outside.make_directory(parents)?;
            self.note(WatchEventKind::Created, &key);
            return Ok(made);
        }
        match (self.nodes.get(&key), parents) {
            (Some(Node { content: Content::Directory, .. }), Parents::Create) => return self.stat(path),
            (Some(_), _) => return Err(Failure::Exists { path: path.clone() }),
            (None, _) => {}
        }
        self.need_parent(path, &key, stamp, parents)?;
        self.note(WatchEventKind::Created, &key);
        self.nodes.insert(key, new_node(Content::Directory, 0o755, stamp));
        self.stat(path)
    }

    pub(crate) fn remove(&mut self, path: &GuestPath, scope: RemoveScope) -> Result<(), Failure> {
        let key = normal(path);
        self.need_free(path)?;
        if let Some(outside) = self.outside(path) {
            outside.remove(scope)?;
            self.note(WatchEventKind::Removed, &key);
            return Ok(());
        }
        self.node(path)?;
        let below: Vec<String> = self.below(&key).map(|(path, _)| path.clone()).collect();
        match scope {
            RemoveScope::Single if !below.is_empty() => return Err(Failure::NotEmpty { path: path.clone() }),
            RemoveScope::Single | RemoveScope::Tree => {}
        }
        for gone in below.into_iter().rev().chain([key]) {
            self.nodes.remove(&gone);
            self.note(WatchEventKind::Removed, &gone);
        }
        Ok(())
    }

    /// Renames a path; missing parents that it creates get `stamp`.
    pub(crate) fn rename(
        &mut self,
        from: &GuestPath,
        to: &GuestPath,
        parents: Parents,
        stamp: Stamp,
    ) -> Result<FileStat, Failure> {
        let (old, new) = (normal(from), normal(to));
        self.need_free(from)?;
        self.need_free(to)?;
        match (self.outside(from), self.outside(to)) {
            (None, None) => {}
            (Some(from), Some(to)) => {
                let moved = from.rename(&to)?;
                self.note(WatchEventKind::MovedFrom, &old);
                self.note(WatchEventKind::MovedTo, &new);
                return Ok(moved);
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err(volumes::other("rename", from, "it goes onto a volume or off it: copy it".to_owned()));
            }
        }
        self.node(from)?;
        if new.starts_with(&format!("{old}/")) {
            return Err(volumes::other("rename", from, "it would go below itself".to_owned()));
        }
        self.need_parent(to, &new, stamp, parents)?;
        if self.below(&new).next().is_some() {
            return Err(Failure::NotEmpty { path: to.clone() });
        }
        let moved: Vec<String> = self.below(&old).map(|(path, _)| path.clone()).chain([old.clone()]).collect();
        for path in moved {
            if let Some(mut node) = self.nodes.remove(&path) {
                // A moved node counts as new at its other path.
                node.base = false;
                self.nodes.insert(format!("{new}{}", &path[old.len()..]), node);
            }
        }
        self.note(WatchEventKind::MovedFrom, &old);
        self.note(WatchEventKind::MovedTo, &new);
        self.stat(to)
    }

    /// Returns the entries below a directory, down to `depth` levels, each directory before its
    /// entries.
    pub(crate) fn list(&self, path: &GuestPath, depth: u32) -> Result<Vec<Entry>, Failure> {
        let key = normal(path);
        if let Some(outside) = self.outside(path) {
            return outside.list(depth.max(1));
        }
        match self.node(path)?.content {
            Content::Directory => {}
            Content::File(_) => return Err(Failure::NotADirectory { path: path.clone() }),
        }
        let prefix = if key == "/" { 0 } else { key.len() };
        let deep = |below: &str| u32::try_from(below[prefix..].matches('/').count()).unwrap_or(u32::MAX);
        let own = self.below(&key).filter(|(below, _)| deep(below) <= depth.max(1) && !self.is_hidden(below));
        let own = own.map(|(below, node)| Ok(Entry { path: guest_path(below)?, stat: self.describe(node) }));
        let mut entries = own.collect::<Result<Vec<_>, Failure>>()?;
        entries.extend(self.entries_on_volumes(&key, depth)?);
        Ok(entries)
    }

    /// Lists a directory as [`Files::list`] does, with attributes; at depth 0, the path alone.
    /// There are no links here.
    pub(crate) fn detail(&self, path: &GuestPath, depth: u32) -> Result<Vec<DetailedEntry>, Failure> {
        let entries = match depth {
            0 => vec![Entry { path: path.clone(), stat: self.stat(path)? }],
            depth => self.list(path, depth)?,
        };
        let detailed = |Entry { path, stat }| {
            let attributes = self.attributes(&path).unwrap_or_default();
            DetailedEntry { path, stat, target: None, attributes }
        };
        Ok(entries.into_iter().map(detailed).collect())
    }

    /// Returns the total number of changes, and those after the first `seen`; `None` if some of
    /// them are forgotten.
    pub(crate) fn changes_since(&self, seen: usize) -> (usize, Option<&[WatchEvent]>) {
        let all = self.changes_dropped + self.changes.len();
        (all, seen.checked_sub(self.changes_dropped).map(|at| &self.changes[at.min(self.changes.len())..]))
    }

    /// Returns the users in `/etc/passwd`: name, uid, gid, home, shell.
    pub(crate) fn users(&self) -> Vec<(String, u32, u32, String, String)> {
        let Some(Node { content: Content::File(list), .. }) = self.nodes.get("/etc/passwd") else {
            return Vec::new();
        };
        String::from_utf8_lossy(list)
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(':').map(str::to_owned);
                let name = fields.next()?;
                let uid = fields.nth(1)?.parse().ok()?;
                Some((name, uid, fields.next()?.parse().ok()?, fields.nth(1)?, fields.next()?))
            })
            .collect()
    }

    fn node(&self, path: &GuestPath) -> Result<&Node, Failure> {
        self.nodes.get(&normal(path)).ok_or_else(|| Failure::NotFound { path: path.clone() })
    }

    fn below(&self, key: &str) -> impl Iterator<Item = (&String, &Node)> {
        let prefix = if key == "/" { "/".to_owned() } else { format!("{key}/") };
        self.nodes.iter().filter(move |(path, _)| path.len() > prefix.len() && path.starts_with(&prefix))
    }

    fn need_parent(&mut self, path: &GuestPath, key: &str, stamp: Stamp, parents: Parents) -> Result<(), Failure> {
        let Some((above, _)) = key.rsplit_once('/') else { return Ok(()) };
        let above = if above.is_empty() { "/" } else { above };
        match (self.nodes.get(above), parents) {
            (Some(Node { content: Content::Directory, .. }), _) => Ok(()),
            (Some(_), _) => Err(Failure::NotADirectory { path: guest_path(above)? }),
            (None, Parents::Require) => Err(Failure::NotFound { path: path.clone() }),
            (None, Parents::Create) => self.make_directory(&guest_path(above)?, Parents::Create, stamp).map(drop),
        }
    }

    fn used(&self) -> u64 {
        self.nodes.values().filter(|node| !node.base).map(Node::size).sum()
    }

    fn note(&mut self, kind: WatchEventKind, key: &str) {
        if self.changes.len() == CHANGES_KEPT {
            self.changes.clear();
            self.changes_dropped += CHANGES_KEPT;
        }
        if let Ok(path) = guest_path(key) {
            self.watchers.note(kind, &path);
            self.changes.push(WatchEvent { kind, path });
        }
    }

    fn describe(&self, node: &Node) -> FileStat {
        let name = |id: u32| self.users().into_iter().find(|(_, uid, ..)| *uid == id).map(|(name, ..)| name);
        FileStat {
            kind: match node.content {
                Content::Directory => FileKind::Directory,
                Content::File(_) => FileKind::File,
            },
            size: node.size(),
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            owner: name(node.uid),
            group: name(node.gid),
            modified_unix_ms: node.modified_unix_ms,
            link: None,
        }
    }
}

impl Node {
    fn size(&self) -> u64 {
        match &self.content {
            Content::File(bytes) => bytes.len() as u64,
            Content::Directory => 0,
        }
    }
}

fn new_node(content: Content, mode: u32, stamp: Stamp) -> Node {
    let Stamp { uid, gid, unix_ms } = stamp;
    Node { content, mode, uid, gid, modified_unix_ms: unix_ms, base: false, attributes: Vec::new() }
}

fn guest_path(key: &str) -> Result<GuestPath, Failure> {
    GuestPath::try_from(key).map_err(|error| Failure::Invalid { reason: error.to_string() })
}

/// Returns the path without `.`, `..` and doubled slashes. Bytes that are not UTF-8 are escaped, so
/// that different paths stay distinct.
pub(crate) fn normal(path: &GuestPath) -> String {
    let text = match std::str::from_utf8(path.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => path.as_bytes().escape_ascii().to_string(),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
