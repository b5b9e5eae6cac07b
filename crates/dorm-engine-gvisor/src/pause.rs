//! Pauses and resumes the guest in a container.
//!
//! Pauses nest inside the sandbox, and resuming a guest that is not paused kills it. Therefore the
//! intent is recorded before each call, and after a crash between the two the guest itself is asked
//! for its state.

use std::time::Duration;

use dorm_cgroup::Cgroup;

use crate::container::Container;
use crate::control::SOON;
use crate::error::GvisorError;
use crate::notes::Phase;
use crate::run::Turn;

/// Pauses the guest, unless it is paused.
pub(crate) async fn pause(container: &Container, turn: &mut Turn) -> Result<(), GvisorError> {
    if settle(container, turn).await? == Phase::Paused {
        // A parked guest must be thawed so that it can answer.
        container.group(Cgroup::thaw).await?;
        return container.reach("gvisor: thawed");
    }
    turn.set(Phase::Pausing)?;
    container.reach("gvisor: pause noted")?;
    container.control.pause().await?;
    container.reach("gvisor: paused")?;
    turn.set_if_possible(Phase::Paused);
    Ok(())
}

/// Resumes the guest if it is paused.
pub(crate) async fn resume(container: &Container, turn: &mut Turn) -> Result<(), GvisorError> {
    if settle(container, turn).await? != Phase::Paused {
        return Ok(());
    }
    turn.set_if_possible(Phase::Resuming);
    turn.pages = None;
    container.reach("gvisor: resume noted")?;
    container.group(Cgroup::thaw).await?;
    container.reach("gvisor: thawed")?;
    container.limit_io(container.io).await;
    container.control.resume().await?;
    container.reach("gvisor: resumed")?;
    turn.set_if_possible(Phase::Running);
    Ok(())
}

/// Determines whether the guest is paused after a call whose outcome is unknown.
pub(crate) async fn settle(container: &Container, turn: &mut Turn) -> Result<Phase, GvisorError> {
    settle_within(container, turn, SOON).await
}

/// Like [`settle`], but waits for the sandbox's answer for at most `limit`.
pub(crate) async fn settle_within(
    container: &Container,
    turn: &mut Turn,
    limit: Duration,
) -> Result<Phase, GvisorError> {
    match turn.phase() {
        Phase::Pausing | Phase::Resuming => {}
        known => return Ok(known),
    }
    // Only a paused guest is ever frozen, and it is thawed before it is resumed.
    let is_frozen = container.group(Cgroup::is_frozen).await?;
    let is_paused = is_frozen || container.control.is_paused(container.home.id(), limit).await?;
    turn.set_if_possible(if is_paused { Phase::Paused } else { Phase::Running });
    Ok(turn.phase())
}
