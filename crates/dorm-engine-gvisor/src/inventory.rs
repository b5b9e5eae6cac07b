//! The containers on the host: adopts the runs of an earlier daemon, reports the state of all runs,
//! and removes unknown ones.
//!
//! Everything is derived from the notes in the containers' homes. Objects without a note are not
//! touched, except for a lease that was being requested when the daemon died, as its container's
//! note records.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dorm_cgroup::Cgroup;
use dorm_engine::{EngineError, FoundRun};
use dorm_lifecycle::{RunCondition, RunId};
use tokio::task::JoinSet;

use crate::blocking::in_place;
use crate::container::{Container, limit_io};
use crate::error::{GvisorError, NAME, chain};
use crate::lock::lock;
use crate::memory_pressure::adopt_memory_pressure;
use crate::notes::{Home, Note, Phase};
use crate::pause::settle_within;
use crate::run::Run;
use crate::shared::Shared;

/// How long a sandbox may take to report the state of its guest.
const LOOK: Duration = Duration::from_secs(10);

impl Shared {
    /// Adopts the runs that the notes name.
    pub(crate) fn adopt(self: &Arc<Self>) -> Result<(), GvisorError> {
        for (home, note) in self.host.own_notes()? {
            let Some(id) = note.run() else { continue };
            let container = self.host.find_container(&home, &note)?;
            let is_alive = container.as_ref().is_some_and(Container::is_alive);
            let limit = note.memory_bytes;
            let run = Arc::new(Run::found(id, home, note, container));
            self.runs.insert(run.clone());
            if let Some(container) = run.container().filter(|_| is_alive) {
                if limit > 0 && container.group.memory_limit().is_ok_and(|now| now > limit + (limit >> 4)) {
                    adopt_memory_pressure(&run, container, limit);
                }
                // The earlier daemon may have had other limits. A paused guest gets the new ones
                // when it resumes.
                if run.is_moving()
                    && let Err(error) = limit_io(&container.group, &container.home, &container.io)
                {
                    tracing::warn!(run = %run.id, error = %chain(&error), "cannot limit the disk I/O of a sandbox");
                }
                self.watch(&run);
            }
        }
        Ok(())
    }

    /// [`dorm_engine::Engine::inventory`]. Asks all runs at the same time, so that a stopped one
    /// does not delay the others.
    pub(crate) async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError> {
        let mut asked = JoinSet::new();
        for run in self.runs.all() {
            asked.spawn(look(run));
        }
        let mut found: Vec<FoundRun> = asked.join_all().await.into_iter().flatten().collect();
        found.sort_by(|one, other| one.run.cmp(&other.run));
        Ok(found)
    }

    /// [`dorm_engine::Engine::condition`].
    pub(crate) async fn condition(&self, run: &RunId) -> Option<RunCondition> {
        look(self.runs.get(run).ok()?).await.map(|found| found.condition)
    }

    /// [`dorm_engine::Engine::sweep`].
    pub(crate) async fn sweep(self: &Arc<Self>, known: &[RunId]) -> Result<Vec<String>, EngineError> {
        let known: HashSet<&RunId> = known.iter().collect();
        let mut cleared = Vec::new();
        for run in self.runs.all() {
            if !known.contains(&run.id) {
                match self.stop(&run.id).await {
                    Ok(()) => cleared.push(format!("run {}", run.id)),
                    Err(error) => {
                        tracing::warn!(run = %run.id, error = %chain(&error), "cannot stop an unknown run; the next start tries again");
                        cleared.push(format!("run {} could not be stopped: {}", run.id, chain(&error)));
                    }
                }
            }
        }
        self.sweep_containers(&known, &mut cleared).await.map_err(|source| EngineError::Unusable {
            engine: NAME,
            hint: "remove the remains of an earlier daemon, which this one cannot remove".to_owned(),
            source: Some(Box::new(source)),
        })?;
        Ok(cleared)
    }

    async fn sweep_containers(&self, known: &HashSet<&RunId>, cleared: &mut Vec<String>) -> Result<(), GvisorError> {
        for home in in_place(|| Home::all(&self.host.containers))? {
            if lock(&self.host.made).contains(home.directory()) {
                continue;
            }
            let note = match in_place(|| home.read()) {
                Ok(note) => note,
                Err(error) if self.host.has_processes(&home) => {
                    tracing::warn!(container = home.id(), error = %chain(&error), "cannot read the note of a live container; leaving the container alone");
                    cleared.push(format!(
                        "container {} is left alone: it has live processes, and its note cannot be read",
                        home.id()
                    ));
                    continue;
                }
                Err(_) => None,
            };
            if note.as_ref().and_then(Note::run).is_some_and(|run| known.contains(&run)) {
                continue;
            }
            if let Some(note) = note.filter(|note| note.foreign_owner(&self.host.owner).is_some()) {
                // A container without processes consists only of copied files, and those are in
                // this directory.
                if !note.is_alive(&self.host.boot) {
                    self.host.remove_copied(&home).await?;
                    cleared.push(format!("the copied files of container {}", home.id()));
                }
                continue;
            }
            match self.host.destroy(&home).await {
                Ok(()) => cleared.push(format!("container {}", home.id())),
                Err(error) => {
                    tracing::warn!(container = home.id(), error = %chain(&error), "cannot remove a container; the next start tries again");
                    cleared.push(format!("container {} could not be removed: {}", home.id(), chain(&error)));
                }
            }
        }
        Ok(())
    }
}

/// Returns the state of `run`; `None` if it was stopped, or failed to start, meanwhile.
async fn look(run: Arc<Run>) -> Option<FoundRun> {
    let mut turn = run.turn().await;
    if turn.note().is_none() && run.container().is_none() {
        return None;
    }
    let condition = match run.container() {
        Some(container) if container.is_alive() && !run.is_stopping() => {
            match settle_within(container, &mut turn, LOOK).await {
                Ok(phase) => condition(container, phase).await,
                // Its process is alive, so it may answer later.
                Err(error) => {
                    tracing::warn!(run = %run.id, error = %chain(&error), "cannot determine the state of a run");
                    if container.is_alive() { RunCondition::Silent } else { RunCondition::Broken }
                }
            }
        }
        _ => RunCondition::Broken,
    };
    turn.note().is_some().then(|| FoundRun { run: run.id.clone(), condition })
}

async fn condition(container: &Container, phase: Phase) -> RunCondition {
    match phase {
        Phase::Running => RunCondition::Running,
        Phase::Paused => match container.group(Cgroup::is_frozen).await {
            Ok(true) => RunCondition::Parked,
            Ok(false) => RunCondition::Paused,
            Err(_) => RunCondition::Silent,
        },
        Phase::Beginning | Phase::Pausing | Phase::Resuming | Phase::Stopping => RunCondition::Broken,
    }
}
