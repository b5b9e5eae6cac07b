//! The time between a shortage of memory and the death of the process that has caused it.
//!
//! Which process that is only the agent knows, so the guest has to run while it is found out, but all its other
//! processes are stopped. Meanwhile the guest gets more room than its limit, and is not paused again; all of this ends
//! when the process is dead, or when nobody has named one in time.
//!
//! ```text
//! MemoryHigh (paused) ─► relieve(None): others stop, more room, go on ─► relieve(Some(pid)): kill, others go on,
//!    the old limit
//! ```

use std::sync::Arc;
use std::time::Duration;

use dorm_engine::EngineError;
use dorm_lifecycle::RunId;
use tokio::sync::oneshot;

use crate::capture::resume;
use crate::cgroup::{MARGIN_BYTES, soft_threshold};
use crate::container::Container;
use crate::control::AGENT;
use crate::engine::Shared;
use crate::error::{GvisorError, chain};
use crate::notes::Phase;
use crate::run::{Relieved, Run};

/// How much more the guest may take at least while the victim is looked for.
const ROOM_BYTES: u64 = 1 << 30;
/// How long the caller may take to name one.
const NAMING: Duration = Duration::from_secs(10);
/// How long a killed process's memory may take to come back.
const RETURN: Duration = Duration::from_secs(60);
/// How often it is looked whether it has.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(5);
/// A limit is not put nearer than this to what is used.
const SLACK_BYTES: u64 = 16 << 20;

impl Shared {
    /// [`dorm_engine::Engine::relieve`].
    pub(crate) async fn relieve(&self, id: &RunId, victim: Option<u32>) -> Result<(), EngineError> {
        const OPERATION: &str = "relieve the memory pressure of";
        let run = self.runs.get(id)?;
        let mut turn = run.turn().await;
        let container = run.living(OPERATION)?;
        let limit = turn.note().map_or(0, |note| note.memory_bytes);
        let is_held = turn.phase() != Phase::Running && !run.is_short();
        let killed = match victim {
            Some(pid) => container.control.signal(container.home.id(), pid, libc::SIGKILL).await,
            None if is_held => return Ok(()),
            None => {
                signal_others(container, libc::SIGSTOP).await;
                if limit > 0 { give_room(&run, container, limit).await } else { Ok(()) }
            }
        };
        if !is_held {
            run.set_short(false);
            resume(container, &mut turn).await.map_err(|error| error.of(OPERATION, id))?;
        }
        if victim.is_some() {
            signal_others(container, libc::SIGCONT).await;
            run.relieved(Relieved::Killed);
        }
        match killed {
            // A victim that has ended meanwhile is no reason to keep the guest standing.
            Ok(()) | Err(GvisorError::Refused { .. }) => Ok(()),
            Err(error) => Err(error.of(OPERATION, id)),
        }
    }
}

/// Lets the stopped processes of a run go on, so that it is not captured with them stopped. The more room stays until
/// it is not needed.
pub(crate) async fn end_relief(run: &Run, container: &Container) {
    if run.is_in_relief() {
        signal_others(container, libc::SIGCONT).await;
        run.relieved(Relieved::Nobody);
    }
}

/// Takes up what a daemon that died in the middle of a relief has left: stopped processes, and more room.
pub(crate) fn adopt_relief(run: &Arc<Run>, container: &Container, limit: u64) {
    let (run, container) = (run.clone(), container.clone());
    tokio::spawn(async move {
        let turn = run.turn().await;
        signal_others(&container, libc::SIGCONT).await;
        drop(turn);
        take_room_back(&run, &container, limit, Relieved::Nobody).await;
    });
}

/// Stops every process but the agent, or lets them go on: the youngest first, so that no parent sees a child stopped.
async fn signal_others(container: &Container, signal: i32) {
    let processes = match container.control.processes(container.home.id()).await {
        Ok(processes) => processes,
        Err(error) => {
            tracing::warn!(container = container.home.id(), error = %chain(&error), "cannot list the processes of a run");
            return;
        }
    };
    for pid in processes.into_iter().rev().filter(|pid| *pid != AGENT) {
        // One that has ended meanwhile needs no signal.
        let _ = container.control.signal(container.home.id(), pid, signal).await;
    }
}

async fn give_room(run: &Arc<Run>, container: &Container, limit: u64) -> Result<(), GvisorError> {
    let Some(over) = run.begin_relief() else { return Ok(()) };
    let given = container.group(move |group| group.set_memory_limit(limit.saturating_add(limit.max(ROOM_BYTES)))).await;
    if given.is_err() {
        run.end_relief();
        return given;
    }
    tokio::spawn(see_it_end(run.clone(), container.clone(), limit, over));
    Ok(())
}

async fn see_it_end(run: Arc<Run>, container: Container, limit: u64, over: oneshot::Receiver<Relieved>) {
    let how = match tokio::time::timeout(NAMING, over).await {
        Ok(Ok(how)) => how,
        Ok(Err(_)) | Err(_) => {
            signal_others(&container, libc::SIGCONT).await;
            Relieved::Nobody
        }
    };
    // Whoever goes on to grow is met again.
    if how == Relieved::Nobody {
        run.end_relief();
    }
    take_room_back(&run, &container, limit, how).await;
}

/// Lets the kernel of a run take more than the run's limit, until the run's turn is over and what it took to save or load
/// the guest is given back. Of what the guest's files and processes take of it already it needs three times as much again: it
/// went from 464 MiB to more than 1,472 MiB when it saved 180,000 files.
pub(crate) async fn give_kernel_room(run: &Arc<Run>, container: &Container, limit: u64) {
    let room = limit.saturating_mul(4).saturating_add(ROOM_BYTES);
    if let Err(error) = container.group(move |group| group.set_memory_limit(room)).await {
        tracing::debug!(run = %run.id, error = %chain(&error), "cannot raise the memory limit for saving or loading a run; the limit stays");
    }
    run.begin_kernel_room();
    let (run, container) = (run.clone(), container.clone());
    tokio::spawn(async move { take_room_back(&run, &container, limit, Relieved::Nobody).await });
}

/// Puts the limit back when so little is used that nobody is killed for it. That ends the relief of one who was killed;
/// after [`RETURN`] it is over without.
async fn take_room_back(run: &Run, container: &Container, limit: u64, how: Relieved) {
    let mut is_relief = how == Relieved::Killed;
    let mut room = u64::MAX;
    let end = tokio::time::Instant::now() + RETURN;
    loop {
        // It is not being saved meanwhile, for which it takes more than its limit.
        let turn = run.turn().await;
        // A later shortage has its own end.
        if !is_relief && run.is_in_relief() {
            return;
        }
        let is_over = tokio::time::Instant::now() > end;
        let uses = container.group(crate::cgroup::Cgroup::usage).await.map(|usage| usage.memory_bytes);
        run.lower_kernel_room(*uses.as_ref().unwrap_or(&0));
        match uses {
            // The room of a kernel is no room for its guest: it shrinks with what is used, and does not grow again.
            Ok(uses) if !is_relief && uses.saturating_add(SLACK_BYTES) >= limit => {
                let near = uses.saturating_add(MARGIN_BYTES);
                if near < room {
                    room = near;
                    let _ = container.group(move |group| group.set_memory_limit(near)).await;
                }
            }
            // As long as memory is on its way back, another shortage would only be told of again, and somebody else
            // would die for it.
            Ok(uses) if is_relief && uses >= soft_threshold(limit) && !is_over => {}
            // Setting it below what is used would have the kernel kill for it.
            Ok(uses) if uses.saturating_add(SLACK_BYTES) >= limit => {
                tracing::debug!(run = %run.id, uses, limit, "a run uses more memory than its limit; trying again later to set the limit");
                is_relief = false;
                run.end_relief();
            }
            Ok(_) => match container.group(move |group| group.set_memory_limit(limit)).await {
                Err(error) if is_over => {
                    tracing::warn!(run = %run.id, error = %chain(&error), "cannot set the memory limit of a run again");
                    break;
                }
                Err(_) => {}
                Ok(()) => break,
            },
            // It is gone.
            Err(_) => break,
        }
        drop(turn);
        tokio::time::sleep(if is_over { SELDOM } else { OFTEN }).await;
    }
    run.end_kernel_room();
    if is_relief {
        run.end_relief();
    }
}
