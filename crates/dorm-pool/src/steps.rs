//! The steps of this crate, and how they end an operation.

use std::io;
use std::path::Path;

use dorm_steps::AnySteps;

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
    TreeWritten,
    MemoryRemoved,
    TreeSynced,
    ExportReady,
    Exported,
    Imported,
    GoneRenamed,
    Removed,
    ImportBegun,
    LayerBegun,
    LayerFilled,
    LayerUnpacked,
    LayersLaid,
    LayerNamed,
    LayersNamed,
    Unpacked,
    Listed,
    ImageSynced,
    Published,
    TagWritten,
    Tagged,
    Untagged,
    LayerSetAside,
    Referred,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::DraftMade => "pool: draft made",
            Self::FilesChecked => "pool: files checked",
            Self::FilesHashed => "pool: files hashed",
            Self::FilesSynced => "pool: files synced",
            Self::ManifestWritten => "pool: manifest written",
            Self::DraftSynced => "pool: draft synced",
            Self::Renamed => "pool: capture renamed",
            Self::ParentSynced => "pool: captures synced",
            Self::Linked => "pool: files linked",
            Self::TreeWritten => "pool: tree written",
            Self::MemoryRemoved => "pool: memory removed",
            Self::TreeSynced => "pool: tree synced",
            Self::ExportReady => "pool: export ready",
            Self::Exported => "pool: exported",
            Self::Imported => "pool: imported",
            Self::GoneRenamed => "pool: set aside",
            Self::Removed => "pool: removed",
            Self::ImportBegun => "pool: import begun",
            Self::LayerBegun => "pool: layer begun",
            Self::LayerFilled => "pool: layer filled",
            Self::LayerUnpacked => "pool: layer unpacked",
            Self::LayersLaid => "pool: layers laid",
            Self::LayerNamed => "pool: layer named",
            Self::LayersNamed => "pool: layers named",
            Self::Unpacked => "pool: image unpacked",
            Self::Listed => "pool: image listed",
            Self::ImageSynced => "pool: image synced",
            Self::Published => "pool: image published",
            Self::TagWritten => "pool: tag written",
            Self::Tagged => "pool: image tagged",
            Self::Untagged => "pool: tags removed",
            Self::LayerSetAside => "pool: layer set aside",
            Self::Referred => "pool: image referred to",
        }
    }
}

/// Whom this pool asks at each step.
#[derive(Clone)]
pub(crate) struct Steps(pub(crate) AnySteps);

impl Steps {
    pub(crate) fn reach(&self, step: Step) -> Result<(), PoolError> {
        let stopped = |stopped| PoolError::io("go on past a step of", Path::new("the pool"), io::Error::from(stopped));
        self.0.reach(step.name()).map_err(stopped)
    }

    pub(crate) fn alive(&self) -> bool {
        self.0.alive()
    }

    pub(crate) fn in_place(&self) -> bool {
        self.0.in_place()
    }

    /// Says that `path` has just been synced.
    pub(crate) fn durable(&self, path: &Path) {
        self.0.durable(path);
    }
}

#[cfg(test)]
pub(crate) mod armed {
    //! A step at which an operation fails as if the disk had refused, or the process dies.

    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use dorm_steps::{Steps, Stopped};

    use super::Step;

    /// How an armed step ends.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Ending {
        Fails,
        Dies,
    }

    #[derive(Default, Debug)]
    pub(crate) struct Armed {
        at: Mutex<Option<(Step, Ending)>>,
        dead: AtomicBool,
    }

    impl Armed {
        pub(crate) fn new() -> Arc<Self> {
            Arc::default()
        }

        pub(crate) fn arm(&self, step: Step, ending: Ending) {
            *self.at.lock().unwrap() = Some((step, ending));
        }
    }

    impl Steps for Armed {
        fn reach(&self, step: &'static str) -> Result<(), Stopped> {
            let mut armed = self.at.lock().unwrap();
            match *armed {
                Some((at, ending)) if at.name() == step => {
                    *armed = None;
                    self.dead.store(ending == Ending::Dies, Ordering::SeqCst);
                    Err(Stopped { step, full: false })
                }
                _ => Ok(()),
            }
        }

        fn alive(&self) -> bool {
            !self.dead.load(Ordering::SeqCst)
        }
    }
}
