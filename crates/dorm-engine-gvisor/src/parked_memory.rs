//! Releases the memory of a parked run, which then maps it from its image as a restored one does.
//! So the next image leaves out what the guest does not change until then.
//!
//! A parked run is a cache of its image, and after a failure it stays as it is. It can be resumed
//! between the steps.

use std::fs::File;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dorm_cgroup::Cgroup;
use dorm_engine::Notice;
use tokio::sync::mpsc;

use crate::container::Container;
use crate::error::{GvisorError, chain};
use crate::notes::Phase;
use crate::run::{Run, Turn};

/// How long a run is parked before its memory is released. A run that is resumed sooner keeps it,
/// and answers sooner.
const PARKED_FOR: Duration = Duration::from_secs(1);
/// The memory to release in one step, in bytes. A resume waits for the step that has begun.
const STEP_BYTES: u64 = 32 << 20;
/// The least memory to release, in bytes. Less is saved as soon as what changed in it.
const LEAST_BYTES: u64 = 32 << 20;

/// Releases the memory of a run that was just parked, later, and tells the listener. Without
/// `pages`, to which it was saved since it was paused, nothing is released.
pub(crate) async fn release_later(
    run: &Arc<Run>,
    container: &Container,
    turn: &mut Turn,
    listener: Option<mpsc::Sender<Notice>>,
) {
    let Some(pages) = &turn.pages else { return };
    let is_much = container.group(Cgroup::usage).await.is_ok_and(|usage| usage.memory_bytes >= LEAST_BYTES);
    if is_much {
        tokio::spawn(release(Arc::downgrade(run), Arc::downgrade(pages), listener));
    } else {
        turn.pages = None;
    }
}

/// Releases memory until none is left, or until the run is resumed, saved again or ended: the turn
/// then drops the pages.
async fn release(run: Weak<Run>, pages: Weak<File>, listener: Option<mpsc::Sender<Notice>>) {
    tokio::time::sleep(PARKED_FOR).await;
    loop {
        let Some(run) = run.upgrade() else { return };
        let mut turn = run.turn().await;
        let Some(pages) = pages.upgrade() else { return };
        let Some(container) = run.container().filter(|container| container.is_alive()) else { return };
        if turn.phase() != Phase::Paused || run.is_stopping() {
            return;
        }
        match step(container, &pages).await {
            Ok(Some(0)) => {
                tracing::debug!(run = %run.id, "released the memory of a parked run");
                tell(&run, container, listener.as_ref()).await;
                // The next daemon does nothing else for it.
                let _ = container.reach("gvisor: memory of a parked run released");
            }
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(GvisorError::Refused { said, .. }) => {
                tracing::debug!(run = %run.id, said, "a parked run keeps its memory");
            }
            Err(error) if run.is_stopping() || !container.is_alive() => {
                tracing::debug!(run = %run.id, error = %chain(&error), "a parked run ended while its memory was released");
            }
            Err(error) => {
                tracing::warn!(run = %run.id, error = %chain(&error), "cannot release the memory of a parked run, which stays suspended");
            }
        }
        turn.pages = None;
        return;
    }
}

/// Tells how much memory the run holds now.
async fn tell(run: &Run, container: &Container, listener: Option<&mpsc::Sender<Notice>>) {
    if let (Some(listener), Ok(usage)) = (listener, container.group(Cgroup::usage).await) {
        let notice = Notice::MemoryReleased { run: run.id.clone(), memory_bytes: usage.memory_bytes };
        // A daemon that stops needs no notice.
        let _ = listener.send(notice).await;
    }
}

/// Releases some memory and returns how many bytes are left; `None` if the run is not parked any
/// more. The run is parked again, also if the sandbox refuses.
async fn step(container: &Container, pages: &File) -> Result<Option<u64>, GvisorError> {
    if !container.group(Cgroup::is_frozen).await? {
        return Ok(None);
    }
    let pages = pages.try_clone().map_err(|source| GvisorError::file("duplicate", "the pages of an image", source))?;
    let left = async {
        container.group(Cgroup::thaw).await?;
        container.reach("gvisor: parked run thawed")?;
        let left = container.control.map_saved(pages.into(), STEP_BYTES).await?;
        container.reach("gvisor: some memory released")?;
        Ok(Some(left))
    }
    .await;
    container.group(Cgroup::freeze).await?;
    container.reach("gvisor: run parked again")?;
    left
}
