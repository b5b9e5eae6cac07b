//! Snapshots that are taken by themselves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::snapshot::SnapshotKind;

/// Which snapshots are taken of a sandbox by themselves, while it runs and is used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Checkpoints {
    /// How many seconds are between two.
    pub every_secs: f64,
    /// What is in them.
    pub kind: SnapshotKind,
    /// Which of them are kept, such as `3,24x1h,7x1d`: the newest three, the newest of each of the last 24 hours, and of each
    /// of the last 7 days.
    pub keep: String,
}

/// Asks for snapshots that are taken by themselves.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointsRequest {
    /// How many seconds are between two, 10 to 31,536,000. There is no default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_secs: Option<f64>,
    /// What is in them. By default files alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SnapshotKind>,
    /// Which of them are kept: counts of intervals with their lengths, and a count of the newest. Default `3,24x1h,7x1d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
}

/// Changes which snapshots are taken of a sandbox by themselves. What is left out stays as it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetCheckpoints {
    /// How many seconds are between two, 10 to 31,536,000. Must be given where none were taken by themselves so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_secs: Option<f64>,
    /// What is in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SnapshotKind>,
    /// Which of them are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
    /// Whether no more are taken. Those that are there stay. Nothing else is given then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub off: bool,
}

/// The snapshot that was taken before a command was run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckpointTaken {
    /// Its id.
    pub snapshot: String,
}
