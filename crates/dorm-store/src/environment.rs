//! Environments.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::environment::{Considered, Key, OnLeave, Policy, SnapshotOf, Workspace};
use dorm_lifecycle::{
    Caller, EnvironmentId, LeaseId, OperationId, ProjectId, SandboxId, SecretName, SnapshotId, Timestamp, Variables,
};
use sha2::{Digest as _, Sha256};

use crate::FailureRecord;

/// Returns the SHA-256 of all parts of a key. Stores find the record of a key by it, and then
/// compare the key itself.
pub fn key_hash(key: &Key) -> String {
    let mut hash = Sha256::new();
    for (name, part) in key.parts() {
        let part = part.map_or_else(|| "-".to_owned(), |part| format!("{}:{part}", part.len()));
        hash.update(format!("{name}={part}\n"));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An environment: its sandbox, and how that is made again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvironmentRecord {
    /// Its id.
    pub id: EnvironmentId,
    /// The project it belongs to.
    pub project: ProjectId,
    /// Its key, unique in the project.
    pub key: Key,
    /// The key that a client library has computed for it.
    pub client_key: Option<String>,
    /// The workspace of its sandbox, or of the attempt in progress.
    pub workspace: Workspace,
    /// The policy of the latest request.
    pub policy: Policy,
    /// The secrets of the project that every process in its sandbox gets, by the name of their
    /// environment variable.
    pub secrets: BTreeMap<String, SecretName>,
    /// The secrets that the request has given as values, sealed.
    pub values: Variables,
    /// The labels of its sandbox.
    pub labels: BTreeMap<String, String>,
    /// Its sandbox. Only one that is ready is ever here.
    pub sandbox: Option<SandboxId>,
    /// Its latest snapshot.
    pub snapshot: Option<SnapshotId>,
    /// The commit that its code was cloned at.
    pub commit: Option<String>,
    /// The attempt in progress to get a sandbox.
    pub attempt: Option<Attempt>,
    /// The latest attempt that has ended.
    pub last: Option<AttemptEnd>,
    /// The runs that use it.
    pub leases: Vec<EnvironmentLease>,
    /// The end of its last run, while that is carried out.
    pub ending: Option<RunEnd>,
    /// Earlier sandboxes, which are kept for a time.
    pub retired: Vec<RetiredSandbox>,
    /// When it was first asked for.
    pub created: Timestamp,
    /// Whether it is removed: its record goes when its sandboxes are terminated.
    pub removed: bool,
}

/// An attempt to get a sandbox by restoring or creating it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Its id.
    pub id: OperationId,
    /// When it began.
    pub began: Timestamp,
    /// The caller who asked for it first.
    pub caller: Option<Caller>,
    /// The settings that the environment had before; it has them again if the attempt fails.
    pub before: Option<SettingsBefore>,
    /// Action if no caller waits for it any more.
    pub on_leave: OnLeave,
    /// Whether its cancellation was requested.
    pub cancel: bool,
    /// The ways that were considered.
    pub considered: Vec<Considered>,
    /// The parts of the workspace that were not as recorded.
    pub drift: Vec<String>,
    /// The sandbox that it makes. It is on record before it exists.
    pub sandbox: SandboxId,
    /// The sandbox that the environment had before.
    pub replaces: Option<SandboxId>,
    /// The snapshot to restore; none while a sandbox is created and set up.
    pub restore: Option<RestoredFrom>,
    /// The sandbox that is being set up, and the snapshot to take of it.
    pub setup: Option<SetupWork>,
    /// The token for the clone, sealed; it is removed when the clone has ended.
    pub token: Option<String>,
    /// The steps of the setup.
    pub steps: Vec<SetupStepRecord>,
    /// The phases that have ended.
    pub phases: Vec<Phase>,
    /// Why the snapshot after the setup could not be taken.
    pub snapshot_failure: Option<FailureRecord>,
    /// The commit that the code of its sandbox was cloned at.
    pub commit: Option<String>,
}

/// The settings of an environment before an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsBefore {
    /// Its workspace.
    pub workspace: Workspace,
    /// The others. None in an attempt of a build that did not record them.
    pub others: Option<OtherSettings>,
}

/// The settings of an environment besides its workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherSettings {
    /// The key that a client library has computed for it.
    pub client_key: Option<String>,
    /// Its policy.
    pub policy: Policy,
    /// The secrets of the project that every process in its sandbox gets.
    pub secrets: BTreeMap<String, SecretName>,
    /// The secrets that a request has given as values, sealed.
    pub values: Variables,
    /// The labels of its sandbox.
    pub labels: BTreeMap<String, String>,
}

impl EnvironmentRecord {
    /// Returns its present settings.
    pub fn settings(&self) -> SettingsBefore {
        SettingsBefore {
            workspace: self.workspace.clone(),
            others: Some(OtherSettings {
                client_key: self.client_key.clone(),
                policy: self.policy.clone(),
                secrets: self.secrets.clone(),
                values: self.values.clone(),
                labels: self.labels.clone(),
            }),
        }
    }

    /// Gives it earlier settings again.
    pub fn restore_settings(&mut self, before: SettingsBefore) {
        let SettingsBefore { workspace, others } = before;
        self.workspace = workspace;
        let Some(OtherSettings { client_key, policy, secrets, values, labels }) = others else { return };
        (self.client_key, self.policy, self.secrets) = (client_key, policy, secrets);
        (self.values, self.labels) = (values, labels);
    }

    /// Returns the policy of the sandbox that it has: during an attempt, the one of before.
    pub fn policy_of_sandbox(&self) -> &Policy {
        let before = self.attempt.as_ref().and_then(|attempt| attempt.before.as_ref()?.others.as_ref());
        before.map_or(&self.policy, |before| &before.policy)
    }
}

/// A snapshot that a sandbox is restored from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoredFrom {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The environment it was taken of; none if it was taken by the same attempt.
    pub of: Option<SnapshotOf>,
    /// The time since it was taken, when that was decided.
    pub age: Duration,
}

/// The objects of a setup, recorded before they are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetupWork {
    /// The sandbox in which it runs.
    pub sandbox: SandboxId,
    /// The snapshot of its result; none if none is taken.
    pub snapshot: Option<SnapshotId>,
}

/// A command of a setup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetupStepRecord {
    /// The command as one line.
    pub title: String,
    /// Its state.
    pub state: SetupState,
    /// Its exit code, if it exited.
    pub exit_code: Option<i32>,
    /// When it began.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// The state of a command of a setup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupState {
    /// It has not begun.
    Waiting,
    /// It is in progress.
    Running,
    /// It has succeeded.
    Done,
    /// It has failed.
    Failed,
}

/// A phase of an attempt that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub took: Duration,
}

/// The end of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptEnd {
    /// The attempt, as it ended.
    pub attempt: Attempt,
    /// When it ended.
    pub ended: Timestamp,
    /// Its result.
    pub result: AttemptResult,
}

/// The result of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttemptResult {
    /// The sandbox is ready.
    Ready,
    /// It has failed.
    Failed(AttemptFailure),
    /// It was cancelled.
    Cancelled,
}

/// Why an attempt has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptFailure {
    /// The position of the step that failed, starting at 0; none if it was not a step.
    pub step: Option<u64>,
    /// The exit code of its command, if that exited.
    pub exit_code: Option<i32>,
    /// The reason.
    pub failure: FailureRecord,
    /// The sandbox that was kept for inspection.
    pub kept: Option<SandboxId>,
}

/// The use of an environment by one run. It ends when it is released or expires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvironmentLease {
    /// Its id.
    pub id: LeaseId,
    /// When it expires, unless it is renewed before.
    pub until: Timestamp,
}

/// The actions at the end of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEnd {
    /// The snapshot to take.
    pub snapshot: Option<SnapshotId>,
    /// Whether the sandbox is terminated.
    pub destroy: bool,
}

/// An earlier sandbox of an environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetiredSandbox {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// When it was retired.
    pub at: Timestamp,
    /// Whether it was suspended since. It is left alone from then on.
    pub is_settled: bool,
}
