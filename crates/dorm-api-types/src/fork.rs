//! Clones and forks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;
use crate::sandbox::Sandbox;
use crate::settings::OnTimeout;
use crate::snapshot::Snapshot;
use crate::text::NamedSecret;
use crate::volume::FollowingVolumes;

/// Clones a sandbox.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CloneRequest {
    /// Name of the clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Environment variables that override those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Labels that override those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Seconds from the start of a run to its deadline. Default: as for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline. Default: as for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<f64>,
    /// Longest time in seconds that a run may last. Default: as for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_secs: Option<f64>,
    /// Action at a deadline. Default: as for the source, or for the first in the line with a name,
    /// as for a named sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Secrets of the clone: null for the value of the source, or another value. Other secrets of
    /// the source are not copied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, NamedSecret>,
    /// How the volumes of the source are attached to the clone. Default `same`.
    pub volumes: FollowingVolumes,
}

/// A clone and the snapshot it was created from. The snapshot is kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cloned {
    /// The new sandbox.
    pub sandbox: Sandbox,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// Forks a sandbox: either `count` equal children, or those listed in `children`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkRequest {
    /// Number of children without names, with the settings of the source, 1 to 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Settings of each child, instead of a count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ForkChild>,
    /// Action if a child cannot be created. Default `keep`.
    pub on_partial_failure: OnPartialFailure,
    /// How the volumes of the source are attached to the children. Default `same`.
    pub volumes: FollowingVolumes,
}

/// Action if a child of a fork cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnPartialFailure {
    /// The other children are kept, and the response has an error for each that failed.
    #[default]
    Keep,
    /// No child is kept, and the call returns an error.
    RollBack,
}

/// Settings of one child of a fork.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkChild {
    /// Name of the child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seconds from the start of a run to its deadline. Default: as for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline. Default: as for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<f64>,
    /// Longest time in seconds that a run may last. Default: as for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_secs: Option<f64>,
    /// Action at a deadline. Default: as for the source, or for the first in the line with a name,
    /// as for a named sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Environment variables that override those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Labels that override those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Secrets of the child: null for the value of the source, or another value. Other secrets of
    /// the source are not copied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, NamedSecret>,
}

/// The result of a fork.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    /// The children, in the order of the request.
    pub children: Vec<ForkedChild>,
}

/// The result for one child: exactly one of `sandbox` and `error` is set.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ForkedChild {
    /// The new sandbox.
    pub sandbox: Option<Sandbox>,
    /// Why the child could not be created.
    pub error: Option<Problem>,
}
