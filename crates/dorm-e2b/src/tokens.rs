//! The tokens of sandboxes and volumes. They are derived, so they survive suspends and restarts,
//! differ in a fork, and are in no snapshot.

use dorm_lifecycle::{SandboxId, VolumeId};
use dorm_service::Service;
use subtle::ConstantTimeEq as _;

/// The purpose of the token for `envd`.
const ENVD: &str = "e2b envd";
/// The purposes of the tokens for the contents of a volume.
const CONTENT: &str = "e2b content";
const CONTENT_FOR_READING: &str = "e2b content for reading";

/// The token that admits requests to the `envd` of a sandbox.
pub(crate) fn envd(service: &Service, sandbox: &SandboxId) -> String {
    service.sandbox_token(sandbox, ENVD)
}

/// Whether `presented` is the token for the `envd` of a sandbox.
pub(crate) fn is_envd(service: &Service, sandbox: &SandboxId, presented: &[u8]) -> bool {
    envd(service, sandbox).as_bytes().ct_eq(presented).into()
}

/// The token that admits requests to the ports of a sandbox that are not public.
pub(crate) fn traffic(service: &Service, sandbox: &SandboxId) -> String {
    service.port_token(sandbox)
}

/// The access that a token of a volume gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VolumeAccess {
    Full,
    Read,
}

/// The token that admits requests for the contents of a volume.
pub(crate) fn volume(service: &Service, volume: &VolumeId) -> String {
    service.volume_token(volume, CONTENT)
}

/// The token that admits requests that read the contents of a volume.
pub(crate) fn volume_for_reading(service: &Service, volume: &VolumeId) -> String {
    service.volume_token(volume, CONTENT_FOR_READING)
}

/// The access that `presented` gives to the contents of a volume; `None` if it is none of its
/// tokens.
pub(crate) fn volume_access(service: &Service, id: &VolumeId, presented: &[u8]) -> Option<VolumeAccess> {
    let is = |token: String| bool::from(token.as_bytes().ct_eq(presented));
    if is(volume(service, id)) {
        return Some(VolumeAccess::Full);
    }
    is(volume_for_reading(service, id)).then_some(VolumeAccess::Read)
}
