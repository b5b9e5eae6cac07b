//! Callers: who sent a request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The caller that asked for a change, as it was then. It never changes afterwards: a key that was
/// removed since is still named.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// API through which the request came: `api` for this one.
    pub door: String,
    /// Credential that admitted the request.
    pub credential: Credential,
    /// ID of the API key, if the credential is `api_key`. It is not secret.
    pub key: Option<String>,
    /// Name that the API key had. Empty for a key without a name.
    pub key_name: Option<String>,
}

/// Credential that admits a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// The owner's socket, which needs no key.
    OwnerSocket,
    /// The key of the daemon's owner.
    OwnerKey,
    /// An API key.
    ApiKey,
    /// The port token of the sandbox.
    PortToken,
    /// The cookie that a link to the port was exchanged for.
    PortLink,
}
