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
mod backoff;
mod checkpointing;
mod clock;
mod data_disk;
mod destinations;
mod effects;
mod error;
mod failure;
mod identity;
mod keyed;
mod living;
mod notices;
mod ops;
mod outcome;
mod parking;
mod quarantine;
mod recovery;
mod references;
mod registry;
mod removals;
mod requests;
mod retention;
mod secrets;
mod service_clock;
mod shared;
mod soundness;
mod stopping;
mod timekeeping;
mod timers;
mod tree;
mod view;
mod volumes;

pub use activity::{InUse, Use};
pub use admission::{Budgets, HostFacts, ThisHost};
pub use backoff::Backoff;
pub use clock::{Clock, SystemClock, TokioClock};
pub use data_disk::{DataDisk, HeldBack};
pub use destinations::{Destinations, is_public};
pub use dorm_store::Code;
pub use dorm_volume::{FileEntry, FileKind, Health, Limiting, NewFile, VolumeError, Volumes};
pub use error::ServiceError;
pub use failure::Failure;
pub use identity::{Randomness, SystemRandomness};
pub use ops::attach::{AttachVolume, FollowingVolumes};
pub use ops::checkpoint::{Checkpointed, SnapshotPage, SnapshotSettings};
pub use ops::collect::{CollectorItem, CollectorItemKind, Verdict};
pub use ops::compose::Composition;
pub use ops::create::{CreateFrom, CreateSandbox};
pub use ops::diff::Moment;
pub use ops::exec::Execution;
pub use ops::figures::Figures;
pub use ops::fork::{FORK_MAX, ForkAsked, ForkChild};
pub use ops::keys::{API_KEYS_MAX, ApiKeySpec, KEY_NAME_MAX};
pub use ops::operations::OperationPage;
pub use ops::ports::{COOKIE_LIFETIME, LINK_LIFETIME, PortSecret};
pub use ops::promote::Promoted;
pub use ops::pull::PullPolicy;
pub use ops::restart::Restarted;
pub use ops::rewind::{KeepFuture, RewoundSandbox};
pub use ops::settings::START_LABEL;
pub use ops::transfer::{ExportFile, ImportSettings};
pub use ops::volumes::VolumeView;
pub use parking::ParkLimits;
pub use recovery::RecoveryReport;
pub use registry::{Deed, FileContent, Pull, PullProgress, Pushed, Registry, RegistryError, Transport};
pub use retention::Retention;
pub use secrets::{LostSecrets, SealError, SecretAsked, SecretsAsked, SecretsKey};
pub use shared::{Parts, Service, Settings};
pub use tree::{TreeFilter, TreeId, TreeNode, TreeState};
pub use view::{Residence, SandboxView};
pub use volumes::{VolumeProblem, VolumeUse};
