//! Explains why a sandbox is in its state and what happens next, each reason with the signal it is
//! based on.

use std::time::Duration;

use crate::amount::{ByteSize, CpuCount};
use crate::background::BackgroundWork;
use crate::caller::Caller;
use crate::event::{EventKind, Initiator};
use crate::ids::SnapshotId;
use crate::reach::{SUSPEND_FAILURES_MAX, SuspendFailures, Unreachable};
use crate::sandbox::{Restored, Sandbox};
use crate::saved::{Keep, SleepImage};
use crate::spec::{OnSuspendFailure, OnUnrestorable, Wake};
use crate::state::{Cause, FirstProgram, State};
use crate::time::Timestamp;

/// The facts about a sandbox beyond its record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The current time.
    pub now: Timestamp,
    /// Whether it is suspended and its memory is still held.
    pub parked: bool,
    /// The uses that are open now (such as exec calls or terminals), with the number of each.
    pub open: Vec<(&'static str, usize)>,
    /// The kind of its last use since the daemon started.
    pub last_use: Option<&'static str>,
    /// Its newest events, oldest first.
    pub events: Vec<PastEvent>,
    /// The existing snapshots of it, with their sizes in bytes.
    pub snapshots: Vec<(SnapshotId, u64)>,
    /// The number of bytes of the host's disk that must be free before it continues, if it is
    /// paused for lack of disk space.
    pub waits_for_disk: Option<u64>,
    /// How long a run may be unreachable before it is ended; `None` for no limit.
    pub max_unreachable: Option<Duration>,
    /// Damaged files that it uses or would be restored from, one sentence each.
    pub damaged: Vec<String>,
}

/// The parts of an event that matter here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastEvent {
    /// When it happened.
    pub at: Timestamp,
    /// Its kind.
    pub kind: EventKind,
    /// Its initiator.
    pub initiator: Initiator,
    /// The caller that asked for it.
    pub caller: Option<Caller>,
    /// Its detail.
    pub detail: Option<String>,
}

/// One statement, and the signal it is based on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The kind of signal: `event`, `use`, `hold`, `limit`, `operation`, `image`, `policy`,
    /// `memory`, `disk`, `snapshot`, `run`, `pool`.
    pub signal: &'static str,
    /// The statement, as a sentence.
    pub says: String,
    /// When it happened, or will happen.
    pub at: Option<Timestamp>,
}

impl Reason {
    fn new(signal: &'static str, says: impl Into<String>) -> Self {
        Self { signal, says: says.into(), at: None }
    }

    fn at(self, at: Timestamp) -> Self {
        Self { at: Some(at), ..self }
    }
}

/// The explanation of a sandbox's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// The state, as a sentence.
    pub summary: String,
    /// Why the sandbox is in this state, the strongest reason first.
    pub because: Vec<Reason>,
    /// The last operation that failed or was refused, if none has succeeded since.
    pub refused: Option<Reason>,
    /// The expected changes, the soonest first.
    pub next: Vec<Reason>,
    /// The data stored on disk for the sandbox, and why it is kept.
    pub on_disk: Vec<Reason>,
}

/// Explains why `sandbox` is in its state.
pub fn why(sandbox: &Sandbox, facts: &Facts) -> Why {
    let mut why = Why {
        summary: summary(sandbox, facts),
        because: came_here(facts).into_iter().collect(),
        refused: not_suspended(sandbox).or_else(|| refused(facts)),
        next: Vec::new(),
        on_disk: on_disk(sandbox, facts),
    };
    match &sandbox.state {
        State::Running { .. } => {
            why.because.extend(waits_for_disk(facts));
            if let Some(silent) = &sandbox.unreachable {
                why.because.insert(0, Reason::new("run", does_not_answer(silent)).at(silent.since));
                why.next.push(asked_again(silent, facts));
            }
            why.because.extend(awake(sandbox, facts));
            let ends = if sandbox.state.background().is_some() { Vec::new() } else { ends(sandbox) };
            why.next.extend(continuation(facts).into_iter().chain(ends));
        }
        State::Suspended { .. } => why.next = wakes(sandbox, facts),
        State::Terminated { cause, at } => why.because.insert(0, Reason::new("event", over(cause)).at(*at)),
        State::Pending { operation, deadline, program } => {
            let what = match program {
                FirstProgram::None => "it starts",
                FirstProgram::OfImage => "it starts, including its image's program",
            };
            why.next.push(in_progress(what, operation, *deadline, "it is terminated, with the reason recorded"));
        }
        State::Snapshotting { operation, deadline, .. } => {
            why.next.push(in_progress(
                "it continues running",
                operation,
                *deadline,
                "it continues without the snapshot",
            ));
        }
        State::Suspending { operation, deadline, rewind: Some(rewind), .. } => {
            let what = format!("it is rewound to snapshot {}", rewind.to);
            why.next.push(in_progress(&what, operation, *deadline, "it keeps running"));
        }
        State::Resuming { operation, deadline, rewind: Some(rewinding), .. } => {
            let what = format!("it runs from snapshot {}", rewinding.rewind.to);
            why.next.push(in_progress(&what, operation, *deadline, "it returns to its previous state, which is saved"));
        }
        State::Suspending { operation, deadline, .. } => {
            why.next.push(in_progress("it is suspended", operation, *deadline, "it keeps running"));
        }
        State::Resuming { operation, deadline, .. } => {
            why.next.push(in_progress(
                "it runs",
                operation,
                *deadline,
                "it stays suspended, with its sleep image intact",
            ));
        }
        State::Terminating { operation, deadline, cause, .. } => {
            why.because.insert(0, Reason::new("operation", over(cause)));
            why.next.push(in_progress(
                "it is terminated",
                operation,
                *deadline,
                "the delay is reported and termination is retried",
            ));
        }
    }
    why.next.splice(0..0, in_background(sandbox));
    why.because.splice(0..0, facts.damaged.iter().map(|says| Reason::new("disk", says.as_str())));
    why
}

/// Returns what the operation in the background leads to.
fn in_background(sandbox: &Sandbox) -> Option<Reason> {
    let background = sandbox.state.background()?;
    let (what, else_what) = match &background.work {
        BackgroundWork::Attach { .. } => ("its volumes change".to_owned(), "it keeps its present volumes"),
        BackgroundWork::Egress { after } => {
            (format!("its egress becomes {}", after.summary()), "it keeps its present egress")
        }
        BackgroundWork::PrepareRewind(rewind) => {
            (format!("it is rewound to snapshot {}", rewind.to), "it is unchanged")
        }
        BackgroundWork::Resize { after } => (
            format!("it may use {} and {} of memory", CpuCount(after.cpu_millis.into()), ByteSize(after.memory_bytes)),
            "its limits are unchanged",
        ),
        BackgroundWork::Snapshot(snapshot) => {
            (format!("snapshot {snapshot} of it is complete"), "the snapshot fails and the sandbox is unchanged")
        }
        BackgroundWork::SaveHeld(held) => (
            match &held.future {
                Some(future) => format!("the state that its rewind has left is snapshot {}", future.snapshot),
                None => "the run that its rewind has left is ended".to_owned(),
            },
            "that is tried again",
        ),
    };
    Some(in_progress(&what, &background.operation, background.deadline, else_what))
}

fn summary(sandbox: &Sandbox, facts: &Facts) -> String {
    let with = match sandbox.restored {
        Restored::Nothing => "booted from its image".to_owned(),
        Restored::Filesystem => "booted from the files of a snapshot".to_owned(),
        Restored::Files { generation } => format!("booted from its files of generation {generation}"),
        Restored::Memory { generation: Some(generation) } => {
            format!("with the memory and files of generation {generation}")
        }
        Restored::Memory { generation: None } => "with the memory and files of a snapshot".to_owned(),
    };
    match &sandbox.state {
        State::Running { since, .. } => {
            format!(
                "it has been running for {} in generation {}, {with}",
                length(facts.now.since(*since)),
                sandbox.generation
            )
        }
        State::Suspended { image, .. } if facts.parked => {
            format!(
                "it is suspended at generation {}; it is saved on disk, and its memory is still held",
                image.generation
            )
        }
        State::Suspended { image, .. } => match image.keeps() {
            Keep::Memory => format!("it is suspended at generation {}, on disk only", image.generation),
            Keep::Files => {
                format!(
                    "it is suspended at generation {} with its files only: it boots when it wakes",
                    image.generation
                )
            }
        },
        State::Terminated { .. } => "it is terminated, which is final".to_owned(),
        State::Pending { .. } => "its first run is starting".to_owned(),
        State::Snapshotting { .. } => "it is paused while a snapshot of it is taken".to_owned(),
        State::Suspending { rewind: Some(rewind), .. } if rewind.may_hold => {
            "it is being rewound to a snapshot, and its run is held until that has succeeded".to_owned()
        }
        State::Suspending { rewind: Some(_), .. } => {
            "it is being saved before it is rewound to a snapshot; nothing has been released yet".to_owned()
        }
        State::Resuming { rewind: Some(_), .. } => "it is being rewound to a snapshot".to_owned(),
        State::Suspending { .. } => "it is being saved; nothing has been released yet".to_owned(),
        State::Resuming { .. } => "it is being restored from its sleep image".to_owned(),
        State::Terminating { .. } => "its resources are being released".to_owned(),
    }
}

/// Returns the event that led to the present state.
fn came_here(facts: &Facts) -> Option<Reason> {
    let index = facts.events.iter().rposition(|event| leads(event.kind))?;
    let event = &facts.events[index];
    let mut says = format!("{}, by {}", sentence(event.kind), by(event));
    // A passed deadline is reported together with the change it caused.
    let before = facts.events[..index].iter().rev().take(3).find(|earlier| earlier.kind == EventKind::DeadlinePassed);
    if event.initiator == Initiator::Timer
        && let Some(detail) = before.and_then(|event| event.detail.as_deref())
    {
        says = format!("{says}: {detail}");
    } else if let Some(detail) = &event.detail {
        says = format!("{says}: {detail}");
    }
    Some(Reason::new("event", says).at(event.at))
}

fn leads(kind: EventKind) -> bool {
    match kind {
        EventKind::Started
        | EventKind::Suspending
        | EventKind::Suspended
        | EventKind::Resuming
        | EventKind::Resumed
        | EventKind::Rewound
        | EventKind::Snapshotting
        | EventKind::RunLost
        | EventKind::Terminating
        | EventKind::Terminated
        | EventKind::Created => true,
        EventKind::StartFailed
        | EventKind::SuspendFailed
        | EventKind::ResumeFailed
        | EventKind::SnapshotTaken
        | EventKind::SnapshotFailed
        | EventKind::DeadlinePassed
        | EventKind::TimeoutsSet
        | EventKind::Updated
        | EventKind::Claimed
        | EventKind::Evicted
        | EventKind::OomVictimKilled
        | EventKind::DiskPaused
        | EventKind::DiskResumed
        | EventKind::Damaged
        | EventKind::Recovered
        | EventKind::Held
        | EventKind::Released
        | EventKind::RetentionSet
        | EventKind::Degraded
        | EventKind::Forked
        | EventKind::Rewinding
        | EventKind::RewindFailed
        | EventKind::Promoted
        | EventKind::CheckpointsSet
        | EventKind::Attached
        | EventKind::Detached
        | EventKind::AttachFailed
        | EventKind::EgressSet
        | EventKind::EgressFailed
        | EventKind::Resized
        | EventKind::ResizeFailed
        | EventKind::Unreachable
        | EventKind::Reachable => false,
    }
}

fn sentence(kind: EventKind) -> String {
    format!("it was {}", kind.as_str().replace('_', " "))
        .replace("was run lost", "lost its run")
        .replace("was suspending", "was being suspended")
        .replace("was resuming", "was being resumed")
        .replace("was terminating", "was being terminated")
        .replace("was snapshotting", "was being snapshotted")
}

fn by(event: &PastEvent) -> String {
    let initiator = match event.initiator {
        Initiator::User => "a caller",
        Initiator::Timer => "a deadline",
        Initiator::Traffic => "traffic to one of its ports",
        Initiator::Host => "the host",
        Initiator::Recovery => "the daemon at startup",
    };
    match &event.caller {
        Some(caller) => format!("{initiator} with {caller}"),
        None => initiator.to_owned(),
    }
}

/// Returns the last failure, unless the same operation has succeeded since.
fn refused(facts: &Facts) -> Option<Reason> {
    let answers = |kind| -> Option<&[EventKind]> {
        match kind {
            EventKind::SuspendFailed => Some(&[EventKind::Suspended]),
            EventKind::ResumeFailed => Some(&[EventKind::Resumed]),
            EventKind::RewindFailed => Some(&[EventKind::Rewound]),
            EventKind::SnapshotFailed => Some(&[EventKind::SnapshotTaken]),
            EventKind::AttachFailed => Some(&[EventKind::Attached, EventKind::Detached]),
            EventKind::EgressFailed => Some(&[EventKind::EgressSet]),
            EventKind::ResizeFailed => Some(&[EventKind::Resized]),
            EventKind::StartFailed => Some(&[EventKind::Started]),
            _ => None,
        }
    };
    facts.events.iter().enumerate().rev().find_map(|(index, event)| {
        let successes = answers(event.kind)?;
        // After a rewind, earlier failures no longer matter.
        let made_up = |kind| successes.contains(&kind) || kind == EventKind::Rewound;
        if facts.events[index..].iter().any(|later| made_up(later.kind)) {
            return None;
        }
        let what = event.kind.as_str().replace('_', " ");
        let says = format!("{what}: {}", event.detail.as_deref().unwrap_or("no reason is recorded"));
        Some(Reason::new("event", says).at(event.at))
    })
}

/// Returns the pause for lack of disk space, with the figures of its event.
fn waits_for_disk(facts: &Facts) -> Option<Reason> {
    facts.waits_for_disk?;
    let paused = facts.events.iter().rev().find(|event| event.kind == EventKind::DiskPaused);
    let says = "it is paused because the host's disk is nearly full";
    let detail =
        paused.and_then(|event| event.detail.as_deref()).map_or_else(String::new, |detail| format!(": {detail}"));
    let reason = Reason::new("disk", format!("{says}{detail}"));
    Some(match paused {
        Some(event) => reason.at(event.at),
        None => reason,
    })
}

fn continuation(facts: &Facts) -> Option<Reason> {
    let bytes = facts.waits_for_disk?;
    Some(Reason::new("disk", format!("it continues when {} of the host's disk are free", ByteSize(bytes))))
}

fn awake(sandbox: &Sandbox, facts: &Facts) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if !facts.open.is_empty() {
        let open: Vec<_> = facts.open.iter().map(|(what, count)| format!("{count} {what}")).collect();
        reasons.push(Reason::new("use", format!("it is in use now: {}", open.join(", "))));
    } else {
        let what = facts.last_use.map_or_else(String::new, |what| format!(" ({what})"));
        let ago = length(facts.now.since(sandbox.last_active));
        reasons.push(Reason::new("use", format!("it was last used {ago} ago{what}")).at(sandbox.last_active));
    }
    for hold in sandbox.holds.iter().filter(|hold| hold.until > facts.now) {
        reasons.push(Reason::new("hold", format!("it is held awake: {}", hold.reason)).at(hold.until));
    }
    let limits = &sandbox.spec.timeouts;
    if limits.total.is_none() && limits.idle.is_none() && limits.max_run.is_none() {
        reasons.push(Reason::new("limit", "it has no time limit"));
    }
    reasons
}

fn does_not_answer(silent: &Unreachable) -> String {
    format!("its run is alive but does not answer: {}", silent.reason)
}

fn asked_again(silent: &Unreachable, facts: &Facts) -> Reason {
    match facts.max_unreachable {
        None => Reason::new("run", "the daemon retries until it answers; the run is not ended for being silent"),
        Some(max) => {
            let says = "if it does not answer by then, its run is ended, because of --max-unreachable";
            Reason::new("run", says).at(silent.since.after(max))
        }
    }
}

fn not_suspended(sandbox: &Sandbox) -> Option<Reason> {
    let failed = sandbox.suspend_failures.as_ref()?;
    let says = match failed.count {
        1 => format!("suspending it failed: {}", failed.reason),
        count => format!("suspending it failed {count} times in a row: {}", failed.reason),
    };
    Some(Reason::new("event", says).at(failed.since))
}

fn ends(sandbox: &Sandbox) -> Vec<Reason> {
    let Some(deadline) = sandbox.deadline() else {
        return vec![Reason::new("limit", "it runs until a command ends it")];
    };
    let what = match (sandbox.spec.on_timeout.keeps(), &sandbox.suspend_failures) {
        (Some(_), Some(failed)) if failed.next >= deadline.at => return suspends_again(sandbox, failed),
        (Some(Keep::Memory), _) => "suspended",
        (Some(Keep::Files), _) => "suspended with its files only",
        (None, _) => "terminated",
    };
    let held = if deadline.held.is_some() { ", which a hold postpones" } else { "" };
    let limit = deadline.kind.as_str();
    vec![Reason::new("limit", format!("it is {what} when its {limit} passes{held}")).at(deadline.at)]
}

fn suspends_again(sandbox: &Sandbox, failed: &SuspendFailures) -> Vec<Reason> {
    let again =
        format!("its deadline has passed; attempt {} to suspend it starts then", failed.count.saturating_add(1));
    let says = match sandbox.spec.on_suspend_failure {
        OnSuspendFailure::Keep => again,
        OnSuspendFailure::Terminate if failed.count >= SUSPEND_FAILURES_MAX => {
            "its deadline has passed and it could not be suspended; it is terminated then".to_owned()
        }
        OnSuspendFailure::Terminate => {
            format!("{again}; it is terminated after {SUSPEND_FAILURES_MAX} failures in a row")
        }
    };
    vec![Reason::new("limit", says).at(failed.next)]
}

fn wakes(sandbox: &Sandbox, facts: &Facts) -> Vec<Reason> {
    let mut next = vec![Reason::new(
        "policy",
        match sandbox.spec.wake {
            Wake::Never => "it wakes only when it is resumed, because its wake policy is 'never'",
            Wake::Traffic => "it wakes when it is resumed, or on traffic to one of its ports",
            Wake::Any => {
                "it wakes when it is resumed, on traffic to one of its ports, or when a command or file call needs it"
            }
        },
    )];
    if sandbox.pool.as_ref().is_some_and(|member| !member.is_claimed) {
        next.push(Reason::new("pool", "it waits in a pool, and wakes when it is claimed"));
    }
    if facts.parked {
        next.push(Reason::new("memory", "its memory is released when the host needs it; it then wakes from disk"));
    }
    if sandbox.spec.retention.on_unrestorable == OnUnrestorable::Fresh {
        next.push(Reason::new(
            "policy",
            "if none of its sleep images can be restored, it boots afresh and reports that",
        ));
    }
    next
}

fn on_disk(sandbox: &Sandbox, facts: &Facts) -> Vec<Reason> {
    let image = |image: &SleepImage, why: &str| {
        let what = match image.keeps() {
            Keep::Memory => "sleep image",
            Keep::Files => "files",
        };
        let says = format!("{what} of generation {}, {}: {why}", image.generation, ByteSize(image.bytes));
        Reason::new("image", says).at(image.taken)
    };
    let newest = match &sandbox.state {
        State::Suspended { .. } | State::Resuming { .. } => "it wakes from this one",
        _ => "it falls back to this one if its run is lost",
    };
    let mut kept: Vec<_> = sandbox.state.image().map(|found| image(found, newest)).into_iter().collect();
    for older in &sandbox.older {
        let newer = sandbox.state.image().is_none_or(|newest| older.generation > newest.generation);
        kept.push(match newer {
            true => image(older, "it could not be restored; it is kept until a newer one is saved"),
            false => image(older, "a fallback, kept because of keep_generations"),
        });
    }
    kept.extend(facts.snapshots.iter().map(|(id, bytes)| {
        Reason::new("snapshot", format!("snapshot {id}, {}: kept until it is deleted", ByteSize(*bytes)))
    }));
    kept
}

fn in_progress(what: &str, operation: &crate::OperationId, deadline: Timestamp, else_what: &str) -> Reason {
    Reason::new(
        "operation",
        format!("{what} when operation {operation} completes; if it does not complete by then, {else_what}"),
    )
    .at(deadline)
}

fn over(cause: &Cause) -> String {
    match cause {
        Cause::Requested => "a caller requested its termination".to_owned(),
        Cause::Timeout => "its time limit passed, and its on_timeout is terminate".to_owned(),
        Cause::Failed { reason } => format!("it failed and has no saved state to return to: {reason}"),
    }
}

fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
