//! Memory images that were deleted while sandboxes still run on them. A build of `runsc` that maps
//! an image instead of loading it keeps a descriptor of the image to the end of the run, and with
//! it the space on the disk.

#![allow(clippy::disallowed_methods, reason = "everything here is called on threads that may block")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dorm_memory_image::{IMAGE_FILES, PAGES_BASE};

use crate::process;

/// The unit of the number of blocks in metadata.
const BLOCK: u64 = 512;

/// Returns the disk space of deleted memory images that these processes have open. One that several
/// have open counts once. A process that has ended has none.
pub(crate) fn deleted_bytes(pids: impl Iterator<Item = i32>) -> u64 {
    let mut found = BTreeMap::new();
    for pid in pids {
        found.extend(process::descriptors(pid).filter_map(|link| deleted(&link)));
    }
    found.values().sum()
}

/// Returns the identity and the size of a deleted file of a memory image, from a link to it in
/// `/proc`.
fn deleted(link: &Path) -> Option<((u64, u64), u64)> {
    let shown = fs::read_link(link).ok()?;
    let name = shown.file_name()?.to_str()?.strip_suffix(" (deleted)")?.to_owned();
    let facts = fs::metadata(link).ok().filter(|facts| facts.is_file() && facts.nlink() == 0)?;
    (IMAGE_FILES.contains(&name.as_str()) || name == PAGES_BASE)
        .then_some(((facts.dev(), facts.ino()), facts.blocks() * BLOCK))
}

/// Returns whether a process has the pages of the image in this directory open.
pub(crate) fn is_open(pid: i32, image: &Path) -> bool {
    let [.., pages] = IMAGE_FILES;
    let Ok(pages) = image.join(pages).symlink_metadata() else { return false };
    let is_it = |facts: fs::Metadata| (facts.dev(), facts.ino()) == (pages.dev(), pages.ino());
    process::descriptors(pid).any(|link| fs::metadata(link).is_ok_and(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_image_counts_once_while_it_is_open_and_no_other_file_does() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let own = || deleted_bytes([std::process::id(), std::process::id()].into_iter().map(|pid| pid as i32));
        let [name, ..] = IMAGE_FILES;
        let mut open = Vec::new();
        for name in [name, "other.img"] {
            fs::write(home.path().join(name), vec![1; 1 << 20]).unwrap();
            open.extend([(); 2].map(|()| fs::File::open(home.path().join(name)).unwrap()));
        }
        fs::hard_link(home.path().join(name), home.path().join("name")).unwrap();
        fs::remove_file(home.path().join("other.img")).unwrap();
        fs::remove_file(home.path().join(name)).unwrap();
        assert_eq!(own(), 0, "it still has a name");
        fs::remove_file(home.path().join("name")).unwrap();
        let found = own();
        // On a file system that allocates late it has fewer blocks at first, but never none.
        assert!((1..2 << 20).contains(&found), "{found}");
        drop(open);
        assert_eq!(own(), 0);
    }
}
