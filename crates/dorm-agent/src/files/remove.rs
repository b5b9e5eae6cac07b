//! Removes files and trees.
//!
//! A tree is walked with descriptors, without following links and without recursion: the agent's
//! stack does not grow with the nesting of directories.

use std::ffi::CString;
use std::fs;
use std::io;

use dorm_agent_proto::{Failure, GuestPath, RemoveScope};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::fault;

/// Removes a path; a link, not its target.
pub(crate) fn remove(path: &GuestPath, scope: RemoveScope) -> Result<(), Failure> {
    let failed = |error: &io::Error| fault::on_path("remove", path, error);
    let at = fs::symlink_metadata(path.as_path()).map_err(|error| failed(&error))?;
    if !at.is_dir() {
        return fs::remove_file(path.as_path()).map_err(|error| failed(&error));
    }
    if scope == RemoveScope::Tree {
        empty(path).map_err(|error| failed(&error.into()))?;
    }
    fs::remove_dir(path.as_path()).map_err(|error| failed(&error))
}

struct Level {
    directory: Dir,
    /// Its name in the level above.
    name: CString,
}

fn empty(path: &GuestPath) -> Result<(), Errno> {
    let mut levels = vec![Level { directory: open(CWD, path.as_path())?, name: CString::default() }];
    while let Some(level) = levels.last_mut() {
        match level.directory.read() {
            Some(entry) => {
                let entry = entry?;
                let name = entry.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                if let Some(below) = remove_entry(&level.directory, name, entry.file_type())? {
                    levels.push(below);
                }
            }
            None => {
                let Some(done) = levels.pop() else { break };
                if let Some(above) = levels.last_mut() {
                    match unlinkat(above.directory.fd()?, &done.name, AtFlags::REMOVEDIR) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
    Ok(())
}

/// Removes an entry, or returns the directory that must be emptied first.
fn remove_entry(above: &Dir, name: &std::ffi::CStr, kind: FileType) -> Result<Option<Level>, Errno> {
    let above = above.fd()?;
    if kind != FileType::Directory {
        match unlinkat(above, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    match open(above, name) {
        Ok(directory) => Ok(Some(Level { directory, name: name.to_owned() })),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(above: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> Result<Dir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Dir::new(openat(above, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dorm_agent_proto::{Failure, GuestPath, RemoveScope};

    use super::remove;

    #[test]
    fn a_tree_goes_but_what_its_links_point_to_stays() {
        let directory = std::env::temp_dir().join(format!("dorm-agent-remove-{}", std::process::id()));
        let tree = directory.join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        fs::write(directory.join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(&directory, tree.join("a/link")).unwrap();
        let path = GuestPath::try_from(tree.as_path()).unwrap();
        assert_eq!(remove(&path, RemoveScope::Single), Err(Failure::NotEmpty { path: path.clone() }));
        assert_eq!(remove(&path, RemoveScope::Tree), Ok(()));
        assert!(!tree.exists() && directory.join("kept").exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
