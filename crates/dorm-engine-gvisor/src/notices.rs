//! Watches runs and reports those that end unexpectedly or run short of memory.

use std::sync::{Arc, Weak};

use dorm_cgroup::{Cgroup, Threshold};
use dorm_engine::Notice;
use tokio::sync::mpsc;

use crate::container::Container;
use crate::error::{GvisorError, chain};
use crate::limits::soft_threshold;
use crate::lock::lock;
use crate::notes::Phase;
use crate::pause::{pause, resume};
use crate::run::Run;
use crate::shared::Shared;

/// How many notices can wait for their receiver.
const WAITING: usize = 1024;

impl Shared {
    /// [`dorm_engine::Engine::notices`].
    pub(crate) fn notices(&self) -> mpsc::Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(WAITING);
        *lock(&self.listener) = Some(sender);
        receiver
    }

    /// Watches `run` until it has ended or the engine is dropped.
    pub(crate) fn watch(self: &Arc<Self>, run: &Arc<Run>) {
        tokio::spawn(watch(Arc::downgrade(self), Arc::downgrade(run)));
    }

    pub(crate) fn listener(&self) -> Option<mpsc::Sender<Notice>> {
        lock(&self.listener).clone().filter(|sender| !sender.is_closed())
    }
}

async fn watch(engine: Weak<Shared>, watched: Weak<Run>) {
    let Some(container) = watched.upgrade().and_then(|run| run.container().cloned()) else { return };
    tokio::select! {
        () = container.processes.sandbox.ended() => {}
        () = watch_memory(&engine, &watched, &container) => {}
    }
    // Whichever finished first, only the end remains to be reported.
    container.processes.sandbox.ended().await;
    let (Some(shared), Some(run)) = (engine.upgrade(), watched.upgrade()) else { return };
    run.cut(None);
    if run.is_stopping() {
        return;
    }
    let reason = reason(&container).await;
    tracing::warn!(run = %run.id, reason, "a run ended unexpectedly");
    if let Some(listener) = shared.listener() {
        drop(shared);
        // The receiver is gone, so there is nothing to report to.
        let _ = listener.send(Notice::Ended { run: run.id.clone(), reason }).await;
    }
}

async fn reason(container: &Container) -> String {
    match container.group(Cgroup::oom_kills).await {
        Ok(kills) if kills > 0 => "it used more memory than its limit, and the kernel killed it".to_owned(),
        _ => format!("its sandbox process has exited; {}", container.last_words()),
    }
}

/// Pauses the guest each time its memory exceeds the soft threshold, until its group is removed.
async fn watch_memory(engine: &Weak<Shared>, watched: &Weak<Run>, container: &Container) {
    let Some(run) = watched.upgrade() else { return };
    let resized = run.resized.clone();
    drop(run);
    loop {
        let Some(run) = watched.upgrade() else { return };
        // Its group may temporarily have a higher limit than its own.
        let noted = run.turn().await.note().map(|note| note.memory_bytes).filter(|limit| *limit > 0);
        drop(run);
        let arm = move |group: &Cgroup| {
            let limit = noted.map_or_else(|| group.memory_limit(), Ok)?;
            Threshold::arm(group, soft_threshold(limit))
        };
        let mut threshold = match container.group(arm).await {
            Ok(threshold) => threshold,
            // The run ended before it could be watched.
            Err(GvisorError::Cgroup(error)) if error.is_gone() => return,
            Err(error) => {
                tracing::warn!(container = container.home.id(), error = %chain(&error), "cannot watch the memory of a run");
                return;
            }
        };
        loop {
            tokio::select! {
                biased;
                () = resized.notified() => break,
                reached = threshold.reached() => if reached.is_err() { return },
            }
            let (Some(shared), Some(run)) = (engine.upgrade(), watched.upgrade()) else { return };
            if let Err(error) = on_high(&shared, &run, container).await {
                tracing::warn!(run = %run.id, error = %chain(&error), "cannot pause a run that is short of memory");
            }
        }
    }
}

async fn on_high(shared: &Shared, run: &Run, container: &Container) -> Result<(), GvisorError> {
    // Without a receiver that will resume the guest, the hard limit is the better choice.
    let Some(listener) = shared.listener() else { return Ok(()) };
    let mut turn = run.turn().await;
    if turn.phase() != Phase::Running || run.is_stopping() || run.is_under_memory_pressure() {
        return Ok(());
    }
    // Memory left over from a snapshot or a resume is no reason to kill a process.
    if run.is_kernel_room(container.group(Cgroup::usage).await?.memory_bytes) {
        return Ok(());
    }
    pause(container, &mut turn).await?;
    run.set_short(true);
    if listener.send(Notice::MemoryHigh { run: run.id.clone() }).await.is_err() {
        run.set_short(false);
        resume(container, &mut turn).await?;
    }
    Ok(())
}
