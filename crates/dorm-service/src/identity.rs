//! Identifiers and randomness.

use std::fmt::Debug;

use dorm_lifecycle::{CaptureId, HoldId, OperationId, SandboxId, SnapshotId, VolumeId, WebhookId};

/// A source of random bytes. No two results may ever be equal.
pub trait Randomness: Send + Sync + Debug + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The kernel's generator.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        // The kernel's generator does not fail once the system is up; if it did, no id could be
        // trusted.
        if getrandom::fill(bytes).is_err() {
            std::process::abort();
        }
    }
}

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

    pub(crate) fn capture(&self) -> CaptureId {
        CaptureId::from_random(self.random())
    }

    pub(crate) fn hold(&self) -> HoldId {
        HoldId::from_random(self.random())
    }

    pub(crate) fn webhook(&self) -> WebhookId {
        WebhookId::from_random(self.random())
    }

    pub(crate) fn volume(&self) -> VolumeId {
        VolumeId::from_random(self.random())
    }
}
