//! Identifiers.

use dorm_lifecycle::{
    BuildId, EnvironmentId, HoldId, LeaseId, OperationId, PoolId, SandboxId, SavedStateId, SnapshotId, VolumeId,
    WebhookId,
};
use dorm_ports::Randomness;

/// Makes identifiers.
pub(crate) struct Ids<'a>(pub(crate) &'a dyn Randomness);

impl Ids<'_> {
    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes);
        bytes
    }

    pub(crate) fn sandbox(&self) -> SandboxId {
        SandboxId::from_random(self.random())
    }

    pub(crate) fn snapshot(&self) -> SnapshotId {
        SnapshotId::from_random(self.random())
    }

    pub(crate) fn operation(&self) -> OperationId {
        OperationId::from_random(self.random())
    }

    pub(crate) fn saved_state(&self) -> SavedStateId {
        SavedStateId::from_random(self.random())
    }

    pub(crate) fn hold(&self) -> HoldId {
        HoldId::from_random(self.random())
    }

    pub(crate) fn webhook(&self) -> WebhookId {
        WebhookId::from_random(self.random())
    }

    pub(crate) fn pool(&self) -> PoolId {
        PoolId::from_random(self.random())
    }

    pub(crate) fn build(&self) -> BuildId {
        BuildId::from_random(self.random())
    }

    pub(crate) fn environment(&self) -> EnvironmentId {
        EnvironmentId::from_random(self.random())
    }

    pub(crate) fn lease(&self) -> LeaseId {
        LeaseId::from_random(self.random())
    }

    pub(crate) fn volume(&self) -> VolumeId {
        VolumeId::from_random(self.random())
    }
}
