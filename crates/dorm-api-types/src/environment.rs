//! Environments: sandboxes that are asked for by a key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::egress::Egress;
use crate::image::Pull;
use crate::resources::ResourcesRequest;
use crate::sandbox::Sandbox;
use crate::snapshot::SnapshotKind;
use crate::text::{Secret, Time};

/// Asks for the sandbox of an environment. Exactly one of `image`, `snapshot` and `template` is
/// set, and one of `key` and `thread` unless `lifecycle.reuse` is `none`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnsureRequest {
    /// Key, chosen by the caller: at most 1024 bytes, unique in the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Thread of an agent, in place of a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<EnvironmentThread>,
    /// Key that a client library has computed for it, of 16 hexadecimal digits. An environment that
    /// was made with this as its `key` is found by a request with a `thread`, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// Tag or digest of the image that it boots from, or the name of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// ID of the snapshot that it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Template that it starts from, `NAME` or `NAME:TAG`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether the image is pulled. Default `missing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// Resource limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Where it may connect to. Default: as for the snapshot, otherwise `public`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Environment variables of every process. Their values are never returned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets of the project for every process, by the name of their environment variable. They
    /// are no part of the definition: a secret may change. A sandbox gets the values when it starts
    /// and when it is resumed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Further secrets for every process, as values. They are recorded encrypted and never
    /// returned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_values: BTreeMap<String, Secret>,
    /// Code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<EnvironmentSource>,
    /// Directory of the code, in which the commands run. Default `/workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// User who runs the commands and owns the code. Default: that of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Setup steps, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<SetupStep>,
    /// Line for `/bin/sh` that is started after the setup, and at each later boot from files, and
    /// left running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_command: Option<String>,
    /// Line for `/bin/sh` that exits with 0 once everything is ready. It is repeated until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_command: Option<String>,
    /// Time limit of the clone, of each command and of the wait until everything is ready. Default
    /// 1800.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_timeout_secs: Option<f64>,
    /// How it is found again, and what becomes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<EnvironmentLifecycle>,
    /// Rule for work in progress if no caller waits for it any more. Default `continue`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_leave: Option<OnLeave>,
    /// Take a lease for this time, at most 24 hours. When the last lease is released or expires,
    /// the run has ended, and `lifecycle` says what follows. Default: no lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_secs: Option<f64>,
    /// Labels of the sandbox.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A thread of an agent, with the definition it asks for and the tenant it belongs to. Two are the
/// same if all fields are equal.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentThread {
    /// Thread.
    pub thread: String,
    /// Name of the definition.
    pub definition: String,
    /// User.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
}

/// Code of an environment: exactly one of the fields is set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnvironmentSource {
    /// Git repository, which is cloned in the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Hash of an uploaded build context, whose files are copied. See `PUT /v1/contexts/{hash}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// A git repository.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GitSource {
    /// URL, without credentials.
    pub url: String,
    /// Branch, tag or commit. Default: the branch that the server names.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// How many commits are fetched. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Fetch all commits and branches.
    #[serde(default)]
    pub full_history: bool,
    /// Token for the clone. Only the clone sees it, and it is never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Secret of the project that is the token for the clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret: Option<String>,
}

/// A step of a setup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SetupStep {
    /// Line for `/bin/sh`.
    Command(String),
    /// Lines that run at the same time.
    Parallel(ParallelSetup),
}

/// Commands of a setup that run at the same time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelSetup {
    /// Lines for `/bin/sh`.
    pub parallel: Vec<String>,
}

/// How an environment is found again, and what becomes of its sandbox.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnvironmentLifecycle {
    /// Whether the environment is used again. Default `thread`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
    /// When snapshots are taken. Default `after_setup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotWhen>,
    /// Kind of these snapshots. Default `memory`; `filesystem` after a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_kind: Option<SnapshotKind>,
    /// Greatest age of a snapshot that is restored. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_max_age_secs: Option<f64>,
    /// Greatest age of a sandbox that is used again. An older one is retired, and another one is
    /// restored or created. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_max_age_secs: Option<f64>,
    /// Suspend the sandbox when it was not used for this time. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_secs: Option<f64>,
    /// Terminate the sandbox when its last lease ends.
    pub destroy_on_complete: bool,
    /// Action if the definition is not the one that was recorded. Default `rebuild`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_drift: Option<OnDrift>,
    /// Action if a sandbox or snapshot exists and cannot be used. Default `refuse`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_broken: Option<OnBroken>,
    /// Keep the sandbox of a setup whose step has failed, for inspection: for an hour, or until the
    /// environment is asked for again.
    pub keep_failed: bool,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $case:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$of])* $case,)+
        }
    };
}

words! {
    /// Whether an environment is used again.
    Reuse {
        /// By every request with the same key.
        Thread,
        /// By no other request.
        None,
    }
}

words! {
    /// When snapshots are taken without a request.
    SnapshotWhen {
        /// After the setup. Other environments with the same definition start from it.
        AfterSetup,
        /// At the end of a run.
        AfterRun,
        /// Never.
        None,
    }
}

words! {
    /// Action if the definition is not the one that was recorded.
    OnDrift {
        /// Another sandbox is made. The earlier one is suspended and kept for seven days.
        Rebuild,
        /// The sandbox is used as it is, and the response names the differences.
        Keep,
        /// The request is refused.
        Refuse,
    }
}

words! {
    /// Action if a sandbox or snapshot exists and cannot be used.
    OnBroken {
        /// The request fails.
        Refuse,
        /// The next way is taken, and the response says what is broken.
        Next,
    }
}

words! {
    /// Rule for work in progress if no caller waits for it any more.
    OnLeave {
        /// It continues.
        Continue,
        /// It is cancelled.
        Cancel,
    }
}

words! {
    /// The way on which a sandbox was had.
    EnsuredBy {
        /// It was running.
        Live,
        /// It was resumed.
        Resumed,
        /// It was restored from a snapshot.
        Restored,
        /// It was created and set up.
        Created,
    }
}

words! {
    /// A way to a sandbox. They are considered in this order.
    Way {
        /// It runs.
        Live,
        /// It is resumed.
        Resume,
        /// It is restored from the latest snapshot of the environment.
        OwnSnapshot,
        /// It is restored from a snapshot that another environment has taken of the same
        /// definition.
        WorkspaceSnapshot,
        /// It is created and set up.
        Create,
    }
}

words! {
    /// Whether a way can be taken.
    Verdict {
        /// It is taken.
        Taken,
        /// There is nothing to use.
        Unavailable,
        /// There is something that cannot be used.
        Broken,
    }
}

words! {
    /// State of an environment.
    EnvironmentState {
        /// It has no sandbox, and none is being made.
        Idle,
        /// Its sandbox is being made.
        Working,
        /// It has a sandbox.
        Ready,
        /// The end of a run is being carried out.
        Ending,
    }
}

words! {
    /// Result of an attempt to make a sandbox.
    AttemptState {
        /// It is in progress.
        Running,
        /// The sandbox is ready.
        Ready,
        /// It has failed.
        Failed,
        /// It was cancelled.
        Cancelled,
    }
}

words! {
    /// State of a step of a setup.
    SetupState {
        /// It has not begun.
        Waiting,
        /// It is in progress.
        Running,
        /// It has succeeded.
        Done,
        /// It has failed.
        Failed,
    }
}

/// A way that was considered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Considered {
    /// The way.
    pub way: Way,
    /// The result.
    pub verdict: Verdict,
    /// Why it is not taken.
    pub reason: Option<String>,
}

/// The sandbox of an environment, and the way on which it was had.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Ensured {
    /// The environment.
    pub environment: Environment,
    /// Its running sandbox.
    pub sandbox: Sandbox,
    /// The way on which it was had.
    pub by: EnsuredBy,
    /// Ways that were considered, in order.
    pub considered: Vec<Considered>,
    /// Snapshot that it was restored from.
    pub restored: Option<RestoredFrom>,
    /// Losses: everything that was there before and is not any more, as sentences.
    pub lost: Vec<String>,
    /// Fields of the definition that are not as recorded, if the sandbox was kept even so.
    pub drift: Vec<String>,
    /// Phases, with the time of each.
    pub phases: Vec<EnsurePhase>,
    /// Steps of the setup, if there was one.
    pub steps: Vec<SetupStepView>,
    /// Why the snapshot after the setup could not be taken.
    pub snapshot_failure: Option<String>,
    /// Whether an earlier request had begun to make the sandbox.
    pub joined: bool,
    /// Lease that the request has taken.
    pub lease: Option<EnvironmentLease>,
}

/// Snapshot that a sandbox was restored from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RestoredFrom {
    /// ID of the snapshot.
    pub snapshot: String,
    /// Whether another environment with the same definition has taken it.
    pub shared: bool,
    /// Whether it was taken just before, after the setup of the same request.
    pub new: bool,
    /// Its age.
    pub age_secs: f64,
}

/// A phase of making a sandbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnsurePhase {
    /// Name.
    pub name: String,
    /// How long it took.
    pub took_secs: f64,
}

/// A step of a setup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SetupStepView {
    /// The command as one line.
    pub title: String,
    /// State.
    pub state: SetupState,
    /// Exit code, if it exited.
    pub exit_code: Option<i32>,
    /// When it began.
    pub began_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// The effect that a request for an environment would have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnsureExplanation {
    /// ID of the environment, if there is one with the key.
    pub environment: Option<String>,
    /// Whether its sandbox is being made: the request would wait for that.
    pub joins: bool,
    /// Ways that would be considered, in order.
    pub considered: Vec<Considered>,
    /// Why the request would be refused.
    pub refused: Option<String>,
    /// Fields of the definition that are not as recorded.
    pub drift: Vec<String>,
    /// Hash of the definition. Environments with the same hash share snapshots after the setup.
    pub workspace: String,
}

/// An environment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Environment {
    /// ID.
    pub id: String,
    /// Project.
    pub project: String,
    /// Key, if its caller has chosen one.
    pub key: Option<String>,
    /// Thread, if it has no key.
    pub thread: Option<EnvironmentThread>,
    /// Key that a client library has computed for it.
    pub client_key: Option<String>,
    /// State.
    pub state: EnvironmentState,
    /// ID of its sandbox.
    pub sandbox: Option<String>,
    /// ID of its latest snapshot.
    pub snapshot: Option<String>,
    /// Commit that its code was cloned at.
    pub commit: Option<String>,
    /// Hash of the definition.
    pub workspace: String,
    /// How it is found again, and what becomes of it.
    pub lifecycle: EnvironmentLifecycle,
    /// Attempt in progress to make its sandbox, or the latest one.
    pub attempt: Option<EnvironmentAttempt>,
    /// Runs that use it.
    pub leases: Vec<EnvironmentLease>,
    /// IDs of earlier sandboxes, which are kept for seven days.
    pub retired: Vec<String>,
    /// When it was first asked for.
    pub created_at: Time,
}

/// An attempt to make the sandbox of an environment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentAttempt {
    /// ID.
    pub id: String,
    /// State.
    pub state: AttemptState,
    /// Caller who asked for it first.
    pub caller: Option<Caller>,
    /// Ways that were considered, in order.
    pub considered: Vec<Considered>,
    /// Steps of the setup.
    pub steps: Vec<SetupStepView>,
    /// Phases that have ended.
    pub phases: Vec<EnsurePhase>,
    /// Why it has failed.
    pub failure: Option<AttemptFailure>,
    /// When it began.
    pub began_at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// Why an attempt has failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptFailure {
    /// Error code, as in a problem.
    pub code: String,
    /// The reason.
    pub reason: String,
    /// Position of the step that failed, starting at 0; null if it was not a step.
    pub step: Option<u64>,
    /// Exit code of its command, if that exited.
    pub exit_code: Option<i32>,
    /// ID of the sandbox that is kept for inspection.
    pub kept: Option<String>,
}

/// A lease: the use of an environment by one run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentLease {
    /// ID.
    pub id: String,
    /// When it expires, unless it is renewed.
    pub expires_at: Time,
}

/// Renews a lease.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewLease {
    /// How long it lasts from now, at most 24 hours.
    pub lease_secs: f64,
}

words! {
    /// How a run has ended.
    RunOutcome {
        /// It is complete.
        Completed,
        /// It has failed: no snapshot is taken.
        Failed,
    }
}

/// Ends the run that a lease is for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReleaseEnvironment {
    /// ID of the lease. Default: the run had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// How the run has ended. Default `completed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
}

/// A page of environments.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentList {
    /// The environments.
    pub environments: Vec<Environment>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

words! {
    /// Origin of a line of a log.
    EnvironmentLogStream {
        /// The daemon.
        Daemon,
        /// Standard output of a step.
        Stdout,
        /// Standard error of a step.
        Stderr,
    }
}

/// A line of the log of an environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentLogLine {
    /// Its offset in the log, starting at 0.
    pub offset: u64,
    /// When it was written.
    pub at: Time,
    /// Position of the step, starting at 0; null if it concerns no step.
    pub step: Option<u64>,
    /// Its origin.
    pub stream: EnvironmentLogStream,
    /// The text, without the end of the line. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// Lines of the log of the latest attempt for an environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentLog {
    /// The lines, in order.
    pub lines: Vec<EnvironmentLogLine>,
    /// Offset of the next line: send it as `offset`.
    pub next_offset: u64,
    /// Whether the attempt is in progress. Nothing is added to the log of one that has ended.
    pub in_progress: bool,
}
