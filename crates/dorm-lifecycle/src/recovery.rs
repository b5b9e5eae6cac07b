//! What a restarted daemon does about a sandbox, decided from its record and from what the host really runs.

/// What an engine found a run doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunCondition {
    /// Its guest runs.
    Running,
    /// Its guest stands still, but its processes use some CPU.
    Paused,
    /// Its guest stands still and no process of it uses any CPU.
    Parked,
    /// Its process lives and does not say what its guest does.
    Silent,
    /// It was never begun to its end, or its process is gone: only stopping it is safe.
    Broken,
}

mod living;

pub use living::{prefer_run, preferred_run};

use crate::background::{Background, BackgroundWork};
use crate::ids::RunId;
use crate::sandbox::{Sandbox, State};
use crate::step::{Effect, Observation, rewind_effect};

/// What to do about one sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Nothing: all is as recorded.
    Nothing,
    /// Take up the connection to the run again; it is where it was. A run that does not answer is asked until it does.
    Adopt(RunId),
    /// Take up the connection to the run again as in [`Recovery::Adopt`], which leaves it as its record says, then report
    /// that its background operation has failed.
    AdoptThen {
        /// The run.
        run: RunId,
        /// What to report.
        report: Observation,
    },
    /// End these runs first (none of them holds anything that was acknowledged), then carry out the effect.
    Redo {
        /// Runs to end.
        stop: Vec<RunId>,
        /// What to do again.
        effect: Effect,
    },
    /// Let the run go on, then report the observation.
    GoOn {
        /// The run.
        run: RunId,
        /// What to report.
        report: Observation,
    },
    /// End these runs, then report the observation.
    Report {
        /// Runs to end.
        stop: Vec<RunId>,
        /// What to report.
        report: Observation,
    },
    /// End these runs; nothing else changes.
    Stop(Vec<RunId>),
}

const STOPPED: &str = "the daemon was stopped in the middle of it";

/// What a restarted daemon does about `sandbox`, whose runs on this host are `found`.
pub fn recover(sandbox: &Sandbox, found: &[(RunId, RunCondition)]) -> Recovery {
    let runs = || found.iter().map(|(run, _)| run.clone()).collect::<Vec<_>>();
    let own = sandbox.run_id();
    let condition = found.iter().find(|(run, _)| *run == own).map(|(_, condition)| *condition);
    match &sandbox.state {
        // Nobody has been told that it exists in any state, so its first run is begun again from the start.
        State::Pending { program, .. } => {
            let effect = Effect::Start { run: own, origin: sandbox.origin.clone(), program: *program };
            Recovery::Redo { stop: runs(), effect }
        }
        State::Running { background, .. } => match condition {
            // The freezer may have been closed by hand, or memory ran high just before the daemon ended.
            Some(RunCondition::Running | RunCondition::Paused | RunCondition::Parked | RunCondition::Silent) => {
                match background {
                    Some(background) => Recovery::AdoptThen { run: own, report: given_up(background) },
                    None => Recovery::Adopt(own),
                }
            }
            Some(RunCondition::Broken) | None => Recovery::Report {
                stop: runs(),
                report: Observation::RunLost("its run had ended while the daemon was not there".to_owned()),
            },
        },
        State::Snapshotting { .. } => match condition {
            Some(RunCondition::Running | RunCondition::Paused | RunCondition::Parked | RunCondition::Silent) => {
                Recovery::GoOn { run: own, report: Observation::SnapshotFailed(STOPPED.to_owned()) }
            }
            Some(RunCondition::Broken) | None => {
                Recovery::Report { stop: runs(), report: Observation::RunLost(STOPPED.to_owned()) }
            }
        },
        State::Suspending { .. } => match condition {
            Some(RunCondition::Running | RunCondition::Paused | RunCondition::Parked | RunCondition::Silent) => {
                Recovery::GoOn { run: own, report: Observation::SaveFailed(STOPPED.to_owned()) }
            }
            Some(RunCondition::Broken) | None => {
                Recovery::Report { stop: runs(), report: Observation::RunLost(STOPPED.to_owned()) }
            }
        },
        State::Suspended { background, .. } => {
            // A parked run is a cache of the image as long as its guest has stood still since.
            let stop: Vec<_> = found
                .iter()
                .filter(|(run, condition)| {
                    *run != own || !matches!(condition, RunCondition::Paused | RunCondition::Parked)
                })
                .map(|(run, _)| run.clone())
                .collect();
            match background {
                Some(background) => Recovery::Report { stop, report: given_up(background) },
                None if stop.is_empty() => Recovery::Nothing,
                None => Recovery::Stop(stop),
            }
        }
        // Whether the guest has run since cannot be told for every engine, so it goes back to its image: nobody was
        // told that it had woken.
        State::Resuming { rewind: Some(rewinding), .. } => {
            Recovery::Redo { stop: runs(), effect: rewind_effect(sandbox, sandbox.generation, &rewinding.rewind) }
        }
        State::Resuming { image, rewind: None, .. } => {
            let fresh = RunId { sandbox: sandbox.id.clone(), generation: sandbox.generation };
            let stop = match condition {
                Some(RunCondition::Parked | RunCondition::Paused) => {
                    found.iter().map(|(run, _)| run.clone()).filter(|run| *run != own).collect()
                }
                Some(RunCondition::Running | RunCondition::Silent | RunCondition::Broken) | None => runs(),
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

/// Nothing of the sandbox has changed for a background operation that is not done.
fn given_up(background: &Background) -> Observation {
    let reason = STOPPED.to_owned();
    match &background.work {
        BackgroundWork::Attach { .. } => Observation::AttachFailed(reason),
        BackgroundWork::PrepareRewind(_) => Observation::RewindNotPrepared(reason),
        BackgroundWork::Snapshot(_) => Observation::SnapshotFailed(reason),
    }
}

#[cfg(test)]
mod tests;
