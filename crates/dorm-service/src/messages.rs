//! The messages to the actors of sandboxes, with what callers ask for in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dorm_agent_client::Agent;
use dorm_lifecycle::{Attachment, Command, Future, MountPath, RunId, SnapshotId, SnapshotKind, SnapshotName};
use dorm_store::{Maker, Removal, SnapshotRecord};
use tokio::sync::{mpsc, oneshot};

use crate::activity::{InUse, Use};
use crate::asked_by::AskedBy;
use crate::error::ServiceError;
use crate::keyed::KeyedRequest;
use crate::view::SandboxView;

pub(crate) type Mailbox = mpsc::UnboundedSender<Message>;
pub(crate) type Reply<T> = oneshot::Sender<Result<T, ServiceError>>;

/// A message to an actor.
pub(crate) enum Message {
    /// A command of a caller; the reply comes as `manner` says.
    Command {
        command: Command,
        by: AskedBy,
        manner: Manner,
        request: Option<Arc<KeyedRequest>>,
        reply: Reply<SandboxView>,
    },
    /// A message that is only for this revision of the record. Otherwise it is dropped, and the
    /// current revision is sent.
    AtRevision { revision: u64, message: Box<Message>, changed: oneshot::Sender<u64> },
    /// A request for a snapshot.
    Snapshot { asked: SnapshotSpec, reply: Reply<SnapshotRecord> },
    /// A request to rewind to a snapshot.
    Rewind { asked: Box<RewindSpec>, reply: Reply<SandboxView> },
    /// Reply when the state that a rewind has left is saved, or an attempt to save it has failed.
    HeldSettled { reply: Reply<()> },
    /// Reply when the sandbox is not being suspended, or not any more.
    Settled { reply: Reply<()> },
    /// A request to change the attachments.
    Attachments { change: AttachmentChange, by: AskedBy, reply: Reply<SandboxView> },
    /// A request for the connection to the agent.
    Use { what: Use, reply: Reply<(Agent, InUse)> },
    /// The agent that a caller was lent does not answer.
    Unanswered { silent: Agent, what: Use, reply: Reply<(Agent, InUse)> },
    /// Release the sandbox's memory, if it is parked.
    Evict { by: AskedBy, reply: Option<Reply<SandboxView>> },
    /// A run ended unexpectedly.
    RunEnded { run: RunId, reason: String },
    /// A run has reached its soft memory limit and is paused.
    MemoryHigh { run: RunId },
    /// The host's disk is nearly full.
    DiskLow,
    /// There is room on the host's disk again.
    DiskRoom,
    /// A deadline may have passed.
    Due,
}

/// How a command is carried out for its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// When the caller gets an answer.
    pub answer: AnswerAt,
    /// Whether the command waits for another operation in progress.
    pub if_busy: IfBusy,
}

/// When the caller of a command gets an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AnswerAt {
    /// When the command has taken effect or failed. The default.
    #[default]
    End,
    /// When its operation is recorded, which then ends whether or not a caller waits.
    Beginning,
}

/// The action of a command while another operation is in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IfBusy {
    /// It waits for that operation, and is then decided. The default.
    #[default]
    Wait,
    /// It is refused.
    Refuse,
}

/// The part of its source's settings that a snapshot carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carries {
    /// Those that a sandbox made from it inherits.
    Settings,
    /// None: they were those of the work that made it.
    Nothing,
}

/// A request for a snapshot.
pub(crate) struct SnapshotSpec {
    pub(crate) id: SnapshotId,
    pub(crate) kind: SnapshotKind,
    pub(crate) name: Option<SnapshotName>,
    pub(crate) carries: Carries,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) removal: Removal,
    pub(crate) made_by: Maker,
    pub(crate) by: AskedBy,
    /// The request with an idempotency key that asks for it.
    pub(crate) request: Option<Arc<KeyedRequest>>,
    /// Notified when the record says that the snapshot is being taken.
    pub(crate) begun: Option<oneshot::Sender<SnapshotRecord>>,
}

/// A request to rewind.
pub(crate) struct RewindSpec {
    /// The snapshot, complete and verified to its last byte just before.
    pub(crate) to: SnapshotRecord,
    /// The snapshot to make of the present state; `None` to discard that state.
    pub(crate) future: Option<Future>,
    /// Whether there is room for the present run besides the new one.
    pub(crate) may_hold: bool,
    pub(crate) by: AskedBy,
    /// The request with an idempotency key that asks for it.
    pub(crate) request: Option<Arc<KeyedRequest>>,
}

/// A change of the attachments of a sandbox.
#[derive(Clone, Debug)]
pub(crate) enum AttachmentChange {
    Attach(Attachment),
    Detach(MountPath),
}
