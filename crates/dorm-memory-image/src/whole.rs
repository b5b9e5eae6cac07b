//! Checks that a memory image that was just written has the size that it records.
//!
//! `runsc` reports write errors, but a short write leaves no error anywhere. The image determines
//! its own size: `checkpoint.img` consists of frames and ends with one, and `pages_meta.img` lists
//! the length of each part of `pages.img`. For a build whose metadata cannot be read, the sizes of
//! the files are used.

use std::fs::File;
use std::io::{BufReader, Read};

use crate::budget::{Budget, FilesLimits};
use crate::error::MemoryImageError;
use crate::map::{OpenFile, PagesMap};
use crate::pages::MemoryFiles;
use crate::read::IMAGE_FILES;
use crate::unframe;

/// The maximum size of metadata that is read, since the guest is paused meanwhile. For a guest of
/// many gigabytes it takes a few megabytes.
const ACCOUNT_MAX: u64 = 64 << 20;

/// Returns the lengths that the files of [`IMAGE_FILES`] should have, in that order. `map` says
/// what the image leaves out.
///
/// # Errors
/// When the image is shorter than it should be.
pub fn written(files: [OpenFile; 3], map: &PagesMap) -> Result<[u64; 3], MemoryImageError> {
    let [(checkpoint, checkpoint_bytes), (meta, meta_bytes), (_, pages_found)] = files;
    let pages_bytes = match account(&meta, meta_bytes) {
        Ok(bytes) => bytes
            .checked_sub(map.left_out_bytes())
            .ok_or_else(|| MemoryImageError::unsound("more memory is left out than there is"))?,
        Err(error) => believed(error, pages_found)?,
    };
    if let Err(error) = unframe::ends_whole(&mut BufReader::new(checkpoint)) {
        believed(error, checkpoint_bytes)?;
    }
    if pages_found != pages_bytes {
        let [_, _, pages] = IMAGE_FILES;
        let what = format!("{pages} should have {pages_bytes} bytes and has {pages_found}");
        return Err(MemoryImageError::unsound(what));
    }
    Ok([checkpoint_bytes, meta_bytes, pages_bytes])
}

/// Returns the length of `pages.img` according to `pages_meta.img`.
fn account(mut meta: &File, bytes: u64) -> Result<u64, MemoryImageError> {
    if bytes > ACCOUNT_MAX {
        return Err(MemoryImageError::different("pages_meta.img is too large to be read here"));
    }
    if bytes == 0 {
        return Err(MemoryImageError::Damaged { file: "pages_meta.img", what: "it is empty", at: 0 });
    }
    let mut text = Vec::new();
    meta.read_to_end(&mut text).map_err(MemoryImageError::read("pages_meta.img"))?;
    Ok(MemoryFiles::read(&text, &Budget::new(FilesLimits::default(), bytes))?.bytes)
}

/// Another build may use other metadata. An image that ends early was truncated.
fn believed(error: MemoryImageError, found: u64) -> Result<u64, MemoryImageError> {
    match error {
        MemoryImageError::Damaged { .. } | MemoryImageError::File { .. } => Err(error),
        MemoryImageError::Different { .. }
        | MemoryImageError::Unsound { .. }
        | MemoryImageError::Told { .. }
        | MemoryImageError::Worker(_)
        | MemoryImageError::TooMuch { .. }
        | MemoryImageError::Sink { .. } => {
            tracing::debug!(%error, "cannot read the expected sizes of a memory image; using the sizes of its files");
            Ok(found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::image_files;
    use std::fs;
    use std::path::Path;

    /// An image on disk: one page of the guest's own memory, and three pages of another memory
    /// file.
    fn image() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in IMAGE_FILES.iter().zip(image_files()) {
            fs::write(directory.path().join(name), content).unwrap();
        }
        directory
    }

    fn open(image: &Path) -> [OpenFile; 3] {
        IMAGE_FILES.map(|name| {
            let file = File::open(image.join(name)).unwrap();
            let bytes = file.metadata().unwrap().len();
            (file, bytes)
        })
    }

    #[test]
    fn a_whole_image_has_the_lengths_that_it_tells() {
        let image = image();
        let lengths = written(open(image.path()), &PagesMap::default()).unwrap();
        assert_eq!(lengths, image_files().map(|content| content.len() as u64));
    }

    #[test]
    fn an_image_that_was_written_short_is_refused() {
        for (name, content) in IMAGE_FILES.iter().zip(image_files()) {
            for missing in [1, content.len() / 2, content.len()] {
                let image = image();
                let file = fs::OpenOptions::new().write(true).open(image.path().join(name)).unwrap();
                file.set_len((content.len() - missing) as u64).unwrap();
                assert!(written(open(image.path()), &PagesMap::default()).is_err(), "{name} without {missing} bytes");
            }
        }
    }
}
