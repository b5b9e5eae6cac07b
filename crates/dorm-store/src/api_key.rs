//! Keys that open the API, beside the one that the daemon made for its owner.

use std::fmt;

use dorm_lifecycle::{ApiKeyId, ProjectId, SandboxId, Timestamp};

/// What a key opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyScope {
    /// Everything.
    Full,
    /// Whatever only shows, and nothing that changes anything.
    ReadOnly,
    /// One sandbox: its commands, files, terminals, ports and states, and nothing that makes another one or reads one.
    Sandbox(SandboxId),
}

/// An API key. The key itself is on no record.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: ApiKeyId,
    /// The project it opens.
    pub project: ProjectId,
    /// What its owner calls it: up to 63 characters, perhaps none.
    pub name: String,
    /// What it opens.
    pub scope: KeyScope,
    /// The SHA-256 of the key, which has 256 random bits. Not printed.
    pub hash: [u8; 32],
    /// When it was made.
    pub created: Timestamp,
    /// From when on it opens nothing; never when none.
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
