//! Finding out whether a capture still is what was written, and whether this host can use it.

use std::io;
use std::path::Path;

use dorm_lifecycle::{CaptureId, Digest};

use super::draft::open_regular;
use super::{Capture, CaptureFile, Captures, Expected};
use crate::error::PoolError;
use crate::hashing::hash_file;

impl Captures {
    pub(crate) fn verify(
        &self,
        id: &CaptureId,
        on: &Expected,
        has_image: &dyn Fn(&Digest) -> Result<bool, PoolError>,
    ) -> Result<Capture, PoolError> {
        let capture = self.load(id)?;
        let facts = &capture.facts;
        // The cheap questions first: the answer to each is final.
        let rows =
            [("engine", &on.engine, &facts.engine), ("build", &on.build, &facts.build), ("cpu", &on.cpu, &facts.cpu)];
        for (what, has, needs) in rows {
            if has != needs {
                let (has, needs) = (has.clone(), needs.clone());
                return Err(PoolError::Incompatible { capture: id.clone(), what, has, needs });
            }
        }
        if !has_image(&facts.image)? {
            return Err(PoolError::MissingImage { capture: id.clone(), image: facts.image.clone() });
        }
        for file in &capture.files {
            check_file(&capture.directory, file).map_err(|wrong| match wrong {
                Wrong::Damaged(what) => PoolError::Damaged { capture: id.clone(), file: file.name.clone(), what },
                Wrong::Unread(error) => PoolError::io("read", &capture.directory.join(&file.name), error),
            })?;
        }
        Ok(capture)
    }
}

enum Wrong {
    /// A phrase whose subject is the file.
    Damaged(String),
    /// It could not be looked at, which says nothing about it.
    Unread(io::Error),
}

fn check_file(directory: &Path, expected: &CaptureFile) -> Result<(), Wrong> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Wrong::Damaged("is missing".to_owned()),
        io::ErrorKind::UnexpectedEof => Wrong::Damaged("is shorter than it was".to_owned()),
        // The disk has lost it.
        _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            Wrong::Damaged(format!("cannot be read ({error})"))
        }
        _ => Wrong::Unread(error),
    };
    let Some(file) = open_regular(&directory.join(&expected.name)).map_err(unreadable)? else {
        return Err(Wrong::Damaged("is not a regular file any more".to_owned()));
    };
    let bytes = file.metadata().map_err(unreadable)?.len();
    if bytes != expected.bytes {
        return Err(Wrong::Damaged(format!("has {bytes} bytes instead of {}", expected.bytes)));
    }
    let hash = hash_file(&file, bytes).map_err(unreadable)?;
    if hash.to_hex().as_str() != expected.blake3 {
        return Err(Wrong::Damaged("has other content than was written".to_owned()));
    }
    Ok(())
}
