//! Snapshots in registries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Pushes a snapshot to a registry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushSnapshot {
    /// Name in the registry: `HOST/NAME:TAG`.
    pub reference: String,
    /// Allow a registry on another host to be contacted without TLS. Default: false.
    #[serde(default)]
    pub insecure: bool,
}

/// The pushed snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushedSnapshot {
    /// Name in the registry.
    pub reference: String,
    /// Digest of the manifest in the registry.
    pub manifest: String,
    /// Size of the archive in bytes.
    pub bytes: u64,
    /// How many bytes were sent. The registry already had the others.
    pub sent_bytes: u64,
}

/// Pulls a snapshot from a registry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullSnapshot {
    /// Name in the registry: `HOST/NAME` with `:TAG` or `@sha256:DIGEST`.
    pub reference: String,
    /// Allow a registry on another host to be contacted without TLS. Default: false.
    #[serde(default)]
    pub insecure: bool,
    /// Labels to add to those in the archive. They override labels of the same key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Delete the snapshot automatically after this many seconds. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<f64>,
}
