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

/// Returns the names of all files of an image that a process may map.
pub(crate) fn all() -> Vec<String> {
    let [.., pages] = IMAGE_FILES;
    [pages, PAGES_BASE].map(str::to_owned).to_vec()
}

/// Returns the names of the files with pages, of the image in this directory, that a process has
/// open. It may map a base alone, if little has changed since.
pub(crate) fn open_in(pid: i32, image: &Path) -> Vec<String> {
    let identity = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let open: Vec<_> = process::descriptors(pid).filter_map(|link| fs::metadata(link).ok().map(identity)).collect();
    let is_open = |name: &String| {
        let file = image.join(name).symlink_metadata();
        file.is_ok_and(|file| open.contains(&identity(file)))
    };
    all().into_iter().filter(is_open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_base_is_told_under_its_name_in_the_image() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let [.., pages] = IMAGE_FILES;
        let (earlier, image) = (home.path().join("earlier"), home.path().join("image"));
        for directory in [&earlier, &image] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join(pages), "pages").unwrap();
        }
        let own = || open_in(std::process::id() as i32, &image);
        let mapped = fs::File::open(earlier.join(pages)).unwrap();
        assert!(own().is_empty(), "it has no name in the image");
        fs::hard_link(earlier.join(pages), image.join(PAGES_BASE)).unwrap();
        assert_eq!(own(), [PAGES_BASE]);
        let own_pages = fs::File::open(image.join(pages)).unwrap();
        assert_eq!(own(), [pages, PAGES_BASE]);
        drop((mapped, own_pages));
        assert!(own().is_empty());
    }

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
