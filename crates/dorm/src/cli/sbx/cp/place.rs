//! A directory of this host into which a sandbox's files are written.
//!
//! A sandbox's file names and links are untrusted: none of them may lead out of this directory.
//! Every lookup below it refuses symbolic links, including those that existed before.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// A directory to write into.
pub(in crate::cli) struct Place {
    root: OwnedFd,
}

/// A file being written: it appears when it is [kept](Draft::keep), and leaves nothing behind when
/// it is dropped before that.
pub(in crate::cli) struct Draft {
    directory: OwnedFd,
    name: String,
    draft: String,
    kept: bool,
}

impl Place {
    /// Opens an existing directory. Its own path may contain symbolic links.
    pub(in crate::cli) fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root })
    }

    /// Creates a directory in it, unless it exists.
    pub(in crate::cli) fn make_directory(&self, path: &Path) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        match rustix::fs::mkdirat(&directory, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => self.enter(path).map(drop),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file with these permissions.
    pub(in crate::cli) fn begin(&self, path: &Path, mode: u32) -> io::Result<(Draft, File)> {
        let (directory, name) = self.parent(path)?;
        let draft = format!(".dorm-{:016x}", random()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &draft, flags, Mode::from_raw_mode(mode & 0o777))?;
        Ok((Draft { directory, name, draft, kept: false }, File::from(file)))
    }

    /// Creates a symbolic link, replacing an existing link. The target may be any path, since the
    /// link is not followed here.
    pub(in crate::cli) fn link(&self, path: &Path, target: &[u8]) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        match rustix::fs::symlinkat(target, &directory, &name) {
            Err(Errno::EXIST) => {
                let there = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(there.st_mode) != FileType::Symlink {
                    return Err(Errno::EXIST.into());
                }
                rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?;
                Ok(rustix::fs::symlinkat(target, &directory, &name)?)
            }
            other => Ok(other?),
        }
    }

    fn parent(&self, path: &Path) -> io::Result<(OwnedFd, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(Errno::INVAL)?;
        let parent = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Ok((self.enter(&parent)?, name.to_owned()))
    }

    fn enter(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)?)
    }
}

impl Draft {
    /// Gives the file its final name, replacing an existing file.
    pub(in crate::cli) fn keep(mut self) -> io::Result<()> {
        rustix::fs::renameat(&self.directory, &self.draft, &self.directory, &self.name)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            // A draft that cannot be removed is a hidden file, and nothing more can be done about
            // it.
            let _ = rustix::fs::unlinkat(&self.directory, &self.draft, AtFlags::empty());
        }
    }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn no_name_and_no_link_leads_out() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink(outer.path(), root.join("out")).unwrap();
        let place = Place::open(&root).unwrap();
        for path in ["out/file", "../file", "/etc/dormouse-test", "out/deep/file"] {
            assert!(place.begin(Path::new(path), 0o644).is_err(), "{path}");
            assert!(place.link(Path::new(path), b"x").is_err(), "{path}");
            assert!(place.make_directory(Path::new(path)).is_err(), "{path}");
        }
        assert!(place.make_directory(Path::new("out")).is_err(), "a link is no directory");
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_draft_that_is_not_kept_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::open(root.path()).unwrap();
        place.make_directory(Path::new("a")).unwrap();
        place.make_directory(Path::new("a")).unwrap();
        let (draft, mut file) = place.begin(Path::new("a/b"), 0o600).unwrap();
        file.write_all(b"half").unwrap();
        drop(draft);
        assert_eq!(std::fs::read_dir(root.path().join("a")).unwrap().count(), 0);
        let (draft, mut file) = place.begin(Path::new("a/b"), 0o600).unwrap();
        file.write_all(b"whole").unwrap();
        draft.keep().unwrap();
        assert_eq!(std::fs::read(root.path().join("a/b")).unwrap(), b"whole");
    }

    #[test]
    fn a_link_replaces_a_link_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::open(root.path()).unwrap();
        place.link(Path::new("l"), b"one").unwrap();
        place.link(Path::new("l"), b"two").unwrap();
        assert_eq!(std::fs::read_link(root.path().join("l")).unwrap(), Path::new("two"));
        std::fs::write(root.path().join("f"), b"x").unwrap();
        assert!(place.link(Path::new("f"), b"one").is_err());
    }
}
