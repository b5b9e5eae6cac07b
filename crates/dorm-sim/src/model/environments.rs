//! Environments: one sandbox for a key, none that is not ready, and none that is left over.

use std::collections::BTreeSet;

use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{SandboxId, SnapshotId, StateName};
use dorm_store::{AttemptResult, Change, EnvironmentRecord, SetupState};

use super::{Model, State};

/// The request of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// The number in its key.
    pub(crate) number: u64,
    /// The number that its setup writes.
    pub(crate) workspace: u64,
    /// Whether its last step fails.
    pub(crate) fails: bool,
    /// Whether a snapshot is taken after the setup.
    pub(crate) takes: bool,
    /// Whether the work continues if its caller leaves.
    pub(crate) stays: bool,
}

impl Model {
    pub(super) fn environments_committed(&self, state: &mut State, change: &Change) {
        for id in &change.removed_environments {
            if state.environments.remove(id).is_some_and(|known| !known.removed) {
                self.trace.wrong(format_args!("environment {id} is forgotten before it was removed"));
            }
        }
        for record in &change.environments {
            let id = &record.id;
            let doing = record.attempt.as_ref().map(|attempt| (&attempt.id, &attempt.restore, &attempt.setup));
            self.trace.note(format_args!("commit: environment {id} has {:?}, does {doing:?}", record.sandbox));
            if let Some(attempt) = &record.attempt {
                state.of_environments.insert(attempt.sandbox.clone());
                state.of_environments.extend(attempt.setup.iter().map(|work| work.sandbox.clone()));
            }
            let same_key = |other: &&EnvironmentRecord| other.id != *id && other.key == record.key;
            if let Some(other) = state.environments.values().find(same_key) {
                self.trace.wrong(format_args!("environments {id} and {} have one key", other.id));
            }
            let before = state.environments.insert(id.clone(), record.clone());
            self.hands_out(state, before.as_ref(), record);
            if let Some(before) = before {
                self.continues(&before, record);
            }
        }
    }

    /// Checks the sandbox of an environment: a new one is ready, an earlier one is not lost.
    fn hands_out(&self, state: &State, before: Option<&EnvironmentRecord>, record: &EnvironmentRecord) {
        let was = before.and_then(|before| before.sandbox.as_ref());
        let state_of = |id: &SandboxId| state.sandboxes.get(id).map(super::Known::state);
        if let Some(new) = record.sandbox.as_ref().filter(|new| was != Some(new))
            && state_of(new).is_none_or(|is| is == StateName::Pending)
        {
            self.trace.wrong(format_args!("environment {} is given {new}, which is {:?}", record.id, state_of(new)));
        }
        if let Some(old) = was.filter(|old| record.sandbox.as_ref() != Some(old)) {
            let is_kept = record.retired.iter().any(|retired| retired.sandbox == *old);
            if !is_kept && state_of(old).is_some_and(|is| is != StateName::Terminated) {
                self.trace.wrong(format_args!("environment {} forgets {old}, which lives", record.id));
            }
        }
    }

    /// Checks that an attempt does not forget what it has done.
    fn continues(&self, before: &EnvironmentRecord, record: &EnvironmentRecord) {
        let (Some(was), Some(is)) = (&before.attempt, &record.attempt) else { return };
        if was.id != is.id {
            return self.trace.wrong(format_args!("environment {} has two attempts at once", record.id));
        }
        if was.cancel && !is.cancel {
            self.trace.wrong(format_args!("environment {} forgets the request to cancel its attempt", record.id));
        }
        let same_setup = was.setup.is_some() && was.setup == is.setup;
        let undone = was
            .steps
            .iter()
            .zip(&is.steps)
            .any(|(was, is)| was.state == SetupState::Done && is.state != SetupState::Done);
        if same_setup && undone {
            self.trace.wrong(format_args!("environment {} repeats a step that was done", record.id));
        }
    }

    /// Notes that attempts may be cancelled from now on.
    pub(crate) fn may_cancel_environments(&self) {
        self.lock().environments_cancelled = true;
    }

    pub(crate) fn are_environments_cancelled(&self) -> bool {
        self.lock().environments_cancelled
    }

    /// The sandbox of the environment with a key.
    pub(crate) fn environment_sandbox(&self, key: &str) -> Option<SandboxId> {
        let state = self.lock();
        let key = Key::Own(key.to_owned());
        state.environments.values().find(|record| record.key == key)?.sandbox.clone()
    }

    /// The last committed record of every environment.
    pub(crate) fn environment_records(&self) -> Vec<EnvironmentRecord> {
        self.lock().environments.values().cloned().collect()
    }

    /// The first environment that is being worked on or has left a sandbox.
    pub(crate) fn open_environment(&self) -> Option<String> {
        let state = self.lock();
        let mut own = BTreeSet::new();
        for record in state.environments.values() {
            if record.attempt.is_some() || record.ending.is_some() || record.removed {
                return Some(format!("environment {} is being worked on", record.id));
            }
            own.extend(record.sandbox.iter().chain(record.retired.iter().map(|retired| &retired.sandbox)));
            if let Some(AttemptResult::Failed(failure)) = record.last.as_ref().map(|last| &last.result) {
                own.extend(failure.kept.iter());
            }
        }
        let left = |id: &&SandboxId| {
            !own.contains(id) && state.sandboxes.get(*id).is_some_and(|known| known.state() != StateName::Terminated)
        };
        state.of_environments.iter().find(left).map(|id| format!("the sandbox {id} of an environment is left over"))
    }
}

/// The environment that needs a snapshot.
pub(super) fn holder(state: &State, snapshot: &SnapshotId) -> Option<String> {
    let needs = |record: &&EnvironmentRecord| {
        record.attempt.as_ref().is_some_and(|attempt| {
            let restored = attempt.restore.as_ref().map(|restored| &restored.snapshot);
            let taken = attempt.setup.as_ref().and_then(|setup| setup.snapshot.as_ref());
            restored == Some(snapshot) || taken == Some(snapshot)
        })
    };
    state.environments.values().find(needs).map(|record| format!("environment {}", record.id))
}
