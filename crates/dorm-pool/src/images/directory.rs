//! Reads a directory of the host as the root of an image.
//!
//! Every directory is opened below the source without following links, so that nothing outside is
//! read even if the source changes meanwhile. Other file systems mounted in it are skipped, as are
//! sockets.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use dorm_guest_ids::GuestIds;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

use super::archive::link_target;
use super::import::Sink;
use super::listing;
use super::node::{GuestPath, Kind, Node, Refusal};
use crate::error::PoolError;

pub(super) fn read(sink: &mut Sink<'_, '_>) -> Result<(), PoolError> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let cannot = |sink: &Sink<'_, '_>, error: rustix::io::Errno| sink.refused("cannot be read", Some(error.into()));
    let root = rustix::fs::openat(CWD, sink.job.source, flags, Mode::empty()).map_err(|error| cannot(sink, error))?;
    let facts = rustix::fs::fstat(&root).map_err(|error| cannot(sink, error))?;
    let (device, ids) = (facts.st_dev, sink.tree.ids());
    let mut first_names = HashMap::new();
    let node = node(&[], Kind::Directory, &facts);
    node.map_err(|refusal| sink.entry_refused(".", refusal)).and_then(|node| sink.add(".", node, &mut io::empty()))?;
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let shown = relative.to_string_lossy().into_owned();
        let (directory, names) = list(&root, &relative).map_err(|refusal| sink.entry_refused(&shown, refusal))?;
        for name in names {
            let path = relative.join(&name);
            let shown = path.to_string_lossy().into_owned();
            match entry(&directory, &name, &path, (device, ids), &mut first_names) {
                Err(refusal) => return Err(sink.entry_refused(&shown, refusal)),
                Ok(None) => sink.count(&shown, 0)?,
                Ok(Some((node, file))) => {
                    let (bytes, is_directory) = match node.kind {
                        Kind::File(bytes) => (bytes, false),
                        Kind::Directory => (0, true),
                        _ => (0, false),
                    };
                    match file {
                        Some(mut file) => sink.add(&shown, node, &mut file)?,
                        None => sink.add(&shown, node, &mut io::empty())?,
                    }
                    sink.job.read.fetch_add(bytes, Ordering::Relaxed);
                    if is_directory {
                        open.push(path);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Opens the directory and returns its sorted names.
fn list(root: &OwnedFd, relative: &Path) -> Result<(OwnedFd, Vec<OsString>), Refusal> {
    let refused = |error: rustix::io::Errno| Refusal::system("cannot be listed", error);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let path = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let directory = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).map_err(refused)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory).map_err(refused)? {
        let name = entry.map_err(refused)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort_unstable();
    Ok((directory, names))
}

/// Returns one entry, with its content if it is a file; `None` for an entry that is skipped.
fn entry(
    directory: &OwnedFd,
    name: &OsString,
    path: &Path,
    (device, ids): (u64, GuestIds),
    first_names: &mut HashMap<u64, PathBuf>,
) -> Result<Option<(Node, Option<File>)>, Refusal> {
    let refused = |error: rustix::io::Errno| Refusal::system("cannot be read", error);
    let bytes = path.as_os_str().as_bytes();
    let facts = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
    if facts.st_dev != device {
        return Ok(None);
    }
    let kind = match FileType::from_raw_mode(facts.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(directory, name, Vec::new()).map_err(refused)?;
            Kind::Symlink(link_target(target.into_bytes())?)
        }
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => return Ok(None),
        FileType::RegularFile => {
            if facts.st_nlink > 1 {
                if let Some(first) = first_names.get(&facts.st_ino) {
                    let kind = Kind::HardLink(GuestPath::parse(first.as_os_str().as_bytes())?);
                    return Ok(Some((node(bytes, kind, &facts)?, None)));
                }
                first_names.insert(facts.st_ino, path.to_owned());
            }
            return file((directory, name), bytes, ids).map(Some);
        }
        _ if path.starts_with("dev") => return Ok(None),
        _ => return Err(Refusal::because("is a device outside of /dev: remove it")),
    };
    Ok(Some((node(bytes, kind, &facts)?, None)))
}

fn file((directory, name): (&OwnedFd, &OsString), path: &[u8], ids: GuestIds) -> Result<(Node, Option<File>), Refusal> {
    let refused = |error: rustix::io::Errno| Refusal::system("cannot be read", error);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(refused)?);
    let facts = rustix::fs::fstat(&file).map_err(refused)?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Err(Refusal::because("changed while it was read"));
    }
    let mut node = node(path, Kind::File(u64::try_from(facts.st_size).unwrap_or(0)), &facts)?;
    node.capability = Some(listing::capability(&file, ids)).filter(|value| !value.is_empty());
    Ok((node, Some(file)))
}

fn node(path: &[u8], kind: Kind, facts: &Stat) -> Result<Node, Refusal> {
    Ok(Node {
        path: GuestPath::parse(path)?,
        kind,
        mode: facts.st_mode,
        user: facts.st_uid,
        group: facts.st_gid,
        modified: facts.st_mtime,
        capability: None,
    })
}
