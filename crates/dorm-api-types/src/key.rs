//! API keys and ports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Time;

/// Scope of an API key: the requests that it permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// Everything in its project. A key of the project `local`, which is the daemon's own, also
    /// gives access to images, projects and maintenance, and to other projects with
    /// `X-Dormouse-Project`.
    #[default]
    Full,
    /// Requests that only read the objects, files and output of its project. It cannot list keys,
    /// or get addresses or tokens of ports.
    ReadOnly,
    /// One sandbox: its commands, files, terminals, ports and lifecycle. Excluded is everything
    /// that creates another sandbox from it or reads one: clone, fork, rewind, restart, promote,
    /// volumes, retention and automatic checkpoints.
    Sandbox,
}

/// Form of an API key. Some clients accept only keys of their own form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyForm {
    /// `dorm_` and 43 characters.
    #[default]
    Dormouse,
    /// `e2b_` and 40 hexadecimal digits, for clients of E2B.
    E2b,
}

/// Creates an API key.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateKey {
    /// Display name, up to 63 characters. Default: empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Scope of the key. Default `full`.
    pub scope: KeyScope,
    /// ID or name of the sandbox. Required if the scope is `sandbox`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Seconds after which the key expires. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_secs: Option<f64>,
    /// Form of the key. Default `dormouse`.
    pub form: KeyForm,
}

/// An API key without its secret part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// ID of the key. It is not secret.
    pub id: String,
    /// Project that the key gives access to.
    #[serde(default)]
    pub project: String,
    /// Display name.
    pub name: String,
    /// Scope of the key.
    pub scope: KeyScope,
    /// ID of the sandbox, if the scope is `sandbox`.
    pub sandbox: Option<String>,
    /// When the key was created.
    pub created_at: Time,
    /// When the key expires, if it does.
    pub expires_at: Option<Time>,
}

/// A new API key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// The key itself. It is shown only once.
    pub key: String,
    /// The stored part of the key.
    #[serde(flatten)]
    pub record: Key,
}

/// A page of API keys, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// The keys.
    pub keys: Vec<Key>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// Who can reach the ports of a sandbox through the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortAccess {
    /// Anyone who knows the ID of the sandbox.
    Public,
    /// Requests with an API key, the port token, or the cookie of a browser link.
    Private,
}

/// Exception for one port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortRule {
    /// Who can reach the port. Default: the `port_access` of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<PortAccess>,
    /// `Host` header that the program gets. Default: the `port_host` of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// How to reach a port of a sandbox.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Port {
    /// ID of the sandbox.
    pub sandbox: String,
    /// Port number inside the sandbox.
    pub port: u16,
    /// First label of the host name, such as `8080-ID`. It is followed by `.localhost` and the port
    /// of the daemon.
    pub label: String,
    /// Who can reach the port.
    pub access: PortAccess,
    /// `Host` header that the program gets; null for the host that the client named.
    pub host: Option<String>,
    /// Gives access to every port of this sandbox when sent as the header `X-Dormouse-Token`. A
    /// fork has its own token.
    pub token: String,
}

/// Creates a browser link to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {}

/// A browser link to a port.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortLink {
    /// First label of the host name, such as `8080-ID`.
    pub label: String,
    /// Path and query to open there. Append `&to=/PATH` to choose where the browser is redirected.
    /// Default `/`.
    pub path: String,
    /// When the link expires. It can be opened once before that.
    pub expires_at: Time,
}
