//! The attempts of environments, which are part of their rows.

use std::collections::BTreeMap;

use dorm_lifecycle::environment::{Considered, OnLeave, SnapshotOf, Verdict, Way};
use dorm_lifecycle::{OperationId, SandboxId, SecretName, SnapshotId, Variables};
use serde::{Deserialize, Serialize};

use super::caller::CallerRow;
use super::environment::{PolicyRow, WorkspaceRow};
use super::operation::FailureRow;
use crate::codec::word::{Length, Millis, Text, Word, present};
use crate::{
    Attempt, AttemptEnd, AttemptFailure, AttemptResult, OtherSettings, Phase, RestoredFrom, SettingsBefore, SetupState,
    SetupStepRecord, SetupWork,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttemptRow {
    id: Text<OperationId>,
    began: Millis,
    #[serde(deserialize_with = "present")]
    caller: Option<CallerRow>,
    #[serde(deserialize_with = "present")]
    before: Option<BeforeRow>,
    on_leave: Word<OnLeave>,
    cancel: bool,
    considered: Vec<ConsideredRow>,
    drift: Vec<String>,
    sandbox: Text<SandboxId>,
    #[serde(deserialize_with = "present")]
    replaces: Option<Text<SandboxId>>,
    #[serde(deserialize_with = "present")]
    restore: Option<RestoreRow>,
    #[serde(deserialize_with = "present")]
    setup: Option<SetupWorkRow>,
    #[serde(deserialize_with = "present")]
    token: Option<String>,
    steps: Vec<StepRow>,
    phases: Vec<PhaseRow>,
    #[serde(deserialize_with = "present")]
    snapshot_failure: Option<FailureRow>,
    #[serde(deserialize_with = "present")]
    commit: Option<String>,
}

/// Attempts of earlier builds have a workspace alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum BeforeRow {
    Settings(Box<SettingsRow>),
    Workspace(Box<WorkspaceRow>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsRow {
    workspace: WorkspaceRow,
    #[serde(deserialize_with = "present")]
    client_key: Option<String>,
    policy: PolicyRow,
    secrets: BTreeMap<String, Text<SecretName>>,
    values: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsideredRow {
    way: Word<Way>,
    verdict: VerdictRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum VerdictRow {
    Taken,
    Unavailable(String),
    Broken(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreRow {
    snapshot: Text<SnapshotId>,
    #[serde(deserialize_with = "present")]
    of: Option<SnapshotOfRow>,
    age: Length,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SnapshotOfRow {
    Own,
    Workspace,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetupWorkRow {
    sandbox: Text<SandboxId>,
    #[serde(deserialize_with = "present")]
    snapshot: Option<Text<SnapshotId>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepRow {
    title: String,
    state: StepStateRow,
    #[serde(deserialize_with = "present")]
    exit_code: Option<i32>,
    #[serde(deserialize_with = "present")]
    began: Option<Millis>,
    #[serde(deserialize_with = "present")]
    ended: Option<Millis>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepStateRow {
    Waiting,
    Running,
    Done,
    Failed,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseRow {
    name: String,
    took: Length,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttemptEndRow {
    attempt: AttemptRow,
    ended: Millis,
    result: ResultRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResultRow {
    Ready,
    Failed(AttemptFailureRow),
    Cancelled,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttemptFailureRow {
    #[serde(deserialize_with = "present")]
    step: Option<u64>,
    #[serde(deserialize_with = "present")]
    exit_code: Option<i32>,
    failure: FailureRow,
    #[serde(deserialize_with = "present")]
    kept: Option<Text<SandboxId>>,
}

impl From<&SettingsBefore> for BeforeRow {
    fn from(before: &SettingsBefore) -> Self {
        let workspace = WorkspaceRow::from(&before.workspace);
        match &before.others {
            None => Self::Workspace(Box::new(workspace)),
            Some(OtherSettings { client_key, policy, secrets, values, labels }) => {
                let secrets = secrets.iter().map(|(variable, name)| (variable.clone(), Text(name.clone()))).collect();
                Self::Settings(Box::new(SettingsRow {
                    workspace,
                    client_key: client_key.clone(),
                    policy: policy.into(),
                    secrets,
                    values: values.0.clone(),
                    labels: labels.clone(),
                }))
            }
        }
    }
}

impl From<BeforeRow> for SettingsBefore {
    fn from(row: BeforeRow) -> Self {
        match row {
            BeforeRow::Workspace(workspace) => Self { workspace: (*workspace).into(), others: None },
            BeforeRow::Settings(row) => {
                let secrets = row.secrets.into_iter().map(|(variable, name)| (variable, name.0)).collect();
                let (client_key, policy, labels) = (row.client_key, row.policy.into(), row.labels);
                let others = OtherSettings { client_key, policy, secrets, values: Variables(row.values), labels };
                Self { workspace: row.workspace.into(), others: Some(others) }
            }
        }
    }
}

impl From<&Attempt> for AttemptRow {
    fn from(attempt: &Attempt) -> Self {
        let Attempt {
            id,
            began,
            caller,
            before,
            on_leave,
            cancel,
            considered,
            drift,
            sandbox,
            replaces,
            restore,
            setup,
            token,
            steps,
            phases,
            snapshot_failure,
            commit,
        } = attempt;
        Self {
            id: Text(id.clone()),
            began: Millis(*began),
            caller: caller.as_ref().map(CallerRow::from),
            before: before.as_ref().map(BeforeRow::from),
            on_leave: Word(*on_leave),
            cancel: *cancel,
            considered: considered.iter().map(ConsideredRow::from).collect(),
            drift: drift.clone(),
            sandbox: Text(sandbox.clone()),
            replaces: replaces.clone().map(Text),
            restore: restore.as_ref().map(|RestoredFrom { snapshot, of, age }| RestoreRow {
                snapshot: Text(snapshot.clone()),
                of: of.map(|of| match of {
                    SnapshotOf::Own => SnapshotOfRow::Own,
                    SnapshotOf::Workspace => SnapshotOfRow::Workspace,
                }),
                age: Length(*age),
            }),
            setup: setup.as_ref().map(|SetupWork { sandbox, snapshot }| SetupWorkRow {
                sandbox: Text(sandbox.clone()),
                snapshot: snapshot.clone().map(Text),
            }),
            token: token.clone(),
            steps: steps.iter().map(StepRow::from).collect(),
            phases: phases
                .iter()
                .map(|Phase { name, took }| PhaseRow { name: name.clone(), took: Length(*took) })
                .collect(),
            snapshot_failure: snapshot_failure.as_ref().map(FailureRow::from),
            commit: commit.clone(),
        }
    }
}

impl From<AttemptRow> for Attempt {
    fn from(row: AttemptRow) -> Self {
        Self {
            id: row.id.0,
            began: row.began.0,
            caller: row.caller.map(Into::into),
            before: row.before.map(Into::into),
            on_leave: row.on_leave.0,
            cancel: row.cancel,
            considered: row.considered.into_iter().map(Into::into).collect(),
            drift: row.drift,
            sandbox: row.sandbox.0,
            replaces: row.replaces.map(|sandbox| sandbox.0),
            restore: row.restore.map(|row| RestoredFrom {
                snapshot: row.snapshot.0,
                of: row.of.map(|of| match of {
                    SnapshotOfRow::Own => SnapshotOf::Own,
                    SnapshotOfRow::Workspace => SnapshotOf::Workspace,
                }),
                age: row.age.0,
            }),
            setup: row
                .setup
                .map(|row| SetupWork { sandbox: row.sandbox.0, snapshot: row.snapshot.map(|snapshot| snapshot.0) }),
            token: row.token,
            steps: row.steps.into_iter().map(Into::into).collect(),
            phases: row.phases.into_iter().map(|row| Phase { name: row.name, took: row.took.0 }).collect(),
            snapshot_failure: row.snapshot_failure.map(Into::into),
            commit: row.commit,
        }
    }
}

impl From<&Considered> for ConsideredRow {
    fn from(considered: &Considered) -> Self {
        let Considered { way, verdict } = considered;
        let verdict = match verdict.clone() {
            Verdict::Taken => VerdictRow::Taken,
            Verdict::Unavailable(reason) => VerdictRow::Unavailable(reason),
            Verdict::Broken(reason) => VerdictRow::Broken(reason),
        };
        Self { way: Word(*way), verdict }
    }
}

impl From<ConsideredRow> for Considered {
    fn from(row: ConsideredRow) -> Self {
        let verdict = match row.verdict {
            VerdictRow::Taken => Verdict::Taken,
            VerdictRow::Unavailable(reason) => Verdict::Unavailable(reason),
            VerdictRow::Broken(reason) => Verdict::Broken(reason),
        };
        Self { way: row.way.0, verdict }
    }
}

impl From<&SetupStepRecord> for StepRow {
    fn from(step: &SetupStepRecord) -> Self {
        let SetupStepRecord { title, state, exit_code, began, ended } = step;
        Self {
            title: title.clone(),
            state: match state {
                SetupState::Waiting => StepStateRow::Waiting,
                SetupState::Running => StepStateRow::Running,
                SetupState::Done => StepStateRow::Done,
                SetupState::Failed => StepStateRow::Failed,
            },
            exit_code: *exit_code,
            began: began.map(Millis),
            ended: ended.map(Millis),
        }
    }
}

impl From<StepRow> for SetupStepRecord {
    fn from(row: StepRow) -> Self {
        Self {
            title: row.title,
            state: match row.state {
                StepStateRow::Waiting => SetupState::Waiting,
                StepStateRow::Running => SetupState::Running,
                StepStateRow::Done => SetupState::Done,
                StepStateRow::Failed => SetupState::Failed,
            },
            exit_code: row.exit_code,
            began: row.began.map(|at| at.0),
            ended: row.ended.map(|at| at.0),
        }
    }
}

impl From<&AttemptEnd> for AttemptEndRow {
    fn from(end: &AttemptEnd) -> Self {
        let AttemptEnd { attempt, ended, result } = end;
        let result = match result {
            AttemptResult::Ready => ResultRow::Ready,
            AttemptResult::Failed(AttemptFailure { step, exit_code, failure, kept }) => {
                ResultRow::Failed(AttemptFailureRow {
                    step: *step,
                    exit_code: *exit_code,
                    failure: failure.into(),
                    kept: kept.clone().map(Text),
                })
            }
            AttemptResult::Cancelled => ResultRow::Cancelled,
        };
        Self { attempt: attempt.into(), ended: Millis(*ended), result }
    }
}

impl From<AttemptEndRow> for AttemptEnd {
    fn from(row: AttemptEndRow) -> Self {
        let result = match row.result {
            ResultRow::Ready => AttemptResult::Ready,
            ResultRow::Failed(row) => AttemptResult::Failed(AttemptFailure {
                step: row.step,
                exit_code: row.exit_code,
                failure: row.failure.into(),
                kept: row.kept.map(|sandbox| sandbox.0),
            }),
            ResultRow::Cancelled => AttemptResult::Cancelled,
        };
        Self { attempt: row.attempt.into(), ended: row.ended.0, result }
    }
}
