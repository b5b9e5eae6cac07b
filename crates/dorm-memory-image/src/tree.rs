//! The file systems in gVisor's saved state: which ones are needed, and their entries.
//!
//! The root file system is an overlay whose upper layer is a tmpfs with a memory file of its own.
//! Only gVisor creates such a tmpfs, and only one, so it is identified by that instead of following
//! mounts, which the guest may rearrange.

use std::collections::BTreeMap;

use dorm_engine::EntryKind;

use crate::error::MemoryImageError;
use crate::graph::{Field, Graph, Place};
use crate::pages::{MemoryFile, MemoryFiles};
use crate::wire::{Items, Ref, Value};

/// The entry of the root directory at which the program of the agent is mounted.
pub const AGENT_MOUNT: &str = "dorm-agent";
/// The mount options of `/tmp`. A memory image repeats them, which distinguishes this mount from
/// others.
pub const TMP_OPTIONS: [&str; 2] = ["size=512m", "mode=1777"];

const OVERLAY: &str = "pkg/sentry/fsimpl/overlay.filesystem";
const OVERLAY_OPTIONS: &str = "pkg/sentry/fsimpl/overlay.FilesystemOptions";
const OVERLAY_DENTRY: &str = "pkg/sentry/fsimpl/overlay.dentry";
const TMPFS: &str = "pkg/sentry/fsimpl/tmpfs.filesystem";
const DENTRY: &str = "pkg/sentry/fsimpl/tmpfs.dentry";
const INODE: &str = "pkg/sentry/fsimpl/tmpfs.inode";
const DIRECTORY: &str = "pkg/sentry/fsimpl/tmpfs.directory";
const REGULAR: &str = "pkg/sentry/fsimpl/tmpfs.regularFile";
const SYMLINK: &str = "pkg/sentry/fsimpl/tmpfs.symlink";
const PIPE: &str = "pkg/sentry/fsimpl/tmpfs.namedPipe";
const SOCKET: &str = "pkg/sentry/fsimpl/tmpfs.socketFile";
const DEVICE: &str = "pkg/sentry/fsimpl/tmpfs.deviceFile";
const RANGES: &str = "pkg/sentry/fsutil.FileRangeSet";
const ATTRIBUTES: &str = "pkg/sentry/vfs/memxattr.SimpleExtendedAttributes";
const MOUNT: &str = "pkg/sentry/vfs.Mount";
const VIRTUAL_DENTRY: &str = "pkg/sentry/vfs.VirtualDentry";

/// The suffix of the name of the memory file of a container's root file system; the container's
/// name precedes it.
const ROOT_MEMORY: &[u8] = b":/";
/// The prefix of the overlay's own attributes, which mean nothing outside of it.
const OVERLAY_ATTRIBUTES: &[u8] = b"trusted.overlay.";
const OPAQUE: &[u8] = b"trusted.overlay.opaque";
pub(crate) const TARGET_MAX: usize = 4096;
const ATTRIBUTE_NAME_MAX: usize = 255;
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

const TYPE_BITS: u32 = 0o170_000;

/// One tmpfs.
pub(crate) struct Tree<'a, 's> {
    filesystem: usize,
    pub(crate) root: Place<'a>,
    pub(crate) memory: &'s MemoryFile,
    /// Whether it is the upper layer of an overlay.
    pub(crate) is_layer: bool,
}

/// The kind of an inode.
pub(crate) enum Kind<'a> {
    Directory { children: Field<'a>, replaces: bool },
    File { segments: Field<'a>, bytes: u64 },
    Symlink(&'a [u8]),
    Fifo,
    Whiteout,
    Socket,
    Device,
}

/// The properties of an inode.
pub(crate) struct Facts<'a> {
    /// The object of the inode, which hard links share.
    pub(crate) object: usize,
    pub(crate) kind: Kind<'a>,
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) modified: (i64, u32),
    attributes: Field<'a>,
}

/// Returns the upper layer of the root file system, and the tmpfs that the bundle mounts at `/tmp`,
/// if any.
pub(crate) fn find<'a, 's>(
    graph: &Graph<'a>,
    memory: &'s MemoryFiles,
) -> Result<(Tree<'a, 's>, Option<Tree<'a, 's>>), MemoryImageError> {
    let mut found = None;
    for overlay in graph.all(OVERLAY) {
        let overlay = overlay?;
        let Some(upper) = upper_layer(graph, memory, overlay)? else { continue };
        if found.replace((overlay.object, upper)).is_some() {
            return Err(MemoryImageError::different("there is more than one root file system"));
        }
    }
    let Some((overlay, upper)) = found else {
        return Err(MemoryImageError::different(format!("no {OVERLAY} has a memory file of its own")));
    };
    let tmp = find_tmp(graph, memory, overlay)?;
    Ok((upper, tmp))
}

/// Returns the upper layer of `overlay`, if that is the root file system.
fn upper_layer<'a, 's>(
    graph: &Graph<'a>,
    memory: &'s MemoryFiles,
    overlay: Place<'a>,
) -> Result<Option<Tree<'a, 's>>, MemoryImageError> {
    let [options] = graph.fields(overlay.value, OVERLAY, ["opts"])?;
    let [upper] = graph.fields(graph.value(options)?, OVERLAY_OPTIONS, ["UpperRoot"])?;
    let [mount] = graph.fields(graph.value(upper)?, VIRTUAL_DENTRY, ["mount"])?;
    let Some(mount) = graph.target(mount)? else { return Ok(None) };
    let [filesystem] = graph.fields(mount.value, MOUNT, ["fs"])?;
    let object = graph.must(filesystem)?.object;
    if graph.kind_of(object) != Some(TMPFS.as_bytes()) {
        return Ok(None);
    }
    let Some((name, tree)) = tmpfs(graph, memory, object, true)? else { return Ok(None) };
    Ok(name.ends_with(ROOT_MEMORY).then_some(tree))
}

/// Returns the tmpfs that is object `object`, and the name of its memory file.
fn tmpfs<'a, 's>(
    graph: &Graph<'a>,
    memory: &'s MemoryFiles,
    object: usize,
    is_layer: bool,
) -> Result<Option<(&'a [u8], Tree<'a, 's>)>, MemoryImageError> {
    let Some(filesystem) = graph.place(object)? else { return Ok(None) };
    let [root, file] = graph.fields(filesystem.value, TMPFS, ["root", "mf"])?;
    let name = graph.text(file)?;
    let Some(memory) = memory.find(name) else {
        return Err(MemoryImageError::unsound(format!("the memory file '{}' is missing", name.escape_ascii())));
    };
    Ok(Some((name, Tree { filesystem: object, root: graph.must(root)?, memory, is_layer })))
}

/// Returns the tmpfs that the bundle mounts at `/tmp` of `overlay`, unless the agent has unmounted
/// it. File systems that the guest has mounted there do not count: the program of the agent is
/// mounted after the first and before any of the guest.
fn find_tmp<'a, 's>(
    graph: &Graph<'a>,
    memory: &'s MemoryFiles,
    overlay: usize,
) -> Result<Option<Tree<'a, 's>>, MemoryImageError> {
    let mut first: Option<(u64, usize)> = None;
    let mut agent: Option<u64> = None;
    for mount in graph.all(MOUNT) {
        let [filesystem, id, key, unmounted] = graph.fields(mount?.value, MOUNT, ["fs", "ID", "key", "umounted"])?;
        if graph.truth(unmounted)? {
            continue;
        }
        let name = entry_of(graph, graph.value(key)?, overlay)?;
        if name == Some(AGENT_MOUNT.as_bytes()) {
            let id = graph.unsigned(id)?;
            agent = Some(agent.map_or(id, |earlier| earlier.min(id)));
        }
        if name != Some(b"tmp") {
            continue;
        }
        let object = graph.must(filesystem)?.object;
        if graph.kind_of(object) != Some(TMPFS.as_bytes()) {
            continue;
        }
        let Some(place) = graph.place(object)? else { continue };
        let [options, file] = graph.fields(place.value, TMPFS, ["mopts", "mf"])?;
        if graph.text(options)? != TMP_OPTIONS.join(",").as_bytes() || !graph.text(file)?.is_empty() {
            continue;
        }
        let id = graph.unsigned(id)?;
        if first.is_none_or(|(earlier, _)| id < earlier) {
            first = Some((id, object));
        }
    }
    let is_of_bundle = |id: u64| agent.is_none_or(|agent| id < agent);
    let Some((_, object)) = first.filter(|(id, _)| is_of_bundle(*id)) else { return Ok(None) };
    Ok(tmpfs(graph, memory, object, false)?.map(|(_, tree)| tree))
}

/// Returns the name of the entry in the root directory of `overlay` that `key`, the location of a
/// mount, is.
fn entry_of<'a>(graph: &Graph<'a>, key: Value<'a>, overlay: usize) -> Result<Option<&'a [u8]>, MemoryImageError> {
    let [dentry] = graph.fields(key, VIRTUAL_DENTRY, ["dentry"])?;
    let Some(dentry) = graph.target(dentry)? else { return Ok(None) };
    if graph.kind_of(dentry.object) != Some(OVERLAY_DENTRY.as_bytes()) {
        return Ok(None);
    }
    let Some(dentry) = graph.place(dentry.object)? else { return Ok(None) };
    let [filesystem, parent, name] = graph.fields(dentry.value, OVERLAY_DENTRY, ["fs", "parent", "name"])?;
    if graph.must(filesystem)?.object != overlay {
        return Ok(None);
    }
    let Some(parent) = graph.target(parent)? else { return Ok(None) };
    let [above] = graph.fields(parent.value, OVERLAY_DENTRY, ["parent"])?;
    match graph.target(above)? {
        None => graph.text(name).map(Some),
        Some(_) => Ok(None),
    }
}

/// Returns the dentry that `reference` refers to, if its name is `name`.
pub(crate) fn child<'a>(graph: &Graph<'a>, reference: &Ref<'a>, name: &[u8]) -> Result<Place<'a>, MemoryImageError> {
    let Some(dentry) = graph.follow(reference)? else {
        return Err(MemoryImageError::unsound(format!("the entry '{}' has no target", name.escape_ascii())));
    };
    let [own] = graph.fields(dentry.value, DENTRY, ["name"])?;
    if graph.text(own)? != name {
        return Err(MemoryImageError::unsound(format!(
            "the name of the entry '{}' does not match",
            name.escape_ascii()
        )));
    }
    Ok(dentry)
}

impl<'a> Tree<'a, '_> {
    /// Returns the properties of the inode of `dentry`.
    pub(crate) fn facts(&self, graph: &Graph<'a>, dentry: Place<'a>) -> Result<Facts<'a>, MemoryImageError> {
        let [inode] = graph.fields(dentry.value, DENTRY, ["inode"])?;
        let inode = graph.must(inode)?;
        let [filesystem, attributes, mode, user, group, modified] =
            graph.fields(inode.value, INODE, ["fs", "xattrs", "mode", "uid", "gid", "mtime"])?;
        if graph.must(filesystem)?.object != self.filesystem {
            return Err(MemoryImageError::unsound("an entry belongs to another file system"));
        }
        let mode = graph.unsigned_32(mode)?;
        let nanoseconds = graph.signed(modified)?;
        let [attributes] = graph.fields(graph.value(attributes)?, ATTRIBUTES, ["xattrs"])?;
        Ok(Facts {
            object: inode.object,
            kind: self.kind(graph, inode.object, mode, attributes)?,
            mode: mode & 0o7777,
            user: graph.unsigned_32(user)?,
            group: graph.unsigned_32(group)?,
            modified: (
                nanoseconds.div_euclid(1_000_000_000),
                u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).unwrap_or_default(),
            ),
            attributes,
        })
    }

    fn kind(
        &self,
        graph: &Graph<'a>,
        object: usize,
        mode: u32,
        attributes: Field<'a>,
    ) -> Result<Kind<'a>, MemoryImageError> {
        let Some(place) = graph.place(object)? else { return Err(MemoryImageError::unsound("an inode is missing")) };
        let name = graph.kind_of(object).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
        let (kind, bits) = match name {
            DIRECTORY => {
                let [children] = graph.fields(place.value, DIRECTORY, ["childMap"])?;
                let replaces = self.is_layer && is_opaque(graph, attributes)?;
                (Kind::Directory { children, replaces }, 0o040_000)
            }
            REGULAR => {
                let [data, size] = graph.fields(place.value, REGULAR, ["data", "size"])?;
                let [segments] = graph.fields(graph.value(data)?, RANGES, ["root"])?;
                let bytes = graph.unsigned(size)?;
                if i64::try_from(bytes).is_err() {
                    return Err(MemoryImageError::unsound("a file is larger than the maximum file size"));
                }
                (Kind::File { segments, bytes }, 0o100_000)
            }
            SYMLINK => {
                let [target] = graph.fields(place.value, SYMLINK, ["target"])?;
                let target = graph.text(target)?;
                if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
                    return Err(MemoryImageError::unsound("the target of a symbolic link is not a valid path"));
                }
                (Kind::Symlink(target), 0o120_000)
            }
            PIPE => (Kind::Fifo, 0o010_000),
            SOCKET => (Kind::Socket, 0o140_000),
            DEVICE => {
                let [major, minor] = graph.fields(place.value, DEVICE, ["major", "minor"])?;
                let (major, minor) = (graph.unsigned(major)?, graph.unsigned(minor)?);
                let is_character = mode & TYPE_BITS == 0o020_000;
                let is_whiteout = self.is_layer && is_character && major == 0 && minor == 0;
                (if is_whiteout { Kind::Whiteout } else { Kind::Device }, mode & TYPE_BITS & 0o060_000)
            }
            "" => return Err(MemoryImageError::unsound("an inode has an invalid file type")),
            other => return Err(MemoryImageError::different(format!("unknown file type {other}"))),
        };
        if mode & TYPE_BITS != bits {
            return Err(MemoryImageError::unsound(format!("the mode of a {name} has another file type")));
        }
        Ok(kind)
    }
}

fn is_opaque<'a>(graph: &Graph<'a>, attributes: Field<'a>) -> Result<bool, MemoryImageError> {
    let Some((_, mut pairs)) = graph.pairs(attributes)? else { return Ok(false) };
    while let Some((name, value)) = graph.pair(&mut pairs)? {
        if name == OPAQUE {
            return Ok(matches!(value, Value::Text(b"y")));
        }
    }
    Ok(false)
}

/// Inserts an extended attribute, unless it is one of the overlay's own.
pub(crate) fn insert_attribute(
    into: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    name: &[u8],
    value: &[u8],
) -> Result<(), MemoryImageError> {
    let is_name = !name.is_empty() && name.len() <= ATTRIBUTE_NAME_MAX && !name.contains(&0);
    if !is_name || value.len() > ATTRIBUTE_BYTES_MAX {
        return Err(MemoryImageError::unsound("an extended attribute is invalid"));
    }
    if !name.starts_with(OVERLAY_ATTRIBUTES) {
        into.insert(name.to_owned(), value.to_owned());
    }
    Ok(())
}

impl<'a> Facts<'a> {
    /// Copies the extended attributes, except the overlay's own, into `into`. Returns the object
    /// that contains them.
    pub(crate) fn attributes(
        &self,
        graph: &Graph<'a>,
        into: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<Option<usize>, MemoryImageError> {
        let Some((object, mut pairs)) = graph.pairs(self.attributes)? else { return Ok(None) };
        while let Some((name, value)) = graph.pair(&mut pairs)? {
            let Value::Text(value) = value else {
                return Err(MemoryImageError::different(format!("a value in {ATTRIBUTES} is not a string")));
            };
            insert_attribute(into, name, value)?;
        }
        Ok(Some(object))
    }

    /// Returns the kind of the entry for the sink.
    pub(crate) fn entry_kind(&self) -> Option<EntryKind> {
        Some(match self.kind {
            Kind::Directory { replaces, .. } => EntryKind::Directory { replaces },
            Kind::File { bytes, .. } => EntryKind::File { bytes },
            Kind::Symlink(target) => EntryKind::Symlink(target.to_owned()),
            Kind::Fifo => EntryKind::Fifo,
            Kind::Whiteout => EntryKind::Removed,
            Kind::Socket | Kind::Device => return None,
        })
    }

    /// Returns the segments of a file's content.
    pub(crate) fn segments(&self, graph: &Graph<'a>) -> Result<Option<(usize, Items<'a>)>, MemoryImageError> {
        match self.kind {
            Kind::File { segments, .. } => graph.items(segments),
            _ => Ok(None),
        }
    }
}
