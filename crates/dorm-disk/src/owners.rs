//! Changes the owners of guests' files to another range of host IDs, once, after the range of a
//! data directory has changed.
//!
//! The kernel removes set-ID bits and capabilities from a file whose owner changes. They are first
//! recorded in a journal beside the tree, and restored from it: if the process dies in between, the
//! next one can complete the change. The tree must not be used meanwhile.
//!
//! ```text
//! journal written ─► owners changed ─► modes and capabilities restored ─► synced ─► (the caller's record) ─► journal removed
//! ```

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use dorm_guest_ids::{GuestIds, RECORD, capability};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::DiskError;

/// The first word of a journal, which precedes the ranges that files may have, and its last line.
const HEAD: &str = "owners";
const END: &str = "end";
const SET_ID: u32 = 0o6000;

/// A change in progress.
struct Journal {
    /// The ranges that files may have: the previous one, and those to which changes were begun.
    ranges: Vec<GuestIds>,
    special: Vec<Special>,
}

/// A file that loses set-ID bits or capabilities with its owner.
struct Special {
    path: PathBuf,
    mode: u32,
    capability: Vec<u8>,
}

/// Changes the owner of `root` and everything below it from the IDs of `from` to the same IDs of
/// `to`, durably. Files of other owners are not changed. `journal` is a file beside the tree, on
/// the same disk; it exists until [`finish_change`]. May be repeated after a failure. Returns how
/// many entries were changed.
///
/// # Errors
/// When the host refuses.
pub fn change_owners(root: &Path, journal: &Path, from: GuestIds, to: GuestIds) -> Result<u64, DiskError> {
    // Opened before the first change: the kernel reports a failed write to each descriptor that was
    // open then.
    let top = File::open(root).map_err(|error| DiskError::file("open", root, error))?;
    let begun = match read(journal)? {
        Some(mut begun) if !begun.ranges.contains(&to) => {
            begun.ranges.push(to);
            write(journal, &begun)?;
            begun
        }
        Some(begun) => begun,
        None => {
            let begun = Journal { ranges: vec![from, to], special: find_special(root)? };
            write(journal, &begun)?;
            begun
        }
    };
    let Journal { ranges, special } = begun;
    let mut changed = 0;
    walk(root, &mut |path, facts| {
        let of = |id: u32| {
            let inside = ranges.iter().filter(|range| **range != to).find_map(|range| range.guest(id));
            inside.and_then(|id| to.host(id))
        };
        let (user, group) = (of(facts.uid()), of(facts.gid()));
        if user.is_some() || group.is_some() {
            changed += 1;
            std::os::unix::fs::lchown(path, user, group)
                .map_err(|error| DiskError::file("change the owner of", path, error))?;
        }
        Ok(())
    })?;
    for Special { path, mode, capability } in &special {
        // The files in the journal were found with the previous range.
        let from = ranges.first().copied().unwrap_or(from);
        give_back(&root.join(path), *mode, capability, from, to)?;
    }
    rustix::fs::syncfs(&top).map_err(|error| DiskError::file("sync the file system of", root, error.into()))?;
    Ok(changed)
}

/// Finishes a change of [`change_owners`], after the new range of the tree has been recorded.
///
/// # Errors
/// When the host refuses.
pub fn finish_change(journal: &Path) -> Result<(), DiskError> {
    match fs::remove_file(journal) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DiskError::file("remove", journal, error)),
        _ => Ok(()),
    }
}

/// Returns the range with which the content of `directory` was created, according to its
/// [`RECORD`].
///
/// # Errors
/// When the record cannot be read, which leaves the range unknown.
pub fn recorded(directory: &Path) -> Result<GuestIds, DiskError> {
    let path = directory.join(RECORD);
    match fs::read_to_string(&path) {
        Ok(text) => GuestIds::from_record(&text).ok_or_else(|| {
            DiskError::file("read", &path, io::Error::other("expected the first ID of a range and a line feed"))
        }),
        // Created before the range could be chosen.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(GuestIds::LEGACY),
        Err(error) => Err(DiskError::file("read", &path, error)),
    }
}

/// Records durably that the content of `directory` belongs to `ids`.
///
/// # Errors
/// When the host refuses; the record is then unchanged.
pub fn record(directory: &Path, ids: GuestIds) -> Result<(), DiskError> {
    write_durably(&directory.join(RECORD), &ids.to_record())
}

fn walk(root: &Path, each: &mut dyn FnMut(&Path, &Metadata) -> Result<(), DiskError>) -> Result<(), DiskError> {
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let facts = path.symlink_metadata().map_err(|error| DiskError::file("read the metadata of", &path, error))?;
        if facts.is_dir() {
            let list = |error| DiskError::file("list", &path, error);
            for entry in fs::read_dir(&path).map_err(list)? {
                open.push(entry.map_err(list)?.path());
            }
        }
        each(&path, &facts)?;
    }
    Ok(())
}

fn find_special(root: &Path) -> Result<Vec<Special>, DiskError> {
    let mut special = Vec::new();
    walk(root, &mut |path, facts| {
        if !facts.is_file() {
            return Ok(());
        }
        let capability =
            capability_of(path).map_err(|error| DiskError::file("read the capabilities of", path, error))?;
        if facts.mode() & SET_ID != 0 || !capability.is_empty() {
            let path = path.strip_prefix(root).unwrap_or(path).to_owned();
            special.push(Special { path, mode: facts.mode() & 0o7777, capability });
        }
        Ok(())
    })?;
    Ok(special)
}

fn capability_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut value = [0; 64];
    match rustix::fs::lgetxattr(path, capability::NAME, &mut value[..]) {
        Ok(length) => Ok(value.get(..length).unwrap_or_default().to_vec()),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn give_back(path: &Path, mode: u32, value: &[u8], from: GuestIds, to: GuestIds) -> Result<(), DiskError> {
    let wrong = |error: io::Error| DiskError::file("restore the mode and capabilities of", path, error);
    match path.symlink_metadata() {
        Ok(facts) if facts.is_file() => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(wrong(error)),
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(wrong)?;
    // Capabilities that cannot be bound to the range would be effective on the host, so they are
    // not restored.
    let bound = capability::bound(&capability::unbound(value.to_vec(), from), to);
    match bound.map(|value| rustix::fs::lsetxattr(path, capability::NAME, &value, XattrFlags::empty())) {
        None | Some(Ok(()) | Err(Errno::NOTSUP | Errno::PERM)) => Ok(()),
        Some(Err(error)) => Err(wrong(error.into())),
    }
}

fn write(journal: &Path, Journal { ranges, special }: &Journal) -> Result<(), DiskError> {
    let mut text = HEAD.to_owned();
    ranges.iter().for_each(|range| text.push_str(&format!(" {}", range.base())));
    text.push('\n');
    for Special { path, mode, capability } in special {
        text.push_str(&format!("{mode:o} {} {}\n", hex(capability), hex(path.as_os_str().as_bytes())));
    }
    text.push_str(END);
    text.push('\n');
    write_durably(journal, &text)
}

/// Writes a file atomically and durably.
fn write_durably(path: &Path, text: &str) -> Result<(), DiskError> {
    let part = path.with_extension("part");
    let wrong = |error| DiskError::file("write", path, error);
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.and_then(|()| fs::rename(&part, path)).map_err(wrong)?;
    let above = path.parent().unwrap_or(Path::new("/"));
    File::open(above).and_then(|directory| directory.sync_all()).map_err(|error| DiskError::file("sync", above, error))
}

/// Returns the content of a journal; `None` if there is none.
fn read(journal: &Path) -> Result<Option<Journal>, DiskError> {
    let text = match fs::read_to_string(journal) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskError::file("read", journal, error)),
    };
    let unsound = || DiskError::file("read", journal, io::Error::other("not a journal of an ownership change"));
    let mut lines = text.lines();
    let end = lines.next_back();
    let mut head = lines.next().unwrap_or_default().split(' ');
    let is_whole = end == Some(END) && head.next() == Some(HEAD);
    let ranges: Option<Vec<GuestIds>> = head.map(|base| base.parse().ok()).collect();
    let special: Option<Vec<Special>> = lines.map(special_of).collect();
    let journal = ranges.zip(special).map(|(ranges, special)| Journal { ranges, special });
    journal.filter(|_| is_whole).map(Some).ok_or_else(unsound)
}

fn special_of(line: &str) -> Option<Special> {
    let mut fields = line.split(' ');
    let (mode, capability, path) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Special {
        path: OsString::from_vec(unhex(path)?).into(),
        mode: u32::from_str_radix(mode, 8).ok()?,
        capability: unhex(capability)?,
    })
}

/// Returns two digits for each byte, or a dash for no bytes.
fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let digits = Some(text.as_bytes().chunks(2)).filter(|_| text.len().is_multiple_of(2))?;
    digits.map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cap_net_raw+ep`, as effective on the host.
    const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    struct Tree {
        place: tempfile::TempDir,
    }

    impl Tree {
        fn new() -> Self {
            let place = tempfile::tempdir_in("/var/tmp").unwrap();
            let root = place.path().join("tree");
            fs::create_dir_all(root.join("bin")).unwrap();
            for (name, mode) in [("bin/sudo", 0o6755), ("bin/ping", 0o755), ("bin/plain", 0o644), ("foreign", 0o600)] {
                fs::write(root.join(name), name).unwrap();
                fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
            }
            fs::hard_link(root.join("bin/sudo"), root.join("bin/sudoedit")).unwrap();
            std::os::unix::fs::symlink("/etc/shadow", root.join("bin/link")).unwrap();
            let tree = Self { place };
            for (name, id) in
                [("", 0), ("bin", 0), ("bin/sudo", 0), ("bin/ping", 7), ("bin/plain", 65_535), ("bin/link", 3)]
            {
                tree.own(name, GuestIds::LEGACY.host(id).unwrap());
            }
            tree.own("foreign", 5);
            fs::set_permissions(tree.root().join("bin/sudo"), fs::Permissions::from_mode(0o6755)).unwrap();
            rustix::fs::setxattr(tree.root().join("bin/ping"), capability::NAME, &CAPABILITY, XattrFlags::empty())
                .unwrap();
            tree
        }

        fn root(&self) -> PathBuf {
            self.place.path().join("tree")
        }

        fn journal(&self) -> PathBuf {
            self.place.path().join("journal")
        }

        fn own(&self, name: &str, id: u32) {
            std::os::unix::fs::lchown(self.root().join(name), Some(id), Some(id)).unwrap();
        }

        fn change(&self) -> Result<u64, DiskError> {
            change_owners(&self.root(), &self.journal(), GuestIds::LEGACY, GuestIds::DEFAULT)
        }

        /// Checks that everything is unchanged, in the new range.
        fn check(&self) {
            let facts = |name: &str| self.root().join(name).symlink_metadata().unwrap();
            let base = GuestIds::DEFAULT.base();
            for (name, id, mode) in [
                ("", base, 0o755),
                ("bin/sudo", base, 0o6755),
                ("bin/sudoedit", base, 0o6755),
                ("bin/ping", base + 7, 0o755),
                ("bin/plain", base + 65_535, 0o644),
                ("bin/link", base + 3, 0o777),
                ("foreign", 5, 0o600),
            ] {
                let facts = facts(name);
                assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o7777), (id, id, mode), "{name}");
            }
            assert_eq!(facts("bin/sudo").ino(), facts("bin/sudoedit").ino());
            let value = capability_of(&self.root().join("bin/ping")).unwrap();
            assert_eq!(value, capability::bound(&CAPABILITY, GuestIds::DEFAULT).unwrap());
        }
    }

    #[test]
    fn owners_change_and_modes_and_capabilities_stay() {
        let tree = Tree::new();
        assert_eq!(tree.change().unwrap(), 6);
        tree.check();
        assert!(fs::metadata("/etc/shadow").map_or(true, |facts| facts.uid() == 0), "links are not followed");
        assert!(tree.journal().exists());
        assert_eq!(tree.change().unwrap(), 0, "once more changes nothing");
        tree.check();
        finish_change(&tree.journal()).unwrap();
        finish_change(&tree.journal()).unwrap();
        assert!(!tree.journal().exists());
    }

    #[test]
    fn a_change_that_was_cut_off_anywhere_is_completed() {
        let names = ["bin/sudo", "bin/ping", "bin/plain", "bin/link", "bin", ""];
        for done in 0..=names.len() {
            let tree = Tree::new();
            let special = find_special(&tree.root()).unwrap();
            let ranges = vec![GuestIds::LEGACY, GuestIds::DEFAULT];
            write(&tree.journal(), &Journal { ranges, special }).unwrap();
            // As the kernel leaves them: without set-ID bits and capabilities.
            for name in &names[..done] {
                let id = tree.root().join(name).symlink_metadata().unwrap().uid();
                tree.own(name, GuestIds::DEFAULT.host(GuestIds::LEGACY.guest(id).unwrap()).unwrap());
            }
            tree.change().unwrap();
            tree.check();
        }
    }

    #[test]
    fn a_change_to_one_range_that_was_cut_off_is_completed_to_another() {
        let tree = Tree::new();
        let third = GuestIds::new(3_000_000).unwrap();
        change_owners(&tree.root(), &tree.journal(), GuestIds::LEGACY, third).unwrap();
        // A part of it still has the previous range.
        for (name, id) in [("bin", 0), ("bin/plain", 65_535)] {
            tree.own(name, GuestIds::LEGACY.host(id).unwrap());
        }
        tree.change().unwrap();
        tree.check();
    }

    #[test]
    fn a_journal_that_is_not_one_changes_nothing() {
        for text in [
            "",
            "end\n",
            "owners 5\nend\n",
            "owners 100000\n6755 - 6\nend\n",
            "owners 100000\nx - 62\nend\n",
            "owners 100000\n",
        ] {
            let tree = Tree::new();
            fs::write(tree.journal(), text).unwrap();
            let error = tree.change().unwrap_err();
            assert!(error.to_string().contains("journal"), "{text:?}: {error}");
            assert_eq!(fs::metadata(tree.root()).unwrap().uid(), GuestIds::LEGACY.base());
        }
    }
}
