#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! The service: it applies the lifecycle's rules to the store, the engine and the agent.
//!
//! One task drives one sandbox ([`actor`]): it asks `dorm-lifecycle` what an input leads to,
//! records that, carries out the one effect and reports the result as an observation. Callers get
//! an answer that says what holds. The service knows stores, engines and the agent only by their
//! ports, and it knows no HTTP.
//!
//! ```text
//! caller ─► Service::suspend ─► actor ─► step() ─► store.commit ─► effect (engine, storage, agent) ─► observation ─┐
//!                                 ▲                                                                                │
//!                                 └────────────────────────────────────────────────────────────────────────────────┘
//! ```

mod activity;
mod actor;
mod admission;
mod asked_by;
mod backoff;
mod build_plan;
mod builds;
mod checkpointing;
mod data_disk;
mod diary;
mod effects;
mod environments;
mod error;
mod identity;
mod image_settings;
mod keyed;
mod living;
mod messages;
mod notices;
mod ops;
mod parking;
mod pools;
mod quarantine;
mod recovery;
mod references;
mod removals;
mod report;
mod retention;
mod sampling;
mod secrets;
mod secrets_key;
mod service_clock;
mod shared;
mod soundness;
mod stopping;
mod timekeeping;
mod timers;
mod tree;
mod trust;
mod usage_history;
mod view;
mod volumes;

pub use activity::{InUse, Use};
pub use admission::ProjectUse;
pub use backoff::Backoff;
pub use builds::BUILD_LABEL;
pub use dorm_engine::Usage;
pub use dorm_store::Code;
pub use dorm_volume::{
    BadPath, DEPTH_MAX, ENTRIES_MAX, EntryChange, EntryPath, EntryStat, FileEntry, FileKind, Health, IfExists,
    Limiting, NewEntry, NewFile, Ownership, Parents, TopMode, VolumeError, Volumes,
};
pub use error::{
    BuildProblem, EnvironmentProblem, Failure, PoolProblem, ProjectProblem, ServiceError, Shortage, VolumeProblem,
};
pub use image_settings::START_LABEL;
pub use messages::{AnswerAt, IfBusy, Manner};
pub use ops::attach::{AttachmentSpec, FollowingVolumes};
pub use ops::builds::{BUILD_LOG_LINES_MAX, UploadedContext};
pub use ops::checkpoint::{CheckpointSpec, Checkpointed};
pub use ops::collect::{CollectorItem, CollectorItemKind, Verdict};
pub use ops::compose::Composition;
pub use ops::create::{CreateFrom, CreateSpec};
pub use ops::describe::SandboxPage;
pub use ops::diff::Moment;
pub use ops::environments::leases::RunOutcome;
pub use ops::environments::{
    ENVIRONMENTS_MAX, EnsureExplanation, EnsureProgress, EnsureSpec, Ensured, EnsuredBy, LEASE_MAX, TokenSpec,
    WorkspaceSpec,
};
pub use ops::exec::{CommandInput, Execution};
pub use ops::figures::Figures;
pub use ops::fork::{FORK_MAX, ForkChildSpec, ForkSpec};
pub use ops::keys::{API_KEYS_MAX, ApiKeySpec, KEY_NAME_MAX, KeyForm};
pub use ops::operations::OperationPage;
pub use ops::pools::{POOL_READY_MAX, PoolSpec, PoolView};
pub use ops::ports::{COOKIE_LIFETIME, LINK_LIFETIME};
pub use ops::projects::{PROJECTS_MAX, ProjectView};
pub use ops::promote::Promoted;
pub use ops::pull::PullPolicy;
pub use ops::reserved_builds::BuildSteps;
pub use ops::restart::Restarted;
pub use ops::resume::ResumeSpec;
pub use ops::rewind::{KeepFuture, RewoundSandbox};
pub use ops::secrets::{SECRET_BYTES_MAX, SECRETS_MAX, SecretView};
pub use ops::snapshot_names::NamedSource;
pub use ops::snapshots::SnapshotPage;
pub use ops::templates::{DEFAULT_TAG, TemplateReference, TemplateSpec};
pub use ops::transfer::{ExportFile, ImportSpec};
pub use ops::volumes::{VOLUME_BYTES, VolumeView};
pub use parking::ParkLimits;
pub use report::RecoveryReport;
pub use secrets::{SecretSpec, SecretSpecs};
pub use secrets_key::{LostSecrets, SealError, SecretsKey};
pub use shared::{Budgets, Parts, PortSecret, Retention, Service, Settings};
pub use tree::{TreeFilter, TreeId, TreeNode, TreeState};
pub use usage_history::UsageSample;
pub use view::{Changed, Residence, SandboxView};
pub use volumes::VolumeUse;
