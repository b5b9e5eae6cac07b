//! The effect of each commit on the known state, and the commits that must never happen.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{
    Cause, EventKind, FirstProgram, Initiator, Origin, Restored, RunCondition, Sandbox, SandboxId, SavedStateId,
    SleepImage, SnapshotKind, State as Life, StateName,
};
use dorm_store::{
    Change, EventRecord, OnPartialFailure, OperationRecord, OperationResult, Removal, SandboxRecord, SnapshotRecord,
    SnapshotStatus,
};

use super::pools::waits;
use super::{Known, KnownSnapshot, Memory, Misfortune, Model, State};

impl Model {
    /// Notes a committed change and its numbered events.
    pub(crate) fn committed(&self, change: &Change, events: &[EventRecord]) {
        let mut state = self.lock();
        state.now += 1;
        for event in events {
            self.event(&mut state, event);
        }
        self.builds_committed(&mut state, change);
        self.environments_committed(&mut state, change);
        for record in &change.snapshots {
            self.snapshot_committed(&mut state, record);
        }
        for record in &change.sandboxes {
            self.sandbox_committed(&mut state, record, events);
        }
        self.callers_committed(&state, change, events);
        for operation in &change.operations {
            if let Some(plan) =
                operation.fork.as_ref().filter(|plan| plan.on_partial_failure == OnPartialFailure::RollBack)
            {
                state.rolled_back_together.extend(plan.children.iter().cloned());
            }
            state.operations.insert(operation.id.to_string(), operation.clone());
            if let Some(plan) = &operation.promote {
                note_promotions(&mut state, &plan.child);
            }
        }
        for id in &change.forgotten {
            if let Some(known) = state.snapshots.remove(id) {
                self.is_time_to_go(&state, &known);
            }
        }
        self.pools_committed(&mut state, change);
        self.volumes_committed(&mut state, change, events);
        for saved_state in &change.discard {
            self.trace.note(format_args!("commit: {saved_state} must be discarded"));
            if let Some(owner) = needs(&state, saved_state) {
                self.trace.wrong(format_args!("saved state {saved_state} is released while {owner} needs it"));
            }
            state.discard.push(saved_state.clone());
        }
        state.discard.retain(|saved_state| !change.discarded.contains(saved_state));
        state.discard.sort();
        state.discard.dedup();
    }

    fn event(&self, state: &mut State, event: &EventRecord) {
        let expected = state.events.last().map_or(1, |last| last.number + 1);
        let EventRecord { number, event: new } = event;
        if *number != expected {
            self.trace.wrong(format_args!("event {number} follows event {}", expected - 1));
        }
        let detail = new.detail.as_deref().unwrap_or_default();
        self.trace.note(format_args!("event {number}: {} {} {detail}", new.sandbox, new.kind.as_str()));
        if let Some(known) = state.sandboxes.get_mut(&new.sandbox) {
            known.told = told(known.told, new.kind);
        }
        state.events.push(event.clone());
    }

    fn sandbox_committed(&self, state: &mut State, record: &SandboxRecord, events: &[EventRecord]) {
        let sandbox = &record.sandbox;
        let next = SandboxRecord { revision: record.revision + 1, sandbox: sandbox.clone() };
        self.trace.note(format_args!("commit: {} is {} g{}", sandbox.id, sandbox.state.name(), sandbox.generation));
        if let Err(broken) = dorm_lifecycle::check(sandbox) {
            self.trace.wrong(format_args!("{}: {broken}", sandbox.id));
        }
        let now = state.now;
        let Some(mut known) = state.sandboxes.remove(&sandbox.id) else {
            let origin = sandbox.origin.snapshot().and_then(|snapshot| state.snapshots.get(snapshot));
            let live = origin.map(|origin| origin.memory.clone()).unwrap_or_default();
            let mut known = Known::new(next, now, live);
            known.inherited = origin.and_then(|origin| origin.record.inherited.clone());
            known.is_rolled_back_with_fork = state.rolled_back_together.contains(&sandbox.id);
            known.is_of_build = state.of_builds.contains(&sandbox.id) || state.of_environments.contains(&sandbox.id);
            state.sandboxes.insert(sandbox.id.clone(), known);
            return;
        };
        let before = known.record.sandbox.clone();
        if sandbox.generation < before.generation {
            self.trace
                .wrong(format_args!("{}: generation {} after {}", before.id, sandbox.generation, before.generation));
        }
        self.claim_stays(&before, sandbox);
        self.is_allowed(&known, &before, sandbox, events);
        if let (None, Some(rewind)) = (before.state.rewind(), sandbox.state.rewind()) {
            let memory = state.snapshots.get(&rewind.to).map(|known| known.memory.clone()).unwrap_or_default();
            if let Some(target) = &rewind.target {
                known.images.insert(target.saved_state.clone(), memory);
            }
        }
        if before.rewound != sandbox.rewound {
            self.keeps_future(state, &before, sandbox);
        }
        self.saves_held(state, &before, sandbox);
        let root = sandbox.spec.layer.as_ref().and_then(|layer| state.layers.get(layer)).cloned().unwrap_or_default();
        self.remember(root, &mut known, &before, sandbox);
        known.past.push((now, sandbox.clone()));
        known.record = next;
        state.sandboxes.insert(sandbox.id.clone(), known);
    }

    /// Checks that the abandoned state of a rewind is a snapshot, if it was to be kept.
    fn keeps_future(&self, state: &State, before: &Sandbox, after: &Sandbox) {
        let Some(rewind) = before.state.rewind() else {
            return self.trace.wrong(format_args!("{} was rewound, and no rewind was in progress", before.id));
        };
        let Some(future) = &rewind.future else { return };
        if let Some(held) = after.state.held() {
            let snapshot = state.snapshots.get(&future.snapshot).map(|known| &known.record.status);
            if snapshot != Some(&SnapshotStatus::InProgress) || held.run != before.run {
                self.trace.wrong(format_args!("{} was rewound, and its abandoned state is not being saved", before.id));
            }
            return;
        }
        let kept = state.snapshots.get(&future.snapshot).map(|known| &known.record.saved_state);
        if kept.is_none() || kept != before.state.image().map(|image| &image.saved_state) {
            self.trace.wrong(format_args!("{} was rewound, and its abandoned state is not kept", before.id));
        }
    }

    /// Whether the run lives without the program of its image.
    fn may_lack_program(&self, sandbox: &Sandbox) -> bool {
        let run = sandbox.run_id();
        let found = self.host.runs().into_iter().find(|(found, _)| *found == run);
        let lives = found.is_some_and(|(_, condition)| condition != RunCondition::Broken);
        lives && !self.host.labels(&run).iter().any(|label| label == dorm_service::START_LABEL)
    }

    /// Checks that the state that a rewind has left is a snapshot when it is not held any longer.
    fn saves_held(&self, state: &State, before: &Sandbox, after: &Sandbox) {
        let (Some(held), None) = (before.state.held(), after.state.held()) else { return };
        let Some(future) = &held.future else { return };
        let snapshot = state.snapshots.get(&future.snapshot).map(|known| &known.record.status);
        let may_be_lost = self.misfortune != Misfortune::OnlyDeaths && held.image.is_none();
        match snapshot {
            Some(SnapshotStatus::Completed) => {}
            Some(SnapshotStatus::Failed(_)) if may_be_lost => {}
            other => self.trace.wrong(format_args!("{} was rewound, and what it has left is {other:?}", before.id)),
        }
    }

    /// Checks that a change was asked for and loses nothing.
    fn is_allowed(&self, known: &Known, before: &Sandbox, after: &Sandbox, events: &[EventRecord]) {
        let recovery = events.iter().any(|event| event.event.initiator == Initiator::Recovery);
        let id = &before.id;
        let (was, is) = (before.state.name(), after.state.name());
        let strict = self.misfortune == Misfortune::OnlyDeaths;
        match (&before.state, &after.state) {
            (Life::Pending { program: FirstProgram::OfImage, .. }, Life::Running { .. })
                if self.may_lack_program(after) =>
            {
                self.trace.wrong(format_args!("{id} runs without the program that it was created with"));
            }
            (Life::Terminated { .. }, _) if before.state != after.state => {
                self.trace.wrong(format_args!("{id} was terminated and is {is}"));
            }
            (_, Life::Terminating { cause, .. } | Life::Terminated { cause, .. })
                if !matches!(was, StateName::Terminating | StateName::Terminated) =>
            {
                match cause {
                    Cause::Requested
                        if !known.terminate_asked
                            && !known.is_rolled_back_with_fork
                            && !known.is_promoted
                            && !known.is_of_build
                            && !waits(before) =>
                    {
                        self.trace.wrong(format_args!("{id} is terminated and nobody asked for it"));
                    }
                    // A jump of the clock that could not be recorded is only in the daemon's
                    // memory.
                    Cause::Timeout if strict => {
                        let known = Sandbox { last_active: after.last_active, ..before.clone() };
                        // The clock at the time of the decision.
                        let decided = events.iter().map(|event| event.event.at).min();
                        if known.expires().is_none_or(|expires| Some(expires) > decided) {
                            self.trace.wrong(format_args!("{id} is terminated before its time"));
                        }
                    }
                    Cause::Failed { reason } if could_return(before) => {
                        self.trace.wrong(format_args!("{id} has an image and is given up: {reason}"));
                    }
                    // A first run that is still starting can end in no other way.
                    Cause::Failed { .. } if was == StateName::Pending && known.terminate_asked => {}
                    Cause::Failed { reason } if strict && !is_missing_snapshot(before, reason) => {
                        self.trace.wrong(format_args!("{id} failed although nothing went wrong: {reason}"));
                    }
                    Cause::Failed { .. } | Cause::Requested | Cause::Timeout => {}
                }
            }
            _ => {}
        }
        if let Err(what) = keeps_images(before, after) {
            self.trace.wrong(format_args!("{id} was {was}, is {is}, and {what}"));
        }
        let failed = match (was, is) {
            (StateName::Suspending, StateName::Suspended) => saved(before, after).is_none(),
            (StateName::Running | StateName::Snapshotting, StateName::Suspended) => true,
            (StateName::Resuming, StateName::Suspended) => true,
            (StateName::Resuming, StateName::Resuming) => before.state.rewind() != after.state.rewind(),
            // The past runs, and the present is held.
            (StateName::Suspending, StateName::Running) if after.state.held().is_some() => false,
            // The daemon was stopped during the suspend.
            (StateName::Suspending, StateName::Running) => !recovery,
            _ => false,
        };
        if failed && strict {
            self.trace.wrong(format_args!("{id} was {was} and is {is} although nothing went wrong"));
        }
    }

    /// Updates the known memory after a change of state.
    fn remember(&self, root: Memory, known: &mut Known, before: &Sandbox, after: &Sandbox) {
        let id = &before.id;
        match (&before.state, &after.state) {
            (_, Life::Snapshotting { .. } | Life::Suspending { files: Some(_), .. }) => {
                known.earliest = known.live.clone();
            }
            // The snapshot of its files holds all that the suspend kept.
            (Life::Suspending { .. }, Life::Suspended { image, .. }) if image.files.is_some() => {
                known.images.insert(image.saved_state.clone(), root.clone());
                known.live = root;
                known.epoch += 1;
            }
            (Life::Suspending { .. }, Life::Suspended { image, .. } | Life::Resuming { image, .. })
                if saved(before, after).is_some() =>
            {
                let directory = self.saved_states.join(image.saved_state.as_str());
                match known.live.in_image(&known.live, &directory) {
                    Ok(memory) => {
                        known.images.insert(image.saved_state.clone(), memory.clone());
                        known.live = memory;
                    }
                    Err(what) => self.trace.wrong(format_args!("{id} sleeps, but {what}")),
                }
                known.epoch += 1;
            }
            (
                Life::Running { .. } | Life::Snapshotting { .. } | Life::Suspending { .. },
                Life::Suspended { image, .. },
            ) => {
                known.live = known.images.get(&image.saved_state).cloned().unwrap_or_default();
                known.epoch += 1;
            }
            (Life::Resuming { .. } | Life::Suspending { .. }, Life::Running { image, .. })
                if before.rewound != after.rewound =>
            {
                self.remember_rewind(root, known, before, (after, image.as_ref()));
            }
            (Life::Resuming { image: newest, .. }, Life::Running { image, .. }) if after.run != before.run => {
                known.epoch += 1;
                known.live = match image {
                    Some(image) => known.images.get(&image.saved_state).cloned().unwrap_or_default(),
                    None => root,
                };
                let told = tells(after, image.as_ref());
                if !told {
                    self.trace
                        .wrong(format_args!("{id} came back with {:?}, it says, and keeps {image:?}", after.restored));
                }
                if image.as_ref() != Some(newest) {
                    self.trace.wrong(format_args!("{id} came back with less than its newest image holds"));
                }
            }
            _ => {}
        }
    }

    /// Updates the known memory after a rewind, with which `after` falls back to `image`.
    fn remember_rewind(
        &self,
        root: Memory,
        known: &mut Known,
        before: &Sandbox,
        (after, image): (&Sandbox, Option<&SleepImage>),
    ) {
        let target = before.state.rewind().and_then(|rewind| rewind.target.as_ref());
        if after.state.held().is_some() {
            known.held = known.live.clone();
        }
        known.epoch += 1;
        let (live, restored) = match target {
            Some(target) => (known.images.get(&target.saved_state).cloned(), Restored::Memory { generation: None }),
            None => (Some(root), Restored::Filesystem),
        };
        known.live = live.unwrap_or_default();
        let kept = target.filter(|_| after.spec.suspendable);
        if after.restored != restored || image != kept || after.run == before.run {
            let id = &before.id;
            self.trace.wrong(format_args!("{id} was rewound, says {:?}, keeps {image:?}", after.restored));
        }
    }

    /// Checks that a snapshot with a retention time is kept for that time, even if the wall clock
    /// was set meanwhile.
    ///
    /// Between two boots of the host only the wall clock measures time; up to a day of that is
    /// believed.
    fn is_time_to_go(&self, state: &State, known: &KnownSnapshot) {
        let (Removal::At(at), false) = (known.record.removal, known.deletion_asked) else { return };
        let kept = known.seen.elapsed();
        let slack = Duration::from_secs(60) + Duration::from_secs(86_400) * state.power_failures;
        if kept + slack < at.since(known.record.created) {
            let (id, wanted) = (&known.record.id, at.since(known.record.created));
            self.trace.wrong(format_args!("snapshot {id} was to be kept for {wanted:?} and goes after {kept:?}"));
        }
    }

    /// Checks that a snapshot has a name to itself, and carries the settings of its source.
    fn names_and_settings(&self, state: &State, record: &SnapshotRecord, before: Option<&KnownSnapshot>) {
        let same = |other: &&KnownSnapshot| {
            other.record.project == record.project && other.record.held_name() == record.held_name()
        };
        if record.held_name().is_some()
            && let Some(other) = state.snapshots.values().find(same)
        {
            self.trace.wrong(format_args!("snapshots {} and {} have one name", record.id, other.record.id));
        }
        let expected = match before {
            Some(before) => before.record.inherited.clone(),
            // The snapshot of a template: the egress of a build is not that of its sandboxes.
            None if state.of_builds.contains(&record.source) && record.kind == SnapshotKind::Memory => None,
            None => state.sandboxes.get(&record.source).map(|source| source.record.sandbox.spec.inherited()),
        };
        if record.inherited != expected {
            self.trace.wrong(format_args!("snapshot {} does not carry the settings of its source", record.id));
        }
    }

    fn snapshot_committed(&self, state: &mut State, record: &SnapshotRecord) {
        self.trace.note(format_args!("commit: snapshot {} is {}", record.id, record.status.as_str()));
        let before = state.snapshots.remove(&record.id);
        self.names_and_settings(state, record, before.as_ref());
        let is_going = record.status == SnapshotStatus::Deleting;
        let stands_on = |known: &&Known| {
            !is_over(known.state()) && known.record.sandbox.layers().any(|layer| *layer == record.saved_state)
        };
        if let Some(known) = state.sandboxes.values().find(stands_on).filter(|_| is_going) {
            let id = &known.record.sandbox.id;
            self.trace.wrong(format_args!("snapshot {} goes while {id} stands on its files", record.id));
        }
        let was_complete = before.as_ref().is_some_and(|known| known.record.status != SnapshotStatus::InProgress);
        let seen = before.as_ref().map_or_else(tokio::time::Instant::now, |known| known.seen);
        let deletion_asked = before.as_ref().is_some_and(|known| known.deletion_asked);
        let mut memory = before.map(|known| known.memory).unwrap_or_default();
        if record.status == SnapshotStatus::Completed
            && !was_complete
            && let Some(source) = state.sandboxes.get(&record.source)
        {
            let abandoned = source.images.get(&record.saved_state);
            let is_held = record.labels.contains_key("rewound");
            // A suspended source's memory is that of its image.
            let asleep = source.state() == StateName::Suspended;
            let (latest, earliest) = match (is_held, asleep) {
                (true, _) => (&source.held, &source.held),
                (false, true) => (&source.live, &source.live),
                (false, false) => (&source.live, &source.earliest),
            };
            let held = match record.kind {
                SnapshotKind::Memory => latest.in_image(earliest, &self.saved_states.join(record.saved_state.as_str())),
                SnapshotKind::Filesystem => Ok(latest.files_since(earliest)),
            };
            match held {
                // A rewind abandons an image that is known already.
                _ if abandoned.is_some() => memory = abandoned.cloned().unwrap_or_default(),
                Ok(held) => memory = held,
                Err(what) => self.trace.wrong(format_args!("snapshot {} is complete, but {what}", record.id)),
            }
        }
        if record.kind == SnapshotKind::Filesystem && record.status == SnapshotStatus::Completed {
            state.layers.insert(record.saved_state.clone(), memory.clone());
        }
        let known = KnownSnapshot { record: record.clone(), memory, seen, deletion_asked };
        state.snapshots.insert(record.id.clone(), known);
    }
}

impl Known {
    fn new(record: SandboxRecord, now: u64, live: Memory) -> Self {
        Self {
            past: vec![(now, record.sandbox.clone())],
            record,
            inherited: None,
            told: StateName::Pending,
            live,
            held: Memory::default(),
            images: BTreeMap::new(),
            earliest: Memory::default(),
            epoch: 0,
            terminate_asked: false,
            is_rolled_back_with_fork: false,
            is_of_build: false,
            is_promoted: false,
            busy: false,
        }
    }
}

/// Several operations may promote the same child; one that did not fail is enough.
fn note_promotions(state: &mut State, child: &SandboxId) {
    let going = |operation: &&OperationRecord| {
        operation.promote.as_ref().is_some_and(|plan| plan.child == *child)
            && !matches!(operation.ended, Some((_, OperationResult::Failed(_))))
    };
    let is_promoted = state.operations.values().any(|operation| going(&operation));
    if let Some(known) = state.sandboxes.get_mut(child) {
        known.is_promoted = is_promoted;
    }
}

/// Whether a sandbox that came back with `image` says so.
fn tells(after: &Sandbox, image: Option<&SleepImage>) -> bool {
    match after.restored {
        Restored::Memory { generation: Some(told) } => {
            image.is_some_and(|image| image.generation == told && image.files.is_none())
        }
        Restored::Files { generation: told } => {
            image.is_some_and(|image| image.generation == told && image.files.is_some())
        }
        Restored::Memory { generation: None } => false,
        Restored::Nothing => image.is_none() && after.spec.layer.is_none(),
        Restored::Filesystem => image.is_none() && after.spec.layer.is_some(),
    }
}

/// The image that a suspend has just made.
fn saved(before: &Sandbox, after: &Sandbox) -> Option<SavedStateId> {
    let newest = &after.state.image()?.saved_state;
    let kept = before.state.image().into_iter().chain(&before.older).map(|image| &image.saved_state);
    kept.chain(before.saved_states()).all(|kept| kept != newest).then(|| newest.clone())
}

/// Checks that no image is dropped before a newer one has replaced it, and then only the oldest.
fn keeps_images(before: &Sandbox, after: &Sandbox) -> Result<(), String> {
    if matches!(after.state.name(), StateName::Terminating | StateName::Terminated) {
        return Ok(());
    }
    let is_of_files = after.state.image().is_some_and(|image| image.files.is_some());
    let most = match saved(before, after) {
        // Its older images are based on other files.
        Some(_) if is_of_files => 0,
        Some(_) => usize::try_from(after.spec.retention.generations).unwrap_or(usize::MAX).saturating_sub(1),
        None => usize::MAX,
    };
    let target = before.state.rewind().and_then(|rewind| Some(&rewind.target.as_ref()?.saved_state));
    let is_there = |saved_state: &SavedStateId| after.saved_states().any(|kept| kept == saved_state);
    if before.rewound != after.rewound {
        return match target {
            Some(target) if after.spec.suspendable && !is_there(target) => {
                Err("it has nothing to fall back to".to_owned())
            }
            Some(_) | None => Ok(()),
        };
    }
    if let (Some(target), Some(_)) = (target, after.state.rewind())
        && !is_there(target)
    {
        return Err(format!("the image {target} that it is rewound to is forgotten"));
    }
    let left = before.state.held().filter(|_| after.state.held().is_none());
    let left = left.and_then(|held| Some(&held.image.as_ref()?.saved_state));
    match before
        .saved_states()
        .filter(|saved_state| Some(*saved_state) != target && Some(*saved_state) != left)
        .take(most)
        .find(|saved_state| after.saved_states().all(|kept| kept != *saved_state))
    {
        Some(saved_state) => Err(format!("its image {saved_state} is forgotten")),
        None => Ok(()),
    }
}

/// Whether the sandbox has an image to return to. The target of an unfinished rewind is still the
/// snapshot's, and the image of a member of a pool that is being claimed has nothing of its
/// claimer.
fn could_return(sandbox: &Sandbox) -> bool {
    !sandbox.is_being_claimed() && sandbox.state.image().or(sandbox.older.first()).is_some()
}

/// Whether the sandbox failed because its snapshot was deleted while it was created.
fn is_missing_snapshot(sandbox: &Sandbox, reason: &str) -> bool {
    matches!(sandbox.origin, Origin::Snapshot { .. }) && reason.contains("there is no saved state")
}

/// The owner of a saved state, according to the records.
fn needs(state: &State, saved_state: &SavedStateId) -> Option<String> {
    let sandbox =
        state.sandboxes.values().find(|known| known.record.sandbox.saved_states().any(|kept| kept == saved_state));
    let snapshot = state
        .snapshots
        .values()
        .find(|known| known.record.saved_state == *saved_state && known.record.status == SnapshotStatus::Completed);
    let sandbox = sandbox.map(|known| format!("sandbox {}", known.record.sandbox.id));
    sandbox.or_else(|| snapshot.map(|known| format!("snapshot {}", known.record.id)))
}

fn is_over(state: StateName) -> bool {
    matches!(state, StateName::Terminating | StateName::Terminated)
}

/// The state after an event.
fn told(before: StateName, kind: EventKind) -> StateName {
    match kind {
        EventKind::Created => StateName::Pending,
        EventKind::Started | EventKind::Resumed | EventKind::Rewound | EventKind::SuspendFailed => StateName::Running,
        EventKind::RewindFailed => match before {
            StateName::Suspending => StateName::Running,
            // The rewind could not be prepared.
            StateName::Running => StateName::Running,
            _ => StateName::Suspended,
        },
        EventKind::Suspending => StateName::Suspending,
        EventKind::Suspended | EventKind::ResumeFailed | EventKind::RunLost => StateName::Suspended,
        EventKind::Resuming => StateName::Resuming,
        EventKind::Snapshotting => StateName::Snapshotting,
        EventKind::SnapshotTaken | EventKind::SnapshotFailed if before == StateName::Snapshotting => StateName::Running,
        EventKind::Terminating => StateName::Terminating,
        EventKind::Terminated => StateName::Terminated,
        _ => before,
    }
}
