//! Applies layers to each other, which gives the plain directory that engines use. Files become
//! hard links to those of the layer, directories are created anew, and removals of a layer are
//! applied before its additions.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};

use super::{Layer, OPAQUE, WHITEOUT};
use crate::images::node::{GuestPath, Kind, Node, Refusal};
use crate::images::tree::Tree;

/// An entry that could not be applied, and why.
type Refused = (String, Refusal);

/// Applies `layer` to the content of `tree`.
pub(in crate::images) fn apply(tree: &mut Tree, layer: &Layer) -> Result<(), Refused> {
    apply_directory(tree, &layer.tree, Names::OfLayer)?;
    for (name, target) in &layer.links {
        let shown = String::from_utf8_lossy(name).into_owned();
        link(tree, name, target).map_err(|refusal| (shown, refusal))?;
    }
    Ok(())
}

/// Fills the empty `tree` with the content of the plain directory `root`.
pub(in crate::images) fn link_all(tree: &mut Tree, root: &Path) -> Result<(), Refused> {
    apply_directory(tree, root, Names::Plain)
}

/// The meaning of names in a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Some are whiteouts.
    OfLayer,
    /// All are plain names.
    Plain,
}

fn apply_directory(tree: &mut Tree, root: &Path, names: Names) -> Result<(), Refused> {
    let named = |path: &Path| path.to_string_lossy().into_owned();
    let root = open_root(root).map_err(|refusal| (".".to_owned(), refusal))?;
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        directory(tree, &root, &relative, names, &mut open).map_err(|refusal| (named(&relative), refusal))?;
    }
    Ok(())
}

fn open_root(path: &Path) -> Result<OwnedFd, Refusal> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|error| Refusal::system("cannot be opened", error))
}

/// Applies one directory of the layer; pushes its subdirectories to `open`.
fn directory(
    tree: &mut Tree,
    root: &OwnedFd,
    relative: &Path,
    names_mean: Names,
    open: &mut Vec<PathBuf>,
) -> Result<(), Refusal> {
    let refused = |error: rustix::io::Errno| Refusal::system("cannot be read back", error);
    let (from, names) = list(root, relative).map_err(refused)?;
    let path = GuestPath::parse(relative.as_os_str().as_bytes())?;
    let facts = rustix::fs::fstat(&from).map_err(refused)?;
    if let Some(user) = tree.ids().guest(facts.st_uid) {
        let node = Node {
            path: path.clone(),
            kind: Kind::Directory,
            mode: facts.st_mode,
            user,
            group: tree.ids().guest(facts.st_gid).unwrap_or(0),
            modified: facts.st_mtime,
            capability: None,
        };
        tree.put(&node, &mut io::empty())?;
    } else {
        tree.imply(&path)?;
    }
    let is_removal = |name: &OsString| names_mean == Names::OfLayer && name.as_bytes().starts_with(WHITEOUT);
    if names.iter().any(|name| is_removal(name) && name.as_bytes() == OPAQUE) {
        tree.empty(&path)?;
    }
    for name in names.iter().filter(|name| is_removal(name)) {
        if let Some(removed) = name.as_bytes().strip_prefix(WHITEOUT)
            && name.as_bytes() != OPAQUE
        {
            tree.remove(&path, removed)?;
        }
    }
    for name in names.into_iter().filter(|name| !is_removal(name)) {
        let facts = rustix::fs::statat(&from, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
        let child = relative.join(&name);
        if FileType::from_raw_mode(facts.st_mode) == FileType::Directory {
            open.push(child);
        } else {
            tree.link_from(&GuestPath::parse(child.as_os_str().as_bytes())?, (&from, name.as_bytes()), &facts)?;
        }
    }
    Ok(())
}

fn list(root: &OwnedFd, relative: &Path) -> rustix::io::Result<(OwnedFd, Vec<OsString>)> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let path = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let directory = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok((directory, names))
}

fn link(tree: &mut Tree, name: &[u8], target: &[u8]) -> Result<(), Refusal> {
    let node = Node {
        path: GuestPath::parse(name)?,
        kind: Kind::HardLink(GuestPath::parse(target)?),
        mode: 0,
        user: 0,
        group: 0,
        modified: 0,
        capability: None,
    };
    tree.clear_way(&node.path)?;
    tree.put(&node, &mut io::empty())
}
