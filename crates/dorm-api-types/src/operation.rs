//! Operations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::text::Time;

/// An operation: a change of a sandbox or snapshot that takes time. Events name the operation that
/// they belong to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// ID of the operation.
    pub id: String,
    /// Kind of the operation, such as `create`, `suspend`, `snapshot` or `fork`.
    pub kind: String,
    /// ID of the sandbox that it changes. Null for an operation that only changes a snapshot.
    pub sandbox: Option<String>,
    /// Who started the operation: `user`, `timer`, `traffic`, `host` or `recovery`.
    pub initiator: String,
    /// Caller that asked for it. Null if no request did, and for operations of version 0.1.0.
    #[serde(default)]
    pub caller: Option<Caller>,
    /// Status of the operation.
    pub status: OperationStatus,
    /// When the operation started.
    pub started_at: Time,
    /// When the operation is aborted if it has not ended.
    pub deadline: Time,
    /// When the operation ended. Null while it is in progress.
    pub ended_at: Option<Time>,
    /// Error code of the failure. Null if the operation has not failed.
    pub code: Option<String>,
    /// Why the operation failed, if it did.
    pub reason: Option<String>,
}

/// Status of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationStatus {
    /// In progress.
    InProgress,
    /// Completed successfully.
    Completed,
    /// Failed. Everything it had started was undone.
    Failed,
}

/// A page of operations, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// The operations.
    pub operations: Vec<Operation>,
    /// Cursor: `after` of the next page. Null on the last page.
    pub next: Option<String>,
}
