//! Keys that open the API, and ports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// What a key opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// Everything.
    #[default]
    Full,
    /// Whatever only shows: no request that changes something, and no port of a sandbox.
    ReadOnly,
    /// One sandbox: its commands, files, terminals, ports and states. Not what makes another sandbox of it or reads one:
    /// clone, fork, rewind, restart, promote, volumes, retention and automatic checkpoints.
    Sandbox,
}

/// Asks for a key.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateKey {
    /// What you call it: up to 63 characters. Default: nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it opens. Default `full`.
    pub scope: KeyScope,
    /// The sandbox, by id or name, when the scope is `sandbox`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// After how many seconds it opens nothing any more. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_secs: Option<f64>,
}

/// A key, without what opens anything.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// Its id, which opens nothing.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// What it opens.
    pub scope: KeyScope,
    /// The sandbox that it opens, when that is its scope.
    pub sandbox: Option<String>,
    /// When it was made.
    pub created_at: Time,
    /// From when on it opens nothing, if ever.
    pub expires_at: Option<Time>,
}

/// A key that was just made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// The key itself, which is shown this once.
    pub key: String,
    /// What is kept of it.
    #[serde(flatten)]
    pub record: Key,
}

/// Every key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// The keys, the oldest first.
    pub keys: Vec<Key>,
}

/// Who may reach the ports of a sandbox through the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortAccess {
    /// Everyone who knows the sandbox's id.
    Public,
    /// Those who show a key of the API, the port token, or the cookie of a link.
    Private,
}

/// How a port inside is reached.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Port {
    /// The sandbox.
    pub sandbox: String,
    /// The port inside.
    pub port: u16,
    /// The first label of its host name, such as `8080-ID`; `.localhost` and the daemon's port follow.
    pub label: String,
    /// Who may reach it.
    pub access: PortAccess,
    /// Opens every port of this sandbox, as the header `X-Dormouse-Token`. A fork has another one.
    pub token: String,
}

/// Asks for a link to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {}

/// A link to a port.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortLink {
    /// The first label of its host name, such as `8080-ID`.
    pub label: String,
    /// The path and query to open there. `&to=/PATH` behind it says where the browser goes from there; default `/`.
    pub path: String,
    /// Until when it can be opened, once.
    pub expires_at: Time,
}
