//! The steps of this crate, and how they end an operation.

use std::io;
use std::path::Path;

use dorm_steps::AnySteps;

use crate::error::StorageError;

/// A point in an operation that changes the disk, named after the work done before it.
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
    LayersStacked,
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
    ContextUnpacked,
    ContextNamed,
    ContextSetAside,
    LogSynced,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::DraftMade => "storage: draft made",
            Self::FilesChecked => "storage: files checked",
            Self::FilesHashed => "storage: files hashed",
            Self::FilesSynced => "storage: files synced",
            Self::ManifestWritten => "storage: manifest written",
            Self::DraftSynced => "storage: draft synced",
            Self::Renamed => "storage: saved state renamed",
            Self::ParentSynced => "storage: saved states synced",
            Self::Linked => "storage: files linked",
            Self::TreeWritten => "storage: tree written",
            Self::MemoryRemoved => "storage: memory removed",
            Self::TreeSynced => "storage: tree synced",
            Self::ExportReady => "storage: export ready",
            Self::Exported => "storage: exported",
            Self::Imported => "storage: imported",
            Self::GoneRenamed => "storage: set aside",
            Self::Removed => "storage: removed",
            Self::ImportBegun => "storage: import begun",
            Self::LayerBegun => "storage: layer begun",
            Self::LayerFilled => "storage: layer filled",
            Self::LayerUnpacked => "storage: layer unpacked",
            Self::LayersStacked => "storage: layers stacked",
            Self::LayerNamed => "storage: layer named",
            Self::LayersNamed => "storage: layers named",
            Self::Unpacked => "storage: image unpacked",
            Self::Listed => "storage: image listed",
            Self::ImageSynced => "storage: image synced",
            Self::Published => "storage: image published",
            Self::TagWritten => "storage: tag written",
            Self::Tagged => "storage: image tagged",
            Self::Untagged => "storage: tags removed",
            Self::LayerSetAside => "storage: layer set aside",
            Self::Referred => "storage: image referred to",
            Self::ContextUnpacked => "storage: context unpacked",
            Self::ContextNamed => "storage: context named",
            Self::ContextSetAside => "storage: context set aside",
            Self::LogSynced => "storage: build log synced",
        }
    }
}

/// The steps that are called at each point.
#[derive(Clone)]
pub(crate) struct Steps(pub(crate) AnySteps);

impl Steps {
    pub(crate) fn reach(&self, step: Step) -> Result<(), StorageError> {
        let stopped =
            |stopped| StorageError::io("continue past a step of", Path::new("the storage"), io::Error::from(stopped));
        self.0.reach(step.name()).map_err(stopped)
    }

    pub(crate) fn alive(&self) -> bool {
        self.0.alive()
    }

    pub(crate) fn in_place(&self) -> bool {
        self.0.in_place()
    }

    /// Reports that `path` has just been synced.
    pub(crate) fn durable(&self, path: &Path) {
        self.0.durable(path);
    }
}

#[cfg(test)]
pub(crate) mod armed {
    //! A step at which an operation fails as if the disk had refused it, or at which the process
    //! dies.

    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use dorm_steps::{Steps, Stopped};

    use super::Step;

    /// The effect of an armed step.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Ending {
        Fails,
        Dies,
    }

    /// Lets every step pass. The work is done on the thread of the test.
    #[derive(Debug)]
    pub(crate) struct InPlace;

    impl Steps for InPlace {
        fn reach(&self, _: &'static str) -> Result<(), Stopped> {
            Ok(())
        }

        fn in_place(&self) -> bool {
            true
        }
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
