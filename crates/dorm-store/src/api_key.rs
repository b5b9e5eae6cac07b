//! API keys, in addition to the one that the daemon makes for its owner.

use std::fmt;

use dorm_lifecycle::{ApiKeyId, ProjectId, SandboxId, Timestamp};

/// The scope of an API key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyScope {
    /// Everything.
    Full,
    /// Requests that only read.
    ReadOnly,
    /// One sandbox: its commands, files, terminals, ports and states. It can neither create nor
    /// read another sandbox.
    Sandbox(SandboxId),
}

/// An API key. The key itself is not stored.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: ApiKeyId,
    /// The project it gives access to.
    pub project: ProjectId,
    /// Its name, given by its owner: up to 63 characters, may be empty.
    pub name: String,
    /// Its scope.
    pub scope: KeyScope,
    /// The SHA-256 of the key, which has at least 160 random bits. Not printed.
    pub hash: [u8; 32],
    /// When it was created.
    pub created: Timestamp,
    /// When it expires; none for never.
    pub expires: Option<Timestamp>,
}

impl fmt::Debug for ApiKeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeyRecord")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
