//! Host directories that are mounted in a guest: an access at or below a mount point goes to the
//! host's files, and the guest holds no copy of them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use dorm_agent_proto::{Entry, Failure, FileKind, FileStat, GuestPath, GuestString, Parents, RemoveScope};
use dorm_engine::Mount;
use dorm_lifecycle::Access;

use super::{Files, guest_path, normal};

/// A mounted volume.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    key: String,
    host: PathBuf,
    access: Access,
}

impl Volume {
    /// Returns the volume of `mount`, mounted at `path`.
    pub(crate) fn new(path: &GuestPath, mount: &Mount) -> Self {
        Self { key: normal(path), host: mount.top.join(mount.part.as_str()), access: mount.access }
    }

    fn has(&self, key: &str) -> bool {
        key == self.key || self.is_above(key)
    }

    fn is_above(&self, key: &str) -> bool {
        key.strip_prefix(&self.key).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// A path on a volume.
pub(super) struct Outside<'a> {
    asked: &'a GuestPath,
    host: PathBuf,
    access: Access,
    is_top: bool,
}

impl Files {
    /// Mounts these volumes, and no others.
    pub(crate) fn set_volumes(&mut self, volumes: Vec<Volume>) {
        self.volumes = volumes;
    }

    /// Returns the place of `path` on a volume; `None` if it is not on one.
    pub(super) fn outside<'a>(&self, path: &'a GuestPath) -> Option<Outside<'a>> {
        let key = normal(path);
        let volume = self.volumes.iter().find(|volume| volume.has(&key))?;
        let host = volume.host.join(key[volume.key.len()..].trim_start_matches('/'));
        Some(Outside { asked: path, host, access: volume.access, is_top: key == volume.key })
    }

    /// Returns whether a volume hides the file at `key`.
    pub(super) fn is_hidden(&self, key: &str) -> bool {
        self.volumes.iter().any(|volume| volume.is_above(key))
    }

    /// Returns the entries on volumes mounted below `key`, down to `depth` levels.
    pub(super) fn entries_on_volumes(&self, key: &str, depth: u32) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        for volume in &self.volumes {
            let Some(rest) = volume.key.strip_prefix(key.trim_end_matches('/')).filter(|rest| rest.starts_with('/'))
            else {
                continue;
            };
            let above = u32::try_from(rest.matches('/').count()).unwrap_or(u32::MAX);
            let asked = guest_path(&volume.key)?;
            if depth > above
                && let Some(top) = self.outside(&asked)
            {
                entries.extend(top.list(depth - above)?);
            }
        }
        Ok(entries)
    }

    /// Refuses to remove or rename a mount point, or a directory that contains one.
    pub(super) fn need_free(&self, path: &GuestPath) -> Result<(), Failure> {
        let key = normal(path);
        let is_on = |volume: &Volume| volume.key == key || volume.key.starts_with(&format!("{key}/"));
        match self.volumes.iter().any(is_on) {
            true => Err(Failure::MountBusy { path: path.clone() }),
            false => Ok(()),
        }
    }
}

impl Outside<'_> {
    pub(super) fn read(&self) -> Result<Vec<u8>, Failure> {
        fs::read(&self.host).map_err(|error| self.wrong("read", &error))
    }

    pub(super) fn stat(&self) -> Result<FileStat, Failure> {
        let facts = fs::symlink_metadata(&self.host).map_err(|error| self.wrong("look at", &error))?;
        Ok(described(&facts))
    }

    pub(super) fn write(&self, bytes: &[u8], parents: Parents) -> Result<FileStat, Failure> {
        self.need_write()?;
        self.make_parents(parents)?;
        fs::write(&self.host, bytes).map_err(|error| self.wrong("write", &error))?;
        self.stat()
    }

    pub(super) fn make_directory(&self, parents: Parents) -> Result<FileStat, Failure> {
        let exists = self.host.is_dir();
        if !(exists && parents == Parents::Create) {
            self.need_write()?;
            self.make_parents(parents)?;
            fs::create_dir(&self.host).map_err(|error| self.wrong("make the directory", &error))?;
        }
        self.stat()
    }

    pub(super) fn remove(&self, scope: RemoveScope) -> Result<(), Failure> {
        self.need_write()?;
        let is_directory = self.stat()?.kind == FileKind::Directory;
        let removed = match (is_directory, scope) {
            (false, _) => fs::remove_file(&self.host),
            (true, RemoveScope::Single) => fs::remove_dir(&self.host),
            (true, RemoveScope::Tree) => fs::remove_dir_all(&self.host),
        };
        removed.map_err(|error| self.wrong("remove", &error))
    }

    pub(super) fn rename(&self, to: &Outside<'_>) -> Result<FileStat, Failure> {
        self.need_write()?;
        to.need_write()?;
        fs::rename(&self.host, &to.host).map_err(|error| self.wrong("rename", &error))?;
        to.stat()
    }

    pub(super) fn list(&self, depth: u32) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        self.walk(&self.host, &normal(self.asked), depth, &mut entries)?;
        Ok(entries)
    }

    fn walk(&self, host: &Path, key: &str, depth: u32, entries: &mut Vec<Entry>) -> Result<(), Failure> {
        let wrong = |error: io::Error| self.wrong("list", &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(host).map_err(wrong)? {
            names.push(entry.map_err(wrong)?.file_name());
        }
        names.sort();
        for name in names {
            let (host, key) = (host.join(&name), format!("{key}/{}", name.to_string_lossy()));
            // A file that was removed in the meantime is not listed.
            let Ok(facts) = fs::symlink_metadata(&host) else { continue };
            entries.push(Entry { path: guest_path(&key)?, stat: described(&facts) });
            if depth > 1 && facts.is_dir() {
                self.walk(&host, &key, depth - 1, entries)?;
            }
        }
        Ok(())
    }

    fn need_write(&self) -> Result<(), Failure> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Failure::Denied { path: self.asked.clone() }),
        }
    }

    fn make_parents(&self, parents: Parents) -> Result<(), Failure> {
        match (parents, self.host.parent()) {
            (Parents::Create, Some(above)) if !self.is_top => {
                fs::create_dir_all(above).map_err(|error| self.wrong("make the directories above", &error))
            }
            _ => Ok(()),
        }
    }

    fn wrong(&self, operation: &str, error: &io::Error) -> Failure {
        let path = self.asked.clone();
        match error.kind() {
            io::ErrorKind::NotFound => Failure::NotFound { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Failure::Denied { path },
            io::ErrorKind::AlreadyExists => Failure::Exists { path },
            io::ErrorKind::NotADirectory => Failure::NotADirectory { path },
            io::ErrorKind::IsADirectory => Failure::IsADirectory { path },
            io::ErrorKind::DirectoryNotEmpty => Failure::NotEmpty { path },
            io::ErrorKind::StorageFull => Failure::NoSpace { path },
            _ => other(operation, &path, error.to_string()),
        }
    }
}

/// Returns a failure for which the protocol has no kind of its own.
pub(super) fn other(operation: &str, path: &GuestPath, reason: String) -> Failure {
    match GuestString::new(path.as_bytes()) {
        Ok(operand) => Failure::Other { operation: operation.to_owned(), operand, reason },
        Err(_) => Failure::Invalid { reason },
    }
}

/// A guest cannot see the owners of the host's files: root owns all of them.
fn described(facts: &fs::Metadata) -> FileStat {
    let kind = match (facts.is_dir(), facts.is_file()) {
        (true, _) => FileKind::Directory,
        (_, true) => FileKind::File,
        _ if facts.is_symlink() => FileKind::Link,
        _ => FileKind::Other,
    };
    FileStat {
        kind,
        size: if facts.is_dir() { 0 } else { facts.len() },
        mode: facts.mode() & 0o7777,
        uid: 0,
        gid: 0,
        owner: Some("root".to_owned()),
        group: Some("root".to_owned()),
        modified_unix_ms: facts.mtime() * 1000 + facts.mtime_nsec() / 1_000_000,
        link: None,
    }
}
