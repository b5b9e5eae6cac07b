//! Leases of volumes: which of a sandbox's runs has a volume mounted, and who may mount it.
//!
//! A [`Lease`] is one run's mount of a volume. Leases are not recorded: a sandbox whose record says
//! that it has a run *is* the holder of the leases of its attachments ([`leases`]), so no lease can
//! outlive its run, whichever process dies.

use thiserror::Error;

use crate::background::BackgroundWork;
use crate::ids::{Name, RunId, VolumeId};
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::volume::{Access, Attachment, Writers};

/// One run's mount of a volume.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// The volume.
    pub volume: VolumeId,
    /// The run that holds it.
    pub run: RunId,
    /// The name of its sandbox.
    pub name: Option<Name>,
    /// The permitted access.
    pub access: Access,
}

impl Lease {
    /// Returns the name and id of the holder, for messages.
    pub fn holder(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({})", self.run.sandbox),
            None => self.run.sandbox.to_string(),
        }
    }
}

/// Returns whether a sandbox in this state holds the leases of its attachments: from before its run
/// starts until it is known to have ended or to stay paused for good. The run of a suspended
/// sandbox that is being rewound starts as soon as the rewind is prepared, so the sandbox holds its
/// leases while it is prepared.
pub fn has_leases(state: &State) -> bool {
    match state {
        State::Suspended { background: Some(background), .. } => {
            matches!(background.work, BackgroundWork::PrepareRewind(_))
        }
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. } => true,
        State::Terminating { unleased, .. } => !unleased,
        State::Suspended { background: None, .. } | State::Terminated { .. } => false,
    }
}

/// Returns the leases that a sandbox holds now.
pub fn leases(sandbox: &Sandbox) -> Vec<Lease> {
    match has_leases(&sandbox.state) {
        true => all_leases(sandbox),
        false => Vec::new(),
    }
}

/// Returns the leases that a sandbox holds while a run of it may still exist, regardless of its
/// state.
pub fn all_leases(sandbox: &Sandbox) -> Vec<Lease> {
    let lease = |attachment: &Attachment| Lease {
        volume: attachment.volume.clone(),
        run: sandbox.run_id(),
        name: sandbox.spec.name.clone(),
        access: attachment.access,
    };
    sandbox.attachments().map(lease).collect()
}

/// Why a lease is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("sandbox {holder} has the volume mounted for writing, and the volume allows one writer at a time")]
pub struct LeaseRefused {
    /// The sandbox that writes to it.
    pub holder: String,
    /// The lease of that sandbox.
    pub lease: Lease,
}

/// Grants `wanted`, or refuses it with the conflicting lease: a second writer of a volume that
/// allows one. A sandbox does not conflict with itself.
///
/// # Errors
///
/// [`LeaseRefused`].
pub fn grant(writers: Writers, wanted: &Lease, held: &[Lease]) -> Result<(), LeaseRefused> {
    let (Writers::One, Access::Write) = (writers, wanted.access) else { return Ok(()) };
    let other = held.iter().find(|lease| {
        lease.volume == wanted.volume && lease.access == Access::Write && lease.run.sandbox != wanted.run.sandbox
    });
    match other {
        Some(lease) => Err(LeaseRefused { holder: lease.holder(), lease: lease.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
