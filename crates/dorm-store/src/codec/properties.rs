//! Every record survives encoding and decoding; every text that is not a record is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{
    Access, Annotations, ApiKeyId, Attachment, Background, BackgroundWork, Caller, Cause, Checkpoints, Credential,
    Egress, EgressDefault, EgressRule, EgressRules, EventKind, FirstProgram, Future, HeaderRule, Held, Hold, HoldId,
    InheritedSettings, Initiator, OnSuspendFailure, OnTimeout, OnUnrestorable, OperationId, Origin, PoolId, PoolMember,
    PortAccess, PortRule, PortRules, ProjectId, Resources, Restored, Rewind, RewindFrom, Rewinding, Rewound, Sandbox,
    SandboxId, SandboxSpec, SavedStateId, SleepImage, SleepRetention, SnapshotId, SnapshotKind, State, SubPath,
    SuspendFailures, Timeouts, Timestamp, Unreachable, Variables, Verdict, VolumeId, Wake,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::{
    CodecError, decode_event, decode_operation, decode_sandbox, decode_snapshot, encode_event, encode_operation,
    encode_sandbox, encode_snapshot,
};
use crate::{
    Code, FailureRecord, ForkPlan, Maker, NewEvent, OnPartialFailure, OperationKind, OperationRecord, OperationResult,
    PromotePlan, Removal, SnapshotRecord, SnapshotStatus,
};

fn time() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_millis)
}

fn operation_id() -> impl Strategy<Value = OperationId> {
    any::<[u8; 20]>().prop_map(OperationId::from_random)
}

fn saved_state_id() -> impl Strategy<Value = SavedStateId> {
    any::<[u8; 20]>().prop_map(SavedStateId::from_random)
}

fn snapshot_id() -> impl Strategy<Value = SnapshotId> {
    any::<[u8; 20]>().prop_map(SnapshotId::from_random)
}

fn sandbox_id() -> impl Strategy<Value = SandboxId> {
    any::<[u8; 20]>().prop_map(SandboxId::from_random)
}

fn project() -> impl Strategy<Value = ProjectId> {
    "[a-z0-9]{1,8}(-[a-z0-9]{1,8})?".prop_map(|text| text.parse().unwrap())
}

fn image() -> impl Strategy<Value = SleepImage> {
    (saved_state_id(), any::<u64>(), time(), any::<u64>(), option::of(snapshot_id())).prop_map(
        |(saved_state, generation, taken, bytes, files)| SleepImage { saved_state, generation, taken, bytes, files },
    )
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::Requested),
        Just(Cause::Timeout),
        any::<String>().prop_map(|reason| Cause::Failed { reason })
    ]
}

fn program() -> impl Strategy<Value = FirstProgram> {
    prop_oneof![Just(FirstProgram::None), Just(FirstProgram::OfImage)]
}

fn state() -> impl Strategy<Value = State> {
    let busy = || (operation_id(), time());
    prop_oneof![
        (busy(), program()).prop_map(|((operation, deadline), program)| State::Pending {
            operation,
            deadline,
            program
        }),
        (time(), option::of(image()), option::of(background())).prop_map(|(since, image, background)| State::Running {
            since,
            image,
            background: background.map(Box::new),
        }),
        (busy(), snapshot_id(), time(), option::of(image())).prop_map(
            |((operation, deadline), snapshot, since, image)| State::Snapshotting {
                operation,
                deadline,
                snapshot,
                since,
                image
            }
        ),
        (busy(), time(), option::of(image()), option::of(snapshot_id())).prop_map(
            |((operation, deadline), since, image, files)| State::Suspending {
                operation,
                deadline,
                since,
                image,
                rewind: None,
                files,
            }
        ),
        (busy(), time(), rewind()).prop_map(|((operation, deadline), since, rewind)| State::Suspending {
            operation,
            deadline,
            since,
            image: None,
            rewind: Some(Box::new(rewind)),
            files: None,
        }),
        (busy(), image(), rewind(), any::<bool>()).prop_map(|((operation, deadline), image, rewind, ran)| {
            let from = if ran { RewindFrom::Running } else { RewindFrom::Suspended };
            State::Resuming { operation, deadline, image, rewind: Some(Box::new(Rewinding { rewind, from })) }
        }),
        (image(), option::of(background()))
            .prop_map(|(image, background)| State::Suspended { image, background: background.map(Box::new) }),
        (busy(), image()).prop_map(|((operation, deadline), image)| State::Resuming {
            operation,
            deadline,
            image,
            rewind: None
        }),
        (busy(), cause(), any::<bool>()).prop_map(|((operation, deadline), cause, unleased)| State::Terminating {
            operation,
            deadline,
            cause,
            unleased
        }),
        (cause(), time()).prop_map(|(cause, at)| State::Terminated { cause, at }),
    ]
}

fn attachment() -> impl Strategy<Value = Attachment> {
    let access = any::<bool>().prop_map(|write| if write { Access::Write } else { Access::Read });
    let subpath = prop_oneof![Just(""), Just("a/b")].prop_map(|text| text.parse::<SubPath>().unwrap());
    (any::<[u8; 20]>(), "/[a-z]{1,9}x", access, subpath, any::<u8>()).prop_map(
        |(volume, path, access, subpath, slot)| Attachment {
            volume: VolumeId::from_random(volume),
            path: format!("/mnt{path}").parse().unwrap(),
            access,
            subpath,
            slot,
        },
    )
}

fn background() -> impl Strategy<Value = Background> {
    let work = prop_oneof![
        vec(attachment(), 0..3).prop_map(|after| BackgroundWork::Attach { after }),
        egress().prop_map(|after| BackgroundWork::Egress { after }),
        resources().prop_map(|after| BackgroundWork::Resize { after }),
        rewind().prop_map(BackgroundWork::PrepareRewind),
        snapshot_id().prop_map(BackgroundWork::Snapshot),
        held().prop_map(BackgroundWork::SaveHeld),
    ];
    (operation_id(), time(), work).prop_map(|(operation, deadline, work)| Background { operation, deadline, work })
}

fn rewind() -> impl Strategy<Value = Rewind> {
    let (target, layer) = (option::of(image()), option::of(saved_state_id()));
    (snapshot_id(), target, layer, resources(), option::of(future()), any::<bool>()).prop_map(
        |(to, target, layer, resources, future, may_hold)| Rewind { to, target, layer, resources, future, may_hold },
    )
}

fn future() -> impl Strategy<Value = Future> {
    (snapshot_id(), option::of(length())).prop_map(|(snapshot, keep)| Future { snapshot, keep })
}

fn held() -> impl Strategy<Value = Held> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>());
    let (image, layer) = (option::of(image()), option::of(saved_state_id()));
    (numbers, time(), snapshot_id(), option::of(future()), image, layer, resources()).prop_map(
        |((run, generation, failures), since, rewound_to, future, image, layer, resources)| Held {
            run,
            generation,
            since,
            rewound_to,
            future,
            image,
            layer,
            resources,
            failures,
        },
    )
}

fn resources() -> impl Strategy<Value = Resources> {
    any::<(u32, u64, u64, u32)>().prop_map(|(cpu_millis, memory_bytes, disk_bytes, processes)| Resources {
        cpu_millis,
        memory_bytes,
        disk_bytes,
        processes,
    })
}

fn length() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(any::<String>(), any::<String>(), 0..4)
}

fn egress() -> impl Strategy<Value = Egress> {
    let rule = (any::<bool>(), any::<String>())
        .prop_map(|(allow, to)| EgressRule { verdict: if allow { Verdict::Allow } else { Verdict::Deny }, to });
    let default = prop_oneof![Just(EgressDefault::Deny), Just(EgressDefault::Public)];
    let header = (any::<[String; 3]>(), any::<u16>(), project())
        .prop_map(|([host, name, value], port, project)| HeaderRule { host, port, name, value, project });
    let rules = (vec(rule, 0..3), default, vec(header, 0..3)).prop_map(|(rules, default, headers)| EgressRules {
        rules,
        default,
        headers,
    });
    prop_oneof![
        rules.prop_map(Egress::Rules),
        Just(Egress::Public),
        Just(Egress::None),
        prop::collection::vec(any::<String>(), 0..3).prop_map(Egress::Allow)
    ]
}

fn spec() -> impl Strategy<Value = SandboxSpec> {
    (
        (
            (option::of("[a-z][a-z0-9]{0,8}"), "[0-9a-f]{64}", option::of(saved_state_id())),
            (resources(), egress(), texts(), texts(), vec(attachment(), 0..3)),
        ),
        (any::<[bool; 4]>(), [(); 4].map(|()| option::of(length())), any::<u32>(), texts(), option::of(checkpoints())),
    )
        .prop_map(
            |(
                ((name, image, layer), (resources, egress, variables, secrets, attachments)),
                (
                    [suspend, suspendable, any_call, afresh],
                    [total, idle, after_wake, max_run],
                    generations,
                    labels,
                    checkpoints,
                ),
            )| {
                SandboxSpec {
                    name: name.map(|name| name.parse().unwrap()),
                    image: image.parse().unwrap(),
                    layer,
                    resources,
                    egress,
                    program: if suspendable { FirstProgram::OfImage } else { FirstProgram::None },
                    variables: Variables(variables),
                    secrets: Variables(secrets),
                    on_suspend_failure: if afresh { OnSuspendFailure::Terminate } else { OnSuspendFailure::Keep },
                    on_timeout: match (suspend, afresh) {
                        (true, true) => OnTimeout::SuspendFiles,
                        (true, false) => OnTimeout::Suspend,
                        (false, _) => OnTimeout::Terminate,
                    },
                    suspendable,
                    wake: if any_call { Wake::Any } else { Wake::Never },
                    port_access: if suspend { PortAccess::Private } else { PortAccess::Public },
                    port_host: any_call.then(|| "localhost:{port}".parse().unwrap()),
                    port_rules: PortRules(if afresh {
                        [(8080, PortRule { access: Some(PortAccess::Public), host: None })].into()
                    } else {
                        BTreeMap::new()
                    }),
                    timeouts: Timeouts { total, idle, after_wake, max_run },
                    retention: SleepRetention {
                        generations,
                        on_unrestorable: if afresh { OnUnrestorable::Fresh } else { OnUnrestorable::Fail },
                    },
                    checkpoints,
                    attachments,
                    annotations: Annotations([("e2b".to_owned(), labels.clone())].into()),
                    labels,
                }
            },
        )
}

fn checkpoints() -> impl Strategy<Value = Checkpoints> {
    (length(), any::<bool>(), 1..1000u32, option::of(1..99u32)).prop_map(|(every, memory, newest, hours)| {
        let hours = hours.map(|hours| format!(",{hours}x1h")).unwrap_or_default();
        let keep = format!("{newest}{hours}").parse().unwrap();
        Checkpoints { every, kind: if memory { SnapshotKind::Memory } else { SnapshotKind::Filesystem }, keep }
    })
}

fn sandbox() -> impl Strategy<Value = Sandbox> {
    let from = (snapshot_id(), option::of(saved_state_id()), sandbox_id());
    let origin = option::of(from).prop_map(|from| match from {
        None => Origin::Image,
        Some((snapshot, None, source)) => Origin::Filesystem { snapshot, source },
        Some((snapshot, Some(saved_state), source)) => Origin::Snapshot { snapshot, saved_state, source },
    });
    let rewound = option::of((snapshot_id(), any::<u64>()).prop_map(|(to, generation)| Rewound { to, generation }));
    let since =
        (option::of(option::of(any::<u64>())), prop::collection::vec(hold(), 0..3), older(), rewound, trouble());
    (sandbox_id(), project(), spec(), origin, [time(), time(), time()], any::<(u64, u64)>(), since, state()).prop_map(
        |(id, project, spec, origin, times, (generation, run), (restored, holds, older, rewound, trouble), state)| {
            let (unreachable, suspend_failures) = trouble;
            Sandbox {
                id,
                project,
                spec,
                origin,
                created: times[0],
                generation,
                run,
                last_active: times[1],
                timeouts_set: times[2],
                started: (run % 2 == 0).then_some(times[1]),
                woken: generation % 2 == 0,
                holds,
                restored: match restored {
                    None if run % 2 == 0 => Restored::Files { generation },
                    None => Restored::Nothing,
                    Some(generation) => Restored::Memory { generation },
                },
                rewound,
                older,
                unreachable,
                suspend_failures,
                pool: (generation % 2 == 0)
                    .then(|| PoolMember { pool: PoolId::from_random([7; 20]), is_claimed: run % 2 == 0 }),
                created_by: created_by(run),
                state,
            }
        },
    )
}

fn created_by(run: u64) -> Option<Caller> {
    (run % 2 == 1).then(|| Caller { door: "api".parse().unwrap(), credential: Credential::OwnerSocket })
}

fn hold() -> impl Strategy<Value = Hold> {
    let id = any::<[u8; 20]>().prop_map(HoldId::from_random);
    (id, any::<String>(), time()).prop_map(|(id, reason, until)| Hold { id, reason, until })
}

fn trouble() -> impl Strategy<Value = (Option<Unreachable>, Option<SuspendFailures>)> {
    let silent = (time(), any::<String>()).prop_map(|(since, reason)| Unreachable { since, reason });
    let failed = (any::<u32>(), time(), any::<String>(), time())
        .prop_map(|(count, since, reason, next)| SuspendFailures { count, since, reason, next });
    (option::of(silent), option::of(failed))
}

fn older() -> impl Strategy<Value = Vec<SleepImage>> {
    prop::collection::vec(image(), 0..3)
}

fn operation() -> impl Strategy<Value = OperationRecord> {
    let result = option::of(failure()).prop_map(|failure| match failure {
        None => OperationResult::Done,
        Some(failure) => OperationResult::Failed(failure),
    });
    (
        (
            operation_id(),
            select(OperationKind::ALL.to_vec()),
            (project(), option::of(sandbox_id())),
            (select(Initiator::ALL.to_vec()), option::of(caller())),
        ),
        (
            time(),
            time(),
            option::of(saved_state_id()),
            option::of(fork_plan()),
            promote_plan(),
            option::of((time(), result)),
        ),
    )
        .prop_map(
            |(
                (id, kind, (project, sandbox), (initiator, caller)),
                (began, deadline, saved_state, fork, promote, ended),
            )| {
                OperationRecord {
                    id,
                    kind,
                    project,
                    sandbox,
                    initiator,
                    caller,
                    began,
                    deadline,
                    saved_state,
                    fork,
                    promote,
                    ended,
                }
            },
        )
}

fn failure() -> impl Strategy<Value = FailureRecord> {
    (select(Code::ALL.to_vec()), any::<String>()).prop_map(|(code, reason)| FailureRecord { code, reason })
}

fn promote_plan() -> impl Strategy<Value = Option<PromotePlan>> {
    option::of((sandbox_id(), snapshot_id()).prop_map(|(child, snapshot)| PromotePlan { child, snapshot }))
}

fn fork_plan() -> impl Strategy<Value = ForkPlan> {
    let on_partial_failure = prop_oneof![Just(OnPartialFailure::RollBack), Just(OnPartialFailure::Keep)];
    (snapshot_id(), prop::collection::vec(sandbox_id(), 0..4), on_partial_failure)
        .prop_map(|(snapshot, children, on_partial_failure)| ForkPlan { snapshot, children, on_partial_failure })
}

fn inherited() -> impl Strategy<Value = InheritedSettings> {
    spec().prop_map(|spec| spec.inherited())
}

fn snapshot() -> impl Strategy<Value = SnapshotRecord> {
    let status = prop_oneof![
        Just(SnapshotStatus::InProgress),
        Just(SnapshotStatus::Completed),
        failure().prop_map(SnapshotStatus::Failed),
        Just(SnapshotStatus::Deleting),
    ];
    let removal = prop_oneof![Just(Removal::Asked), Just(Removal::WhenFree), time().prop_map(Removal::At)];
    (
        (snapshot_id(), project(), sandbox_id(), any::<u64>(), option::of(snapshot_id())),
        (saved_state_id(), "[0-9a-f]{64}", resources(), time(), any::<u64>(), status),
        (prop::collection::btree_map(any::<String>(), any::<String>(), 0..3), removal),
        (
            any::<bool>(),
            option::of(saved_state_id()),
            select(vec![Maker::Request, Maker::Policy, Maker::Import]),
            any::<bool>(),
        ),
        (option::of("[a-z]{1,7}(:v[0-9])?"), option::of(inherited())),
    )
        .prop_map(
            |(
                (id, project, source, generation, parent),
                (saved_state, image, resources, created, bytes, status),
                (labels, removal),
                (is_memory, layer, made_by, shares_data),
                (name, inherited),
            )| {
                SnapshotRecord {
                    id,
                    project,
                    name: name.map(|name| name.parse().unwrap()),
                    source,
                    generation,
                    parent,
                    kind: if is_memory { SnapshotKind::Memory } else { SnapshotKind::Filesystem },
                    saved_state,
                    image: image.parse().unwrap(),
                    layer,
                    resources,
                    inherited,
                    created,
                    bytes,
                    shares_data,
                    labels,
                    removal,
                    made_by,
                    status,
                }
            },
        )
}

fn caller() -> impl Strategy<Value = Caller> {
    let key = (any::<[u8; 20]>(), any::<String>())
        .prop_map(|(id, name)| Credential::ApiKey { id: ApiKeyId::from_random(id), name });
    let keyless = vec![Credential::OwnerSocket, Credential::OwnerKey, Credential::PortToken, Credential::PortLink];
    ("[a-z][a-z0-9-]{0,15}", prop_oneof![key, select(keyless)])
        .prop_map(|(door, credential)| Caller { door: door.parse().unwrap(), credential })
}

fn event() -> impl Strategy<Value = NewEvent> {
    (
        (project(), sandbox_id(), time(), select(EventKind::ALL.to_vec()), select(Initiator::ALL.to_vec())),
        (
            option::of(caller()),
            option::of(operation_id()),
            any::<u64>(),
            option::of(any::<String>()),
            option::of(length()),
            option::of(any::<u64>()),
        ),
    )
        .prop_map(
            |((project, sandbox, at, kind, initiator), (caller, operation, generation, detail, took, bytes))| {
                NewEvent { project, sandbox, at, kind, initiator, caller, operation, generation, detail, took, bytes }
            },
        )
}

proptest! {
    #[test]
    fn a_sandbox_comes_back_from_its_text(record in sandbox()) {
        prop_assert_eq!(decode_sandbox(&encode_sandbox(&record).unwrap()).unwrap(), record);
    }

    #[test]
    fn an_operation_comes_back_from_its_text(record in operation()) {
        prop_assert_eq!(decode_operation(&encode_operation(&record).unwrap()).unwrap(), record);
    }

    #[test]
    fn a_snapshot_comes_back_from_its_text(record in snapshot()) {
        prop_assert_eq!(decode_snapshot(&encode_snapshot(&record).unwrap()).unwrap(), record);
    }

    #[test]
    fn an_event_comes_back_from_its_text(record in event()) {
        prop_assert_eq!(decode_event(&encode_event(&record).unwrap()).unwrap(), record);
    }

    #[test]
    fn a_field_too_many_or_too_few_is_refused(record in sandbox()) {
        is_strict("sandbox", &encode_sandbox(&record).unwrap(), decode_sandbox);
    }

    #[test]
    fn no_text_makes_the_codec_panic(text: String) {
        prop_assert!(decode_sandbox(&text).is_err());
        let fields = format!("{{\"v\":1,{text}}}");
        prop_assert!(decode_event(&fields).is_err());
    }
}

/// Checks that at every object of a text, at any depth, an added or a missing field is refused.
pub(super) fn is_strict<T>(name: &str, text: &str, read: impl Fn(&str) -> Result<T, CodecError>) {
    let whole: Value = serde_json::from_str(text).unwrap();
    for pointer in objects(&whole) {
        let mut more = whole.clone();
        more.pointer_mut(&pointer).unwrap()["colour"] = "red".into();
        assert!(read(&more.to_string()).is_err(), "{name}: one more at '{pointer}'");
        for key in whole.pointer(&pointer).unwrap().as_object().unwrap().keys() {
            let mut less = whole.clone();
            less.pointer_mut(&pointer).unwrap().as_object_mut().unwrap().remove(key);
            assert!(read(&less.to_string()).is_err(), "{name}: without '{key}' at '{pointer}'");
        }
    }
}

/// The JSON pointers of every object in a value, except those whose keys are free text.
fn objects(value: &Value) -> Vec<String> {
    let (itself, parts): (_, Vec<_>) = match value {
        Value::Object(fields) => {
            let free = ["variables", "secrets", "values", "labels", "annotations", "arguments"];
            let fields = fields.iter().filter(|(key, _)| !free.contains(&key.as_str()));
            // The keys of tags and of rules for ports are free, what they stand for is not.
            let parts = fields.flat_map(|(key, value)| match value {
                Value::Object(values) if ["tags", "port_rules"].contains(&key.as_str()) => {
                    values.iter().map(|(of, value)| (format!("{key}/{of}"), value)).collect()
                }
                value => vec![(key.clone(), value)],
            });
            (Some(String::new()), parts.collect())
        }
        Value::Array(values) => (None, values.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()),
        _ => (None, Vec::new()),
    };
    let below = |(key, value)| objects(value).into_iter().map(move |pointer| format!("/{key}{pointer}"));
    itself.into_iter().chain(parts.into_iter().flat_map(below)).collect()
}

#[test]
fn a_later_version_is_refused_by_its_number() {
    let refusal = decode_event(r#"{"v":3,"news":true}"#).unwrap_err();
    assert!(matches!(refusal, CodecError::Version { found: 3, newest: 2 }), "{refusal}");
    assert_eq!(
        refusal.to_string(),
        "the text is of version 3, but this dorm reads versions up to 2: use the newer dorm that wrote it"
    );
}

#[test]
fn what_has_no_version_is_refused() {
    for text in ["", "{}", "[]", "null", r#"{"v":"1"}"#, r#"{"v":-1}"#, r#"{"v":1,"v":1}"#] {
        let refusal = decode_event(text).unwrap_err();
        assert!(matches!(refusal, CodecError::Unversioned(_)), "{text}: {refusal}");
    }
}

#[test]
fn wrong_values_are_refused_with_their_reason() {
    let event = r#"{"v":1,"project":"local","sandbox":"ID","at":1,"kind":"KIND","initiator":"user","operation":null,"generation":1,"detail":null,"took":null,"bytes":null}"#;
    let reason = |text: &str| match decode_event(text).unwrap_err() {
        CodecError::Shape { version: 1, source } => source.to_string(),
        other => panic!("{other}"),
    };
    let id = "abcdefghijkmnpqrstuv";
    assert!(reason(&event.replace("KIND", "created")).contains("'ID' is not an id"));
    assert!(reason(&event.replace("ID", id)).contains("'KIND' is not a kind of event"));
    assert!(decode_event(&event.replace("ID", id).replace("KIND", "created")).is_ok());
}
