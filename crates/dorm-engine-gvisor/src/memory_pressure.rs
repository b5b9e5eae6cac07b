//! Handles memory pressure, from the shortage to the death of the OOM victim.
//!
//! Only the agent can name the victim, so the guest must run meanwhile, but all its other processes
//! are stopped. Until then the guest may exceed its limit, and is not paused again. This ends when
//! the victim is dead, or when none has been named in time.
//!
//! ```text
//! MemoryHigh (paused) ─► relieve(None): others stop, more room, resume
//!                     ─► relieve(Some(pid)): kill, others resume, the old limit
//! ```

use std::sync::Arc;
use std::time::Duration;

use dorm_cgroup::Cgroup;
use dorm_engine::EngineError;
use dorm_lifecycle::RunId;
use tokio::sync::oneshot;

use crate::container::Container;
use crate::control::AGENT;
use crate::error::{GvisorError, chain};
use crate::limits::{MARGIN_BYTES, soft_threshold};
use crate::notes::Phase;
use crate::pause::resume;
use crate::run::{Relieved, Run};
use crate::shared::Shared;

/// The minimum by which the guest may exceed its limit until the victim is named.
const ROOM_BYTES: u64 = 1 << 30;
/// How long the caller may take to name a victim.
const NAMING: Duration = Duration::from_secs(10);
/// How long the memory of a killed process may take to be freed.
const RETURN: Duration = Duration::from_secs(60);
/// How often the memory is checked.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(5);
/// The minimum distance of a limit from the memory in use.
const SLACK_BYTES: u64 = 16 << 20;

impl Shared {
    /// [`dorm_engine::Engine::relieve_memory_pressure`].
    pub(crate) async fn relieve_memory_pressure(&self, id: &RunId, victim: Option<u32>) -> Result<(), EngineError> {
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
            // A victim that has already ended is no reason to keep the guest paused.
            Ok(()) | Err(GvisorError::Refused { .. }) => Ok(()),
            Err(error) => Err(error.of(OPERATION, id)),
        }
    }
}

/// Continues the stopped processes of a run, so that its memory is not saved with them stopped. The
/// higher limit stays as long as it is needed.
pub(crate) async fn end_memory_pressure(run: &Run, container: &Container) {
    if run.is_under_memory_pressure() {
        signal_others(container, libc::SIGCONT).await;
        run.relieved(Relieved::Nobody);
    }
}

/// Cleans up after a daemon that died while it handled memory pressure: continues stopped processes
/// and restores the limit.
pub(crate) fn adopt_memory_pressure(run: &Arc<Run>, container: &Container, limit: u64) {
    let (run, container) = (run.clone(), container.clone());
    tokio::spawn(async move {
        let turn = run.turn().await;
        // A parked guest cannot answer. Its processes were continued before it was saved.
        if !container.group(Cgroup::is_frozen).await.unwrap_or(false) {
            signal_others(&container, libc::SIGCONT).await;
        }
        drop(turn);
        take_room_back(&run, &container, limit, Relieved::Nobody).await;
    });
}

/// Sends `signal` to every process but the agent, to stop or continue them: the youngest first, so
/// that no parent sees a child stopped.
async fn signal_others(container: &Container, signal: i32) {
    let processes = match container.control.processes(container.home.id()).await {
        Ok(processes) => processes,
        Err(error) => {
            tracing::warn!(container = container.home.id(), error = %chain(&error), "cannot list the processes of a run");
            return;
        }
    };
    for pid in processes.into_iter().rev().filter(|pid| *pid != AGENT) {
        // A process that has already ended needs no signal.
        let _ = container.control.signal(container.home.id(), pid, signal).await;
    }
}

async fn give_room(run: &Arc<Run>, container: &Container, limit: u64) -> Result<(), GvisorError> {
    let Some(over) = run.begin_memory_pressure() else { return Ok(()) };
    let given = container.group(move |group| group.set_memory_limit(limit.saturating_add(limit.max(ROOM_BYTES)))).await;
    if given.is_err() {
        run.end_memory_pressure();
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
    // If the shortage continues, it is reported again.
    if how == Relieved::Nobody {
        run.end_memory_pressure();
    }
    take_room_back(&run, &container, limit, how).await;
}

/// Lets the kernel of a run exceed the run's limit until the current operation is over and the
/// memory for saving or loading the guest is freed. It needs three times the memory that it already
/// uses for the guest's files and processes: usage went from 464 MiB to more than 1,472 MiB when it
/// saved 180,000 files.
pub(crate) async fn give_kernel_room(run: &Arc<Run>, container: &Container, limit: u64) {
    let room = limit.saturating_mul(4).saturating_add(ROOM_BYTES);
    if let Err(error) = container.group(move |group| group.set_memory_limit(room)).await {
        tracing::debug!(run = %run.id, error = %chain(&error), "cannot raise the memory limit for saving or loading a run; the limit stays");
    }
    run.begin_kernel_room();
    let (run, container) = (run.clone(), container.clone());
    tokio::spawn(async move { take_room_back(&run, &container, limit, Relieved::Nobody).await });
}

/// Restores the limit once usage is low enough that no process is killed. For a killed victim this
/// ends the memory pressure; after [`RETURN`] it ends in any case.
async fn take_room_back(run: &Run, container: &Container, limit: u64, how: Relieved) {
    let mut is_under_pressure = how == Relieved::Killed;
    let mut room = u64::MAX;
    let end = tokio::time::Instant::now() + RETURN;
    loop {
        // With the turn held, the guest is not being saved, for which it may exceed its limit.
        let turn = run.turn().await;
        // A later shortage is ended by its own task.
        if !is_under_pressure && run.is_under_memory_pressure() {
            return;
        }
        // It may have been changed meanwhile.
        let limit = turn.note().map(|note| note.memory_bytes).filter(|noted| *noted > 0).unwrap_or(limit);
        let is_over = tokio::time::Instant::now() > end;
        let uses = container.group(Cgroup::usage).await.map(|usage| usage.memory_bytes);
        run.lower_kernel_room(*uses.as_ref().unwrap_or(&0));
        match uses {
            // The room of the kernel is not for the guest: it shrinks with the usage and does not
            // grow again.
            Ok(uses) if !is_under_pressure && uses.saturating_add(SLACK_BYTES) >= limit => {
                let near = uses.saturating_add(MARGIN_BYTES);
                if near < room {
                    room = near;
                    let _ = container.group(move |group| group.set_memory_limit(near)).await;
                }
            }
            // While memory is still being freed, another shortage would be reported at once, and
            // another process would be killed for it.
            Ok(uses) if is_under_pressure && uses >= soft_threshold(limit) && !is_over => {}
            // A limit below the memory in use would make the kernel kill a process.
            Ok(uses) if uses.saturating_add(SLACK_BYTES) >= limit => {
                tracing::debug!(run = %run.id, uses, limit, "a run uses more memory than its limit; trying again later to set the limit");
                is_under_pressure = false;
                run.end_memory_pressure();
            }
            Ok(_) => match container.group(move |group| group.set_memory_limit(limit)).await {
                Err(error) if is_over => {
                    tracing::warn!(run = %run.id, error = %chain(&error), "cannot set the memory limit of a run again");
                    break;
                }
                Err(_) => {}
                Ok(()) => break,
            },
            // The group is gone.
            Err(_) => break,
        }
        drop(turn);
        tokio::time::sleep(if is_over { SELDOM } else { OFTEN }).await;
    }
    run.end_kernel_room();
    if is_under_pressure {
        run.end_memory_pressure();
    }
}
