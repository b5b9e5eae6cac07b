//! Memory images that leave out what an earlier image has, their base. `dorm-runsc` writes them of
//! sandboxes whose memory is still in the image they were restored from; the storage gives the new
//! image a name of its own for the base's pages. Where the file system shares blocks, images are
//! complete, which costs as little there.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use dorm_engine::SavedFile;
use dorm_memory_image::{BaseFile, IMAGE_FILES, PAGES_BASE, PAGES_MAP, PagesMap};
use rustix::fs::{Mode, OFlags};

use crate::control::ImageFiles;
use crate::error::GvisorError;
use crate::files;
use crate::process;

/// Returns the pages of images that a process has open, each by a name that still exists. If that
/// by which it was opened is gone, the file may have another in one of the `earlier` images.
pub(crate) fn opened_by(pid: i32, earlier: &[PathBuf]) -> Vec<PathBuf> {
    let [.., pages] = IMAGE_FILES;
    let names = [pages, PAGES_BASE];
    let mut found = Vec::new();
    for link in process::descriptors(pid) {
        let Ok(path) = fs::read_link(&link) else { continue };
        let shown = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !names.contains(&shown.strip_suffix(" (deleted)").unwrap_or(&shown)) {
            continue;
        }
        // The name in `/proc` may be that of another file by now.
        let Ok(open) = fs::metadata(&link) else { continue };
        let other_names = earlier.iter().flat_map(|image| names.map(|name| image.join(name)));
        let is_it = |path: &PathBuf| {
            path.symlink_metadata().is_ok_and(|facts| (facts.dev(), facts.ino()) == (open.dev(), open.ino()))
        };
        found.extend(std::iter::once(path).chain(other_names).find(is_it));
    }
    found
}

/// Returns the base of an image that was just written, as a file of that image: one of `opened`,
/// the pages that its sandbox had open. `None` if none of them is the base.
pub(crate) fn base_file(base: BaseFile, opened: &[PathBuf]) -> Option<SavedFile> {
    let is_base = |path: &&PathBuf| {
        let facts = path.symlink_metadata();
        facts.is_ok_and(|facts| (facts.ino(), facts.dev(), facts.len()) == (base.inode, base.device, base.bytes))
    };
    let path = opened.iter().find(is_base)?.clone();
    Some(SavedFile { name: PAGES_BASE.into(), bytes: base.bytes, shared_with: Some(path), blake3: None })
}

/// Opens the files of the image in `directory`.
pub(crate) fn open(directory: &Path) -> Result<ImageFiles, GvisorError> {
    let [first, second, pages] = IMAGE_FILES;
    let open = |name: &str| {
        let path = directory.join(name);
        let file = fs::File::open(&path).map_err(|source| GvisorError::file("open", &path, source))?;
        let facts = file.metadata().map_err(|source| GvisorError::file("read the metadata of", &path, source))?;
        if !facts.is_file() || (facts.len() == 0 && name != pages) {
            return Err(GvisorError::file("use", path, io::Error::from(io::ErrorKind::InvalidData)));
        }
        Ok(OwnedFd::from(file))
    };
    let mut opened = vec![open(first)?, open(second)?, open(pages)?];
    if files::map(directory)?.base().is_some() {
        opened.extend([open(PAGES_MAP)?, open(PAGES_BASE)?]);
    }
    Ok(ImageFiles(opened))
}

/// Returns the files of the same image without a base, for a build that knows none: its pages are
/// copied into a file without a name in `scratch`.
pub(crate) fn completed(files: ImageFiles, scratch: &Path) -> Result<ImageFiles, GvisorError> {
    let [first, second, own, map, base] = <[OwnedFd; 5]>::try_from(files.0)
        .map_err(|_| GvisorError::file("use", PathBuf::from(PAGES_MAP), io::Error::from(io::ErrorKind::InvalidData)))?;
    let copied = || -> Result<OwnedFd, io::Error> {
        let [map, own, base] = [map, own, base].map(fs::File::from);
        let bytes = map.metadata()?.len();
        let map = PagesMap::read((map, bytes)).map_err(io::Error::other)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let whole = fs::File::from(rustix::fs::open(scratch, flags, Mode::RUSR | Mode::WUSR)?);
        for part in map.parts(own.metadata()?.len()) {
            let from = if part.in_base { &base } else { &own };
            copy(from, &whole, (part.offset, part.bytes))?;
        }
        (&whole).seek(SeekFrom::Start(0))?;
        Ok(whole.into())
    };
    let whole =
        copied().map_err(|source| GvisorError::file("put together the pages of a memory image in", scratch, source))?;
    Ok(ImageFiles(vec![first, second, whole]))
}

/// Appends a part of `from` to `to`.
fn copy(from: &fs::File, to: &fs::File, (mut offset, mut bytes): (u64, u64)) -> io::Result<()> {
    while bytes > 0 {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let copied = rustix::fs::copy_file_range(from, Some(&mut offset), to, None, length)? as u64;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes -= copied.min(bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    fn numbers(all: &[[u64; 3]]) -> Vec<u8> {
        all.iter().flatten().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn image(own: &[u8], map: &[[u64; 3]], base: &[u8]) -> tempfile::TempDir {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let map = numbers(map);
        let contents = [&b"state"[..], b"meta", own, &map, base];
        for (name, content) in IMAGE_FILES.iter().chain(&[PAGES_MAP, PAGES_BASE]).zip(contents) {
            fs::write(directory.path().join(name), content).unwrap();
        }
        directory
    }

    #[test]
    fn a_completed_image_has_every_part_where_it_belongs() {
        let image = image(b"abcdef", &[[0, 0, 8], [2, 4, 3], [7, 0, 2]], b"01234567");
        let files = completed(open(image.path()).unwrap(), image.path()).unwrap();
        let [_, _, pages] = <[OwnedFd; 3]>::try_from(files.0).unwrap();
        let mut content = [0; 12];
        let read = fs::File::from(pages).read_at(&mut content, 0).unwrap();
        assert_eq!(&content[..read], b"ab456cd01ef");
    }

    #[test]
    fn a_base_that_is_too_short_cannot_complete_an_image() {
        let image = image(b"ab", &[[0, 0, 8], [2, 4, 4]], b"01234");
        completed(open(image.path()).unwrap(), image.path()).unwrap_err();
    }

    #[test]
    fn only_the_file_that_the_map_names_is_the_base() {
        let image = image(b"ab", &[[0, 0, 8]], b"01234567");
        let [pages, base] = [IMAGE_FILES[2], PAGES_BASE].map(|name| image.path().join(name));
        let _open = [&pages, &base].map(|path| fs::File::open(path).unwrap());
        let opened: Vec<_> = opened_by(std::process::id() as i32, &[])
            .into_iter()
            .filter(|path| path.starts_with(image.path()))
            .collect();
        assert_eq!(opened.len(), 2);
        let facts = fs::metadata(&base).unwrap();
        let named = BaseFile { inode: facts.ino(), device: facts.dev(), bytes: 8 };
        assert_eq!(base_file(named, &opened).unwrap().shared_with.as_deref(), Some(&*base));
        assert_eq!(base_file(BaseFile { bytes: 9, ..named }, &opened), None);
        fs::remove_file(&base).unwrap();
        assert_eq!(base_file(named, &opened), None, "it has no name any more");
    }
}
