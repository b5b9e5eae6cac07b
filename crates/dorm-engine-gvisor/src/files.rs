//! The files of a memory image: opened here, and read by `dorm-memory-image`, whose faults get the
//! name of the image.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::io;
use std::path::Path;

use dorm_engine::{FileSink, LeftOut, SavedFile};
use dorm_memory_image::{FILES_IMAGE, FilesLimits, IMAGE_FILES, OpenFile, PAGES_MAP, PagesMap};
use dorm_worker::Program;

use crate::error::GvisorError;

/// Passes every change in the image to `sink`, as parsed by a worker of `program`. Blocks.
pub(crate) fn read_by(
    program: &Program,
    image: &Path,
    limits: FilesLimits,
    sink: &mut dyn FileSink,
) -> Result<LeftOut, GvisorError> {
    let read = dorm_memory_image::read_by(program, image, limits, sink);
    read.map_err(|source| GvisorError::Files { image: image.to_owned(), source })
}

/// Passes every change in the image to `sink`. Blocks.
pub(crate) fn read(image: &Path, limits: FilesLimits, sink: &mut dyn FileSink) -> Result<LeftOut, GvisorError> {
    let read = match dorm_memory_image::has_only_files(image) {
        true => dorm_memory_image::read_files_image(open_files(image)?, limits, sink),
        false => dorm_memory_image::read(open_memory(image)?, open_map(image)?, limits, sink),
    };
    read.map_err(|source| GvisorError::Files { image: image.to_owned(), source })
}

/// Returns the map of the image: what it leaves out. Blocks.
pub(crate) fn map(image: &Path) -> Result<PagesMap, GvisorError> {
    let Some(map) = open_map(image)? else { return Ok(PagesMap::default()) };
    PagesMap::read(map).map_err(|source| GvisorError::Short { image: image.to_owned(), source })
}

/// Returns the files of the image except those of its base, with the lengths that should have been
/// written, and the hash of its pages if it is known. Blocks.
pub(crate) fn written(image: &Path, map: &PagesMap, hash: Option<blake3::Hash>) -> Result<Vec<SavedFile>, GvisorError> {
    let lengths = dorm_memory_image::written(open_memory(image)?, map);
    let lengths = lengths.map_err(|source| GvisorError::Short { image: image.to_owned(), source })?;
    let mut files: Vec<_> = IMAGE_FILES.into_iter().zip(lengths).map(own).collect();
    if let Some(pages) = files.last_mut() {
        pages.blake3 = hash.map(|hash| hash.to_hex().to_string());
    }
    Ok(files)
}

/// Returns the files of an image that has only files, with the lengths that should have been
/// written. Blocks.
pub(crate) fn written_without_memory(image: &Path) -> Result<Vec<SavedFile>, GvisorError> {
    let lengths = dorm_memory_image::written_files_image(open_files(image)?);
    let lengths = lengths.map_err(|source| GvisorError::Short { image: image.to_owned(), source })?;
    Ok(FILES_IMAGE.into_iter().zip(lengths).map(own).collect())
}

fn own((name, bytes): (&str, u64)) -> SavedFile {
    SavedFile { name: name.into(), bytes, shared_with: None, blake3: None }
}

/// Returns how much of the memory limit reading `image` may take.
pub(crate) fn share(image: &Path, limits: FilesLimits) -> u64 {
    let ([state, meta, _], [list, _]) = (IMAGE_FILES, FILES_IMAGE);
    let length = |name| fs::metadata(image.join(name)).map_or(0, |facts| facts.len());
    limits.share_of([state, meta, PAGES_MAP, list].into_iter().map(length).fold(0, u64::saturating_add))
}

fn open_memory(image: &Path) -> Result<[OpenFile; 3], GvisorError> {
    let [first, second, third] = IMAGE_FILES;
    Ok([open(image, first)?, open(image, second)?, open(image, third)?])
}

fn open_files(image: &Path) -> Result<[OpenFile; 2], GvisorError> {
    let [list, content] = FILES_IMAGE;
    Ok([open(image, list)?, open(image, content)?])
}

fn open(image: &Path, name: &str) -> Result<OpenFile, GvisorError> {
    let path = image.join(name);
    let file = fs::File::open(&path).map_err(|source| GvisorError::file("open", &path, source))?;
    let facts = file.metadata().map_err(|source| GvisorError::file("read the metadata of", &path, source))?;
    Ok((file, facts.len()))
}

fn open_map(image: &Path) -> Result<Option<OpenFile>, GvisorError> {
    let path = image.join(PAGES_MAP);
    let opened = fs::File::open(&path).and_then(|file| file.metadata().map(|facts| (file, facts.len())));
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(|source| GvisorError::file("open", path, source)),
    }
}
