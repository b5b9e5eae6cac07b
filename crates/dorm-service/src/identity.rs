//! Identifiers and randomness.

use dorm_lifecycle::{CaptureId, HoldId, OperationId, SandboxId, SnapshotId};

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The kernel's generator does not fail once the system is up; if it did, no id could be trusted.
    if getrandom::fill(&mut bytes).is_err() {
        std::process::abort();
    }
    bytes
}

pub(crate) fn sandbox() -> SandboxId {
    SandboxId::from_random(random())
}

pub(crate) fn snapshot() -> SnapshotId {
    SnapshotId::from_random(random())
}

pub(crate) fn operation() -> OperationId {
    OperationId::from_random(random())
}

pub(crate) fn hold() -> HoldId {
    HoldId::from_random(random())
}

pub(crate) fn capture() -> CaptureId {
    CaptureId::from_random(random())
}
