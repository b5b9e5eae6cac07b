//! The rows of environments, all but their attempts.

use std::collections::BTreeMap;

use dorm_lifecycle::environment::{
    Base, Code, Key, OnBroken, OnDrift, Policy, SetupStep, SnapshotWhen, Thread, Workspace,
};
use dorm_lifecycle::{Digest, EnvironmentId, LeaseId, ProjectId, SandboxId, SecretName, SnapshotId, Variables};
use serde::{Deserialize, Serialize};

use super::attempt::{AttemptEndRow, AttemptRow};
use super::sandbox::{EgressRow, ResourcesRow};
use super::snapshot::KindRow;
use crate::codec::word::{Length, Millis, Text, Word, present};
use crate::{EnvironmentLease, EnvironmentRecord, RetiredSandbox, RunEnd, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct EnvironmentRow {
    v: u64,
    id: Text<EnvironmentId>,
    project: Text<ProjectId>,
    key: KeyRow,
    #[serde(deserialize_with = "present")]
    client_key: Option<String>,
    workspace: WorkspaceRow,
    policy: PolicyRow,
    secrets: BTreeMap<String, Text<SecretName>>,
    values: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "present")]
    sandbox: Option<Text<SandboxId>>,
    #[serde(deserialize_with = "present")]
    snapshot: Option<Text<SnapshotId>>,
    #[serde(deserialize_with = "present")]
    commit: Option<String>,
    #[serde(deserialize_with = "present")]
    attempt: Option<AttemptRow>,
    #[serde(deserialize_with = "present")]
    last: Option<AttemptEndRow>,
    leases: Vec<LeaseRow>,
    #[serde(deserialize_with = "present")]
    ending: Option<EndingRow>,
    retired: Vec<RetiredRow>,
    created: Millis,
    removed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeyRow {
    Own(String),
    Thread(ThreadRow),
    Once(Text<EnvironmentId>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThreadRow {
    thread: String,
    definition: String,
    #[serde(deserialize_with = "present")]
    user: Option<String>,
    #[serde(deserialize_with = "present")]
    organization: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct WorkspaceRow {
    base: BaseRow,
    resources: ResourcesRow,
    #[serde(deserialize_with = "present")]
    egress: Option<EgressRow>,
    variables: BTreeMap<String, String>,
    directory: String,
    #[serde(deserialize_with = "present")]
    user: Option<String>,
    #[serde(deserialize_with = "present")]
    code: Option<CodeRow>,
    setup: Vec<SetupRow>,
    #[serde(deserialize_with = "present")]
    start: Option<String>,
    #[serde(deserialize_with = "present")]
    ready: Option<String>,
    step_limit: Length,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BaseRow {
    Image(Text<Digest>),
    Snapshot(Text<SnapshotId>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CodeRow {
    Git(GitRow),
    Upload(Text<Digest>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GitRow {
    url: String,
    #[serde(deserialize_with = "present")]
    reference: Option<String>,
    #[serde(deserialize_with = "present")]
    depth: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SetupRow {
    Serial(String),
    Parallel(Vec<String>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyRow {
    snapshot: Word<SnapshotWhen>,
    snapshot_kind: KindRow,
    #[serde(deserialize_with = "present")]
    snapshot_max_age: Option<Length>,
    #[serde(deserialize_with = "present")]
    sandbox_max_age: Option<Length>,
    #[serde(deserialize_with = "present")]
    keep_alive: Option<Length>,
    destroy_on_complete: bool,
    on_drift: Word<OnDrift>,
    on_broken: Word<OnBroken>,
    keep_failed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseRow {
    id: Text<LeaseId>,
    until: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndingRow {
    #[serde(deserialize_with = "present")]
    snapshot: Option<Text<SnapshotId>>,
    destroy: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetiredRow {
    sandbox: Text<SandboxId>,
    at: Millis,
    is_settled: bool,
}

impl From<&EnvironmentRecord> for EnvironmentRow {
    fn from(record: &EnvironmentRecord) -> Self {
        let EnvironmentRecord {
            id,
            project,
            key,
            client_key,
            workspace,
            policy,
            secrets,
            values,
            labels,
            sandbox,
            snapshot,
            commit,
            attempt,
            last,
            leases,
            ending,
            retired,
            created,
            removed,
        } = record;
        let lease = |EnvironmentLease { id, until }: &_| LeaseRow { id: Text(id.clone()), until: Millis(*until) };
        let retire = |RetiredSandbox { sandbox, at, is_settled }: &_| RetiredRow {
            sandbox: Text(sandbox.clone()),
            at: Millis(*at),
            is_settled: *is_settled,
        };
        Self {
            v: codec::ENVIRONMENT,
            id: Text(id.clone()),
            project: Text(project.clone()),
            key: key.into(),
            client_key: client_key.clone(),
            workspace: workspace.into(),
            policy: policy.into(),
            secrets: secrets.iter().map(|(name, secret)| (name.clone(), Text(secret.clone()))).collect(),
            values: values.0.clone(),
            labels: labels.clone(),
            sandbox: sandbox.clone().map(Text),
            snapshot: snapshot.clone().map(Text),
            commit: commit.clone(),
            attempt: attempt.as_ref().map(AttemptRow::from),
            last: last.as_ref().map(AttemptEndRow::from),
            leases: leases.iter().map(lease).collect(),
            ending: ending.as_ref().map(|RunEnd { snapshot, destroy }| EndingRow {
                snapshot: snapshot.clone().map(Text),
                destroy: *destroy,
            }),
            retired: retired.iter().map(retire).collect(),
            created: Millis(*created),
            removed: *removed,
        }
    }
}

impl From<EnvironmentRow> for EnvironmentRecord {
    fn from(row: EnvironmentRow) -> Self {
        let lease = |row: LeaseRow| EnvironmentLease { id: row.id.0, until: row.until.0 };
        let retire =
            |row: RetiredRow| RetiredSandbox { sandbox: row.sandbox.0, at: row.at.0, is_settled: row.is_settled };
        Self {
            id: row.id.0,
            project: row.project.0,
            key: row.key.into(),
            client_key: row.client_key,
            workspace: row.workspace.into(),
            policy: row.policy.into(),
            secrets: row.secrets.into_iter().map(|(name, secret)| (name, secret.0)).collect(),
            values: Variables(row.values),
            labels: row.labels,
            sandbox: row.sandbox.map(|sandbox| sandbox.0),
            snapshot: row.snapshot.map(|snapshot| snapshot.0),
            commit: row.commit,
            attempt: row.attempt.map(Into::into),
            last: row.last.map(Into::into),
            leases: row.leases.into_iter().map(lease).collect(),
            ending: row
                .ending
                .map(|row| RunEnd { snapshot: row.snapshot.map(|snapshot| snapshot.0), destroy: row.destroy }),
            retired: row.retired.into_iter().map(retire).collect(),
            created: row.created.0,
            removed: row.removed,
        }
    }
}

impl From<&Key> for KeyRow {
    fn from(key: &Key) -> Self {
        match key.clone() {
            Key::Own(text) => Self::Own(text),
            Key::Thread(Thread { thread, definition, user, organization }) => {
                Self::Thread(ThreadRow { thread, definition, user, organization })
            }
            Key::Once(id) => Self::Once(Text(id)),
        }
    }
}

impl From<KeyRow> for Key {
    fn from(row: KeyRow) -> Self {
        match row {
            KeyRow::Own(text) => Self::Own(text),
            KeyRow::Thread(ThreadRow { thread, definition, user, organization }) => {
                Self::Thread(Thread { thread, definition, user, organization })
            }
            KeyRow::Once(id) => Self::Once(id.0),
        }
    }
}

impl From<&Workspace> for WorkspaceRow {
    fn from(workspace: &Workspace) -> Self {
        let Workspace { base, resources, egress, variables, directory, user, code, setup, start, ready, step_limit } =
            workspace;
        Self {
            base: match base {
                Base::Image(image) => BaseRow::Image(Text(image.clone())),
                Base::Snapshot(snapshot) => BaseRow::Snapshot(Text(snapshot.clone())),
            },
            resources: resources.into(),
            egress: egress.as_ref().map(EgressRow::from),
            variables: variables.clone(),
            directory: directory.clone(),
            user: user.clone(),
            code: code.as_ref().map(|code| match code.clone() {
                Code::Git { url, reference, depth } => CodeRow::Git(GitRow { url, reference, depth }),
                Code::Upload(context) => CodeRow::Upload(Text(context)),
            }),
            setup: setup
                .iter()
                .map(|step| match step.clone() {
                    SetupStep::Serial(command) => SetupRow::Serial(command),
                    SetupStep::Parallel(commands) => SetupRow::Parallel(commands),
                })
                .collect(),
            start: start.clone(),
            ready: ready.clone(),
            step_limit: Length(*step_limit),
        }
    }
}

impl From<WorkspaceRow> for Workspace {
    fn from(row: WorkspaceRow) -> Self {
        Self {
            base: match row.base {
                BaseRow::Image(image) => Base::Image(image.0),
                BaseRow::Snapshot(snapshot) => Base::Snapshot(snapshot.0),
            },
            resources: row.resources.into(),
            egress: row.egress.map(Into::into),
            variables: row.variables,
            directory: row.directory,
            user: row.user,
            code: row.code.map(|code| match code {
                CodeRow::Git(GitRow { url, reference, depth }) => Code::Git { url, reference, depth },
                CodeRow::Upload(context) => Code::Upload(context.0),
            }),
            setup: row
                .setup
                .into_iter()
                .map(|step| match step {
                    SetupRow::Serial(command) => SetupStep::Serial(command),
                    SetupRow::Parallel(commands) => SetupStep::Parallel(commands),
                })
                .collect(),
            start: row.start,
            ready: row.ready,
            step_limit: row.step_limit.0,
        }
    }
}

impl From<&Policy> for PolicyRow {
    fn from(policy: &Policy) -> Self {
        let Policy {
            snapshot,
            snapshot_kind,
            snapshot_max_age,
            sandbox_max_age,
            keep_alive,
            destroy_on_complete,
            on_drift,
            on_broken,
            keep_failed,
        } = policy;
        Self {
            snapshot: Word(*snapshot),
            snapshot_kind: (*snapshot_kind).into(),
            snapshot_max_age: snapshot_max_age.map(Length),
            sandbox_max_age: sandbox_max_age.map(Length),
            keep_alive: keep_alive.map(Length),
            destroy_on_complete: *destroy_on_complete,
            on_drift: Word(*on_drift),
            on_broken: Word(*on_broken),
            keep_failed: *keep_failed,
        }
    }
}

impl From<PolicyRow> for Policy {
    fn from(row: PolicyRow) -> Self {
        Self {
            snapshot: row.snapshot.0,
            snapshot_kind: row.snapshot_kind.into(),
            snapshot_max_age: row.snapshot_max_age.map(|age| age.0),
            sandbox_max_age: row.sandbox_max_age.map(|age| age.0),
            keep_alive: row.keep_alive.map(|time| time.0),
            destroy_on_complete: row.destroy_on_complete,
            on_drift: row.on_drift.0,
            on_broken: row.on_broken.0,
            keep_failed: row.keep_failed,
        }
    }
}
