//! The places at which a test can make the pool fail or die.
//!
//! In the program itself every step passes and nothing of this exists. A test arms one step: either the operation
//! fails there, as if the disk had refused, or the process "dies": the operation ends and no clean-up code does
//! anything any more, so that what a new process would find is what lies on the disk.

use crate::error::PoolError;

/// One line of an operation that changes the disk, named after what has been done when it is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    DraftMade,
    FilesChecked,
    FilesHashed,
    FilesSynced,
    ManifestWritten,
    DraftSynced,
    Renamed,
    ParentSynced,
    Linked,
    GoneRenamed,
    Removed,
    Unpacked,
    Listed,
    ImageSynced,
    Published,
}

#[derive(Clone, Default)]
pub(crate) struct Steps {
    #[cfg(test)]
    armed: std::sync::Arc<std::sync::Mutex<Option<(Step, Ending)>>>,
    #[cfg(test)]
    dead: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

#[cfg(not(test))]
impl Steps {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(crate) fn reach(&self, _step: Step) -> Result<(), PoolError> {
        Ok(())
    }

    #[allow(clippy::unused_self)]
    pub(crate) fn alive(&self) -> bool {
        true
    }
}

/// How an armed step ends.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Fails,
    Dies,
}

#[cfg(test)]
impl Steps {
    pub(crate) fn arm(&self, step: Step, ending: Ending) {
        *self.armed.lock().unwrap() = Some((step, ending));
    }

    pub(crate) fn reach(&self, step: Step) -> Result<(), PoolError> {
        let mut armed = self.armed.lock().unwrap();
        match *armed {
            Some((at, ending)) if at == step => {
                *armed = None;
                self.dead.store(ending == Ending::Dies, std::sync::atomic::Ordering::SeqCst);
                let source = std::io::Error::other(format!("{step:?} {ending:?}"));
                Err(PoolError::io("pass the armed step of", std::path::Path::new("test"), source))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn alive(&self) -> bool {
        !self.dead.load(std::sync::atomic::Ordering::SeqCst)
    }
}
