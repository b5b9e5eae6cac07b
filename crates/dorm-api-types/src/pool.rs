//! Sandbox pools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::egress::Egress;
use crate::key::PortAccess;
use crate::resources::ResourcesRequest;
use crate::settings::{OnTimeout, Wake};
use crate::text::Time;

/// Creates a pool of sandboxes that are made in advance: exactly one of `image` and `snapshot` is
/// set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreatePool {
    /// Name, unique in the project.
    pub name: String,
    /// Tag or digest of the image that the sandboxes boot from, or the name of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// ID of the snapshot that they start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Start the image's entrypoint and command in each, and wait for its readiness command.
    /// Default: as when a sandbox is created from the image or snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<bool>,
    /// Resource limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Where the sandboxes may connect to. Default: as for the snapshot, otherwise `public`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Environment variables of every process. Their values are never returned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Who can reach the ports of the sandboxes. Default: as for the snapshot, otherwise the
    /// setting of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_access: Option<PortAccess>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How many sandboxes wait to be claimed, at most 1000.
    pub ready: u64,
    /// How many sandboxes may exist, waiting and claimed. Default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
}

/// Changes the numbers of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizePool {
    /// How many sandboxes wait to be claimed, at most 1000.
    pub ready: u64,
    /// How many sandboxes may exist, waiting and claimed. Null: any number.
    #[serde(default)]
    pub most: Option<u64>,
}

/// Claims a sandbox of a pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClaimRequest {
    /// Name, unique among living sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Environment variables of processes that start from then on, in addition to those of the
    /// pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Labels, in addition to those of the pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Seconds from the start of a run to its deadline. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<f64>,
    /// Longest time in seconds that a run may last. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_secs: Option<f64>,
    /// Action at a deadline. Default: `suspend` for a named sandbox, `terminate` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Calls that resume the sandbox when it is suspended. Default `traffic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// Who can reach the ports of the sandbox. Default: as for the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_access: Option<PortAccess>,
    /// How many seconds to wait until a sandbox is ready. Default 0: the request fails at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_secs: Option<f64>,
}

/// A pool of sandboxes that are made in advance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// ID of the pool.
    pub id: String,
    /// Name.
    pub name: String,
    /// Project that the pool belongs to.
    pub project: String,
    /// Digest of the image that the sandboxes boot from.
    pub image: Option<String>,
    /// ID of the snapshot that they start from.
    pub snapshot: Option<String>,
    /// How many sandboxes are to wait.
    pub ready: u64,
    /// How many sandboxes may exist, waiting and claimed.
    pub most: Option<u64>,
    /// How many sandboxes are suspended and wait to be claimed now.
    pub waiting: u64,
    /// How many sandboxes were claimed and are not terminated.
    pub claimed: u64,
    /// Why sandboxes cannot be made, if that is so. The daemon keeps trying.
    pub problem: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// When the pool was created.
    pub created_at: Time,
}

/// A page of pools, ordered by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// The pools.
    pub pools: Vec<Pool>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}
