//! The complete relation of states and inputs, computed with [`step`] itself, as text for tests and
//! documents.

use std::fmt::Write as _;

use crate::background::{Background, BackgroundWork};
use crate::checkpoints::{Checkpoints, RetentionPolicy};
use crate::egress::Egress;
use crate::ids::{HoldId, OperationId, ProjectId, SandboxId, SavedStateId, SnapshotId, VolumeId};
use crate::resources::{Resize, Resources};
use crate::rewind::{Future, Held, Rewind, RewindFrom, Rewinding};
use crate::sandbox::{Hold, Restored, Sandbox};
use crate::saved::{Keep, SleepImage, SnapshotKind};
use crate::spec::{OnTimeout, OnUnrestorable, SandboxSpec, SleepRetention, Timeouts, Wake};
use crate::state::{Cause, FirstProgram, State, StateName};
use crate::step::{Command, Context, Effect, Input, Limits, Observation, Outcome, Step, step};
use crate::time::Timestamp;
use crate::update::Update;
use crate::volume::{Access, Attachment, SubPath};

/// One cell of the relation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// `named` or `ephemeral`.
    pub(crate) kind: &'static str,
    /// The state before.
    pub(crate) from: String,
    /// The input's name.
    pub(crate) input: &'static str,
    /// The result, in words.
    pub(crate) to: String,
    /// The resulting state, if it differs.
    pub(crate) next: Option<StateName>,
}

/// Returns the relation for a named and an ephemeral sandbox whose deadline has passed.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (kind, named) in [("named", true), ("ephemeral", false)] {
        for (variant, sandbox) in sandboxes(named) {
            for (input, name) in inputs() {
                rows.push(row(kind, &variant, &sandbox, &input, name));
            }
        }
    }
    rows
}

/// Returns the relation as text, one row per line, for the snapshot test.
pub(crate) fn relation() -> String {
    let mut text = String::new();
    for row in rows() {
        let _ = writeln!(text, "{:9} {:24} {:16} -> {}", row.kind, row.from, row.input, row.to);
    }
    text
}

/// Returns the diagram and the table of states for the documents, in Markdown.
pub(crate) fn markdown() -> String {
    let mut text = String::from(
        "# Sandbox lifecycle\n\nGenerated from `dorm_lifecycle::step` by its tests; do not edit. `DORM_UPDATE=1 cargo nextest run \
         --release -p dorm-lifecycle` regenerates it.\n\n```mermaid\nstateDiagram-v2\n    [*] --> pending: create\n",
    );
    let mut arrows: Vec<(StateName, StateName, Vec<&'static str>)> = Vec::new();
    for row in rows() {
        let Some(next) = row.next else { continue };
        let Some(from) = StateName::ALL.into_iter().find(|name| row.from.starts_with(name.as_str())) else { continue };
        match arrows.iter_mut().find(|(a, b, _)| (*a, *b) == (from, next)) {
            Some((_, _, inputs)) if inputs.contains(&row.input) => {}
            Some((_, _, inputs)) => inputs.push(row.input),
            None => arrows.push((from, next, vec![row.input])),
        }
    }
    for (from, next, inputs) in arrows {
        let _ = writeln!(text, "    {from} --> {next}: {}", inputs.join(", "));
    }
    text.push_str("    terminated --> [*]\n```\n\n| kind | state | input | leads to |\n|---|---|---|---|\n");
    for row in rows() {
        let _ = writeln!(text, "| {} | {} | {} | {} |", row.kind, row.from, row.input, row.to);
    }
    text
}

fn row(kind: &'static str, variant: &str, sandbox: &Sandbox, input: &Input, name: &'static str) -> Row {
    let mut row = Row { kind, from: variant.to_owned(), input: name, to: String::new(), next: None };
    match step(sandbox, input, &context()) {
        Err(denied) => row.to = format!("denied: {denied}"),
        Ok(Step { outcome: Outcome::Wait, .. }) => row.to = "waits for the operation in progress".to_owned(),
        Ok(Step { outcome: Outcome::Already, .. }) => row.to = "nothing changes".to_owned(),
        Ok(made) => {
            let next = made.next.state.name();
            row.next = (next != sandbox.state.name()).then_some(next);
            row.to = next.as_str().to_owned();
            if let Some(effect) = &made.effect {
                let _ = write!(row.to, "; do: {}", effect_word(effect));
            }
            if !made.events.is_empty() {
                let words: Vec<_> = made.events.iter().map(|(kind, _)| kind.as_str()).collect();
                let _ = write!(row.to, "; record: {}", words.join(", "));
            }
        }
    }
    row
}

fn effect_word(effect: &Effect) -> &'static str {
    match effect {
        Effect::Start { .. } => "start",
        Effect::Save { keep: Keep::Memory, .. } => "save",
        Effect::Save { keep: Keep::Files, .. } => "save_files",
        Effect::Snapshot { .. } => "snapshot",
        Effect::SnapshotImage { .. } => "snapshot_image",
        Effect::Attach { .. } => "attach",
        Effect::Egress { .. } => "egress",
        Effect::Resize { .. } => "resize",
        Effect::Evict { .. } => "evict",
        Effect::PrepareRewind { .. } => "prepare_rewind",
        Effect::Wake { .. } => "wake",
        Effect::Rewind { holds_present: false, .. } => "rewind",
        Effect::Rewind { holds_present: true, .. } => "hold_and_rewind",
        Effect::SaveHeld { .. } => "save_held",
        Effect::Stop { .. } => "stop",
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(1_000_000)
}

pub(crate) fn context() -> Context {
    Context {
        now: now(),
        operation: OperationId::from_random([9; 20]),
        files: files(),
        limits: Limits::default(),
        bytes: 0,
    }
}

pub(crate) fn image() -> SleepImage {
    SleepImage {
        saved_state: SavedStateId::from_random([3; 20]),
        generation: 1,
        taken: Timestamp::from_millis(500_000),
        bytes: 1,
        files: None,
    }
}

fn larger() -> Resources {
    Resources { cpu_millis: 2000, ..Resources::default() }
}

fn files() -> SnapshotId {
    SnapshotId::from_random([10; 20])
}

pub(crate) fn snapshot() -> SnapshotId {
    SnapshotId::from_random([4; 20])
}

pub(crate) fn rewind() -> Rewind {
    Rewind {
        to: snapshot(),
        target: Some(SleepImage { saved_state: SavedStateId::from_random([6; 20]), ..image() }),
        layer: None,
        resources: crate::Resources::default(),
        future: Some(Future { snapshot: SnapshotId::from_random([7; 20]), keep: None }),
        may_hold: false,
    }
}

fn held(image: Option<SleepImage>) -> Held {
    let Rewind { to, future, layer, resources, .. } = rewind();
    let since = Timestamp::from_millis(600_000);
    Held { run: 1, generation: 1, since, rewound_to: to, future, image, layer, resources, failures: 0 }
}

fn with_files_only(since: Timestamp, deadline: Timestamp, operation: &OperationId) -> [State; 3] {
    let image = SleepImage { files: Some(files()), ..image() };
    [
        State::Running { since, image: Some(image.clone()), background: None },
        State::Suspended { image: image.clone(), background: None },
        State::Resuming { operation: operation.clone(), deadline, image, rewind: None },
    ]
}

fn held_works() -> [(&'static str, BackgroundWork); 2] {
    [("saving a held run", None), ("saving a held run, with image", Some(image()))]
        .map(|(word, image)| (word, BackgroundWork::SaveHeld(held(image))))
}

pub(crate) fn sandboxes(named: bool) -> Vec<(String, Sandbox)> {
    let operation = OperationId::from_random([2; 20]);
    let deadline = Timestamp::from_millis(2_000_000);
    let since = Timestamp::from_millis(100_000);
    let mut list = Vec::new();
    let mut add = |word: &str, state: State| {
        let text = if word.is_empty() { state.name().to_string() } else { format!("{} {word}", state.name()) };
        list.push((text, sandbox(named, state)));
    };
    let program = FirstProgram::None;
    add("", State::Pending { operation: operation.clone(), deadline, program });
    add("", State::Running { since, image: None, background: None });
    add("", State::Snapshotting { operation: operation.clone(), deadline, snapshot: snapshot(), since, image: None });
    let works = [
        ("to attach", BackgroundWork::Attach { after: Vec::from([attachment()]) }),
        ("for its egress", BackgroundWork::Egress { after: Egress::closed() }),
        ("to resize", BackgroundWork::Resize { after: larger() }),
        ("to rewind", BackgroundWork::PrepareRewind(rewind())),
    ];
    let background = |work: &BackgroundWork| {
        Some(Box::new(Background { operation: operation.clone(), deadline, work: work.clone() }))
    };
    for (word, work) in &works {
        add(word, State::Running { since, image: None, background: background(work) });
    }
    let resuming = |rewind| State::Resuming { operation: operation.clone(), deadline, image: image(), rewind };
    let suspending =
        |image, rewind| State::Suspending { operation: operation.clone(), deadline, since, image, rewind, files: None };
    if named {
        add("with image", State::Running { since, image: Some(image()), background: None });
        let kept = Some(image());
        add(
            "with image",
            State::Snapshotting { operation: operation.clone(), deadline, snapshot: snapshot(), since, image: kept },
        );
        add("", suspending(None, None));
        add("with image", suspending(Some(image()), None));
    }
    add(
        "with files only",
        State::Suspending {
            operation: operation.clone(),
            deadline,
            since,
            image: None,
            rewind: None,
            files: Some(files()),
        },
    );
    add("to rewind", suspending(None, Some(Box::new(rewind()))));
    add("to rewind, held", suspending(None, Some(Box::new(Rewind { may_hold: true, ..rewind() }))));
    for (word, work) in held_works() {
        add(word, State::Running { since, image: None, background: background(&work) });
    }
    if named {
        add("", State::Suspended { image: image(), background: None });
        for (word, work) in works.iter().chain([&("for a snapshot", BackgroundWork::Snapshot(snapshot()))]) {
            add(word, State::Suspended { image: image(), background: background(work) });
        }
        add("", resuming(None));
    }
    for (word, from) in [("to rewind", RewindFrom::Running), ("to rewind, slept", RewindFrom::Suspended)] {
        add(word, resuming(Some(Box::new(Rewinding { rewind: rewind(), from }))));
    }
    with_files_only(since, deadline, &operation).into_iter().for_each(|state| add("with files only", state));
    add("", State::Terminating { operation, deadline, cause: Cause::Requested, unleased: false });
    add("", State::Terminated { cause: Cause::Timeout, at: since });
    list
}

fn sandbox(named: bool, state: State) -> Sandbox {
    let sixty_four_zeros = "0000000000000000000000000000000000000000000000000000000000000000";
    let (Ok(image), Ok(name)) = (sixty_four_zeros.parse(), "web".parse()) else {
        unreachable!("both are legal");
    };
    let mut spec = SandboxSpec::new(image, named.then_some(name));
    spec.timeouts = Timeouts { total: Some(std::time::Duration::from_secs(60)), ..Timeouts::default() };
    spec.on_timeout = if named { OnTimeout::Suspend } else { OnTimeout::Terminate };
    spec.layer = state.image().filter(|image| image.files.is_some()).map(|image| image.saved_state.clone());
    // A rewind that holds the first run starts the second one.
    let holds = state.rewind().is_some_and(|rewind| rewind.may_hold);
    let (generation, run) = match state.held() {
        Some(_) => (2, 2),
        None => (if holds { 2 } else { 1 }, 1),
    };
    Sandbox {
        generation,
        run,
        last_active: Timestamp::from_millis(60_000),
        ..Sandbox::new(SandboxId::from_random([1; 20]), ProjectId::local(), spec, Timestamp::from_millis(50_000), state)
    }
}

fn attachment() -> Attachment {
    let Ok(path) = "/data".parse() else { unreachable!("it is legal") };
    let volume = VolumeId::from_random([8; 20]);
    Attachment { volume, path, access: Access::Write, subpath: SubPath::default(), slot: 0 }
}

pub(crate) fn inputs() -> Vec<(Input, &'static str)> {
    let timeouts = Timeouts { total: Some(std::time::Duration::from_secs(90)), ..Timeouts::default() };
    let retention = SleepRetention { generations: 2, on_unrestorable: OnUnrestorable::Fresh };
    let checkpoints = Checkpoints {
        every: std::time::Duration::from_secs(600),
        kind: SnapshotKind::Memory,
        keep: RetentionPolicy::default(),
    };
    let id = HoldId::from_random([5; 20]);
    let hold = Hold { id: id.clone(), reason: "because".to_owned(), until: Timestamp::from_millis(3_000_000) };
    let woken = |restored| Observation::Woken { run: 1, restored, because: None };
    let why = || "because".to_owned();
    let update = Update { wake: Some(Wake::Any), ..Update::default() };
    let command = |command, name| (Input::Command(command), name);
    let seen = |observation, name| (Input::Observation(observation), name);
    vec![
        command(Command::Suspend(Keep::Memory), "suspend"),
        command(Command::Suspend(Keep::Files), "suspend_files"),
        command(Command::Resume { total: None }, "resume"),
        command(Command::Wake, "wake"),
        command(Command::Snapshot(snapshot(), SnapshotKind::Memory), "snapshot"),
        command(Command::Snapshot(snapshot(), SnapshotKind::Filesystem), "snapshot_files"),
        command(Command::Rewind(Box::new(rewind())), "rewind"),
        command(Command::SetTimeouts(timeouts), "set_timeouts"),
        command(Command::Extend(std::time::Duration::from_secs(90)), "extend"),
        command(Command::Update(Box::new(update)), "update"),
        command(Command::SetRetention(retention), "set_retention"),
        command(Command::SetCheckpoints(Some(checkpoints)), "set_checkpoints"),
        command(Command::SetAttachments(Vec::from([attachment()])), "set_attachments"),
        command(Command::SetEgress(Egress::closed()), "set_egress"),
        command(Command::Resize(Resize { cpu_millis: Some(2000), memory_bytes: None }), "resize"),
        command(Command::Claim(Box::default()), "claim"),
        command(Command::Discard, "discard"),
        command(Command::Hold(hold), "hold"),
        command(Command::Release(id), "release"),
        command(Command::Touch, "touch"),
        command(Command::Expire, "deadline"),
        command(Command::Terminate, "terminate"),
        seen(Observation::Started, "started"),
        seen(Observation::StartFailed(why()), "start_failed"),
        seen(Observation::Saved(image()), "saved"),
        seen(Observation::SaveFailed(why()), "save_failed"),
        seen(Observation::SnapshotTaken, "snapshot_taken"),
        seen(Observation::SnapshotFailed(why()), "snapshot_failed"),
        seen(Observation::Attached, "attached"),
        seen(Observation::AttachFailed(why()), "attach_failed"),
        seen(Observation::EgressSet, "egress_set"),
        seen(Observation::EgressFailed(why()), "egress_failed"),
        seen(Observation::Resized, "resized"),
        seen(Observation::ResizeFailed(why()), "resize_failed"),
        seen(Observation::RewindPrepared, "rewind_prepared"),
        seen(Observation::RewindNotPrepared(why()), "rewind_not_prepared"),
        seen(Observation::HeldSaved(Some(image())), "held_saved"),
        seen(Observation::HeldNotSaved(why()), "held_not_saved"),
        seen(Observation::HeldLost(why()), "held_lost"),
        seen(woken(Restored::Memory { generation: Some(1) }), "woken"),
        seen(woken(Restored::Files { generation: 1 }), "woken_files"),
        seen(woken(Restored::Nothing), "woken_fresh"),
        seen(Observation::WakeFailed(why()), "wake_failed"),
        seen(Observation::RunLost(why()), "run_lost"),
        seen(Observation::Unreachable(why()), "unreachable"),
        seen(Observation::Reachable, "reachable"),
        seen(Observation::Stopped, "stopped"),
    ]
}

#[cfg(test)]
mod tests;
