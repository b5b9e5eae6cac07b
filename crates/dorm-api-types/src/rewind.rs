//! Rewinds, promotions and restarts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sandbox::Sandbox;

/// Rewinds a sandbox to a snapshot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RewindRequest {
    /// ID of the snapshot to rewind to.
    pub to: String,
    /// Seconds after which the snapshot of the state before the rewind is deleted automatically.
    /// Default: 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_secs: Option<f64>,
    /// Keep that snapshot until it is deleted, or not at all. Cannot be combined with `keep_secs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

/// Replaces a sandbox with its child.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PromoteRequest {
    /// Seconds after which the snapshot of the parent's previous state is deleted automatically.
    /// Default: 7 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_secs: Option<f64>,
    /// Keep that snapshot until it is deleted, or not at all. Cannot be combined with `keep_secs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

/// How long a snapshot is kept, other than for a number of seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Until it is deleted by a request.
    Forever,
    /// Not at all.
    None,
}

/// A sandbox that was rewound.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Rewound {
    /// The running sandbox.
    pub sandbox: Sandbox,
    /// ID of the snapshot it was rewound to.
    pub to: String,
    /// ID of the snapshot of its state before the rewind, if that is kept. It may be in progress
    /// for a moment; requests that need it wait for that.
    pub future: Option<String>,
}

/// Recreates a terminated sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestartRequest {
    /// Name of the new sandbox. Default: the name of the terminated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A sandbox that replaces a terminated one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Restarted {
    /// The new sandbox.
    pub sandbox: Sandbox,
    /// ID of the snapshot it was created from.
    pub snapshot: String,
}

/// A sandbox that was replaced with its child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Promoted {
    /// The parent, running with the memory and files of the child.
    pub sandbox: Sandbox,
    /// ID of the child, which is terminated.
    pub child: String,
    /// ID of the snapshot of the parent's previous state, if that is kept. It may be in progress
    /// for a moment; requests that need it wait for that.
    pub future: Option<String>,
}
