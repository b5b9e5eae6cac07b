//! The committed texts of every version load for ever, and what is written now is exactly what the latest ones hold.
//!
//! A golden that no longer fits is never rewritten: the format has moved and needs a new version. `DORM_UPDATE=1`
//! writes only those that are not there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use dorm_lifecycle::{
    Access, Actor, ApiKeyId, Attachment, Background, BackgroundWork, CaptureId, Cause, Checkpoints, Egress, EventKind,
    FirstProgram, Future, Hold, HoldId, Keeping, Ladder, OnSuspendFailure, OnTimeout, OnUnrestorable, OperationId,
    Origin, PortAccess, ProjectId, Resources, Restored, Rewind, RewindFrom, Rewinding, Rewound, Sandbox, SandboxId,
    SandboxSpec, SleepImage, SnapshotId, SnapshotKind, State, SuspendFailures, Timeouts, Timestamp, Unreachable,
    VolumeId, WebhookId, Writers,
};

use super::{
    decode_api_key, decode_clock, decode_event, decode_operation, decode_sandbox, decode_snapshot, decode_volume,
    decode_webhook, encode_api_key, encode_clock, encode_event, encode_operation, encode_sandbox, encode_snapshot,
    encode_volume, encode_webhook,
};
use crate::{
    ApiKeyRecord, ClockNote, ClockPeriod, Code, FailureRecord, ForkPlan, KeyScope, Maker, NewEvent, OperationKind,
    OperationRecord, OperationResult, PromotePlan, Removal, SnapshotRecord, SnapshotStatus, Together, VolumeRecord,
    VolumeStatus, WebhookRecord,
};

fn directory(version: u64) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("goldens/v{version}"))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn image() -> SleepImage {
    SleepImage {
        capture: CaptureId::from_random([3; 20]),
        generation: 4,
        taken: at(1_790_000_003_000),
        bytes: 73_400_320,
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
        ("suspending", State::Suspending { operation: operation.clone(), deadline, since, image: None, rewind: None }),
        (
            "suspending-with-image",
            State::Suspending { operation: operation.clone(), deadline, since, image: Some(image()), rewind: None },
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
    spec.timeouts =
        Timeouts { total: Some(Duration::from_secs(3600)), idle: Some(Duration::new(90, 500_000_000)), max_run: None };
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
        holds: Vec::new(),
        restored: Restored::Memory { generation: None },
        rewound: None,
        older: Vec::new(),
        unreachable: None,
        suspend_failures: None,
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
    closed.spec.auto_resume = false;
    list.push(("sandbox-without-network".to_owned(), closed));
    let mut listed = base.clone();
    listed.spec.egress = Egress::Allow(vec!["198.51.100.0/24".to_owned(), "203.0.113.9".to_owned()]);
    list.push(("sandbox-with-allow-list".to_owned(), listed));
    let mut ephemeral = base.clone();
    ephemeral.spec = SandboxSpec::new(ephemeral.spec.image, None);
    ephemeral.spec.on_timeout = OnTimeout::Terminate;
    ephemeral.origin = Origin::Snapshot {
        snapshot: SnapshotId::from_random([5; 20]),
        capture: CaptureId::from_random([6; 20]),
        source: None,
    };
    ephemeral.state = State::Running { since: at(1_790_000_000_500), image: None, background: None };
    ephemeral.timeouts_set = at(1_790_000_000_500);
    list.push(("sandbox-ephemeral-from-snapshot".to_owned(), ephemeral));
    list
}

/// What version 1 could not say.
fn newer_sandboxes() -> Vec<(String, Sandbox)> {
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
    older.spec.keeping = Keeping { generations: 3, on_unrestorable: OnUnrestorable::Fresh };
    older.restored = Restored::Memory { generation: Some(3) };
    older.older = vec![SleepImage { generation: 3, capture: CaptureId::from_random([11; 20]), ..image() }];
    older.state = State::Suspended { image: image(), background: None };
    let mut fresh = older.clone();
    let mut layered = fresh.clone();
    layered.spec.layer = Some(CaptureId::from_random([13; 20]));
    layered.origin = Origin::Filesystem { snapshot: SnapshotId::from_random([5; 20]), source: None };
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

/// What version 2 could not say.
fn newest_sandboxes() -> Vec<(String, Sandbox)> {
    let base = sandboxes().remove(0).1;
    let (operation, deadline) = (OperationId::from_random([2; 20]), at(1_790_000_300_000));
    let rewind = |keep| Rewind {
        to: SnapshotId::from_random([4; 20]),
        target: Some(SleepImage { generation: 2, capture: CaptureId::from_random([15; 20]), ..image() }),
        layer: None,
        resources: Resources::default(),
        future: Some(Future { snapshot: SnapshotId::from_random([16; 20]), keep }),
    };
    let saving = State::Suspending {
        operation: operation.clone(),
        deadline,
        since: at(1_790_000_000_500),
        image: None,
        rewind: Some(Box::new(rewind(Some(Duration::from_secs(604_800))))),
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
    let mut ladder = base.clone();
    ladder.spec.checkpoints =
        Some(Checkpoints { every: Duration::from_secs(10), kind: SnapshotKind::Filesystem, keep: Ladder::default() });
    let child = Sandbox {
        origin: Origin::Snapshot {
            snapshot: SnapshotId::from_random([5; 20]),
            capture: CaptureId::from_random([6; 20]),
            source: Some(SandboxId::from_random([13; 20])),
        },
        ..base.clone()
    };
    vec![
        ("sandbox-suspending-to-rewind".to_owned(), Sandbox { state: saving, ..base.clone() }),
        (
            "sandbox-resuming-to-rewind".to_owned(),
            Sandbox { state: going(rewind(None), RewindFrom::Running), ..base.clone() },
        ),
        ("sandbox-resuming-to-rewind-slept".to_owned(), Sandbox { state: slept, ..base }),
        ("sandbox-rewound".to_owned(), rewound),
        ("sandbox-child".to_owned(), child),
        ("sandbox-with-checkpoints".to_owned(), checkpointed),
        ("sandbox-with-default-ladder".to_owned(), ladder),
    ]
}

fn operations() -> Vec<(String, OperationRecord)> {
    let results = [
        ("open", None),
        ("done", Some((at(1_790_000_004_000), OperationResult::Done))),
        ("failed", Some((at(1_790_000_004_000), OperationResult::Failed(uncoded("no space left"))))),
    ];
    let mut list = Vec::new();
    for (kind, (name, ended)) in OperationKind::ALL.into_iter().flat_map(|kind| results.clone().map(|end| (kind, end)))
    {
        let deletes = kind == OperationKind::DeleteSnapshot;
        let record = OperationRecord {
            id: OperationId::from_random([2; 20]),
            kind,
            sandbox: (!deletes).then(|| SandboxId::from_random([1; 20])),
            actor: Actor::User,
            began: at(1_790_000_000_000),
            deadline: at(1_790_000_060_000),
            capture: (!deletes).then(|| CaptureId::from_random([3; 20])),
            fork: (kind == OperationKind::Fork).then(|| fork_plan(Together::AllOrNone)),
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

/// Before the kind of a failure was kept.
fn uncoded(reason: &str) -> FailureRecord {
    FailureRecord { code: None, reason: reason.to_owned() }
}

/// Failures whose kind is kept, which was not so at first.
fn coded_operations() -> Vec<(String, OperationRecord)> {
    let base = operations().into_iter().find(|(name, _)| name == "operation-suspend-failed").unwrap().1;
    let coded = |code: Code| {
        let result = OperationResult::Failed(FailureRecord::new(code, "why"));
        let record = OperationRecord { ended: Some((at(1_790_000_004_000), result)), ..base.clone() };
        (format!("operation-suspend-failed-{}", code.as_str()), record)
    };
    Code::ALL.map(coded).into()
}

fn coded_snapshots() -> Vec<(String, SnapshotRecord)> {
    let base = snapshots().remove(2).1;
    let status = SnapshotStatus::Failed(FailureRecord::new(Code::NoRoom, "no space left"));
    vec![("snapshot-failed-no_room".to_owned(), SnapshotRecord { status, ..base })]
}

fn fork_plan(together: Together) -> ForkPlan {
    ForkPlan {
        snapshot: SnapshotId::from_random([4; 20]),
        children: vec![SandboxId::from_random([13; 20]), SandboxId::from_random([14; 20])],
        together,
    }
}

/// What version 1 could not say.
fn newer_operations() -> Vec<(String, OperationRecord)> {
    let forks = operations().into_iter().find(|(name, _)| name == "operation-fork-failed").unwrap().1;
    let each = OperationRecord { fork: Some(fork_plan(Together::Each)), ..forks };
    vec![("operation-fork-each".to_owned(), each)]
}

fn newer_snapshots() -> Vec<(String, SnapshotRecord)> {
    let base = snapshots().remove(1).1;
    let labels = [("team".to_owned(), "Bücher".to_owned())].into();
    let removal = Removal::At(at(1_790_000_900_000));
    let layer = Some(CaptureId::from_random([13; 20]));
    let policy = SnapshotRecord { made_by: Maker::Policy, ..base.clone() };
    let import = SnapshotRecord { made_by: Maker::Import, ..base.clone() };
    let files = SnapshotRecord { kind: SnapshotKind::Filesystem, layer, ..base.clone() };
    let shares = SnapshotRecord { shares_data: true, ..base.clone() };
    let passing = SnapshotRecord { removal: Removal::WhenFree, ..base.clone() };
    vec![
        ("snapshot-that-expires".to_owned(), SnapshotRecord { labels, removal, ..base }),
        ("snapshot-that-passes".to_owned(), passing),
        ("snapshot-that-shares-data".to_owned(), shares),
        ("snapshot-of-files".to_owned(), files),
        ("snapshot-of-a-policy".to_owned(), policy),
        ("snapshot-that-was-imported".to_owned(), import),
    ]
}

fn snapshots() -> Vec<(String, SnapshotRecord)> {
    let statuses = [
        SnapshotStatus::InProgress,
        SnapshotStatus::Completed,
        SnapshotStatus::Failed(uncoded("the source ended")),
        SnapshotStatus::Deleting,
    ];
    let record = |status: SnapshotStatus| SnapshotRecord {
        id: SnapshotId::from_random([4; 20]),
        project: ProjectId::local(),
        source: SandboxId::from_random([1; 20]),
        generation: 5,
        parent: (status == SnapshotStatus::Completed).then(|| SnapshotId::from_random([5; 20])),
        kind: SnapshotKind::Memory,
        capture: CaptureId::from_random([3; 20]),
        image: "0123456789abcdef".repeat(4).parse().unwrap(),
        layer: None,
        resources: Resources::default(),
        created: at(1_790_000_000_000),
        bytes: 73_400_320,
        shares_data: false,
        labels: BTreeMap::new(),
        removal: Removal::Asked,
        made_by: Maker::Request,
        status,
    };
    statuses.map(|status| (format!("snapshot-{}", status.as_str()), record(status))).to_vec()
}

fn events() -> Vec<(String, NewEvent)> {
    let actors = Actor::ALL.into_iter().cycle();
    EventKind::ALL
        .iter()
        .zip(actors)
        .map(|(kind, actor)| {
            let event = NewEvent {
                project: ProjectId::local(),
                sandbox: SandboxId::from_random([1; 20]),
                at: at(1_790_000_000_000),
                kind: *kind,
                actor,
                operation: (actor == Actor::User).then(|| OperationId::from_random([2; 20])),
                generation: 5,
                detail: (actor == Actor::Host).then(|| "out of memory".to_owned()),
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

fn api_keys() -> Vec<(String, ApiKeyRecord)> {
    let full = ApiKeyRecord {
        id: ApiKeyId::from_random([13; 20]),
        project: ProjectId::local(),
        name: "laptop".to_owned(),
        scope: KeyScope::Full,
        hash: [9; 32],
        created: at(1_790_000_000_000),
        expires: None,
    };
    let reads = ApiKeyRecord {
        scope: KeyScope::ReadOnly,
        expires: Some(at(1_790_000_500_000)),
        name: String::new(),
        ..full.clone()
    };
    let one = ApiKeyRecord { scope: KeyScope::Sandbox(SandboxId::from_random([1; 20])), ..full.clone() };
    vec![("key".to_owned(), full), ("key-read-only".to_owned(), reads), ("key-of-a-sandbox".to_owned(), one)]
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
    list.push(("sandbox-with-private-ports".to_owned(), private));
    list.push(("sandbox-with-volumes".to_owned(), sandbox));
    list
}

fn in_background(sandbox: &Sandbox) -> Vec<(String, Sandbox)> {
    let since = at(1_790_000_000_500);
    let background = |work| {
        let (operation, deadline) = (OperationId::from_random([2; 20]), at(1_790_000_300_000));
        Some(Box::new(Background { operation, deadline, work }))
    };
    let after = sandbox.spec.attachments[1..].to_vec();
    let rewind = newest_sandboxes().into_iter().find_map(|(_, sandbox)| sandbox.state.rewind().cloned()).unwrap();
    let snapshot = SnapshotId::from_random([4; 20]);
    let states = [
        (
            "sandbox-detaching",
            State::Running { since, image: None, background: background(BackgroundWork::Attach { after }) },
        ),
        (
            "sandbox-preparing-a-rewind",
            State::Suspended { image: image(), background: background(BackgroundWork::PrepareRewind(rewind)) },
        ),
        (
            "sandbox-suspended-for-a-snapshot",
            State::Suspended { image: image(), background: background(BackgroundWork::Snapshot(snapshot)) },
        ),
    ];
    states.map(|(name, state)| (name.to_owned(), Sandbox { state, ..sandbox.clone() })).into()
}

/// Sandboxes whose run gives trouble, which were not on record at first.
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

/// One whose first run starts what its image is made to run.
fn starting_sandboxes() -> Vec<(String, Sandbox)> {
    let mut sandbox = sandboxes().remove(0).1;
    let State::Pending { program, .. } = &mut sandbox.state else { panic!("not pending") };
    *program = FirstProgram::OfImage;
    vec![("sandbox-pending-with-program".to_owned(), sandbox)]
}

fn newer_events() -> Vec<(String, NewEvent)> {
    let took = Some(Duration::from_millis(1234));
    let measured = NewEvent { took, bytes: Some(73_400_320), ..events().remove(0).1 };
    vec![("event-measured".to_owned(), measured)]
}

fn golden(version: u64, name: &str) -> String {
    let path = directory(version).join(format!("{name}.json"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks records against their goldens both ways and answers the files' names.
fn written<T: PartialEq + std::fmt::Debug>(
    version: u64,
    records: Vec<(String, T)>,
    write: impl Fn(&T) -> String,
    read: impl Fn(&str) -> T,
) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for (name, record) in records {
        let text = write(&record);
        let path = directory(version).join(format!("{name}.json"));
        if std::env::var_os("DORM_UPDATE").is_some() && !path.exists() {
            fs::create_dir_all(directory(version)).unwrap();
            fs::write(&path, format!("{text}\n")).unwrap();
        }
        let golden = golden(version, &name);
        assert_eq!(read(&golden), record, "{name} reads as something else");
        assert_eq!(text, golden.trim_end(), "{name} is written differently: the format has moved");
        files.insert(format!("{name}.json"));
    }
    files
}

/// Checks that older goldens read as these records and answers the files' names.
fn upgraded<T: PartialEq + std::fmt::Debug>(
    version: u64,
    records: Vec<(String, T)>,
    read: impl Fn(&str) -> T,
) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for (name, record) in records {
        assert_eq!(read(&golden(version, &name)), record, "{name} of version {version} reads as something else");
        files.insert(format!("{name}.json"));
    }
    files
}

/// Those that a version knew.
fn known<T>(version: u64, records: Vec<(String, T)>) -> Vec<(String, T)> {
    records.into_iter().filter(|(name, _)| directory(version).join(format!("{name}.json")).exists()).collect()
}

fn there(version: u64) -> BTreeSet<String> {
    let entries = fs::read_dir(directory(version)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn sandbox_of(text: &str) -> Sandbox {
    decode_sandbox(text).unwrap()
}

fn event_of(text: &str) -> NewEvent {
    decode_event(text).unwrap()
}

#[test]
fn every_golden_loads_and_is_written_the_same() {
    let second_sandboxes = || sandboxes().into_iter().chain(newer_sandboxes());
    let all_sandboxes = second_sandboxes().chain(newest_sandboxes()).chain(attached_sandboxes());
    let all_sandboxes = all_sandboxes.chain(troubled_sandboxes()).chain(starting_sandboxes()).collect();
    let all_events = events().into_iter().chain(newer_events()).collect();
    let mut third = written(3, all_sandboxes, |record| encode_sandbox(record).unwrap(), sandbox_of);
    let mut second = upgraded(2, known(2, second_sandboxes().collect()), sandbox_of);
    second.extend(written(
        2,
        webhooks(),
        |record| encode_webhook(record).unwrap(),
        |text| decode_webhook(text).unwrap(),
    ));
    second.extend(written(2, all_events, |record| encode_event(record).unwrap(), event_of));
    third.extend(written(
        3,
        api_keys(),
        |record| encode_api_key(record).unwrap(),
        |text| decode_api_key(text).unwrap(),
    ));
    let operation_of = |text: &str| decode_operation(text).unwrap();
    let snapshot_of = |text: &str| decode_snapshot(text).unwrap();
    let all_operations =
        || operations().into_iter().chain(newer_operations()).chain(coded_operations()).collect::<Vec<_>>();
    let all_snapshots =
        || snapshots().into_iter().chain(newer_snapshots()).chain(coded_snapshots()).collect::<Vec<_>>();
    third.extend(written(3, all_operations(), |record| encode_operation(record).unwrap(), operation_of));
    third.extend(written(3, all_snapshots(), |record| encode_snapshot(record).unwrap(), snapshot_of));
    third.extend(written(3, volumes(), |record| encode_volume(record).unwrap(), |text| decode_volume(text).unwrap()));
    third.extend(written(3, clocks(), |note| encode_clock(note).unwrap(), |text| decode_clock(text).unwrap()));
    assert_eq!(there(3), third, "every golden has a record that it is compared with");
    second.extend(upgraded(2, known(2, all_operations()), operation_of));
    second.extend(upgraded(2, known(2, all_snapshots()), snapshot_of));
    assert_eq!(there(2), second, "every golden has a record that it is compared with");
    let mut first = upgraded(1, sandboxes(), sandbox_of);
    first.extend(upgraded(1, known(1, operations()), operation_of));
    first.extend(upgraded(1, snapshots(), snapshot_of));
    first.extend(upgraded(1, known(1, events()), event_of));
    assert_eq!(there(1), first, "every golden has a record that it is compared with");
}

#[test]
fn the_words_of_states_are_those_of_the_lifecycle() {
    for (_, state) in states() {
        let word = state.name().as_str();
        let sandbox = Sandbox { state, ..sandboxes().remove(0).1 };
        let value: serde_json::Value = serde_json::from_str(&encode_sandbox(&sandbox).unwrap()).unwrap();
        assert!(value["state"].get(word).is_some(), "{word}: {value}");
    }
    for (_, snapshot) in snapshots() {
        let value: serde_json::Value = serde_json::from_str(&encode_snapshot(&snapshot).unwrap()).unwrap();
        let word = snapshot.status.as_str();
        assert!(value["status"] == word || value["status"].get(word).is_some(), "{word}: {value}");
    }
}
