//! The committed texts of every version load for ever, and the current encoding equals the latest
//! ones.
//!
//! A golden of a released version is never rewritten: if it no longer fits, the format has changed
//! and needs a new version. `DORM_UPDATE=1` writes only those that are missing.

mod builds;
mod callers;
mod environments;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use dorm_lifecycle::{
    Access, Annotations, ApiKeyId, Attachment, Background, BackgroundWork, BuildId, Cause, Checkpoints, Egress,
    EgressDefault, EgressRule, EgressRules, EnvironmentId, EventKind, FirstProgram, Future, HeaderRule, Held, Hold,
    HoldId, Initiator, OnSuspendFailure, OnTimeout, OnUnrestorable, OperationId, Origin, PoolId, PoolMember,
    PortAccess, PortRule, ProjectId, RequestId, Resources, Restored, RetentionPolicy, Rewind, RewindFrom, Rewinding,
    Rewound, Sandbox, SandboxId, SandboxSpec, SavedStateId, SleepImage, SleepRetention, SnapshotId, SnapshotKind,
    State, SuspendFailures, Timeouts, Timestamp, Unreachable, Verdict, VolumeId, Wake, WebhookId, Writers,
};
use serde_json::Value;

use super::properties::is_strict;
use super::{
    API_KEY, BUILD, CLOCK, CodecError, ENVIRONMENT, EVENT, OPERATION, POOL, PROJECT, REQUEST, SANDBOX, SNAPSHOT,
    TEMPLATE, VOLUME, WEBHOOK, decode_api_key, decode_build, decode_clock, decode_environment, decode_event,
    decode_operation, decode_pool, decode_project, decode_request, decode_sandbox, decode_snapshot, decode_template,
    decode_volume, decode_webhook, encode_api_key, encode_build, encode_clock, encode_environment, encode_event,
    encode_operation, encode_pool, encode_project, encode_request, encode_sandbox, encode_snapshot, encode_template,
    encode_volume, encode_webhook,
};
use crate::{
    ClockNote, ClockPeriod, Code, FailureRecord, ForkPlan, Made, NewEvent, OnPartialFailure, OperationKind,
    OperationRecord, OperationResult, PoolRecord, PoolSource, ProjectBudgets, ProjectRecord, PromotePlan,
    RequestRecord, SecretRecord, VolumeRecord, VolumeStatus, WebhookRecord,
};

use self::builds::{builds, templates};
use self::callers::{api_keys, events_with_callers, operations_with_callers, sandboxes_with_callers};
use self::environments::environments;
use self::snapshots::{kept_snapshots, named_snapshots, snapshots};

fn directory(version: u64) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("goldens/v{version}"))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn image() -> SleepImage {
    SleepImage {
        saved_state: SavedStateId::from_random([3; 20]),
        generation: 4,
        taken: at(1_790_000_003_000),
        bytes: 73_400_320,
        files: None,
    }
}

fn states() -> Vec<(&'static str, State)> {
    let operation = OperationId::from_random([2; 20]);
    let deadline = at(1_790_000_300_000);
    let since = at(1_790_000_000_500);
    let snapshot = SnapshotId::from_random([4; 20]);
    let failed = Cause::Failed { reason: "no space left on device".to_owned() };
    vec![
        ("pending", State::Pending { operation: operation.clone(), deadline, program: FirstProgram::None }),
        ("running", State::Running { since, image: None, background: None }),
        ("running-with-image", State::Running { since, image: Some(image()), background: None }),
        (
            "snapshotting",
            State::Snapshotting {
                operation: operation.clone(),
                deadline,
                snapshot: snapshot.clone(),
                since,
                image: None,
            },
        ),
        (
            "snapshotting-with-image",
            State::Snapshotting { operation: operation.clone(), deadline, snapshot, since, image: Some(image()) },
        ),
        (
            "suspending",
            State::Suspending { operation: operation.clone(), deadline, since, image: None, rewind: None, files: None },
        ),
        (
            "suspending-with-image",
            State::Suspending {
                operation: operation.clone(),
                deadline,
                since,
                image: Some(image()),
                rewind: None,
                files: None,
            },
        ),
        ("suspended", State::Suspended { image: image(), background: None }),
        ("resuming", State::Resuming { operation: operation.clone(), deadline, image: image(), rewind: None }),
        ("terminating", State::Terminating { operation, deadline, cause: Cause::Requested, unleased: false }),
        ("terminated-timeout", State::Terminated { cause: Cause::Timeout, at: at(1_790_000_009_000) }),
        ("terminated-failed", State::Terminated { cause: failed, at: at(u64::MAX) }),
    ]
}

fn sandboxes() -> Vec<(String, Sandbox)> {
    let digest = "0123456789abcdef".repeat(4).parse().unwrap();
    let mut spec = SandboxSpec::new(digest, Some("web".parse().unwrap()));
    spec.resources = Resources { cpu_millis: 250, memory_bytes: 1 << 30, disk_bytes: 5 << 30, processes: 64 };
    spec.variables.0.insert("TOKEN".to_owned(), "a \"quoted\" value".to_owned());
    spec.timeouts = Timeouts {
        total: Some(Duration::from_secs(3600)),
        idle: Some(Duration::new(90, 500_000_000)),
        ..Timeouts::default()
    };
    spec.labels.insert("team".to_owned(), "Bücher".to_owned());
    let base = Sandbox {
        id: SandboxId::from_random([1; 20]),
        project: ProjectId::local(),
        spec,
        origin: Origin::Image,
        created: at(1_790_000_000_000),
        generation: 5,
        run: 4,
        last_active: at(1_790_000_002_000),
        timeouts_set: at(1_790_000_000_000),
        started: None,
        woken: false,
        holds: Vec::new(),
        restored: Restored::Memory { generation: None },
        rewound: None,
        older: Vec::new(),
        unreachable: None,
        suspend_failures: None,
        pool: None,
        created_by: None,
        state: State::Suspended { image: image(), background: None },
    };
    let mut list: Vec<_> = states()
        .into_iter()
        .map(|(name, state)| {
            let timeouts_set = match &state {
                State::Running { since, .. } | State::Snapshotting { since, .. } | State::Suspending { since, .. } => {
                    *since
                }
                _ => base.timeouts_set,
            };
            (format!("sandbox-{name}"), Sandbox { state, timeouts_set, ..base.clone() })
        })
        .collect();
    let mut closed = base.clone();
    closed.spec.egress = Egress::None;
    closed.spec.wake = Wake::Never;
    list.push(("sandbox-without-network".to_owned(), closed));
    let mut listed = base.clone();
    listed.spec.egress = Egress::Allow(vec!["198.51.100.0/24".to_owned(), "203.0.113.9".to_owned()]);
    list.push(("sandbox-with-allow-list".to_owned(), listed));
    let mut ruled = base.clone();
    ruled.spec.egress = egress_rules();
    list.push(("sandbox-with-egress-rules".to_owned(), ruled));
    let mut ephemeral = base.clone();
    ephemeral.spec = SandboxSpec::new(ephemeral.spec.image, None);
    ephemeral.spec.on_timeout = OnTimeout::Terminate;
    ephemeral.origin = Origin::Snapshot {
        snapshot: SnapshotId::from_random([5; 20]),
        saved_state: SavedStateId::from_random([6; 20]),
        source: SandboxId::from_random([13; 20]),
    };
    ephemeral.state = State::Running { since: at(1_790_000_000_500), image: None, background: None };
    ephemeral.timeouts_set = at(1_790_000_000_500);
    list.push(("sandbox-ephemeral-from-snapshot".to_owned(), ephemeral));
    list
}

fn settled_sandboxes() -> Vec<(String, Sandbox)> {
    let base = sandboxes().remove(1).1;
    let mut held = base.clone();
    held.timeouts_set = at(1_790_000_001_000);
    held.spec.timeouts.max_run = Some(Duration::from_secs(86_400));
    held.holds = [(8, "a build"), (9, "the \"model\" thinks")]
        .map(|(seed, reason)| Hold {
            id: HoldId::from_random([seed; 20]),
            reason: reason.to_owned(),
            until: at(1_790_000_600_000),
        })
        .to_vec();
    let mut older = base;
    older.spec.retention = SleepRetention { generations: 3, on_unrestorable: OnUnrestorable::Fresh };
    older.restored = Restored::Memory { generation: Some(3) };
    older.older = vec![SleepImage { generation: 3, saved_state: SavedStateId::from_random([11; 20]), ..image() }];
    older.state = State::Suspended { image: image(), background: None };
    let mut fresh = older.clone();
    let mut layered = fresh.clone();
    layered.spec.layer = Some(SavedStateId::from_random([13; 20]));
    layered.origin =
        Origin::Filesystem { snapshot: SnapshotId::from_random([5; 20]), source: SandboxId::from_random([13; 20]) };
    layered.restored = Restored::Filesystem;
    layered.older.clear();
    layered.state = State::Running { since: at(1_790_000_000_500), image: None, background: None };
    fresh.restored = Restored::Nothing;
    fresh.state = State::Running { since: at(1_790_000_000_500), image: None, background: None };
    let mut secretive = fresh.clone();
    secretive.spec.secrets.0.insert("KEY".to_owned(), "hunter2".to_owned());
    vec![
        ("sandbox-with-secrets".to_owned(), secretive),
        ("sandbox-held".to_owned(), held),
        ("sandbox-with-older-images".to_owned(), older),
        ("sandbox-started-afresh".to_owned(), fresh),
        ("sandbox-from-files".to_owned(), layered),
    ]
}

fn rewound_sandboxes() -> Vec<(String, Sandbox)> {
    let base = sandboxes().remove(0).1;
    let (operation, deadline) = (OperationId::from_random([2; 20]), at(1_790_000_300_000));
    let rewind = |keep| Rewind {
        to: SnapshotId::from_random([4; 20]),
        target: Some(SleepImage { generation: 2, saved_state: SavedStateId::from_random([15; 20]), ..image() }),
        layer: None,
        resources: Resources::default(),
        future: Some(Future { snapshot: SnapshotId::from_random([16; 20]), keep }),
        may_hold: false,
    };
    let saving = State::Suspending {
        operation: operation.clone(),
        deadline,
        since: at(1_790_000_000_500),
        image: None,
        rewind: Some(Box::new(rewind(Some(Duration::from_secs(604_800))))),
        files: None,
    };
    let going = |rewind, from| State::Resuming {
        operation: operation.clone(),
        deadline,
        image: image(),
        rewind: Some(Box::new(Rewinding { rewind, from })),
    };
    let slept = going(Rewind { future: None, ..rewind(None) }, RewindFrom::Suspended);
    let rewound = Sandbox {
        rewound: Some(Rewound { to: SnapshotId::from_random([4; 20]), generation: 5 }),
        state: State::Running { since: at(1_790_000_000_500), image: Some(image()), background: None },
        ..base.clone()
    };
    let mut checkpointed = base.clone();
    checkpointed.spec.checkpoints = Some(Checkpoints {
        every: Duration::from_secs(600),
        kind: SnapshotKind::Memory,
        keep: "2,24x1h,7x1d".parse().unwrap(),
    });
    let mut policy = base.clone();
    policy.spec.checkpoints = Some(Checkpoints {
        every: Duration::from_secs(10),
        kind: SnapshotKind::Filesystem,
        keep: RetentionPolicy::default(),
    });
    vec![
        ("sandbox-suspending-to-rewind".to_owned(), Sandbox { state: saving, ..base.clone() }),
        (
            "sandbox-resuming-to-rewind".to_owned(),
            Sandbox { state: going(rewind(None), RewindFrom::Running), ..base.clone() },
        ),
        ("sandbox-resuming-to-rewind-slept".to_owned(), Sandbox { state: slept, ..base.clone() }),
        ("sandbox-rewound".to_owned(), rewound),
        ("sandbox-with-checkpoints".to_owned(), checkpointed),
        ("sandbox-with-default-retention_policy".to_owned(), policy),
    ]
}

fn sandboxes_with_files() -> Vec<(String, Sandbox)> {
    let base = sandboxes().remove(0).1;
    let deadline = at(1_790_000_300_000);
    vec![
        (
            "sandbox-suspending-with-files".to_owned(),
            with_files(&base, |operation, files, _| State::Suspending {
                operation,
                deadline,
                since: at(1_790_000_000_500),
                image: None,
                rewind: None,
                files: Some(files),
            }),
        ),
        (
            "sandbox-suspended-with-files".to_owned(),
            with_files(&base, |_, _, image| State::Suspended { image, background: None }),
        ),
        (
            "sandbox-from-its-files".to_owned(),
            with_files(&base, |_, _, image| State::Running {
                since: at(1_790_000_000_500),
                image: Some(image),
                background: None,
            }),
        ),
        ("sandbox-resizing".to_owned(), resizing(&base)),
    ]
}

/// A sandbox of which a suspend keeps files only, or did.
fn with_files(base: &Sandbox, state: impl FnOnce(OperationId, SnapshotId, SleepImage) -> State) -> Sandbox {
    let files = SnapshotId::from_random([17; 20]);
    let image = SleepImage { files: Some(files.clone()), ..image() };
    let mut sandbox = base.clone();
    sandbox.spec.layer = Some(image.saved_state.clone());
    sandbox.spec.on_timeout = OnTimeout::SuspendFiles;
    sandbox.spec.timeouts.after_wake = Some(Duration::from_secs(300));
    sandbox.spec.annotations =
        Annotations([("e2b".to_owned(), [("template".to_owned(), "base".to_owned())].into())].into());
    sandbox.restored = Restored::Files { generation: 4 };
    (sandbox.started, sandbox.woken) = (Some(at(1_790_000_000_500)), true);
    sandbox.state = state(OperationId::from_random([2; 20]), files, image);
    sandbox
}

fn resizing(base: &Sandbox) -> Sandbox {
    let after = Resources { cpu_millis: 2000, ..base.spec.resources };
    let background = Background {
        operation: OperationId::from_random([2; 20]),
        deadline: at(1_790_000_300_000),
        work: BackgroundWork::Resize { after },
    };
    let (since, background) = (at(1_790_000_000_500), Some(Box::new(background)));
    Sandbox { state: State::Running { since, image: None, background }, ..base.clone() }
}

fn operations() -> Vec<(String, OperationRecord)> {
    let results = [
        ("open", None),
        ("done", Some((at(1_790_000_004_000), OperationResult::Done))),
        (
            "failed",
            Some((at(1_790_000_004_000), OperationResult::Failed(FailureRecord::new(Code::NoRoom, "no space left")))),
        ),
    ];
    let mut list = Vec::new();
    for (kind, (name, ended)) in OperationKind::ALL.into_iter().flat_map(|kind| results.clone().map(|end| (kind, end)))
    {
        let deletes = kind == OperationKind::DeleteSnapshot;
        let record = OperationRecord {
            id: OperationId::from_random([2; 20]),
            kind,
            project: ProjectId::local(),
            sandbox: (!deletes).then(|| SandboxId::from_random([1; 20])),
            initiator: Initiator::User,
            caller: None,
            began: at(1_790_000_000_000),
            deadline: at(1_790_000_060_000),
            saved_state: (!deletes).then(|| SavedStateId::from_random([3; 20])),
            fork: (kind == OperationKind::Fork).then(|| fork_plan(OnPartialFailure::RollBack)),
            promote: (kind == OperationKind::Promote).then(|| PromotePlan {
                child: SandboxId::from_random([13; 20]),
                snapshot: SnapshotId::from_random([4; 20]),
            }),
            ended,
        };
        list.push((format!("operation-{}-{name}", kind.as_str()), record));
    }
    list
}

/// One failed operation for each kind of failure.
fn failed_operations() -> Vec<(String, OperationRecord)> {
    let base = operations().into_iter().find(|(name, _)| name == "operation-suspend-failed").unwrap().1;
    let coded = |code: Code| {
        let result = OperationResult::Failed(FailureRecord::new(code, "why"));
        let record = OperationRecord { ended: Some((at(1_790_000_004_000), result)), ..base.clone() };
        (format!("operation-suspend-failed-{}", code.as_str()), record)
    };
    Code::ALL.map(coded).into()
}

fn fork_plan(on_partial_failure: OnPartialFailure) -> ForkPlan {
    ForkPlan {
        snapshot: SnapshotId::from_random([4; 20]),
        children: vec![SandboxId::from_random([13; 20]), SandboxId::from_random([14; 20])],
        on_partial_failure,
    }
}

fn fork_operations() -> Vec<(String, OperationRecord)> {
    let forks = operations().into_iter().find(|(name, _)| name == "operation-fork-failed").unwrap().1;
    let each = OperationRecord { fork: Some(fork_plan(OnPartialFailure::Keep)), ..forks };
    vec![("operation-fork-each".to_owned(), each)]
}

fn events() -> Vec<(String, NewEvent)> {
    let actors = Initiator::ALL.into_iter().cycle();
    EventKind::ALL
        .iter()
        .zip(actors)
        .map(|(kind, initiator)| {
            let event = NewEvent {
                project: ProjectId::local(),
                sandbox: SandboxId::from_random([1; 20]),
                at: at(1_790_000_000_000),
                kind: *kind,
                initiator,
                caller: None,
                operation: (initiator == Initiator::User).then(|| OperationId::from_random([2; 20])),
                generation: 5,
                detail: (initiator == Initiator::Host).then(|| "out of memory".to_owned()),
                took: None,
                bytes: None,
            };
            (format!("event-{}", kind.as_str()), event)
        })
        .collect()
}

fn webhooks() -> Vec<(String, WebhookRecord)> {
    let every = WebhookRecord {
        id: WebhookId::from_random([12; 20]),
        project: ProjectId::local(),
        url: "http://127.0.0.1:9000/hook?a=b".to_owned(),
        secret: [7; 32],
        kinds: Vec::new(),
        created: at(1_790_000_000_000),
        delivered: 41,
    };
    let some = WebhookRecord { kinds: vec![EventKind::Suspended, EventKind::RunLost], ..every.clone() };
    vec![("webhook".to_owned(), every), ("webhook-of-some-kinds".to_owned(), some)]
}

fn pools() -> Vec<(String, PoolRecord)> {
    let of_image = PoolRecord {
        id: PoolId::from_random([13; 20]),
        project: ProjectId::local(),
        name: "workers".parse().unwrap(),
        source: PoolSource::Image("0".repeat(64).parse().unwrap()),
        program: Some(FirstProgram::OfImage),
        resources: Some(Resources::default()),
        egress: Some(egress_rules()),
        variables: [("LANG".to_owned(), "C".to_owned())].into(),
        port_access: Some(PortAccess::Private),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        ready: 8,
        most: Some(100),
        created: at(1_790_000_000_000),
        removed: false,
    };
    let of_snapshot = PoolRecord {
        source: PoolSource::Snapshot(SnapshotId::from_random([4; 20])),
        program: None,
        resources: None,
        egress: None,
        port_access: None,
        most: None,
        removed: true,
        ..of_image.clone()
    };
    vec![("pool".to_owned(), of_image), ("pool-of-snapshot".to_owned(), of_snapshot)]
}

fn projects() -> Vec<(String, ProjectRecord)> {
    let secret = SecretRecord {
        sealed: "sealed:1:00000000:AAAA".to_owned(),
        created: at(1_790_000_000_000),
        changed: at(1_790_000_100_000),
    };
    let limited = ProjectRecord {
        id: "tenant-1".parse().unwrap(),
        budgets: ProjectBudgets {
            sandboxes: Some(100),
            running: Some(10),
            cpu_millis: Some(16_000),
            memory_bytes: Some(32 << 30),
            disk_bytes: Some(500 << 30),
        },
        created: at(1_790_000_000_000),
        removed: None,
        secrets: [("API_KEY".parse().unwrap(), secret)].into(),
    };
    let removed = ProjectRecord {
        budgets: ProjectBudgets::default(),
        removed: Some(at(1_790_000_500_000)),
        secrets: BTreeMap::new(),
        ..limited.clone()
    };
    vec![("project".to_owned(), limited), ("project-removed".to_owned(), removed)]
}

fn requests() -> Vec<(String, RequestRecord)> {
    let all = [
        ("sandbox", Made::Sandbox(SandboxId::from_random([1; 20]))),
        ("snapshot", Made::Snapshot(SnapshotId::from_random([2; 20]))),
        ("operation", Made::Operation(OperationId::from_random([3; 20]))),
        ("hold", Made::Hold(HoldId::from_random([4; 20]))),
        ("volume", Made::Volume(VolumeId::from_random([5; 20]))),
        ("pool", Made::Pool(PoolId::from_random([8; 20]))),
        ("build", Made::Build(BuildId::from_random([9; 20]))),
        ("environment", Made::Environment(EnvironmentId::from_random([10; 20]))),
        ("webhook", Made::Webhook(WebhookId::from_random([6; 20]))),
        ("api_key", Made::ApiKey(ApiKeyId::from_random([7; 20]))),
    ];
    let request = |(name, made): (&str, Made)| {
        let request = RequestRecord {
            id: RequestId::from_random([13; 20]),
            project: ProjectId::local(),
            fingerprint: [9; 32],
            made,
            at: at(1_790_000_000_000),
        };
        (format!("request-{name}"), request)
    };
    all.into_iter().map(request).collect()
}

fn volumes() -> Vec<(String, VolumeRecord)> {
    let ready = VolumeRecord {
        id: VolumeId::from_random([13; 20]),
        project: ProjectId::local(),
        name: "data".parse().unwrap(),
        size_bytes: 10 << 30,
        writers: Writers::One,
        created: at(1_790_000_000_000),
        status: VolumeStatus::Ready,
    };
    let creating = VolumeRecord { status: VolumeStatus::Creating, writers: Writers::Many, ..ready.clone() };
    let deleting = VolumeRecord { status: VolumeStatus::Deleting, ..ready.clone() };
    [("volume", ready), ("volume-creating", creating), ("volume-deleting", deleting)]
        .map(|(name, volume)| (name.to_owned(), volume))
        .into()
}

fn clocks() -> Vec<(String, ClockNote)> {
    let note = |boot: Option<&str>, periods| ClockNote {
        seen: at(1_790_000_000_000),
        steady: Duration::from_millis(90_500),
        boot: boot.map(str::to_owned),
        periods,
        held_until: at(1_790_003_600_000),
    };
    let set = vec![
        ClockPeriod { from: at(0), ahead_millis: 0 },
        ClockPeriod { from: at(1_790_000_000_000), ahead_millis: -31_536_000_000 },
    ];
    vec![
        ("clock".to_owned(), note(Some("2f1d0c3e-97a2-4f6e-8a39-0a2a5b8a7d1c"), set)),
        ("clock-of-no-boot".to_owned(), note(None, Vec::new())),
    ]
}

fn attached_sandboxes() -> Vec<(String, Sandbox)> {
    let mut sandbox = sandboxes().remove(0).1;
    let attachment = |volume: u8, path: &str, access, subpath: &str, slot| Attachment {
        volume: VolumeId::from_random([volume; 20]),
        path: path.parse().unwrap(),
        access,
        subpath: subpath.parse().unwrap(),
        slot,
    };
    sandbox.spec.attachments =
        vec![attachment(13, "/data", Access::Write, "", 0), attachment(14, "/mnt/b", Access::Read, "a/b", 2)];
    let mut list = in_background(&sandbox);
    let mut private = sandbox.clone();
    private.spec.port_access = PortAccess::Private;
    let mut ruled = private.clone();
    ruled.spec.port_host = Some("localhost:{port}".parse().unwrap());
    ruled.spec.port_rules.0.insert(8080, PortRule { access: Some(PortAccess::Public), host: None });
    let told = PortRule { access: None, host: Some("app.internal".parse().unwrap()) };
    ruled.spec.port_rules.0.insert(3000, told);
    list.push(("sandbox-with-private-ports".to_owned(), private));
    list.push(("sandbox-with-rules-for-ports".to_owned(), ruled));
    list.push(("sandbox-with-volumes".to_owned(), sandbox));
    list
}

fn egress_rules() -> Egress {
    let rule = |verdict, to: &str| EgressRule { verdict, to: to.to_owned() };
    let rules = vec![rule(Verdict::Allow, "*.example.com"), rule(Verdict::Deny, "203.0.113.0/24")];
    let headers = vec![HeaderRule {
        host: "api.example.com".to_owned(),
        port: 443,
        name: "Authorization".to_owned(),
        value: "Bearer {API_KEY}".to_owned(),
        project: ProjectId::local(),
    }];
    Egress::Rules(EgressRules { rules, default: EgressDefault::Public, headers })
}

fn in_background(sandbox: &Sandbox) -> Vec<(String, Sandbox)> {
    let since = at(1_790_000_000_500);
    let background = |work| {
        let (operation, deadline) = (OperationId::from_random([2; 20]), at(1_790_000_300_000));
        Some(Box::new(Background { operation, deadline, work }))
    };
    let after = sandbox.spec.attachments[1..].to_vec();
    let rewind = rewound_sandboxes().into_iter().find_map(|(_, sandbox)| sandbox.state.rewind().cloned()).unwrap();
    let snapshot = SnapshotId::from_random([4; 20]);
    let held = Held {
        run: 3,
        generation: 3,
        since,
        rewound_to: snapshot.clone(),
        future: rewind.future.clone(),
        image: Some(image()),
        layer: None,
        resources: Resources::default(),
        failures: 1,
    };
    let states = [
        (
            "sandbox-detaching",
            State::Running { since, image: None, background: background(BackgroundWork::Attach { after }) },
        ),
        (
            "sandbox-closing-its-egress",
            State::Running {
                since,
                image: None,
                background: background(BackgroundWork::Egress { after: Egress::closed() }),
            },
        ),
        (
            "sandbox-preparing-a-rewind",
            State::Suspended { image: image(), background: background(BackgroundWork::PrepareRewind(rewind)) },
        ),
        (
            "sandbox-suspended-for-a-snapshot",
            State::Suspended { image: image(), background: background(BackgroundWork::Snapshot(snapshot)) },
        ),
        (
            "sandbox-saving-what-a-rewind-left",
            State::Running { since, image: None, background: background(BackgroundWork::SaveHeld(held)) },
        ),
    ];
    states.map(|(name, state)| (name.to_owned(), Sandbox { state, ..sandbox.clone() })).into()
}

/// Sandboxes whose run is in trouble.
fn troubled_sandboxes() -> Vec<(String, Sandbox)> {
    let running = sandboxes().remove(1).1;
    let since = at(1_790_000_001_000);
    let silent = Unreachable { since, reason: "its agent did not answer within 30 s".to_owned() };
    let failed =
        SuspendFailures { count: 4, since, reason: "no space left on device".to_owned(), next: at(1_790_000_016_000) };
    let mut ending = running.clone();
    ending.spec.on_suspend_failure = OnSuspendFailure::Terminate;
    ending.suspend_failures = Some(failed);
    vec![
        ("sandbox-unreachable".to_owned(), Sandbox { unreachable: Some(silent), ..running }),
        ("sandbox-that-cannot-be-suspended".to_owned(), ending),
    ]
}

/// A sandbox whose first run starts the command of its image.
fn starting_sandboxes() -> Vec<(String, Sandbox)> {
    let mut sandbox = sandboxes().remove(0).1;
    let State::Pending { program, .. } = &mut sandbox.state else { panic!("not pending") };
    *program = FirstProgram::OfImage;
    sandbox.spec.program = FirstProgram::OfImage;
    let in_pool = |is_claimed| Sandbox {
        pool: Some(PoolMember { pool: PoolId::from_random([13; 20]), is_claimed }),
        ..sandbox.clone()
    };
    vec![
        ("sandbox-in-a-pool".to_owned(), in_pool(false)),
        ("sandbox-claimed".to_owned(), in_pool(true)),
        ("sandbox-pending-with-program".to_owned(), sandbox),
    ]
}

fn measured_events() -> Vec<(String, NewEvent)> {
    let took = Some(Duration::from_millis(1234));
    let measured = NewEvent { took, bytes: Some(73_400_320), ..events().remove(0).1 };
    vec![("event-measured".to_owned(), measured)]
}

/// Checks records against their goldens in both directions, and against those of earlier versions
/// in one. Returns the version and the name of each file.
fn checked<T: PartialEq + std::fmt::Debug>(
    (version, records): (u64, Vec<(String, T)>),
    write: impl Fn(&T) -> Result<String, CodecError>,
    read: impl Fn(&str) -> Result<T, CodecError>,
) -> BTreeSet<(u64, String)> {
    let mut files = BTreeSet::new();
    for (name, record) in records {
        let text = write(&record).unwrap();
        let path = directory(version).join(format!("{name}.json"));
        if std::env::var_os("DORM_UPDATE").is_some() && !path.exists() {
            fs::create_dir_all(directory(version)).unwrap();
            fs::write(&path, format!("{text}\n")).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(read(&golden).unwrap(), record, "{name} reads as something else");
        assert_eq!(text, golden.trim_end(), "{name} is written differently: the format has moved");
        is_strict(&name, &text, &read);
        files.insert((version, format!("{name}.json")));
        for earlier in 1..version {
            // A record that was added since has no golden of that version.
            let Ok(golden) = fs::read_to_string(directory(earlier).join(format!("{name}.json"))) else { continue };
            assert_eq!(read(&golden).unwrap(), record, "{name} of version {earlier} reads as something else");
            is_strict(&name, golden.trim_end(), &read);
            files.insert((earlier, format!("{name}.json")));
        }
    }
    files
}

#[test]
fn every_golden_loads_is_written_the_same_and_needs_each_of_its_fields() {
    let sandboxes = [
        sandboxes(),
        settled_sandboxes(),
        rewound_sandboxes(),
        sandboxes_with_files(),
        attached_sandboxes(),
        troubled_sandboxes(),
        starting_sandboxes(),
        sandboxes_with_callers(),
    ];
    let operations = [operations(), fork_operations(), failed_operations(), operations_with_callers()];
    let events = [events(), measured_events(), events_with_callers()];
    let files = [
        checked((SANDBOX, sandboxes.concat()), encode_sandbox, decode_sandbox),
        checked((OPERATION, operations.concat()), encode_operation, decode_operation),
        checked(
            (SNAPSHOT, [snapshots(), kept_snapshots(), named_snapshots()].concat()),
            encode_snapshot,
            decode_snapshot,
        ),
        checked((EVENT, events.concat()), encode_event, decode_event),
        checked((WEBHOOK, webhooks()), encode_webhook, decode_webhook),
        checked((POOL, pools()), encode_pool, decode_pool),
        checked((BUILD, builds()), encode_build, decode_build),
        checked((TEMPLATE, templates()), encode_template, decode_template),
        checked((ENVIRONMENT, environments()), encode_environment, decode_environment),
        checked((PROJECT, projects()), encode_project, decode_project),
        checked((API_KEY, api_keys()), encode_api_key, decode_api_key),
        checked((REQUEST, requests()), encode_request, decode_request),
        checked((VOLUME, volumes()), encode_volume, decode_volume),
        checked((CLOCK, clocks()), encode_clock, decode_clock),
    ];
    let there = |version| {
        let entries = fs::read_dir(directory(version)).unwrap();
        entries.map(move |entry| (version, entry.unwrap().file_name().into_string().unwrap()))
    };
    let there: BTreeSet<_> = [1, 2].into_iter().flat_map(there).collect();
    let files: BTreeSet<_> = files.into_iter().flatten().collect();
    assert_eq!(there, files, "every golden has a record that it is compared with");
}

#[test]
fn the_words_of_states_are_those_of_the_lifecycle() {
    for (_, state) in states() {
        let word = state.name().as_str();
        let sandbox = Sandbox { state, ..sandboxes().remove(0).1 };
        let value: Value = serde_json::from_str(&encode_sandbox(&sandbox).unwrap()).unwrap();
        assert!(value["state"].get(word).is_some(), "{word}: {value}");
    }
    for (_, snapshot) in snapshots() {
        let value: Value = serde_json::from_str(&encode_snapshot(&snapshot).unwrap()).unwrap();
        let word = snapshot.status.as_str();
        assert!(value["status"] == word || value["status"].get(word).is_some(), "{word}: {value}");
    }
}
