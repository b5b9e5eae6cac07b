//! Errors returned to callers: the failed operation, its operand, the cause, and a suggested next
//! step.

use std::time::Duration;

use dorm_agent_client::AgentError;
use dorm_engine::EngineError;
use dorm_lifecycle::{
    ApiKeyId, ByteSize, Denied, Digest, IdError, OperationId, SandboxId, SnapshotId, SnapshotName, SpecError,
    StateName, Timestamp, WebhookId,
};
use dorm_ports::RegistryError;
use dorm_storage::StorageError;
use dorm_store::{Code, FailureRecord, StoreError};
use thiserror::Error;

pub(crate) use dorm_engine::chain;

use crate::secrets_key::SealError;

mod build;
mod environment;
mod failure;
mod pool;
mod project;
mod registry;
mod shortage;
mod volume;

pub use build::BuildProblem;
pub use environment::EnvironmentProblem;
pub use failure::Failure;
pub(crate) use failure::{STOPPED, stopped};
pub use pool::PoolProblem;
pub use project::ProjectProblem;
pub use shortage::Shortage;
pub use volume::VolumeProblem;

/// The next step if there is no such operation.
const OPERATIONS: &str = "list the operations; ended ones are removed after a time";

/// The next step if a call needs a sandbox that is suspended.
const WAKE: &str = "resume it first, or let the call wake it (--wake, or X-Dormouse-Wake: any)";

/// The next step if the disk of the host is nearly full.
const MAKE_ROOM: &str = "make room on that disk: terminate sandboxes, or delete snapshots and images; then try again";

/// The next step if the memory of a snapshot cannot be used on this host.
const FILES_USABLE: &str = "its files are usable: make a filesystem snapshot of it with `dorm sbx checkpoint files`";

/// The next step if the memory of a snapshot may contain secrets.
const EXPORT_FILES: &str = "make a filesystem snapshot of it with `dorm sbx checkpoint files`, and export that";

/// The next step if a secret cannot be decrypted.
const KEY_OF_SECRETS: &str = "start the daemon with the key that encrypts it (--secrets-key), or with \
                              --without-lost-secrets to continue without it";

/// The next step if a snapshot fixes a property.
const FIXED: &str = "omit it, or create from a filesystem snapshot or from the image, where it can be set";

/// The next step if no process listens on a port.
const LISTEN: &str = "start a program that listens on that port, on all addresses or on loopback";

/// The reason why a request failed.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// No sandbox has this id or name.
    #[error("there is no sandbox '{0}'")]
    NoSandbox(String),
    /// A project cannot be used or changed as requested.
    #[error(transparent)]
    Project(#[from] ProjectProblem),
    /// A build or a template cannot be used or changed as requested.
    #[error(transparent)]
    Build(#[from] BuildProblem),
    /// An environment cannot be provided or changed as requested.
    #[error(transparent)]
    Environment(#[from] EnvironmentProblem),
    /// A sandbox pool cannot be used or changed as requested.
    #[error(transparent)]
    Pool(#[from] PoolProblem),
    /// Another operation is in progress, and the command was not to wait for it.
    #[error("cannot {command} sandbox {sandbox} now: it is {state} (operation {operation})")]
    Busy {
        /// The command.
        command: &'static str,
        /// The sandbox.
        sandbox: SandboxId,
        /// Its state.
        state: StateName,
        /// The operation in progress.
        operation: String,
    },
    /// No snapshot has this id.
    #[error("there is no snapshot {0}")]
    NoSnapshot(SnapshotId),
    /// A snapshot cannot have a name that stands for something else already.
    #[error("a snapshot cannot be named '{name}': that is the name of {of}")]
    NotASnapshotName {
        /// The name.
        name: SnapshotName,
        /// The kind of thing that has the name.
        of: &'static str,
    },
    /// No webhook has this id.
    #[error("there is no webhook {0}")]
    NoWebhook(WebhookId),
    /// No operation has this id.
    #[error("there is no operation {0}")]
    NoOperation(OperationId),
    /// The requested API key is invalid.
    #[error("cannot create the API key: {0}")]
    BadKey(&'static str),
    /// The limit on the number of API keys is reached.
    #[error("the limit of 1000 API keys is reached")]
    TooManyKeys,
    /// The snapshot is not usable in its present status.
    #[error("snapshot {snapshot} is not ready: its status is {status}")]
    SnapshotNotReady {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Its status, with a reason if there is one.
        status: String,
    },
    /// The snapshot cannot be deleted because something depends on it.
    #[error("snapshot {snapshot} is in use by {}", held_by.join(", "))]
    SnapshotInUse {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The records that depend on it.
        held_by: Vec<String>,
    },
    /// The requested disk is smaller than the disk of the snapshot.
    #[error("a disk of {asked} bytes is smaller than that of snapshot {snapshot}, {least} bytes: a disk can only grow")]
    DiskShrinks {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The requested size in bytes.
        asked: u64,
        /// The size of the snapshot's disk in bytes.
        least: u64,
    },
    /// The two sets of files to compare belong to different images.
    #[error("cannot compare: one is based on image {first}, the other on image {second}")]
    NotComparable {
        /// The image of the first.
        first: Digest,
        /// The image of the second.
        second: Digest,
    },
    /// A snapshot archive depends on an image that this host does not have.
    #[error(
        "cannot import the snapshot: it is based on image {image}{}, which this host does not have",
        if tags.is_empty() { String::new() } else { format!(" (tagged {} at its source)", tags.join(", ")) }
    )]
    ImageToImport {
        /// The image.
        image: Digest,
        /// Its tags on the host that exported the archive.
        tags: Vec<String>,
    },
    /// The snapshot to export may contain secrets.
    #[error(
        "cannot export snapshot {snapshot}: it contains memory of sandbox {sandbox}, which has secrets ({})",
        names.join(", ")
    )]
    HoldsSecrets {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The sandbox that has the secrets.
        sandbox: SandboxId,
        /// The names of the secrets.
        names: Vec<String>,
    },
    /// The files of a snapshot were requested, but the snapshot has no memory image to extract them
    /// from.
    #[error("snapshot {0} is a filesystem snapshot: it has no memory image to extract files from")]
    NoMemory(SnapshotId),
    /// The request sets a property that the snapshot fixes.
    #[error("cannot set {what}, which snapshot {snapshot} fixes")]
    FixedBySnapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The property that the request sets.
        what: &'static str,
    },
    /// The sandbox is not running.
    #[error("sandbox {sandbox} is {state}, not running")]
    NotRunning {
        /// The sandbox.
        sandbox: SandboxId,
        /// Its state.
        state: StateName,
    },
    /// The sandbox runs, but its agent does not answer.
    #[error("sandbox {sandbox} is running but has not answered for {} s: {reason}", silent.as_secs())]
    Unreachable {
        /// The sandbox.
        sandbox: SandboxId,
        /// The time at which it was first found silent.
        since: Timestamp,
        /// How long it has been silent.
        silent: Duration,
        /// The attempt that failed, and its error.
        reason: String,
    },
    /// The requested fork is invalid.
    #[error("cannot fork sandbox {sandbox}: {what}")]
    BadFork {
        /// The sandbox.
        sandbox: SandboxId,
        /// The fault in the request.
        what: String,
    },
    /// The request passes on a secret that the source does not have.
    #[error("sandbox {sandbox} has no secret '{name}' to pass on")]
    NoSecret {
        /// The sandbox.
        sandbox: SandboxId,
        /// The name of the secret.
        name: String,
    },
    /// A stored secret cannot be decrypted.
    #[error("cannot read secret '{name}' of sandbox {sandbox}")]
    SecretLost {
        /// The sandbox.
        sandbox: SandboxId,
        /// The name of the secret.
        name: String,
        /// The cause.
        source: SealError,
    },
    /// The certificate of a project's authority could not be made.
    #[error("cannot make the certificate that sandboxes with header rules trust")]
    Authority(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A fork with rollback on partial failure was rolled back.
    #[error("could not fork sandbox {sandbox}: {failed} of {count} children could not be created, so none is kept")]
    ForkFailed {
        /// The source.
        sandbox: SandboxId,
        /// The number of children that could not be created.
        failed: usize,
        /// The number of requested children.
        count: usize,
        /// The error of the first of them.
        source: Box<ServiceError>,
    },
    /// The sandbox cannot be rewound to this snapshot.
    #[error("cannot rewind sandbox {sandbox} to snapshot {snapshot}: {what}")]
    BadRewind {
        /// The sandbox.
        sandbox: SandboxId,
        /// The snapshot.
        snapshot: SnapshotId,
        /// The reason.
        what: &'static str,
    },
    /// The saved state of a snapshot cannot be used; nothing was changed.
    #[error("cannot use snapshot {snapshot}; nothing was changed")]
    SnapshotUnusable {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The cause.
        source: StorageError,
    },
    /// A restart was requested of a sandbox that is not terminated.
    #[error("cannot restart sandbox {sandbox}: it is {state}, not terminated")]
    NotTerminated {
        /// The sandbox.
        sandbox: SandboxId,
        /// Its state.
        state: StateName,
    },
    /// A terminated sandbox has no snapshot to restart from.
    #[error("cannot restart sandbox {0}: it has no completed snapshot")]
    NothingToRestart(SandboxId),
    /// The sandbox cannot be promoted.
    #[error("cannot promote sandbox {child}: {what}")]
    BadPromotion {
        /// The sandbox to promote.
        child: SandboxId,
        /// The reason.
        what: String,
    },
    /// The daemon stopped before it could record the result of a fork with rollback on partial
    /// failure.
    #[error(
        "the daemon stopped before it recorded the fork of sandbox {sandbox}: the next start terminates the children"
    )]
    ForkNotRecorded {
        /// The source.
        sandbox: SandboxId,
    },
    /// The lifecycle refuses the command.
    #[error("cannot {operation} sandbox {sandbox}: {denied}")]
    Denied {
        /// The operation.
        operation: &'static str,
        /// The sandbox.
        sandbox: SandboxId,
        /// The reason.
        denied: Denied,
    },
    /// The requested properties of a sandbox are invalid.
    #[error("invalid sandbox settings")]
    Spec(#[from] SpecError),
    /// An id, name or digest is malformed.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A sandbox has changed since the caller saw it.
    #[error("sandbox {sandbox} has revision {now}, not {asked}: it was changed meanwhile")]
    RevisionChanged {
        /// The sandbox.
        sandbox: SandboxId,
        /// The revision that the caller saw.
        asked: u64,
        /// The current revision.
        now: u64,
    },
    /// An idempotency key came with two different requests.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// The object that the first request with an idempotency key made was deleted since.
    #[error("the first request with this idempotency key made {kind} {id}, which no longer exists")]
    MadeIsGone {
        /// The kind of object.
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// The first request with an idempotency key failed after it had begun.
    #[error("the first request with this idempotency key failed: {}", .0.reason)]
    FailedEarlier(FailureRecord),
    /// The first request with an idempotency key created this API key, which is shown only once.
    #[error("the first request with this idempotency key created API key {0}, which is shown only once")]
    KeyShown(ApiKeyId),
    /// An operation was started and failed. `state` is the resulting state.
    #[error("could not {operation} sandbox {sandbox}: {failure}")]
    OperationFailed {
        /// The operation.
        operation: &'static str,
        /// The sandbox.
        sandbox: SandboxId,
        /// The cause.
        failure: Failure,
        /// The state of the sandbox after the failure.
        state: StateName,
    },
    /// The host has too few resources for the request.
    #[error("cannot {what} now: {reason}")]
    NotAdmitted {
        /// The refused operation.
        what: &'static str,
        /// The resource that is short, with figures.
        reason: String,
        /// Where it is short.
        shortage: Shortage,
    },
    /// The sandbox is paused because the host's disk is nearly full.
    #[error(
        "sandbox {sandbox} is paused: {} of the host's disk are free, and it continues when {} are",
        ByteSize(*free_bytes),
        ByteSize(*continues_at_bytes)
    )]
    PausedForDisk {
        /// The sandbox.
        sandbox: SandboxId,
        /// The number of free bytes at the last check.
        free_bytes: u64,
        /// The number of free bytes at which it continues.
        continues_at_bytes: u64,
    },
    /// The sandbox is being resumed, and traffic does not wait any longer for it.
    #[error("sandbox {0} is still waking up")]
    StillWaking(SandboxId),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
    /// An error of the agent in the sandbox.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An error of the storage.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An image that a record refers to is missing, by its digest.
    #[error("image {0} is missing on this host, although a record refers to it")]
    HostPart(String),
    /// An error of a volume.
    #[error(transparent)]
    Volume(Box<VolumeProblem>),
    /// A setting of an image that says how its programs are run cannot be used.
    #[error("cannot use the image's {what} '{value}'")]
    ImageSetting {
        /// `user`, `directory`, `command`, `variable`, `ready command` or `architecture`.
        what: &'static str,
        /// The value of the setting.
        value: String,
    },
    /// A filesystem snapshot is required, and this is a memory snapshot.
    #[error("snapshot {0} is a memory snapshot: an image can only be made from a filesystem snapshot")]
    MemorySnapshot(SnapshotId),
    /// The trial sandbox of a new image could not be suspended and resumed.
    #[error("image {image} was removed: a trial sandbox could not be suspended and resumed")]
    TrialFailed {
        /// The image.
        image: Digest,
        /// The cause.
        source: Box<ServiceError>,
    },
    /// The processes of a sandbox differ before a suspend and after the resume.
    #[error("the processes of sandbox {0} changed between suspend and resume")]
    NotTheSame(SandboxId),
    /// The program that an image starts did not become ready.
    #[error("`{line}` did not exit with status 0 within {} s{}{said}", within.as_secs(), if said.is_empty() { "" } else { ": " })]
    NotReady {
        /// The ready command.
        line: String,
        /// How long it was tried.
        within: Duration,
        /// Its last output.
        said: String,
    },
    /// The image of a sandbox has no command to start.
    #[error("the image of sandbox {0} has no command to start")]
    NothingToStart(SandboxId),
    /// The image of a sandbox to create has no command to start.
    #[error("image {0} has no command to start")]
    NoProgram(Digest),
    /// An error of an image registry.
    #[error(transparent)]
    Registry(Box<RegistryError>),
    /// An error of the store.
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
    /// Returns whether the engine reports that nothing of the run is left that could continue.
    pub(crate) fn says_that_the_run_is_over(&self) -> bool {
        matches!(self, Self::Engine(error) if error.says_that_the_run_is_over())
    }

    /// Returns the kind of the error.
    pub fn code(&self) -> Code {
        match self {
            Self::NoSandbox(_) | Self::NoSnapshot(_) | Self::NoWebhook(_) | Self::NoOperation(_) => Code::NotFound,
            Self::Project(problem) => problem.code(),
            Self::Environment(problem) => problem.code(),
            Self::Pool(problem) => problem.code(),
            Self::Build(problem) => problem.code(),
            Self::NotRunning { state: StateName::Terminated | StateName::Terminating, .. }
            | Self::Denied { denied: Denied::Terminated(_), .. } => Code::Gone,
            Self::SnapshotUnusable { source, .. } => storage_code(source),
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
            | Self::NotASnapshotName { .. }
            | Self::NotRunning { .. }
            | Self::Denied {
                denied:
                    Denied::NotSuspendable
                    | Denied::TooManyPortRules(_)
                    | Denied::IsSnapshot(_)
                    | Denied::NoMemory
                    | Denied::NotInPool
                    | Denied::NoNetworkDevice
                    | Denied::NetworkDeviceStays
                    | Denied::TooManyHolds(_),
                ..
            } => Code::Conflict,
            Self::Denied { denied: Denied::Invalid(_), .. } => Code::InvalidArgument,
            Self::TooManyKeys | Self::Busy { .. } | Self::KeyShown(_) | Self::RevisionChanged { .. } => Code::Conflict,
            Self::MadeIsGone { .. } => Code::Gone,
            Self::FailedEarlier(failure) => failure.code,
            Self::BadKey(_)
            | Self::KeyReused
            | Self::Spec(_)
            | Self::Id(_)
            | Self::BadFork { .. }
            | Self::DiskShrinks { .. }
            | Self::NoSecret { .. } => Code::InvalidArgument,
            Self::OperationFailed { failure, .. } => failure.code(),
            Self::ForkFailed { source, .. } | Self::TrialFailed { source, .. } => source.code(),
            Self::NotTheSame(_) | Self::NotReady { .. } | Self::SecretLost { .. } => Code::Failed,
            Self::Authority(_) => Code::Internal,
            Self::NotAdmitted { .. } | Self::PausedForDisk { .. } => Code::NoRoom,
            Self::Stopping | Self::ForkNotRecorded { .. } | Self::StillWaking(_) | Self::Unreachable { .. } => {
                Code::Unavailable
            }
            Self::Agent(error) => agent_code(error),
            Self::Engine(EngineError::Refused { .. }) => Code::PortClosed,
            Self::Engine(EngineError::NoRoom { .. }) => Code::NoRoom,
            Self::Engine(_) => Code::Failed,
            Self::Storage(error) => storage_code(error),
            Self::Volume(problem) => problem.code(),
            Self::ImageSetting { .. } | Self::NothingToStart(_) | Self::NoProgram(_) => Code::InvalidArgument,
            Self::Registry(error) => registry::code(error),
            Self::Store(error) => store_code(error),
            Self::HostPart(_) => Code::Damaged,
        }
    }

    /// Returns what the caller can do next, as a sentence; empty if the message already says it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Project(problem) => problem.next_step(),
            Self::Environment(problem) => problem.next_step(),
            Self::Pool(problem) => problem.next_step(),
            Self::Build(problem) => problem.next_step(),
            Self::NoSandbox(_) => "list the existing sandboxes",
            Self::NoSnapshot(_) => "list the existing snapshots",
            Self::NoWebhook(_) => "list the existing webhooks",
            Self::NoOperation(_) => OPERATIONS,
            Self::SnapshotNotReady { .. } => "wait until it is completed, or use another snapshot",
            Self::SnapshotInUse { .. } => "remove those first, or delete it with --when-free (when_free=true)",
            Self::FixedBySnapshot { .. } => FIXED,
            Self::NotComparable { .. } => "compare snapshots and sandboxes that are based on the same image",
            Self::DiskShrinks { .. } => "ask for at least that size, or omit it",
            Self::SnapshotUnusable { source: StorageError::Incompatible { .. }, .. } => FILES_USABLE,
            Self::SnapshotUnusable { .. } => "use another snapshot",
            Self::ImageToImport { .. } => "import that image with `dorm image import`, then import the snapshot again",
            Self::HoldsSecrets { .. } => EXPORT_FILES,
            Self::NotASnapshotName { .. } => "choose another name",
            Self::NoMemory(_) => "use the snapshot itself",
            Self::MemorySnapshot(_) => "make a filesystem snapshot of it first, with `dorm sbx checkpoint files`",
            Self::TrialFailed { source, .. } | Self::ForkFailed { source, .. } => source.next_step(),
            Self::NotTheSame(_) => "find out which of its processes end during a suspend and resume",
            Self::NotReady { .. } => "run it in a sandbox of the image to see why, or set another ready command",
            Self::BadRewind { .. } => "create a new sandbox from that snapshot instead",
            Self::NotTerminated { state: StateName::Suspended, .. } => "resume it, or rewind it to a snapshot",
            Self::NotTerminated { .. } => "rewind it to a snapshot, or terminate it first",
            Self::NothingToRestart(_) => "create a new sandbox from its image",
            Self::BadPromotion { .. } => "it is unchanged; rewind the other sandbox to a snapshot of it instead",
            Self::NotRunning { state, .. } => not_running_next_step(*state),
            Self::Denied { denied, .. } => denied.next_step(),
            Self::NoSecret { .. } => "set a value for it, or describe the sandbox to list its secrets",
            Self::SecretLost { .. } => KEY_OF_SECRETS,
            Self::OperationFailed { failure, state, .. } => after_failure(failure, *state),
            Self::HostPart(_) => "import or pull that image again",
            Self::NotAdmitted { shortage, .. } => shortage.next_step(),
            Self::PausedForDisk { .. } => MAKE_ROOM,
            Self::StillWaking(_) => "try again in a moment",
            Self::Unreachable { .. } => {
                "wait: the daemon retries until it answers; a suspend saves its memory and files"
            }
            Self::Stopping | Self::ForkNotRecorded { .. } => "try again when the daemon is back",
            Self::Store(error) => store_next_step(error),
            Self::Volume(problem) => problem.next_step(),
            Self::Engine(EngineError::Refused { .. }) => LISTEN,
            Self::Agent(error) => agent_next_step(error),
            Self::Engine(_) => "check `dorm doctor` and the daemon's log",
            Self::ImageSetting { what, .. } => setting_next_step(what),
            Self::NoProgram(_) => "create the sandbox without `start`, and run a command in it",
            Self::NothingToStart(_) => "give the command to run",
            Self::Registry(error) => registry::next_step(error),
            Self::Busy { .. } => "wait until that operation has ended, or let the request wait for it",
            Self::TooManyKeys => "revoke unused keys",
            Self::RevisionChanged { .. } => "get the sandbox, decide again, and send its new revision",
            Self::KeyReused => "use a new idempotency key for each request, and the same key only to retry it",
            Self::MadeIsGone { .. } | Self::FailedEarlier(_) => "send the request again with a new idempotency key",
            Self::KeyShown(_) => "revoke it, and create another key with a new idempotency key",
            Self::BadKey(_) => "choose another name or lifetime",
            Self::Spec(error) => error.next_step(),
            Self::BadFork { .. } => "change the number or the names of the children",
            Self::Authority(_) => "check the daemon's log, and report it",
            Self::Id(_) | Self::Storage(_) => "",
        }
    }

    /// Returns how long a caller should wait before the same request can succeed without any other
    /// action; `None` if waiting alone does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        let passes = match self {
            Self::StillWaking(_) | Self::Stopping | Self::ForkNotRecorded { .. } | Self::Unreachable { .. } => true,
            Self::Agent(
                AgentError::Closed { .. } | AgentError::Busy | AgentError::Behind | AgentError::TooManyOpen { .. },
            ) => true,
            Self::Registry(error) => match **error {
                RegistryError::RateLimited { after, .. } => return after,
                _ => false,
            },
            _ => false,
        };
        passes.then_some(Duration::from_secs(1))
    }

    /// Returns the error for something that an earlier request made and that was deleted since.
    pub(crate) fn made_is_gone(kind: &'static str, id: &impl ToString) -> Self {
        Self::MadeIsGone { kind, id: id.to_string() }
    }

    /// Returns the record of an operation that ended with this error.
    pub(crate) fn record(&self) -> FailureRecord {
        FailureRecord::new(self.code(), self.message())
    }

    /// Returns the message with its causes.
    pub fn message(&self) -> String {
        chain(self)
    }
}

/// Returns the kind of an error of the store.
fn store_code(error: &StoreError) -> Code {
    match error {
        StoreError::NameTaken { .. }
        | StoreError::SnapshotNameTaken { .. }
        | StoreError::KeyTaken { .. }
        | StoreError::Stale { .. } => Code::Conflict,
        StoreError::Unknown { .. } => Code::Unavailable,
        StoreError::Unreadable { .. } => Code::Unreadable,
        StoreError::Full { .. } => Code::NoRoom,
        StoreError::Failed { .. } | StoreError::Damaged { .. } => Code::StoreFailed,
        StoreError::Missing(_) => Code::Internal,
    }
}

/// Returns what a caller can do about an error of the store.
fn store_next_step(error: &StoreError) -> &'static str {
    match error {
        StoreError::NameTaken { .. } => "choose another name, or terminate its holder",
        StoreError::SnapshotNameTaken { .. } => "choose another name, or delete its holder",
        StoreError::KeyTaken { .. } => "try again, or use another key",
        StoreError::Unknown { .. } => "check whether it was done when the daemon is back",
        StoreError::Unreadable { .. } => {
            "stop the daemon and run `dorm repair --dry-run`; until then nothing that it may need is deleted"
        }
        StoreError::Full { .. } => {
            "make room on that disk: terminate sandboxes, or delete snapshots and images; then try again"
        }
        StoreError::Stale { .. } | StoreError::Missing(_) | StoreError::Damaged { .. } | StoreError::Failed { .. } => {
            "check the daemon's log"
        }
    }
}

/// Returns what a caller can do about a setting of an image that cannot be used.
fn setting_next_step(what: &str) -> &'static str {
    match what {
        "architecture" => "pull or import it for this host's architecture",
        "ready command" => "also set the command that the image starts",
        "variable" => "write it as NAME=VALUE",
        _ => "set another value for it",
    }
}

/// Returns what a caller can do after an operation has failed, from the cause and the resulting
/// state.
fn after_failure(failure: &Failure, state: StateName) -> &'static str {
    if let Some(lost @ ServiceError::SecretLost { .. }) = failure.cause() {
        return lost.next_step();
    }
    match (failure.code(), state) {
        (Code::NoRoom, StateName::Running) => "it keeps running; make room on this host, then try again",
        (Code::NoRoom, StateName::Suspended) => "its sleep image is intact; make room on this host, then try again",
        (Code::NoRoom, _) => "make room on this host, then try again",
        (Code::Damaged, StateName::Suspended) => {
            "rewind it to a snapshot, or allow it to boot afresh (`dorm sbx retention --on-unrestorable fresh`)"
        }
        (Code::Damaged, _) => "check `dorm doctor` and the daemon's log",
        (Code::Conflict | Code::InvalidArgument | Code::NotFound, _) => {
            failure.cause().map_or("", ServiceError::next_step)
        }
        (_, StateName::Running) => "it keeps running; try again",
        (_, StateName::Suspended) => "its sleep image is intact; try again",
        (_, _) => "check its events and `dorm doctor`",
    }
}

/// Returns what a caller can do about a sandbox that is not running.
fn not_running_next_step(state: StateName) -> &'static str {
    match state {
        StateName::Suspended | StateName::Suspending => WAKE,
        StateName::Pending | StateName::Running | StateName::Snapshotting | StateName::Resuming => {
            "wait until it runs, then try again"
        }
        StateName::Terminating | StateName::Terminated => "create a new sandbox",
    }
}

/// Returns what a caller can do about an error of the agent.
fn agent_next_step(error: &AgentError) -> &'static str {
    match error {
        AgentError::Refused(_) => LISTEN,
        AgentError::NoService(_) => {
            "list the services of the sandbox, or start it: a boot from files ends all services"
        }
        AgentError::ServiceActive(_) => "stop it first, or choose another name",
        AgentError::TooManyOpen { .. } => "close some of those that are open, then repeat",
        AgentError::Older { .. } => {
            "boot the sandbox with the agent of this daemon: take a filesystem snapshot of it, and rewind it to that"
        }
        _ => "",
    }
}

fn agent_code(error: &AgentError) -> Code {
    match error {
        AgentError::Closed { .. } | AgentError::Protocol(_) | AgentError::Version { .. } => Code::Unavailable,
        AgentError::NotFound(_)
        | AgentError::NoProcess(_)
        | AgentError::NoWatcher(_)
        | AgentError::NoService(_)
        | AgentError::NoUser(_) => Code::NotFound,
        AgentError::Refused(_) => Code::PortClosed,
        AgentError::NoSpace(_) => Code::NoRoom,
        AgentError::MountBusy(_) | AgentError::ServiceActive(_) | AgentError::Older { .. } => Code::Conflict,
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
        AgentError::Busy | AgentError::Behind | AgentError::TooManyOpen { .. } => Code::Unavailable,
        AgentError::TooMany(_) | AgentError::Other { .. } => Code::Failed,
    }
}

/// For `map_err`, where a record names the image: a missing image is then not the caller's mistake.
pub(crate) fn host_part(error: StorageError) -> ServiceError {
    match error {
        StorageError::NoImage { reference, .. } => ServiceError::HostPart(reference),
        other => other.into(),
    }
}

pub(crate) fn storage_code(error: &StorageError) -> Code {
    match error {
        StorageError::NoRoom { .. } | StorageError::DiskFull { .. } | StorageError::Reserve { .. } => Code::NoRoom,
        StorageError::NoImage { .. } => Code::NotFound,
        StorageError::Ambiguous { .. }
        | StorageError::Tag(_)
        | StorageError::Source { .. }
        | StorageError::Entry { .. } => Code::InvalidArgument,
        StorageError::Export { .. } => Code::InvalidArgument,
        StorageError::InUse { .. }
        | StorageError::Referred { .. }
        | StorageError::OtherIds { .. }
        | StorageError::Exists(_)
        | StorageError::Incompatible { .. }
        | StorageError::MissingImage { .. } => Code::Conflict,
        // Callers name snapshots and sandboxes; a saved state that is missing is damage on the
        // host.
        StorageError::Missing(_) | StorageError::Damaged { .. } | StorageError::DamagedImage { .. } => Code::Damaged,
        StorageError::BadFile { .. }
        | StorageError::Short { .. }
        | StorageError::Io { .. }
        | StorageError::Format { .. }
        | StorageError::Owners { .. }
        | StorageError::Worker { .. }
        | StorageError::Interrupted(_) => Code::Failed,
    }
}
