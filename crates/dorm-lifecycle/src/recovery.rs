//! The recovery of a sandbox after a restart of the daemon, decided from its record and from the
//! runs that exist on the host.

/// The condition in which an engine found a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunCondition {
    /// Its guest runs.
    Running,
    /// Its guest is paused, but its processes use some CPU.
    Paused,
    /// Its guest is paused and no process of it uses any CPU.
    Parked,
    /// Its process is alive, but the state of its guest is unknown.
    Silent,
    /// It was not completely created, or its process is gone: the only safe action is to stop it.
    Broken,
}

mod living;

pub use living::{prefer_run, preferred_run};

use crate::background::{Background, BackgroundWork};
use crate::ids::RunId;
use crate::sandbox::Sandbox;
use crate::saved::Keep;
use crate::state::State;
use crate::step::{Effect, Observation, egress_effect, resize_effect, rewind_effect, save_held_effect};

/// The action that recovers one sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Nothing: the host agrees with the record.
    Nothing,
    /// Reconnect to the run, which is where it was. A run that does not answer is retried until it
    /// does.
    Adopt(RunId),
    /// Reconnect to the run as in [`Recovery::Adopt`], then report that its background operation
    /// failed.
    AdoptThen {
        /// The run.
        run: RunId,
        /// The observation to report.
        report: Observation,
    },
    /// Reconnect to the run as in [`Recovery::Adopt`], then carry out the effect of its background
    /// operation again.
    AdoptRedo {
        /// The run.
        run: RunId,
        /// The effect to repeat.
        effect: Effect,
    },
    /// Stop these runs first (nothing acknowledged depends on them), then carry out the effect.
    Redo {
        /// The runs to stop.
        stop: Vec<RunId>,
        /// The effect to repeat.
        effect: Effect,
    },
    /// Let the run continue, then report the observation.
    Continue {
        /// The run.
        run: RunId,
        /// The observation.
        report: Observation,
    },
    /// Stop these runs, then report the observation.
    Report {
        /// The runs to stop.
        stop: Vec<RunId>,
        /// The observation.
        report: Observation,
    },
    /// Stop these runs; nothing else changes.
    Stop(Vec<RunId>),
}

const STOPPED: &str = "the daemon stopped during the operation";
const GONE: &str = "its run ended while the daemon was not running";

/// Returns the runs of `sandbox` that are to be stopped before its own continues: those that could
/// not be ended earlier, and one that an interrupted rewind has started. A run that is newer than
/// the record is not one of them: see [`preferred_run`].
pub fn leftovers(sandbox: &Sandbox, found: &[(RunId, RunCondition)]) -> Vec<RunId> {
    if !sandbox.state.has_run() {
        return Vec::new();
    }
    let (own, held) = (sandbox.run_id(), sandbox.held_run());
    let is_left = |run: &RunId| *run != own && Some(run) != held.as_ref() && run.generation <= sandbox.generation;
    found.iter().map(|(run, _)| run.clone()).filter(is_left).collect()
}

/// Returns the effect that saves the run that a rewind has left, if that run still exists.
fn held(sandbox: &Sandbox, found: &[(RunId, RunCondition)]) -> Option<Effect> {
    let run = sandbox.held_run()?;
    let exists = found.iter().any(|(found, condition)| *found == run && *condition != RunCondition::Broken);
    save_held_effect(sandbox).filter(|_| exists)
}

/// Returns what a restarted daemon does about `sandbox`, whose runs on this host are `found`.
pub fn recover(sandbox: &Sandbox, found: &[(RunId, RunCondition)]) -> Recovery {
    let runs = || found.iter().map(|(run, _)| run.clone()).collect::<Vec<_>>();
    let own = sandbox.run_id();
    let condition = found.iter().find(|(run, _)| *run == own).map(|(_, condition)| *condition);
    match &sandbox.state {
        // No caller was told of the sandbox in any state, so its first run starts over.
        State::Pending { program, .. } => {
            let effect = Effect::Start { run: own, origin: sandbox.origin.clone(), program: *program };
            Recovery::Redo { stop: runs(), effect }
        }
        State::Running { background, .. } => recover_running(sandbox, background.as_deref(), condition, found),
        State::Snapshotting { .. } => match condition {
            Some(RunCondition::Running | RunCondition::Paused | RunCondition::Parked | RunCondition::Silent) => {
                Recovery::Continue { run: own, report: Observation::SnapshotFailed(STOPPED.to_owned()) }
            }
            Some(RunCondition::Broken) | None => {
                Recovery::Report { stop: runs(), report: Observation::RunLost(STOPPED.to_owned()) }
            }
        },
        State::Suspending { .. } => match condition {
            Some(RunCondition::Running | RunCondition::Paused | RunCondition::Parked | RunCondition::Silent) => {
                Recovery::Continue { run: own, report: Observation::SaveFailed(STOPPED.to_owned()) }
            }
            Some(RunCondition::Broken) | None => {
                Recovery::Report { stop: runs(), report: Observation::RunLost(STOPPED.to_owned()) }
            }
        },
        State::Suspended { background, .. } => recover_suspended(sandbox, background.as_deref(), found),
        // Not every engine can tell whether the guest has run since, so its runs are stopped and
        // the rewind is repeated: no caller was told that it had woken.
        State::Resuming { rewind: Some(rewinding), .. } => Recovery::Redo {
            stop: runs(),
            effect: rewind_effect(sandbox, sandbox.generation, &rewinding.rewind, false),
        },
        State::Resuming { image, rewind: None, .. } => {
            let fresh = RunId { sandbox: sandbox.id.clone(), generation: sandbox.generation };
            let stop = match condition {
                Some(RunCondition::Parked | RunCondition::Paused) if image.keeps() == Keep::Memory => {
                    found.iter().map(|(run, _)| run.clone()).filter(|run| *run != own).collect()
                }
                Some(_) | None => runs(),
            };
            Recovery::Redo { stop, effect: Effect::Wake { parked: own, fresh, image: image.clone() } }
        }
        State::Terminating { .. } => Recovery::Redo { stop: runs(), effect: Effect::Stop { run: own } },
        State::Terminated { .. } => match found.is_empty() {
            true => Recovery::Nothing,
            false => Recovery::Stop(runs()),
        },
    }
}

fn recover_running(
    sandbox: &Sandbox,
    background: Option<&Background>,
    condition: Option<RunCondition>,
    found: &[(RunId, RunCondition)],
) -> Recovery {
    let own = sandbox.run_id();
    match condition {
        // The freezer may have been closed by hand, or memory pressure began just before the daemon
        // ended.
        Some(RunCondition::Running | RunCondition::Paused | RunCondition::Parked | RunCondition::Silent) => {
            match background.map(|background| &background.work) {
                Some(BackgroundWork::Egress { after }) => {
                    Recovery::AdoptRedo { run: own, effect: egress_effect(sandbox, after) }
                }
                Some(BackgroundWork::Resize { after }) => {
                    Recovery::AdoptRedo { run: own, effect: resize_effect(sandbox, *after) }
                }
                Some(BackgroundWork::SaveHeld(_)) => match held(sandbox, found) {
                    Some(effect) => Recovery::AdoptRedo { run: own, effect },
                    None => Recovery::AdoptThen { run: own, report: Observation::HeldLost(GONE.to_owned()) },
                },
                Some(work) => Recovery::AdoptThen { run: own, report: given_up(work) },
                None => Recovery::Adopt(own),
            }
        }
        // The held run is saved first. Then the own run is found to have ended.
        Some(RunCondition::Broken) | None if let Some(effect) = held(sandbox, found) => {
            Recovery::Redo { stop: leftovers(sandbox, found), effect }
        }
        Some(RunCondition::Broken) | None => Recovery::Report {
            stop: found.iter().map(|(run, _)| run.clone()).collect(),
            report: Observation::RunLost(GONE.to_owned()),
        },
    }
}

/// A parked run is a cache of the image only while its guest has stayed paused.
fn recover_suspended(sandbox: &Sandbox, background: Option<&Background>, found: &[(RunId, RunCondition)]) -> Recovery {
    let own = sandbox.run_id();
    let has_memory = sandbox.state.image().is_some_and(|image| image.keeps() == Keep::Memory);
    let is_cache = |run: &RunId, condition: &RunCondition| {
        has_memory && *run == own && matches!(condition, RunCondition::Paused | RunCondition::Parked)
    };
    let stop: Vec<_> =
        found.iter().filter(|(run, condition)| !is_cache(run, condition)).map(|(run, _)| run.clone()).collect();
    match background.map(|background| &background.work) {
        Some(BackgroundWork::Egress { after }) => Recovery::Redo { stop, effect: egress_effect(sandbox, after) },
        Some(BackgroundWork::Resize { after }) => Recovery::Redo { stop, effect: resize_effect(sandbox, *after) },
        Some(work) => Recovery::Report { stop, report: given_up(work) },
        None if stop.is_empty() => Recovery::Nothing,
        None => Recovery::Stop(stop),
    }
}

/// Returns the failure of a background operation. Until such an operation is done, nothing about
/// the sandbox has changed.
fn given_up(work: &BackgroundWork) -> Observation {
    let reason = STOPPED.to_owned();
    match work {
        BackgroundWork::Attach { .. } => Observation::AttachFailed(reason),
        BackgroundWork::Egress { .. } => Observation::EgressFailed(reason),
        BackgroundWork::Resize { .. } => Observation::ResizeFailed(reason),
        BackgroundWork::PrepareRewind(_) => Observation::RewindNotPrepared(reason),
        BackgroundWork::Snapshot(_) => Observation::SnapshotFailed(reason),
        BackgroundWork::SaveHeld(_) => Observation::HeldLost(reason),
    }
}

#[cfg(test)]
mod tests;
