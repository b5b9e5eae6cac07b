//! Builds: none is forgotten, and what has ended stays as it is.

use dorm_lifecycle::{BuildId, SandboxId, SnapshotId, StateName};
use dorm_store::{BuildRecord, BuildState, Change, SnapshotStatus, TemplateRecord, TemplateSource};

use super::{Model, State};

/// The product of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Making {
    /// The number in its name and in the output of its first step.
    pub(crate) number: u64,
    /// Whether its last step fails.
    pub(crate) fails: bool,
    /// Whether it makes a template, whose program is started.
    pub(crate) is_template: bool,
    /// Whether results of earlier builds are used.
    pub(crate) is_cached: bool,
    /// Whether it is reserved before its steps are given, if it makes a template.
    pub(crate) is_reserved: bool,
}

/// The known state of a build.
pub(super) struct KnownBuild {
    record: BuildRecord,
    making: Option<Making>,
    cancel_asked: bool,
}

impl Model {
    pub(super) fn builds_committed(&self, state: &mut State, change: &Change) {
        for record in &change.builds {
            let id = &record.id;
            self.trace.note(format_args!("commit: build {id} is {:?}", record.state));
            state.of_builds.extend(record.work.iter().map(|work| work.sandbox.clone()));
            let Some(known) = state.builds.get_mut(id) else {
                let known = KnownBuild { record: record.clone(), making: None, cancel_asked: false };
                state.builds.insert(id.clone(), known);
                continue;
            };
            let before = std::mem::replace(&mut known.record, record.clone());
            if before.state.has_ended() && before.state != record.state {
                self.trace.wrong(format_args!("build {id} was {:?} and is {:?}", before.state, record.state));
            }
            if before.cancel && !record.cancel {
                self.trace.wrong(format_args!("build {id} forgets the request to cancel it"));
            }
            if record.state.has_ended() && record.work.is_some() {
                self.trace.wrong(format_args!("build {id} has ended and its last step has not"));
            }
        }
        state.templates.extend(change.templates.iter().map(|one| (one.id.clone(), one.clone())));
        for id in &change.removed_templates {
            state.templates.remove(id);
        }
        let going = change.snapshots.iter().filter(|snapshot| snapshot.status == SnapshotStatus::Deleting);
        for id in going.map(|snapshot| &snapshot.id) {
            if let Some(holder) = holder(state, id) {
                self.trace.wrong(format_args!("snapshot {id} goes while {holder} needs it"));
            }
        }
        for id in &change.removed_builds {
            if state.builds.remove(id).is_some_and(|known| !known.record.state.has_ended()) {
                self.trace.wrong(format_args!("build {id} is forgotten before it has ended"));
            }
        }
    }

    /// Notes what a build that a caller was told of is to make.
    pub(crate) fn build_begun(&self, id: &BuildId, making: Making) {
        if let Some(known) = self.lock().builds.get_mut(id) {
            known.making = Some(making);
        }
    }

    /// Notes that a caller is about to cancel the build.
    pub(crate) fn cancel_asked(&self, id: &BuildId) {
        if let Some(known) = self.lock().builds.get_mut(id) {
            known.cancel_asked = true;
        }
    }

    pub(crate) fn is_cancel_asked(&self, id: &BuildId) -> bool {
        self.lock().builds.get(id).is_some_and(|known| known.cancel_asked)
    }

    pub(crate) fn making(&self, id: &BuildId) -> Option<Making> {
        self.lock().builds.get(id).and_then(|known| known.making)
    }

    pub(crate) fn builds(&self) -> Vec<BuildId> {
        self.lock().builds.keys().cloned().collect()
    }

    pub(crate) fn build(&self, id: &BuildId) -> Option<BuildRecord> {
        self.lock().builds.get(id).map(|known| known.record.clone())
    }

    /// The last committed record of every build.
    pub(crate) fn build_records(&self) -> Vec<BuildRecord> {
        self.lock().builds.values().map(|known| known.record.clone()).collect()
    }

    /// The build, template or environment that needs a snapshot.
    pub(crate) fn holder(&self, snapshot: &SnapshotId) -> Option<String> {
        holder(&self.lock(), snapshot)
    }

    /// The first build that has steps and has not ended, or has left a sandbox.
    pub(crate) fn open_build(&self) -> Option<String> {
        let state = self.lock();
        let waits = |known: &&KnownBuild| known.record.state == BuildState::Reserved;
        let open = state.builds.values().find(|known| !known.record.state.has_ended() && !waits(known));
        if let Some(known) = open {
            return Some(format!("build {} is {:?}", known.record.id, known.record.state));
        }
        let lives =
            |id: &&SandboxId| state.sandboxes.get(id).is_some_and(|known| known.state() != StateName::Terminated);
        state.of_builds.iter().find(lives).map(|id| format!("the sandbox {id} of a build lives"))
    }
}

fn holder(state: &State, snapshot: &SnapshotId) -> Option<String> {
    let needs = |build: &&BuildRecord| {
        let work = build.work.as_ref().map(|work| &work.snapshot);
        !build.state.has_ended() && (build.snapshot.as_ref() == Some(snapshot) || work == Some(snapshot))
    };
    let build = state.builds.values().map(|known| &known.record).find(needs);
    let stands_for = |template: &&TemplateRecord| {
        let wanted = TemplateSource::Snapshot(snapshot.clone());
        template.tags.values().any(|version| version.source == wanted)
    };
    let template = state.templates.values().find(stands_for);
    let build = build.map(|build| format!("build {}", build.id));
    let template = template.map(|template| format!("template {}", template.name));
    build.or(template).or_else(|| super::environments::holder(state, snapshot))
}
