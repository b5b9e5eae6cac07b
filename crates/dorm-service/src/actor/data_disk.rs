//! Pauses a sandbox while the host's disk has no room for its writes, and lets it continue.

use dorm_lifecycle::{ByteSize, EventKind, Initiator, State};

use super::Actor;
use crate::effects;

impl Actor {
    /// Pauses the sandbox because the disk is nearly full. During an operation on its run it does
    /// nothing; the message is repeated, and the sandbox is paused once the operation ends.
    pub(super) async fn disk_low(&mut self) {
        let sandbox = self.record.sandbox.id.clone();
        let is_running = matches!(self.record.sandbox.state, State::Running { .. });
        if !is_running || self.works_on_run() || self.shared.paused_for_disk.holds(&sandbox) {
            return;
        }
        let run = self.record.sandbox.run_id();
        // Before the call: from here on, callers are not lent the agent.
        self.shared.paused_for_disk.enter(&sandbox);
        let engine = self.shared.engine.clone();
        match self.beside(tokio::time::timeout(effects::UNDO, engine.pause(&run))).await {
            Ok(Ok(())) => {
                let (free, continues_at) = (self.shared.paused_for_disk.free_bytes(), self.shared.continues_at_bytes());
                let (free, continues_at) = (ByteSize(free), ByteSize(continues_at));
                let detail = format!("{free} of the host's disk are free; it continues when {continues_at} are");
                self.note(EventKind::DiskPaused, Initiator::Host, Some(detail)).await;
            }
            Ok(Err(error)) => {
                self.shared.paused_for_disk.leave(&sandbox);
                tracing::warn!(%run, error = %error.chain(), "cannot pause a sandbox on a full disk; retrying");
            }
            // It may be paused later, and then continues with the others.
            Err(_) => tracing::warn!(%run, "a sandbox on a full disk is not paused yet"),
        }
    }

    /// Lets the sandbox continue, since there is room again.
    pub(super) async fn disk_room(&mut self) {
        let sandbox = self.record.sandbox.id.clone();
        if self.works_on_run() || !self.shared.paused_for_disk.holds(&sandbox) {
            return;
        }
        if !matches!(self.record.sandbox.state, State::Running { .. }) {
            self.shared.paused_for_disk.leave(&sandbox);
            return;
        }
        let run = self.record.sandbox.run_id();
        let engine = self.shared.engine.clone();
        match self.beside(tokio::time::timeout(effects::UNDO, engine.resume(&run))).await {
            Ok(Ok(())) => {
                self.shared.paused_for_disk.leave(&sandbox);
                self.note(EventKind::DiskResumed, Initiator::Host, None).await;
            }
            Ok(Err(error)) => {
                tracing::warn!(%run, error = %error.chain(), "cannot let a paused sandbox continue; retrying")
            }
            Err(_) => tracing::warn!(%run, "a paused sandbox does not continue yet; retrying"),
        }
    }
}
