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
            check_file(&capture.directory, file).map_err(|what| PoolError::Damaged {
                capture: id.clone(),
                file: file.name.clone(),
                what,
            })?;
        }
        Ok(capture)
    }
}

/// The error is a phrase whose subject is the file.
fn check_file(directory: &Path, expected: &CaptureFile) -> Result<(), String> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        _ => format!("cannot be read ({error})"),
    };
    let Some(file) = open_regular(&directory.join(&expected.name)).map_err(unreadable)? else {
        return Err("is not a regular file any more".to_owned());
    };
    let bytes = file.metadata().map_err(unreadable)?.len();
    if bytes != expected.bytes {
        return Err(format!("has {bytes} bytes instead of {}", expected.bytes));
    }
    let hash = hash_file(&file, bytes).map_err(unreadable)?;
    if hash.to_hex().as_str() != expected.blake3 {
        return Err("has other content than was written".to_owned());
    }
    Ok(())
}
