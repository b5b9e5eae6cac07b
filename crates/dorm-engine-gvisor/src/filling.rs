//! Keeps the pool of warm containers full, with one task.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dorm_cgroup::Cgroup;

use crate::blocking::in_place;
use crate::container::{Container, Order};
use crate::error::{GvisorError, chain};
use crate::notes::Duty;
use crate::shared::Shared;
use crate::warm_pool::{Progress, WarmContainer};

/// How long a new run has the processors to itself before a container is created for the next one.
const UNDISTURBED: Duration = Duration::from_millis(100);
/// How long to wait after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Keeps the pool full as long as the engine exists.
pub(crate) async fn keep_filled(engine: Weak<Shared>) {
    loop {
        let Some(shared) = engine.upgrade() else { return };
        if shared.warm_pool.is_closed() {
            return;
        }
        remove_unwanted(&shared).await;
        let outcome = match shared.warm_pool.missing() {
            Some((order, progress)) => {
                let filled = fill_one(&shared, &order, progress).await;
                if order.is_there() { filled } else { Ok(()) }
            }
            None => {
                let wake = shared.warm_pool.wake.clone();
                // Waiting must not keep the engine alive.
                drop(shared);
                wake.notified().await;
                tokio::time::sleep(UNDISTURBED).await;
                continue;
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(error = %chain(&error), "cannot create a warm container; runs start more slowly");
            drop(shared);
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}

async fn remove_unwanted(shared: &Shared) {
    // Closing the pool waits until they are removed.
    let _filling = shared.warm_pool.filling.lock().await;
    for WarmContainer { container, .. } in in_place(|| shared.warm_pool.unwanted()) {
        if let Err(error) = shared.host.destroy(&container.home).await {
            tracing::warn!(container = container.home.id(), error = %chain(&error), "cannot remove a warm container; the next sweep removes it");
        }
    }
}

async fn fill_one(shared: &Arc<Shared>, order: &Order, progress: Progress) -> Result<(), GvisorError> {
    let _filling = shared.warm_pool.filling.lock().await;
    // Closing the pool does not wait for what begins after it.
    if shared.warm_pool.is_closed() {
        return Ok(());
    }
    let warm = create(shared, order, progress).await?;
    shared.host.reach("gvisor: warm container ready")?;
    if let Some(WarmContainer { container, .. }) = shared.warm_pool.put(warm) {
        shared.host.destroy(&container.home).await?;
    }
    Ok(())
}

/// Creates a container that has progressed as far as `progress`, and freezes it. On failure,
/// removes everything it created.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    order: &Order,
    progress: Progress,
) -> Result<WarmContainer, GvisorError> {
    let (container, note) = shared.host.make(order, Duty::Warm).await?;
    match prepare(shared, &container, progress).await {
        Ok(()) => Ok(WarmContainer { container, note, progress, allowed: order.egress.clone() }),
        Err(error) => {
            shared.host.destroy(&container.home).await?;
            Err(error)
        }
    }
}

/// Takes a new container as far as `progress`, and freezes it.
async fn prepare(shared: &Arc<Shared>, container: &Container, progress: Progress) -> Result<(), GvisorError> {
    if progress == Progress::Booted {
        let booted = async {
            container.control.start(container.home.id()).await?;
            shared.greet(container, 0).await
        };
        tokio::select! {
            booted = booted => booted?,
            () = container.processes.sandbox.ended() => {
                return Err(container.died());
            }
        }
    }
    container.group(Cgroup::freeze).await
}
