//! Golden environments.

use std::time::Duration;

use dorm_lifecycle::environment::{
    Base, Code, Considered, Key, OnBroken, OnDrift, OnLeave, Policy, SetupStep, SnapshotOf, SnapshotWhen, Thread,
    Verdict, Way, Workspace,
};
use dorm_lifecycle::{
    EnvironmentId, LeaseId, OperationId, ProjectId, Resources, SandboxId, SnapshotId, SnapshotKind, Variables,
};

use super::callers::key_caller;
use super::{at, egress_rules};
use crate::{
    Attempt, AttemptEnd, AttemptFailure, AttemptResult, Code as FailureCode, EnvironmentLease, EnvironmentRecord,
    FailureRecord, OtherSettings, Phase, RestoredFrom, RetiredSandbox, RunEnd, SettingsBefore, SetupState,
    SetupStepRecord, SetupWork,
};

fn text(text: &str) -> String {
    text.to_owned()
}

fn workspace() -> Workspace {
    Workspace {
        base: Base::Image("1".repeat(64).parse().unwrap()),
        resources: Resources::default(),
        egress: Some(egress_rules()),
        variables: [(text("LANG"), text("C"))].into(),
        directory: text("/workspace"),
        user: Some(text("app")),
        code: Some(Code::Git {
            url: text("https://git.example.com/app.git"),
            reference: Some(text("main")),
            depth: Some(1),
        }),
        setup: vec![SetupStep::Serial(text("npm ci")), SetupStep::Parallel(vec![text("a"), text("b")])],
        start: Some(text("npm run dev")),
        ready: Some(text("curl -f localhost")),
        step_limit: Duration::from_secs(1800),
    }
}

fn plain() -> Workspace {
    Workspace {
        base: Base::Snapshot(SnapshotId::from_random([11; 20])),
        egress: None,
        user: None,
        code: Some(Code::Upload("2".repeat(64).parse().unwrap())),
        setup: Vec::new(),
        start: None,
        ready: None,
        ..workspace()
    }
}

fn step(state: SetupState) -> SetupStepRecord {
    let exit_code = match state {
        SetupState::Done => Some(0),
        SetupState::Failed => Some(1),
        SetupState::Waiting | SetupState::Running => None,
    };
    let began = (state != SetupState::Waiting).then(|| at(1_790_000_002_000));
    SetupStepRecord { title: text("npm ci"), state, exit_code, began, ended: exit_code.map(|_| at(1_790_000_003_000)) }
}

fn attempt() -> Attempt {
    let considered = [
        (Way::Live, Verdict::Unavailable(text("it has no sandbox"))),
        (Way::OwnSnapshot, Verdict::Broken(text("it is damaged"))),
        (Way::Create, Verdict::Taken),
    ];
    Attempt {
        id: OperationId::from_random([2; 20]),
        began: at(1_790_000_001_000),
        caller: Some(key_caller()),
        // As builds wrote it that recorded nothing else.
        before: Some(SettingsBefore { workspace: plain(), others: None }),
        on_leave: OnLeave::Cancel,
        cancel: true,
        considered: considered.map(|(way, verdict)| Considered { way, verdict }).into(),
        drift: vec![text("setup")],
        sandbox: SandboxId::from_random([3; 20]),
        replaces: Some(SandboxId::from_random([4; 20])),
        restore: Some(RestoredFrom {
            snapshot: SnapshotId::from_random([5; 20]),
            of: Some(SnapshotOf::Workspace),
            age: Duration::from_millis(1500),
        }),
        setup: Some(SetupWork {
            sandbox: SandboxId::from_random([6; 20]),
            snapshot: Some(SnapshotId::from_random([7; 20])),
        }),
        token: Some(text("sealed:1:abc")),
        steps: [SetupState::Done, SetupState::Running, SetupState::Failed, SetupState::Waiting].map(step).into(),
        phases: vec![Phase { name: text("create"), took: Duration::from_millis(52) }],
        snapshot_failure: Some(FailureRecord::new(FailureCode::NoRoom, "the disk is full")),
        commit: Some(text("5f1c0b6e")),
    }
}

fn whole() -> EnvironmentRecord {
    EnvironmentRecord {
        id: EnvironmentId::from_random([1; 20]),
        project: ProjectId::local(),
        key: Key::Thread(Thread {
            thread: text("t1"),
            definition: text("agent"),
            user: Some(text("u1")),
            organization: Some(text("o1")),
        }),
        client_key: Some(text("0ad2b56eb7ad29f7")),
        workspace: workspace(),
        policy: Policy {
            snapshot: SnapshotWhen::AfterRun,
            snapshot_kind: SnapshotKind::Filesystem,
            snapshot_max_age: Some(Duration::from_secs(3600)),
            sandbox_max_age: Some(Duration::from_secs(86_400)),
            keep_alive: Some(Duration::from_secs(600)),
            destroy_on_complete: true,
            on_drift: OnDrift::Refuse,
            on_broken: OnBroken::Next,
            keep_failed: true,
        },
        secrets: [(text("NPM_TOKEN"), "TOKEN".parse().unwrap())].into(),
        values: Variables([(text("TOKEN"), text("sealed:1:def"))].into()),
        labels: [(text("team"), text("a"))].into(),
        sandbox: Some(SandboxId::from_random([4; 20])),
        snapshot: Some(SnapshotId::from_random([5; 20])),
        commit: Some("0".repeat(40)),
        attempt: Some(attempt()),
        last: Some(AttemptEnd { attempt: attempt(), ended: at(1_790_000_004_000), result: AttemptResult::Ready }),
        leases: vec![EnvironmentLease { id: LeaseId::from_random([8; 20]), until: at(1_790_000_100_000) }],
        ending: Some(RunEnd { snapshot: Some(SnapshotId::from_random([9; 20])), destroy: true }),
        retired: vec![RetiredSandbox {
            sandbox: SandboxId::from_random([10; 20]),
            at: at(1_790_000_000_500),
            is_settled: true,
        }],
        created: at(1_790_000_000_000),
        removed: false,
    }
}

fn ended(result: AttemptResult) -> EnvironmentRecord {
    let attempt = Attempt { restore: None, setup: None, token: None, caller: None, ..attempt() };
    let last = Some(AttemptEnd { attempt, ended: at(1_790_000_004_000), result });
    EnvironmentRecord { attempt: None, last, ..whole() }
}

pub(super) fn environments() -> Vec<(String, EnvironmentRecord)> {
    let failure = AttemptFailure {
        step: Some(2),
        exit_code: Some(1),
        failure: FailureRecord::new(FailureCode::Failed, "step 3 failed"),
        kept: Some(SandboxId::from_random([6; 20])),
    };
    let id = EnvironmentId::from_random([1; 20]);
    let empty = EnvironmentRecord {
        key: Key::Once(id),
        client_key: None,
        workspace: plain(),
        values: Variables::default(),
        policy: Policy::default(),
        sandbox: None,
        snapshot: None,
        commit: None,
        attempt: None,
        last: None,
        leases: Vec::new(),
        ending: None,
        retired: Vec::new(),
        removed: true,
        ..whole()
    };
    let before = SettingsBefore {
        workspace: plain(),
        others: Some(OtherSettings {
            client_key: Some(text("0ad2b56eb7ad29f7")),
            policy: Policy { keep_alive: Some(Duration::from_secs(600)), ..Policy::default() },
            secrets: [(text("NPM_TOKEN"), "TOKEN".parse().unwrap())].into(),
            values: Variables([(text("TOKEN"), text("sealed:1:def"))].into()),
            labels: [(text("team"), text("a"))].into(),
        }),
    };
    let drifted = EnvironmentRecord { attempt: Some(Attempt { before: Some(before), ..attempt() }), ..whole() };
    vec![
        (text("environment"), whole()),
        (text("environment-drifted"), drifted),
        (text("environment-failed"), ended(AttemptResult::Failed(failure))),
        (text("environment-cancelled"), ended(AttemptResult::Cancelled)),
        (text("environment-of-a-key"), EnvironmentRecord { key: Key::Own(text("web")), ..ended(AttemptResult::Ready) }),
        (text("environment-removed"), empty),
    ]
}
