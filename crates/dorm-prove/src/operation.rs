//! The operations that are proved: each with its preparation and with the checks after it, whether
//! or not its caller was answered.
//!
//! Acknowledged means done. Not acknowledged means that either all of it or nothing of it was done;
//! in both cases the sandbox still has everything that was acknowledged before.

mod builds;
mod egress;
mod environments;
mod files_only;
mod images;
mod judge;
mod layers;
mod lost;
mod merge;
mod perform;
mod pools;
mod prepare;
mod release;
mod resize;
mod transfer;
mod volumes;

use serde_json::Value;

use crate::probe::Probe;

pub(crate) use images::{
    directory as images_directory, import as import_image, is_gone as remove_images, list as list_images, make_source,
};
pub(crate) use judge::judge;
pub(crate) use perform::perform;
pub(crate) use prepare::prepare;

macro_rules! operations {
    ($($operation:ident $name:literal;)*) => {
        /// An operation that is proved.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) enum Operation { $($operation,)* }

        impl Operation {
            pub(crate) const ALL: &[Self] = &[$(Self::$operation,)*];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$operation => $name,)* }
            }
        }
    };
}

operations! {
    CreateNamed "create named";
    CreateEphemeral "create ephemeral";
    CreateFromSnapshot "create from snapshot";
    Suspend "suspend";
    SuspendWoken "suspend, after a resume from disk";
    SuspendFiles "suspend, files only";
    ResumeFiles "resume from files";
    ResumeParked "resume parked";
    ResumeEvicted "resume evicted";
    Evict "evict";
    ReleaseParked "release memory of parked";
    CheckpointRunning "checkpoint running";
    CheckpointSuspended "checkpoint suspended";
    FilesRunning "checkpoint files, running";
    FilesSuspended "checkpoint files, suspended";
    CreateFromFiles "create from files";
    Clone "clone";
    Fork "fork";
    RewindRunning "rewind running";
    RewindSuspended "rewind suspended";
    Promote "promote";
    MergeLayers "merge layers";
    DeleteSnapshot "delete snapshot";
    ExportSnapshot "export snapshot";
    ImportSnapshot "import snapshot";
    FilesOfSnapshot "files of snapshot";
    UseVolume "use volume";
    CreateWithVolume "create with volume";
    AttachVolume "attach volume";
    SleepWithVolume "sleep with volume";
    TerminateRunning "terminate running";
    TerminateParked "terminate parked";
    TerminateEvicted "terminate evicted";
    SetTimeouts "set timeouts";
    SetEgress "set egress";
    SetEgressParked "set egress, parked";
    Resize "resize";
    UsePool "use pool";
    TimeoutSuspends "timeout suspends";
    TimeoutTerminates "timeout terminates";
    StartAfterSuspend "start after killed suspend";
    StartAfterCreate "start after killed create";
    MakeWarmContainers "prepare warm containers";
    BuildTemplate "build template";
    Ensure "ensure";
    ImportImage "import image";
    RemoveImage "remove image";
    ImportLayers "import image layers";
    PullImage "pull image";
    RemoveLayers "remove image layers";
}

/// The kind of daemon that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cast {
    /// One with sandboxes.
    Sandboxes,
    /// One with images of its own, which may be damaged.
    Images,
    /// One whose disk has little room.
    SmallDisk,
}

impl Operation {
    pub(crate) const fn cast(self) -> Cast {
        match self {
            Self::ImportImage | Self::RemoveImage | Self::ImportLayers | Self::PullImage | Self::RemoveLayers => {
                Cast::Images
            }
            _ => Cast::Sandboxes,
        }
    }

    /// Whether the subject runs after the operation. After a resume this holds only once it is
    /// acknowledged.
    pub(crate) const fn leaves_running(self, is_done: bool) -> bool {
        match self {
            Self::ResumeParked | Self::ResumeEvicted => is_done,
            Self::CheckpointRunning
            | Self::FilesRunning
            | Self::Clone
            | Self::Fork
            | Self::SetTimeouts
            | Self::SetEgress
            | Self::Resize => true,
            _ => false,
        }
    }

    /// Whether the operation uses a volume.
    pub(crate) const fn has_volume(self) -> bool {
        matches!(self, Self::UseVolume | Self::CreateWithVolume | Self::AttachVolume | Self::SleepWithVolume)
    }
}

/// The state before one operation.
pub(crate) struct Scene {
    /// The label or name of the new sandboxes of this cycle.
    pub(crate) label: String,
    /// The sandbox that the operation is applied to.
    pub(crate) subject: Option<Probe>,
    /// The snapshot that the operation is applied to.
    pub(crate) snapshot: Option<String>,
    /// The expected content of the sandbox once it was rewound or its place was taken.
    pub(crate) past: Option<Probe>,
    /// The ids of the snapshots that existed before.
    pub(crate) before: Vec<String>,
}

/// The answer that the caller got, if any.
pub(crate) type Heard = Option<Value>;
