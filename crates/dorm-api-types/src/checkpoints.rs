//! Automatic checkpoints.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::snapshot::SnapshotKind;

/// The automatic checkpoint policy of a sandbox. Checkpoints are taken while the sandbox runs, if
/// it was used since the last one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Checkpoints {
    /// Seconds between two checkpoints.
    pub every_secs: f64,
    /// Kind of the snapshots.
    pub kind: SnapshotKind,
    /// Retention rule for automatic snapshots. `3,24x1h,7x1d` keeps the newest three, the newest of
    /// each of the last 24 hours, and the newest of each of the last 7 days.
    pub keep: String,
}

/// An automatic checkpoint policy.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointsRequest {
    /// Seconds between two checkpoints, 10 to 31,536,000. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_secs: Option<f64>,
    /// Kind of the snapshots. Default `filesystem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SnapshotKind>,
    /// Retention rule: a count of the newest snapshots, and counts of intervals with their length.
    /// Default `3,24x1h,7x1d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
}

/// Changes the automatic checkpoint policy. Fields that are left out do not change.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetCheckpoints {
    /// Seconds between two checkpoints, 10 to 31,536,000. Required if the sandbox has no policy
    /// yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_secs: Option<f64>,
    /// Kind of the snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SnapshotKind>,
    /// Retention rule, as in the policy of a new sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
    /// Stop taking automatic checkpoints. Existing snapshots are kept. Cannot be combined with
    /// other fields.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub off: bool,
}

/// The snapshot that was taken before a command ran. Data of the server-sent event `checkpoint`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckpointTaken {
    /// ID of the snapshot.
    pub snapshot: String,
}
