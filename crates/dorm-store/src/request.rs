//! Requests with an idempotency key.

use dorm_lifecycle::{ProjectId, RequestId, Timestamp};

/// A request with an idempotency key. It is recorded before the request changes anything, with the
/// bytes from which the id of what it makes is derived: a retry finds by that id what the request
/// has made, also after the daemon died in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestRecord {
    /// Its id, derived from the caller and the key.
    pub id: RequestId,
    /// The project of the caller.
    pub project: ProjectId,
    /// The SHA-256 of its method, path, query and body. A retry must have the same.
    pub fingerprint: [u8; 32],
    /// The bytes from which the ids of what it makes are derived.
    pub reserved: [u8; 20],
    /// When it was first received.
    pub began: Timestamp,
}
