//! Why a sandbox is where it is and what happens next, each with the signal it is based on.

use std::time::Duration;

use crate::background::BackgroundWork;
use crate::event::{Actor, EventKind};
use crate::ids::SnapshotId;
use crate::reach::{SUSPEND_FAILURES_MAX, SuspendFailures, Unreachable};
use crate::sandbox::{Cause, FirstProgram, Restored, Sandbox, SleepImage, State};
use crate::spec::{OnSuspendFailure, OnTimeout, OnUnrestorable};
use crate::time::Timestamp;

/// What can be told about a sandbox beside its record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The time.
    pub now: Timestamp,
    /// Whether it is suspended and its memory is still held.
    pub parked: bool,
    /// What is open now, and how many of each.
    pub open: Vec<(&'static str, usize)>,
    /// What it was last used for since the daemon began.
    pub last_use: Option<&'static str>,
    /// Its newest events, in their order.
    pub events: Vec<Happening>,
    /// The snapshots that were taken of it and are still there, with their sizes in bytes.
    pub snapshots: Vec<(SnapshotId, u64)>,
    /// How many bytes of the host's disk must be free before it goes on, if it is paused for want of room there.
    pub waits_for_disk: Option<u64>,
    /// After how long a run that does not answer is given up; none for never.
    pub max_unreachable: Option<Duration>,
    /// What it stands on or wakes up from and is damaged, a sentence each.
    pub damaged: Vec<String>,
}

/// An event, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happening {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// By whom.
    pub actor: Actor,
    /// Its detail.
    pub detail: Option<String>,
}

/// One thing that can be said, and what it is based on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The kind of signal: `event`, `use`, `hold`, `limit`, `operation`, `image`, `policy`, `memory`, `disk`,
    /// `snapshot`, `run`.
    pub signal: &'static str,
    /// What it says, as a sentence.
    pub says: String,
    /// When it was, or will be.
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

/// Why a sandbox is where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// Where it is, as a sentence.
    pub summary: String,
    /// Why it is there, the strongest reason first.
    pub because: Vec<Reason>,
    /// What failed or was refused last, if nothing has succeeded since.
    pub refused: Option<Reason>,
    /// What happens next, the soonest first.
    pub next: Vec<Reason>,
    /// What of it is on disk, and why it is kept.
    pub on_disk: Vec<Reason>,
}

/// Explains a sandbox.
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
            why.next.extend(goes_on(facts).into_iter().chain(ends));
        }
        State::Suspended { .. } => why.next = wakes(sandbox, facts),
        State::Terminated { cause, at } => why.because.insert(0, Reason::new("event", over(cause)).at(*at)),
        State::Pending { operation, deadline, program } => {
            let what = match program {
                FirstProgram::None => "it starts",
                FirstProgram::OfImage => "it starts, with what its image is made to run",
            };
            why.next.push(in_progress(what, operation, *deadline, "it is terminated and says why"));
        }
        State::Snapshotting { operation, deadline, .. } => {
            why.next.push(in_progress("it goes on running", operation, *deadline, "it goes on without the snapshot"));
        }
        State::Suspending { operation, deadline, rewind: Some(rewind), .. } => {
            let what = format!("it is taken back to snapshot {}", rewind.to);
            why.next.push(in_progress(&what, operation, *deadline, "it goes on running"));
        }
        State::Resuming { operation, deadline, rewind: Some(rewinding), .. } => {
            let what = format!("it runs as in snapshot {}", rewinding.rewind.to);
            why.next.push(in_progress(&what, operation, *deadline, "it returns to where it was, which is saved"));
        }
        State::Suspending { operation, deadline, .. } => {
            why.next.push(in_progress("it is suspended", operation, *deadline, "it goes on running"));
        }
        State::Resuming { operation, deadline, .. } => {
            why.next.push(in_progress("it runs", operation, *deadline, "it stays suspended, its image untouched"));
        }
        State::Terminating { operation, deadline, cause, .. } => {
            why.because.insert(0, Reason::new("operation", over(cause)));
            why.next.push(in_progress("it is terminated", operation, *deadline, "it is reported and tried again"));
        }
    }
    why.next.splice(0..0, in_background(sandbox));
    why.because.splice(0..0, facts.damaged.iter().map(|says| Reason::new("disk", says.as_str())));
    why
}

/// What the operation leads to that is at work while the sandbox keeps its state.
fn in_background(sandbox: &Sandbox) -> Option<Reason> {
    let background = sandbox.state.background()?;
    let (what, else_what) = match &background.work {
        BackgroundWork::Attach { .. } => ("its volumes are changed".to_owned(), "it keeps those it has"),
        BackgroundWork::PrepareRewind(rewind) => {
            (format!("it is taken back to snapshot {}", rewind.to), "it stays as it is")
        }
        BackgroundWork::Snapshot(snapshot) => {
            (format!("snapshot {snapshot} of it is complete"), "the snapshot has failed and it stays as it is")
        }
    };
    Some(in_progress(&what, &background.operation, background.deadline, else_what))
}

fn summary(sandbox: &Sandbox, facts: &Facts) -> String {
    let with = match sandbox.restored {
        Restored::Nothing => "booted from its image".to_owned(),
        Restored::Filesystem => "booted with the files of a snapshot".to_owned(),
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
            format!("it is suspended at generation {}, on disk, and its memory is still held", image.generation)
        }
        State::Suspended { image, .. } => format!("it is suspended at generation {}, only on disk", image.generation),
        State::Terminated { .. } => "it is over and never comes back".to_owned(),
        State::Pending { .. } => "its first run is being started".to_owned(),
        State::Snapshotting { .. } => "it is held still while a snapshot of it is taken".to_owned(),
        State::Suspending { rewind: Some(_), .. } => {
            "it is being saved, to be taken back to a snapshot; nothing has been given up yet".to_owned()
        }
        State::Resuming { rewind: Some(_), .. } => "it is being taken back to a snapshot".to_owned(),
        State::Suspending { .. } => "it is being saved; nothing has been given up yet".to_owned(),
        State::Resuming { .. } => "it is being brought back from its image".to_owned(),
        State::Terminating { .. } => "what it holds is being given back".to_owned(),
    }
}

/// The event that led to where it is.
fn came_here(facts: &Facts) -> Option<Reason> {
    let index = facts.events.iter().rposition(|event| leads(event.kind))?;
    let event = &facts.events[index];
    let mut says = format!("{}, by {}", sentence(event.kind), by(event.actor));
    // A passed deadline is told with the change it has caused.
    let before = facts.events[..index].iter().rev().take(3).find(|earlier| earlier.kind == EventKind::DeadlinePassed);
    if event.actor == Actor::Timer
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
        | EventKind::Evicted
        | EventKind::MemoryRelieved
        | EventKind::DiskPaused
        | EventKind::DiskResumed
        | EventKind::Damaged
        | EventKind::Recovered
        | EventKind::Held
        | EventKind::Released
        | EventKind::KeepingSet
        | EventKind::Degraded
        | EventKind::Forked
        | EventKind::Rewinding
        | EventKind::RewindFailed
        | EventKind::Promoted
        | EventKind::CheckpointsSet
        | EventKind::Attached
        | EventKind::Detached
        | EventKind::AttachFailed
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

fn by(actor: Actor) -> &'static str {
    match actor {
        Actor::User => "a caller",
        Actor::Timer => "a deadline",
        Actor::Traffic => "traffic to one of its ports",
        Actor::Host => "the host",
        Actor::Recovery => "the daemon at its start",
    }
}

/// What failed last, unless the same has worked since.
fn refused(facts: &Facts) -> Option<Reason> {
    let answers = |kind| -> Option<&[EventKind]> {
        match kind {
            EventKind::SuspendFailed => Some(&[EventKind::Suspended]),
            EventKind::ResumeFailed => Some(&[EventKind::Resumed]),
            EventKind::RewindFailed => Some(&[EventKind::Rewound]),
            EventKind::SnapshotFailed => Some(&[EventKind::SnapshotTaken]),
            EventKind::AttachFailed => Some(&[EventKind::Attached, EventKind::Detached]),
            EventKind::StartFailed => Some(&[EventKind::Started]),
            _ => None,
        }
    };
    facts.events.iter().enumerate().rev().find_map(|(index, event)| {
        let successes = answers(event.kind)?;
        // Whoever was taken back runs: what failed before is of no use any more.
        let made_up = |kind| successes.contains(&kind) || kind == EventKind::Rewound;
        if facts.events[index..].iter().any(|later| made_up(later.kind)) {
            return None;
        }
        let what = event.kind.as_str().replace('_', " ");
        let says = format!("{what}: {}", event.detail.as_deref().unwrap_or("no reason is recorded"));
        Some(Reason::new("event", says).at(event.at))
    })
}

/// The pause for want of room, with the figures of its event.
fn waits_for_disk(facts: &Facts) -> Option<Reason> {
    facts.waits_for_disk?;
    let paused = facts.events.iter().rev().find(|event| event.kind == EventKind::DiskPaused);
    let says = "it is paused, since the host's disk is nearly full";
    let detail =
        paused.and_then(|event| event.detail.as_deref()).map_or_else(String::new, |detail| format!(": {detail}"));
    let reason = Reason::new("disk", format!("{says}{detail}"));
    Some(match paused {
        Some(event) => reason.at(event.at),
        None => reason,
    })
}

fn goes_on(facts: &Facts) -> Option<Reason> {
    let bytes = facts.waits_for_disk?;
    Some(Reason::new("disk", format!("it goes on when {bytes} bytes of the host's disk are free")))
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
    format!("its run lives and does not answer: {}", silent.reason)
}

fn asked_again(silent: &Unreachable, facts: &Facts) -> Reason {
    match facts.max_unreachable {
        None => Reason::new("run", "it is asked again until it answers; nothing ends it for being silent"),
        Some(max) => {
            let says = "if it does not answer by then, its run is ended, as --max-unreachable says";
            Reason::new("run", says).at(silent.since.after(max))
        }
    }
}

fn not_suspended(sandbox: &Sandbox) -> Option<Reason> {
    let failed = sandbox.suspend_failures.as_ref()?;
    let says = match failed.count {
        1 => format!("suspending it has failed: {}", failed.reason),
        count => format!("suspending it has failed {count} times in a row: {}", failed.reason),
    };
    Some(Reason::new("event", says).at(failed.since))
}

fn ends(sandbox: &Sandbox) -> Vec<Reason> {
    let Some(deadline) = sandbox.deadline() else {
        return vec![Reason::new("limit", "nothing ends it but a command")];
    };
    let what = match (sandbox.spec.on_timeout, &sandbox.suspend_failures) {
        (OnTimeout::Suspend, Some(failed)) if failed.next >= deadline.at => return suspends_again(sandbox, failed),
        (OnTimeout::Suspend, _) => "suspended",
        (OnTimeout::Terminate, _) => "terminated",
    };
    let held = if deadline.held.is_some() { ", which waits for a hold" } else { "" };
    let limit = deadline.kind.as_str();
    vec![Reason::new("limit", format!("it is {what} when its {limit} passes{held}")).at(deadline.at)]
}

fn suspends_again(sandbox: &Sandbox, failed: &SuspendFailures) -> Vec<Reason> {
    let again =
        format!("its deadline has passed; attempt {} to suspend it is made then", failed.count.saturating_add(1));
    let says = match sandbox.spec.on_suspend_failure {
        OnSuspendFailure::Keep => again,
        OnSuspendFailure::Terminate if failed.count >= SUSPEND_FAILURES_MAX => {
            "its deadline has passed and it could not be suspended; it is terminated then".to_owned()
        }
        OnSuspendFailure::Terminate => {
            format!("{again}; it is terminated once {SUSPEND_FAILURES_MAX} in a row have failed")
        }
    };
    vec![Reason::new("limit", says).at(failed.next)]
}

fn wakes(sandbox: &Sandbox, facts: &Facts) -> Vec<Reason> {
    let mut next = vec![if sandbox.spec.auto_resume {
        Reason::new("policy", "it wakes when it is resumed, or when traffic comes to one of its ports")
    } else {
        Reason::new("policy", "it wakes only when it is resumed, since its auto-resume is off")
    }];
    if facts.parked {
        next.push(Reason::new("memory", "its memory is given back when room is needed; it then wakes from disk"));
    }
    if sandbox.spec.keeping.on_unrestorable == OnUnrestorable::Fresh {
        next.push(Reason::new("policy", "if no image of it can be restored, it boots afresh and says so"));
    }
    next
}

fn on_disk(sandbox: &Sandbox, facts: &Facts) -> Vec<Reason> {
    let image = |image: &SleepImage, why: &str| {
        let says = format!("image of generation {}, {} bytes: {why}", image.generation, image.bytes);
        Reason::new("image", says).at(image.taken)
    };
    let newest = match &sandbox.state {
        State::Suspended { .. } | State::Resuming { .. } => "it wakes up from it",
        _ => "it falls back to it when its run is lost",
    };
    let mut kept: Vec<_> = sandbox.state.image().map(|found| image(found, newest)).into_iter().collect();
    for older in &sandbox.older {
        let newer = sandbox.state.image().is_none_or(|newest| older.generation > newest.generation);
        kept.push(match newer {
            true => image(older, "it could not be restored, and is kept until a newer one is saved"),
            false => image(older, "to fall back to, as many as keep_generations says"),
        });
    }
    kept.extend(facts.snapshots.iter().map(|(id, bytes)| {
        Reason::new("snapshot", format!("snapshot {id} of it, {bytes} bytes: kept until it is removed"))
    }));
    kept
}

fn in_progress(what: &str, operation: &crate::OperationId, deadline: Timestamp, else_what: &str) -> Reason {
    Reason::new("operation", format!("{what} when operation {operation} is done; if that is not by then, {else_what}"))
        .at(deadline)
}

fn over(cause: &Cause) -> String {
    match cause {
        Cause::Requested => "a caller asked for its end".to_owned(),
        Cause::Timeout => "its time was over and it is not to be suspended then".to_owned(),
        Cause::Failed { reason } => format!("there was nothing left to return to: {reason}"),
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
