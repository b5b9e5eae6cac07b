//! An actor's work during an operation in the background: the sandbox runs, or stays suspended, as
//! if there were no operation.

use dorm_lifecycle::{BackgroundWork, State};

use super::Actor;

impl Actor {
    /// Waits for `other` while the operation in progress continues: each may need what the other
    /// holds.
    pub(super) async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        let Some(mut work) = self.work.take() else { return other.await };
        let seen = tokio::select! {
            biased;
            done = &mut other => {
                self.work = Some(work);
                return done;
            }
            seen = &mut work => seen,
        };
        self.work = Some(Box::pin(std::future::ready(seen)));
        other.await
    }

    /// Returns whether there is a connection to the agent.
    pub(super) fn has_agent(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| !agent.is_closed())
    }

    /// Returns whether the operation in progress may concern the sandbox's run. Saving the run that
    /// a rewind has left does not, and may take as long as the disk is full.
    pub(super) fn works_on_run(&self) -> bool {
        self.work.is_some() && self.record.sandbox.state.held().is_none()
    }

    /// Returns whether the operation in progress changes a live run,
    /// and so has nothing to change when that run ends.
    pub(super) fn changes_run(&self) -> bool {
        let State::Running { background: Some(background), .. } = &self.record.sandbox.state else { return false };
        matches!(
            background.work,
            BackgroundWork::Attach { .. } | BackgroundWork::Egress { .. } | BackgroundWork::Resize { .. }
        )
    }

    /// Returns whether the operation in progress does not concern the sandbox's run, which is
    /// parked or gone.
    pub(super) fn leaves_run_alone(&self) -> bool {
        let State::Suspended { background: Some(background), .. } = &self.record.sandbox.state else { return false };
        match background.work {
            BackgroundWork::Snapshot(_) | BackgroundWork::PrepareRewind(_) => true,
            BackgroundWork::Attach { .. }
            | BackgroundWork::Egress { .. }
            | BackgroundWork::Resize { .. }
            | BackgroundWork::SaveHeld(_) => false,
        }
    }
}
