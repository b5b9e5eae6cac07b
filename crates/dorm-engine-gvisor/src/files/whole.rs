//! Checks that a memory image that was just written has the size that it records.
//!
//! `runsc` reports write errors, but a short write leaves no error anywhere. The image determines
//! its own size: `checkpoint.img` consists of frames and ends with one, and `pages_meta.img` lists
//! the length of each part of `pages.img`. For a build whose metadata cannot be read, the sizes of
//! the files are used.

use std::fs;
use std::io::{BufReader, Read};
use std::path::Path;

use dorm_engine::CapturedFile;

use super::budget::{Budget, FilesLimits};
use super::error::FilesError;
use super::pages::MemoryFiles;
use super::unframe;
use crate::boot::IMAGE_FILES;
use crate::error::GvisorError;

/// The maximum size of metadata that is read, since the guest is paused meanwhile. For a guest of
/// many gigabytes it takes a few megabytes.
const ACCOUNT_MAX: u64 = 64 << 20;

/// Returns the files of the image in `image`, with the lengths that should have been written.
/// Blocks.
pub(crate) fn written(image: &Path) -> Result<Vec<CapturedFile>, GvisorError> {
    let [checkpoint, meta, pages] = IMAGE_FILES;
    let read = || Ok::<_, GvisorError>((open(image, checkpoint)?, open(image, meta)?, open(image, pages)?));
    let ((checkpoint_file, checkpoint_bytes), (meta_file, meta_bytes), (_, pages_found)) = read()?;
    let short = |source| GvisorError::Short { image: image.to_owned(), source };
    let pages_bytes = match account(&meta_file, meta_bytes) {
        Ok(bytes) => bytes,
        Err(error) => believed(error, pages_found).map_err(short)?,
    };
    if let Err(error) = unframe::ends_whole(&mut BufReader::new(checkpoint_file)) {
        believed(error, checkpoint_bytes).map_err(short)?;
    }
    if pages_found != pages_bytes {
        let what = format!("{pages} should have {pages_bytes} bytes and has {pages_found}");
        return Err(short(FilesError::unsound(what)));
    }
    let lengths = [checkpoint_bytes, meta_bytes, pages_bytes];
    let files = IMAGE_FILES.into_iter().zip(lengths);
    Ok(files.map(|(name, bytes)| CapturedFile { name: name.into(), bytes }).collect())
}

fn open(image: &Path, name: &str) -> Result<(fs::File, u64), GvisorError> {
    let path = image.join(name);
    let file = fs::File::open(&path).map_err(|source| GvisorError::file("open", &path, source))?;
    let facts = file.metadata().map_err(|source| GvisorError::file("read the metadata of", &path, source))?;
    Ok((file, facts.len()))
}

/// Returns the length of `pages.img` according to `pages_meta.img`.
fn account(mut meta: &fs::File, bytes: u64) -> Result<u64, FilesError> {
    if bytes > ACCOUNT_MAX {
        return Err(FilesError::different("pages_meta.img is too large to be read here"));
    }
    if bytes == 0 {
        return Err(FilesError::Damaged { file: "pages_meta.img", what: "it is empty", at: 0 });
    }
    let mut text = Vec::new();
    meta.read_to_end(&mut text).map_err(FilesError::read("pages_meta.img"))?;
    Ok(MemoryFiles::read(&text, &Budget::new(FilesLimits::default(), bytes))?.bytes)
}

/// Another build may use other metadata. An image that ends early was truncated.
fn believed(error: FilesError, found: u64) -> Result<u64, FilesError> {
    match error {
        FilesError::Damaged { .. } | FilesError::File { .. } => Err(error),
        FilesError::Different { .. }
        | FilesError::Unsound { .. }
        | FilesError::Told { .. }
        | FilesError::Worker(_)
        | FilesError::TooMuch { .. }
        | FilesError::Sink { .. } => {
            tracing::debug!(%error, "cannot read the expected sizes of a memory image; using the sizes of its files");
            Ok(found)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::image_files;
    use super::*;

    /// An image on disk: one page of the guest's own memory, and three pages of another memory
    /// file.
    fn image() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in IMAGE_FILES.iter().zip(image_files()) {
            fs::write(directory.path().join(name), content).unwrap();
        }
        directory
    }

    #[test]
    fn a_whole_image_has_the_lengths_that_it_tells() {
        let image = image();
        let files = written(image.path()).unwrap();
        for (file, content) in files.iter().zip(image_files()) {
            assert_eq!(file.bytes, content.len() as u64, "{}", file.name.display());
        }
    }

    #[test]
    fn an_image_that_was_written_short_is_refused() {
        for (name, content) in IMAGE_FILES.iter().zip(image_files()) {
            for missing in [1, content.len() / 2, content.len()] {
                let image = image();
                let file = fs::OpenOptions::new().write(true).open(image.path().join(name)).unwrap();
                file.set_len((content.len() - missing) as u64).unwrap();
                let refused = written(image.path()).unwrap_err();
                assert!(matches!(refused, GvisorError::Short { .. }), "{name} without {missing} bytes: {refused:?}");
            }
        }
    }
}
