//! Snapshots in registries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sends a snapshot to a registry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushSnapshot {
    /// What it is to be called there: `HOST/NAME:TAG`.
    pub reference: String,
    /// Whether a registry of another host may be asked without TLS. Default: no.
    #[serde(default)]
    pub insecure: bool,
}

/// What was sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushedSnapshot {
    /// What it is called there.
    pub reference: String,
    /// The digest of its manifest there.
    pub manifest: String,
    /// The length of its file.
    pub bytes: u64,
    /// What of it had to be sent: the rest was there.
    pub sent_bytes: u64,
}

/// Fetches a snapshot from a registry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullSnapshot {
    /// What it is called there: `HOST/NAME`, with `:TAG` or `@sha256:DIGEST`.
    pub reference: String,
    /// Whether a registry of another host may be asked without TLS. Default: no.
    #[serde(default)]
    pub insecure: bool,
    /// Labels beside those in its file and before them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// After how many seconds it goes by itself; by default never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<f64>,
}
