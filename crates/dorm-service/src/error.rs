//! What a caller is told when it does not work: what was attempted, on what, why, and what to do next.

use std::time::Duration;

use dorm_agent_client::AgentError;
use dorm_engine::EngineError;
use dorm_lifecycle::{
    Denied, Digest, IdError, OperationId, SandboxId, SnapshotId, SpecError, StateName, Timestamp, WebhookId,
};
use dorm_pool::PoolError;
use dorm_store::{Code, FailureRecord, StoreError};
use thiserror::Error;

use crate::failure::Failure;
use crate::registry::RegistryError;
use crate::secrets::SealError;
use crate::volumes::VolumeProblem;

/// Why something could not be done.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// No sandbox has this id or name.
    #[error("there is no sandbox '{0}'")]
    NoSandbox(String),
    /// No snapshot has this id.
    #[error("there is no snapshot {0}")]
    NoSnapshot(SnapshotId),
    /// No webhook has this id.
    #[error("there is no webhook {0}")]
    NoWebhook(WebhookId),
    /// No operation has this id.
    #[error("there is no operation {0}")]
    NoOperation(OperationId),
    /// An API key cannot be made like this.
    #[error("the key cannot be made: {0}")]
    BadKey(&'static str),
    /// There are as many API keys as there may be.
    #[error("there are 1000 API keys already")]
    TooManyKeys,
    /// The snapshot cannot be used now.
    #[error("snapshot {snapshot} is {status}")]
    SnapshotNotReady {
        /// Which.
        snapshot: SnapshotId,
        /// Its status, with a reason if there is one.
        status: String,
    },
    /// The snapshot is needed.
    #[error("snapshot {snapshot} is in use by {}", held_by.join(", "))]
    SnapshotInUse {
        /// Which.
        snapshot: SnapshotId,
        /// By whom.
        held_by: Vec<String>,
    },
    /// A disk was asked for that is smaller than the one a snapshot was taken of.
    #[error("the disk of snapshot {snapshot} has {least} bytes, and {asked} are fewer: a disk can only grow")]
    DiskShrinks {
        /// Which.
        snapshot: SnapshotId,
        /// What was asked for.
        asked: u64,
        /// What it has.
        least: u64,
    },
    /// Files were to be compared that do not stand on one image.
    #[error("they cannot be compared: one stands on image {first}, the other on image {second}")]
    NotComparable {
        /// One image.
        first: Digest,
        /// The other.
        second: Digest,
    },
    /// The file of a snapshot stands on an image that is not here.
    #[error(
        "cannot import the snapshot: it stands on image {image}{}, which is not here",
        if tags.is_empty() { String::new() } else { format!(" (there called {})", tags.join(", ")) }
    )]
    ImageToImport {
        /// The image.
        image: Digest,
        /// How it is called where the file comes from.
        tags: Vec<String>,
    },
    /// What would be exported may have secrets in it.
    #[error(
        "cannot export snapshot {snapshot}: it holds memory of sandbox {sandbox}, which has secrets ({})",
        names.join(", ")
    )]
    HoldsSecrets {
        /// Which.
        snapshot: SnapshotId,
        /// Whose secrets.
        sandbox: SandboxId,
        /// What they are called.
        names: Vec<String>,
    },
    /// The files of a snapshot were asked for that has nothing else.
    #[error("snapshot {0} is of files alone: there is nothing to take out of it")]
    NoMemory(SnapshotId),
    /// Something was asked for that a snapshot fixes.
    #[error("{what} comes with snapshot {snapshot} and cannot be changed")]
    FixedBySnapshot {
        /// Which.
        snapshot: SnapshotId,
        /// What was asked for.
        what: &'static str,
    },
    /// The sandbox does not run.
    #[error("sandbox {sandbox} is {state}, not running")]
    NotRunning {
        /// Which.
        sandbox: SandboxId,
        /// What it is.
        state: StateName,
    },
    /// The sandbox runs, and its agent does not answer.
    #[error("sandbox {sandbox} runs and has not answered for {} s: {reason}", silent.as_secs())]
    Unreachable {
        /// Which.
        sandbox: SandboxId,
        /// Since when.
        since: Timestamp,
        /// For how long.
        silent: Duration,
        /// What was tried and how it failed.
        reason: String,
    },
    /// A fork was asked for that cannot be made.
    #[error("cannot fork sandbox {sandbox}: {what}")]
    BadFork {
        /// Which.
        sandbox: SandboxId,
        /// What is wrong with it.
        what: String,
    },
    /// A secret is to follow that the source does not have.
    #[error("sandbox {sandbox} has no secret '{name}' that could follow")]
    NoSecret {
        /// Which.
        sandbox: SandboxId,
        /// The secret.
        name: String,
    },
    /// A secret of a sandbox cannot be read.
    #[error("cannot read secret '{name}' of sandbox {sandbox}")]
    SecretLost {
        /// Which.
        sandbox: SandboxId,
        /// The secret.
        name: String,
        /// Why.
        source: SealError,
    },
    /// A fork of all or none was given up.
    #[error(
        "could not fork sandbox {sandbox}, and none of its children is left: {failed} of {count} could not be made"
    )]
    ForkFailed {
        /// Which.
        sandbox: SandboxId,
        /// How many could not be made.
        failed: usize,
        /// How many there were to be.
        count: usize,
        /// Why the first of them could not.
        source: Box<ServiceError>,
    },
    /// A sandbox cannot be taken back to this snapshot.
    #[error("cannot rewind sandbox {sandbox} to snapshot {snapshot}: {what}")]
    BadRewind {
        /// Which.
        sandbox: SandboxId,
        /// To which.
        snapshot: SnapshotId,
        /// Why not.
        what: &'static str,
    },
    /// What is on the disk of a snapshot cannot be used; nothing was changed.
    #[error("snapshot {snapshot} cannot be used, and nothing was changed")]
    SnapshotUnusable {
        /// Which.
        snapshot: SnapshotId,
        /// What is wrong with it.
        source: PoolError,
    },
    /// A sandbox lives that would have to be over.
    #[error("cannot restart sandbox {sandbox}: it is {state}, not terminated")]
    NotTerminated {
        /// Which.
        sandbox: SandboxId,
        /// What it is.
        state: StateName,
    },
    /// There is nothing to make a terminated sandbox anew from.
    #[error("cannot restart sandbox {0}: there is no completed snapshot of it")]
    NothingToRestart(SandboxId),
    /// A sandbox cannot take the place of another.
    #[error("cannot promote sandbox {child}: {what}")]
    BadPromotion {
        /// Which.
        child: SandboxId,
        /// Why not.
        what: String,
    },
    /// The daemon was stopped before the end of a fork of all or none could be recorded.
    #[error(
        "the fork of sandbox {sandbox} could not be recorded before the daemon stopped: the next start ends its children"
    )]
    ForkNotRecorded {
        /// Which.
        sandbox: SandboxId,
    },
    /// The lifecycle refuses.
    #[error("cannot {operation} sandbox {sandbox}: {denied}")]
    Denied {
        /// What was wanted.
        operation: &'static str,
        /// Of which sandbox.
        sandbox: SandboxId,
        /// Why not.
        denied: Denied,
    },
    /// What was asked for cannot be.
    #[error("no sandbox can be like this")]
    Spec(#[from] SpecError),
    /// An id, name or digest cannot be one.
    #[error(transparent)]
    Id(#[from] IdError),
    /// An operation was tried and did not work. What is left is said by the state.
    #[error("could not {operation} sandbox {sandbox}: {failure}")]
    OperationFailed {
        /// What was tried.
        operation: &'static str,
        /// With which sandbox.
        sandbox: SandboxId,
        /// Why it did not work.
        failure: Failure,
        /// Where that left the sandbox.
        state: StateName,
    },
    /// The host has no room for more.
    #[error("cannot {what} now: {reason}")]
    NotAdmitted {
        /// What was wanted.
        what: &'static str,
        /// What there is too little of, with figures.
        reason: String,
    },
    /// The host's disk is nearly full, and a sandbox is paused until there is room.
    #[error(
        "sandbox {sandbox} is paused: {free_bytes} bytes of the host's disk are free, and it goes on when \
         {goes_on_bytes} are"
    )]
    PausedForDisk {
        /// Which.
        sandbox: SandboxId,
        /// What was free at the last look.
        free_bytes: u64,
        /// With how many it goes on.
        goes_on_bytes: u64,
    },
    /// It is being woken, which takes longer than traffic waits.
    #[error("sandbox {0} is still waking up")]
    StillWaking(SandboxId),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
    /// From inside the sandbox.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// From the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// From the disk.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// An image that a record names is not there.
    #[error("an image that this host needs is not there")]
    HostPart(#[source] PoolError),
    /// A volume stands in the way.
    #[error(transparent)]
    Volume(Box<VolumeProblem>),
    /// An image says something about how its programs are run that cannot be.
    #[error("the image names the {what} '{value}', which cannot be here")]
    ImageSetting {
        /// `user`, `directory`, `command`, `variable`, `ready command` or `architecture`.
        what: &'static str,
        /// What it says.
        value: String,
    },
    /// Files were asked for of a snapshot that has memory.
    #[error("snapshot {0} is of memory: an image is made of files alone")]
    MemorySnapshot(SnapshotId),
    /// A sandbox of a new image could not sleep, or not wake.
    #[error("image {image} is not kept: a sandbox of it could not be suspended and resumed")]
    TrialFailed {
        /// Which.
        image: Digest,
        /// Why not.
        source: Box<ServiceError>,
    },
    /// After a sleep there are other processes than before.
    #[error("sandbox {0} has other processes after a sleep than before")]
    NotTheSame(SandboxId),
    /// What an image is started with cannot be used.
    #[error("after {} s `{line}` still does not end with 0{}{said}", within.as_secs(), if said.is_empty() { "" } else { ": " })]
    NotReady {
        /// What was asked.
        line: String,
        /// For how long.
        within: Duration,
        /// What it answered, the last time.
        said: String,
    },
    /// An image has no command to start with.
    #[error("the image of sandbox {0} says nothing about what to start")]
    NothingToStart(SandboxId),
    /// The same, before there is a sandbox.
    #[error("image {0} says nothing about what to start")]
    NoProgram(Digest),
    /// From a registry of images.
    #[error(transparent)]
    Registry(Box<RegistryError>),
    /// From the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<VolumeProblem> for ServiceError {
    fn from(problem: VolumeProblem) -> Self {
        Self::Volume(Box::new(problem))
    }
}

impl From<RegistryError> for ServiceError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(Box::new(error))
    }
}

impl ServiceError {
    /// Whether the engine says that there is nothing left of a run that could go on.
    pub(crate) fn says_that_the_run_is_over(&self) -> bool {
        matches!(self, Self::Engine(error) if error.says_that_the_run_is_over())
    }

    /// Its kind.
    pub fn code(&self) -> Code {
        match self {
            Self::NoSandbox(_) | Self::NoSnapshot(_) | Self::NoWebhook(_) | Self::NoOperation(_) => Code::NotFound,
            Self::NotRunning { state: StateName::Terminated | StateName::Terminating, .. }
            | Self::Denied { denied: Denied::Terminated(_), .. } => Code::Gone,
            Self::SnapshotUnusable { source, .. } => pool_code(source),
            Self::SnapshotNotReady { .. }
            | Self::SnapshotInUse { .. }
            | Self::BadRewind { .. }
            | Self::NotComparable { .. }
            | Self::NotTerminated { .. }
            | Self::NothingToRestart(_)
            | Self::BadPromotion { .. }
            | Self::FixedBySnapshot { .. }
            | Self::ImageToImport { .. }
            | Self::HoldsSecrets { .. }
            | Self::NoMemory(_)
            | Self::MemorySnapshot(_)
            | Self::NotRunning { .. }
            | Self::Denied { denied: Denied::NotSuspendable | Denied::TooManyHolds(_), .. } => Code::Conflict,
            Self::TooManyKeys => Code::Conflict,
            Self::BadKey(_)
            | Self::Spec(_)
            | Self::Id(_)
            | Self::BadFork { .. }
            | Self::DiskShrinks { .. }
            | Self::NoSecret { .. } => Code::InvalidArgument,
            Self::OperationFailed { failure, .. } => failure.code(),
            Self::ForkFailed { source, .. } | Self::TrialFailed { source, .. } => source.code(),
            Self::NotTheSame(_) | Self::NotReady { .. } | Self::SecretLost { .. } => Code::Failed,
            Self::NotAdmitted { .. } | Self::PausedForDisk { .. } => Code::NoRoom,
            Self::Stopping | Self::ForkNotRecorded { .. } | Self::StillWaking(_) | Self::Unreachable { .. } => {
                Code::Unavailable
            }
            Self::Agent(error) => agent_code(error),
            Self::Engine(EngineError::Refused { .. }) => Code::PortClosed,
            Self::Engine(EngineError::NoRoom { .. }) => Code::NoRoom,
            Self::Engine(_) => Code::Failed,
            Self::Pool(error) => pool_code(error),
            Self::Volume(problem) => problem.code(),
            Self::ImageSetting { .. } | Self::NothingToStart(_) | Self::NoProgram(_) => Code::InvalidArgument,
            Self::Registry(error) => error.code(),
            Self::Store(StoreError::NameTaken { .. } | StoreError::Stale { .. }) => Code::Conflict,
            Self::Store(StoreError::Unknown { .. }) => Code::Unavailable,
            Self::Store(StoreError::Unreadable { .. }) => Code::Unreadable,
            Self::Store(StoreError::Full { .. }) => Code::NoRoom,
            Self::Store(StoreError::Failed { .. } | StoreError::Damaged { .. }) => Code::StoreFailed,
            Self::Store(StoreError::Missing(_)) => Code::Internal,
            Self::HostPart(_) => Code::Damaged,
        }
    }

    /// What the caller can do next, in a sentence; empty where the message says it already.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::NoSandbox(_) => "list the sandboxes that are there",
            Self::NoSnapshot(_) => "list the snapshots that are there",
            Self::NoWebhook(_) => "list the webhooks that are there",
            Self::NoOperation(_) => "list the operations; ended ones are removed after a time",
            Self::SnapshotNotReady { .. } => "wait until it is completed, or use another snapshot",
            Self::SnapshotInUse { .. } => "end or remove those first, or have it removed when they are gone",
            Self::FixedBySnapshot { .. } => {
                "leave it out, or create from a filesystem snapshot or the image, which can have others"
            }
            Self::NotComparable { .. } => "compare snapshots and sandboxes that were made from one image",
            Self::DiskShrinks { .. } => "ask for as many or more, or leave it out",
            Self::SnapshotUnusable { source: PoolError::Incompatible { .. }, .. } => {
                "its files can be used: make a snapshot of them with `dorm sbx checkpoint files`"
            }
            Self::SnapshotUnusable { .. } => "use another snapshot",
            Self::ImageToImport { .. } => "import that image first, with `dorm image import`, then the snapshot again",
            Self::HoldsSecrets { .. } => {
                "make a snapshot of its files with `dorm sbx checkpoint files`, and export that"
            }
            Self::NoMemory(_) => "use it as it is",
            Self::MemorySnapshot(_) => "take its files first, with `dorm sbx checkpoint files`",
            Self::TrialFailed { source, .. } => source.next_step(),
            Self::NotTheSame(_) => "look at what ends there while it sleeps",
            Self::NotReady { .. } => "run that in a sandbox of the image, or say with another command when it is ready",
            Self::BadRewind { .. } => "create a new sandbox from that snapshot instead",
            Self::NotTerminated { state: StateName::Suspended, .. } => "resume it, or rewind it to a snapshot",
            Self::NotTerminated { .. } => "rewind it to a snapshot, or terminate it first",
            Self::NothingToRestart(_) => "create a new sandbox from its image",
            Self::BadPromotion { .. } => "it goes on as it is; rewind the other to a snapshot of it instead",
            Self::NotRunning { state: StateName::Suspended | StateName::Suspending, .. } => "resume it first",
            Self::NotRunning { .. } => "create a new sandbox",
            Self::Denied { denied, .. } => denied.next_step(),
            Self::BadFork { .. } => "",
            Self::NoSecret { .. } => "give it a value, or describe the sandbox to see which secrets it has",
            Self::SecretLost { .. } => {
                "start the daemon with the key it takes (--secrets-key), or with --without-lost-secrets to do without it"
            }
            Self::ForkFailed { source, .. } => source.next_step(),
            Self::OperationFailed { failure, state, .. } => after_failure(failure, *state),
            Self::HostPart(_) => "import or pull that image again",
            Self::NotAdmitted { .. } => "suspend or terminate what is not needed, or raise the daemon's budgets",
            Self::PausedForDisk { .. } => {
                "make room on that disk: terminate sandboxes, or delete snapshots and images; then try again"
            }
            Self::StillWaking(_) => "try again in a moment",
            Self::Unreachable { .. } => {
                "it is asked again until it answers, and nothing ends it for being silent; suspending it saves what it holds"
            }
            Self::Stopping | Self::ForkNotRecorded { .. } => "try again when the daemon is back",
            Self::Store(StoreError::NameTaken { .. }) => "choose another name, or terminate its holder",
            Self::Volume(problem) => problem.next_step(),
            Self::Store(StoreError::Unknown { .. }) => "look whether it was done when the daemon is back",
            Self::Store(StoreError::Unreadable { .. }) => {
                "stop the daemon and run `dorm repair --dry-run`; until then nothing that it may need is deleted"
            }
            Self::Store(StoreError::Full { .. }) => {
                "make room on that disk: terminate sandboxes, or delete snapshots and images; then try again"
            }
            Self::Store(_) => "look at the daemon's log",
            Self::Engine(EngineError::Refused { .. }) | Self::Agent(AgentError::Refused(_)) => {
                "start a program that listens there, on all addresses or on loopback"
            }
            Self::Engine(_) => "look at `dorm doctor` and the daemon's log",
            Self::ImageSetting { what: "architecture", .. } => "pull or import it for this host's architecture",
            Self::ImageSetting { what: "ready command", .. } => "say what the image is started with, too",
            Self::ImageSetting { what: "variable", .. } => "write it as NAME=VALUE",
            Self::ImageSetting { .. } => "say which user and directory it is to have",
            Self::NoProgram(_) => "create without start, and run a command in the sandbox",
            Self::NothingToStart(_) => "say which command to run in it",
            Self::Registry(error) => error.next_step(),
            Self::TooManyKeys => "revoke keys that nobody uses",
            Self::BadKey(_) => "choose another name or lifetime",
            Self::Spec(_) | Self::Id(_) | Self::Agent(_) | Self::Pool(_) => "",
        }
    }

    /// How long a caller may wait before the same request can work without anybody doing anything; none where waiting
    /// alone does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        let passes = match self {
            Self::StillWaking(_) | Self::Stopping | Self::ForkNotRecorded { .. } | Self::Unreachable { .. } => true,
            Self::Agent(AgentError::Closed { .. } | AgentError::Busy) => true,
            Self::Registry(error) => match **error {
                RegistryError::RateLimited { after, .. } => return after,
                _ => false,
            },
            _ => false,
        };
        passes.then_some(Duration::from_secs(1))
    }

    /// What is recorded of an operation that it ended.
    pub(crate) fn record(&self) -> FailureRecord {
        FailureRecord::new(self.code(), self.message())
    }

    /// The message with its causes.
    pub fn message(&self) -> String {
        crate::shared::chain(self)
    }
}

/// What a caller can do after an operation has failed, by why it has and where that left the sandbox.
fn after_failure(failure: &Failure, state: StateName) -> &'static str {
    if let Some(lost @ ServiceError::SecretLost { .. }) = failure.cause() {
        return lost.next_step();
    }
    match (failure.code(), state) {
        (Code::NoRoom, StateName::Running) => "it goes on running; make room on this host, then try again",
        (Code::NoRoom, StateName::Suspended) => "its image is untouched; make room on this host, then try again",
        (Code::NoRoom, _) => "make room on this host, then try again",
        (Code::Damaged, StateName::Suspended) => {
            "rewind it to a snapshot, or allow it to start afresh (`dorm sbx keep --on-unrestorable fresh`)"
        }
        (Code::Damaged, _) => "look at `dorm doctor` and the daemon's log",
        (Code::Conflict | Code::InvalidArgument | Code::NotFound, _) => {
            failure.cause().map_or("", ServiceError::next_step)
        }
        (_, StateName::Running) => "it goes on running; try again",
        (_, StateName::Suspended) => "its image is untouched; try again",
        (_, _) => "look at its events, and at `dorm doctor`",
    }
}

fn agent_code(error: &AgentError) -> Code {
    match error {
        AgentError::Closed { .. } | AgentError::Protocol(_) | AgentError::Version { .. } => Code::Unavailable,
        AgentError::NotFound(_) | AgentError::NoProcess(_) | AgentError::NoUser(_) => Code::NotFound,
        AgentError::Refused(_) => Code::PortClosed,
        AgentError::NoSpace(_) => Code::NoRoom,
        AgentError::MountBusy(_) => Code::Conflict,
        AgentError::Exists(_) | AgentError::NotEmpty(_) | AgentError::InputClosed(_) | AgentError::NoTerminal(_) => {
            Code::Conflict
        }
        AgentError::CommandNotFound(_)
        | AgentError::CannotExecute { .. }
        | AgentError::Denied(_)
        | AgentError::NotADirectory(_)
        | AgentError::IsADirectory(_)
        | AgentError::NotAFile(_)
        | AgentError::Body { .. }
        | AgentError::Invalid(_) => Code::InvalidArgument,
        AgentError::Busy => Code::Unavailable,
        AgentError::TooMany(_) | AgentError::Other { .. } => Code::Failed,
    }
}

/// For `map_err`: a record names the image, so that one that is not there is no mistake of the caller.
pub(crate) fn host_part(error: PoolError) -> ServiceError {
    match error {
        missing @ PoolError::NoImage { .. } => ServiceError::HostPart(missing),
        other => other.into(),
    }
}

pub(crate) fn pool_code(error: &PoolError) -> Code {
    match error {
        PoolError::NoRoom { .. } | PoolError::DiskFull { .. } | PoolError::Reserve { .. } => Code::NoRoom,
        PoolError::NoImage { .. } => Code::NotFound,
        PoolError::Ambiguous { .. } | PoolError::Tag(_) | PoolError::Source { .. } | PoolError::Entry { .. } => {
            Code::InvalidArgument
        }
        PoolError::Export { .. } => Code::InvalidArgument,
        PoolError::InUse { .. }
        | PoolError::Referred { .. }
        | PoolError::OtherIds { .. }
        | PoolError::Exists(_)
        | PoolError::Incompatible { .. }
        | PoolError::MissingImage { .. } => Code::Conflict,
        // Callers name snapshots and sandboxes: saved states are the host's.
        PoolError::Missing(_) | PoolError::Damaged { .. } | PoolError::DamagedImage { .. } => Code::Damaged,
        PoolError::BadFile { .. }
        | PoolError::Short { .. }
        | PoolError::Io { .. }
        | PoolError::Format { .. }
        | PoolError::Owners { .. }
        | PoolError::Worker { .. }
        | PoolError::Interrupted(_) => Code::Failed,
    }
}
