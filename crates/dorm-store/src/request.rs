//! Requests with an idempotency key.

use dorm_lifecycle::{
    ApiKeyId, BuildId, EnvironmentId, HoldId, OperationId, PoolId, ProjectId, RequestId, SandboxId, SnapshotId,
    Timestamp, VolumeId, WebhookId,
};

/// A request with an idempotency key that has made something. It is recorded in the same change as
/// what it makes, so that a retry finds the first result and never makes it twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestRecord {
    /// Its id, derived from the caller and the key.
    pub id: RequestId,
    /// The project of the caller.
    pub project: ProjectId,
    /// The SHA-256 of its method, path, query and body. A retry must have the same.
    pub fingerprint: [u8; 32],
    /// The object that it has made.
    pub made: Made,
    /// When that was recorded.
    pub at: Timestamp,
}

/// The object that a request has made, or the operation that makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Made {
    /// A sandbox.
    Sandbox(SandboxId),
    /// A snapshot.
    Snapshot(SnapshotId),
    /// The result of an operation on several sandboxes, or of a rewind.
    Operation(OperationId),
    /// A hold of a sandbox.
    Hold(HoldId),
    /// A volume.
    Volume(VolumeId),
    /// A build.
    Build(BuildId),
    /// A sandbox pool.
    Pool(PoolId),
    /// An environment.
    Environment(EnvironmentId),
    /// A webhook.
    Webhook(WebhookId),
    /// An API key.
    ApiKey(ApiKeyId),
}
