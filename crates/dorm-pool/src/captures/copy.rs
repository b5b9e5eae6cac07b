//! A second capture with the same content, which shares the files of the first.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use dorm_lifecycle::CaptureId;

use super::{Capture, Captures};
use crate::disk;
use crate::error::{PoolError, failed};
use crate::steps::{Step, Steps};

impl Captures {
    pub(crate) fn copy(self: &Arc<Self>, from: &CaptureId, to: &CaptureId) -> Result<Capture, PoolError> {
        let source = self.load(from)?;
        if source.tree.is_some() {
            let what = "holds a tree of files, of which no copy is needed";
            return Err(PoolError::BadFile { capture: from.clone(), file: super::tree::ROOT.into(), what });
        }
        match self.load(to) {
            Ok(copy) if copy.facts == source.facts && copy.files == source.files => return Ok(copy),
            Err(PoolError::Missing(_)) => {}
            Ok(_) => return Err(PoolError::Exists(to.clone())),
            Err(error) => return Err(error),
        }
        let draft = self.draft(to, 0)?;
        let mut directories = BTreeSet::new();
        for file in &source.files {
            for above in file.name.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                directories.insert(above.to_owned());
            }
        }
        for directory in &directories {
            disk::make_directories(&draft.directory().join(directory))?;
        }
        for file in &source.files {
            share(&source.directory.join(&file.name), &draft.directory().join(&file.name), &self.steps)?;
        }
        self.steps.reach(Step::Linked)?;
        draft.finish(&source.facts, source.files, None, &directories)
    }
}

/// A hard link where there can be one, else a durable copy.
fn share(from: &Path, to: &Path, steps: &Steps) -> Result<(), PoolError> {
    match fs::hard_link(from, to) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::TooManyLinks | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            ) =>
        {
            fs::copy(from, to).and_then(|_| File::open(to)?.sync_all()).map_err(failed("copy", from))?;
            steps.durable(to);
            Ok(())
        }
        other => other.map_err(failed("link", from)),
    }
}
