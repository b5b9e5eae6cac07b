#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! The definition of a sandbox and of the ways in which it may change: the only one in Dormouse.
//!
//! Everything here is pure: no I/O, no clock, no randomness, no logging and no serialisation. Time
//! comes in with [`Context`], identifiers are made from bytes that the caller supplies, and
//! [`step`] returns the next state of a sandbox and the one [`Effect`] to carry out. Stores,
//! engines, APIs, documents and the simulator read this crate and never define a state of their
//! own.
//!
//! ```text
//! command or observation ──► step(sandbox, input, context) ──► Step { next, effect, events } or Denied
//! ```

mod amount;
mod annotations;
mod background;
mod caller;
mod checkpoints;
mod denied;
mod egress;
pub mod environment;
mod event;
mod ids;
mod inherited;
mod invariants;
mod lease;
mod pool;
mod ports;
mod reach;
mod recovery;
mod resources;
mod rewind;
mod sandbox;
mod saved;
mod spec;
mod spec_error;
mod state;
mod step;
mod time;
mod update;
mod volume;
mod why;

#[cfg(test)]
mod table;

pub use amount::{ByteSize, CpuCount};
pub use annotations::{ANNOTATIONS_BYTES_MAX, Annotations};
pub use background::{Background, BackgroundWork};
pub use caller::{Caller, Credential, DoorId};
pub use checkpoints::{Checkpoints, RetentionPolicy, RetentionPolicyError, RetentionRule, Taken};
pub use denied::Denied;
pub use egress::{
    EGRESS_RULES_MAX, Egress, EgressDefault, EgressError, EgressPolicy, EgressRule, EgressRules, EgressTarget,
    EgressTargetError, HEADER_RULES_MAX, HTTPS_PORT, HeaderError, HeaderRule, HostPattern, Network, ParsedHeader,
    PolicyRule, Verdict, is_public,
};
pub use event::{EventKind, Initiator};
pub use ids::{
    ApiKeyId, BuildId, Digest, EnvironmentId, HoldId, IdError, LeaseId, Name, OperationId, PoolId, ProjectId,
    RequestId, RunId, SandboxId, SavedStateId, SecretName, SnapshotId, SnapshotName, TemplateId, TemplateName,
    VolumeId, WebhookId,
};
pub use inherited::InheritedSettings;
pub use invariants::{Broken, check};
pub use lease::{Lease, LeaseRefused, all_leases, grant, has_leases, leases};
pub use pool::{Claim, PoolMember};
pub use ports::{PortAccess, PortHost, PortRule, PortRules, PortTerms};
pub use reach::{SUSPEND_FAILURES_MAX, SuspendFailures, Unreachable};
pub use recovery::{Recovery, RunCondition, leftovers, prefer_run, preferred_run, recover};
pub use resources::{Resize, Resources};
pub use rewind::{Abandoned, Future, Held, Rewind, RewindFrom, Rewinding, Rewound};
pub use sandbox::{Deadline, DeadlineKind, Hold, Origin, Restored, Sandbox};
pub use saved::{Keep, SleepImage, SnapshotKind};
pub use spec::{OnSuspendFailure, OnTimeout, OnUnrestorable, SandboxSpec, SleepRetention, Timeouts, Variables, Wake};
pub use spec_error::SpecError;
pub use state::{Cause, FirstProgram, State, StateName};
pub use step::{Command, Context, Effect, Input, Limits, Observation, Outcome, Step, create, create_with, step};
pub use time::Timestamp;
pub use update::Update;
pub use volume::{
    ATTACHMENTS_MAX, Access, Attachment, AttachmentError, MountPath, PlaceError, SubPath, Writers, check_attachments,
    free_slot,
};
pub use why::{Facts, PastEvent, Reason, Why, why};
