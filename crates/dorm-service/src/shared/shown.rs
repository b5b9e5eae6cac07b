//! Records as they are shown to callers: with times of the wall clock.

use dorm_lifecycle::{Sandbox, State, Why};
use dorm_store::{
    ApiKeyRecord, EventRecord, OperationRecord, Removal, SandboxRecord, SnapshotRecord, VolumeRecord, WebhookRecord,
};

use super::Shared;
use crate::view::{Residence, SandboxView};

impl Shared {
    pub(crate) fn residence(&self, sandbox: &Sandbox) -> Residence {
        match &sandbox.state {
            State::Running { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Resuming { .. }
            | State::Terminating { .. } => Residence::Running,
            State::Suspended { .. } if self.parking.holds(&sandbox.id) => Residence::Parked,
            State::Suspended { .. } => Residence::Evicted,
            State::Pending { .. } | State::Terminated { .. } => Residence::None,
        }
    }

    pub(crate) fn view(&self, record: &SandboxRecord) -> SandboxView {
        let SandboxRecord { mut sandbox, revision } = record.clone();
        if let Some(handle) = self.actor(&sandbox.id) {
            sandbox.last_active = sandbox.last_active.max(handle.activity.last());
        }
        let expires = sandbox.expires().map(|expires| self.clock.shown(expires));
        let paused_for_disk = self.paused_for_disk.holds(&sandbox.id);
        let residence = self.residence(&sandbox);
        SandboxView { residence, revision, expires, paused_for_disk, changed: None, sandbox: self.shown(&sandbox) }
    }

    /// Returns a sandbox with the times that the wall clock showed, or will show.
    pub(crate) fn shown(&self, sandbox: &Sandbox) -> Sandbox {
        sandbox.with_moments(|moment| self.clock.shown(moment))
    }

    pub(crate) fn shown_snapshot(&self, mut snapshot: SnapshotRecord) -> SnapshotRecord {
        snapshot.created = self.clock.shown(snapshot.created);
        if let Removal::At(at) = &mut snapshot.removal {
            *at = self.clock.shown(*at);
        }
        snapshot
    }

    pub(crate) fn shown_operation(&self, mut operation: OperationRecord) -> OperationRecord {
        operation.began = self.clock.shown(operation.began);
        operation.deadline = self.clock.shown(operation.deadline);
        if let Some((at, _)) = &mut operation.ended {
            *at = self.clock.shown(*at);
        }
        operation
    }

    pub(crate) fn shown_event(&self, mut record: EventRecord) -> EventRecord {
        record.event.at = self.clock.shown(record.event.at);
        record
    }

    pub(crate) fn shown_volume(&self, mut volume: VolumeRecord) -> VolumeRecord {
        volume.created = self.clock.shown(volume.created);
        volume
    }

    pub(crate) fn shown_webhook(&self, mut webhook: WebhookRecord) -> WebhookRecord {
        webhook.created = self.clock.shown(webhook.created);
        webhook
    }

    pub(crate) fn shown_key(&self, mut key: ApiKeyRecord) -> ApiKeyRecord {
        key.created = self.clock.shown(key.created);
        key.expires = key.expires.map(|expires| self.clock.shown(expires));
        key
    }

    pub(crate) fn shown_why(&self, mut why: Why) -> Why {
        let reasons = [&mut why.because, &mut why.next, &mut why.on_disk].into_iter().flatten();
        for reason in reasons.chain(&mut why.refused) {
            reason.at = reason.at.map(|at| self.clock.shown(at));
        }
        why
    }
}
