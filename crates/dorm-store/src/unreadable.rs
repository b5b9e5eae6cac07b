//! Rows that cannot be read: a store leaves them out of its lists and reports them here.
//!
//! An unreadable row stays as it is. Nothing that it may need is deleted, so its raw content is
//! kept to check whether it mentions an id. The content may hold secrets and is never printed.

use std::fmt;

use dorm_lifecycle::{Name, ProjectId, SandboxId};

use crate::StoreError;

/// The kind of record in a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RowKind {
    /// A sandbox.
    Sandbox,
    /// An operation.
    Operation,
    /// A snapshot.
    Snapshot,
    /// A saved state whose files must be deleted.
    Discard,
    /// A webhook.
    Webhook,
    /// A sandbox pool.
    Pool,
    /// A build.
    Build,
    /// A template.
    Template,
    /// An environment.
    Environment,
    /// A project.
    Project,
    /// An API key.
    ApiKey,
    /// A request with an idempotency key.
    Request,
    /// A volume.
    Volume,
    /// An event.
    Event,
}

impl RowKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::Sandbox,
        Self::Operation,
        Self::Snapshot,
        Self::Discard,
        Self::Webhook,
        Self::Pool,
        Self::Build,
        Self::Template,
        Self::Environment,
        Self::Project,
        Self::ApiKey,
        Self::Request,
        Self::Volume,
        Self::Event,
    ];

    /// Its word in messages, responses and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Operation => "operation",
            Self::Snapshot => "snapshot",
            Self::Discard => "discard",
            Self::Webhook => "webhook",
            Self::Pool => "pool",
            Self::Build => "build",
            Self::Template => "template",
            Self::Environment => "environment",
            Self::Project => "project",
            Self::ApiKey => "key",
            Self::Request => "request",
            Self::Volume => "volume",
            Self::Event => "event",
        }
    }

    /// Whether a record of this kind can be the only one that needs a saved state.
    pub const fn may_hold_saved_states(self) -> bool {
        match self {
            Self::Sandbox | Self::Operation | Self::Snapshot => true,
            Self::Discard
            | Self::Webhook
            | Self::Pool
            | Self::Build
            | Self::Template
            | Self::Environment
            | Self::Project
            | Self::ApiKey
            | Self::Request
            | Self::Volume
            | Self::Event => false,
        }
    }

    /// Whether a record of this kind can be the only one that needs a snapshot or an image.
    pub const fn may_hold_snapshots(self) -> bool {
        match self {
            Self::Sandbox
            | Self::Operation
            | Self::Snapshot
            | Self::Pool
            | Self::Build
            | Self::Template
            | Self::Environment => true,
            Self::Discard
            | Self::Webhook
            | Self::Project
            | Self::ApiKey
            | Self::Request
            | Self::Volume
            | Self::Event => false,
        }
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A row that cannot be read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadableRow {
    /// The kind of record.
    pub kind: RowKind,
    /// Its key as stored. It may not be a legal id if the key itself is damaged.
    pub id: String,
    /// The revision of a sandbox's row.
    pub revision: Option<u64>,
    /// The project of a sandbox or snapshot, if its column can be read.
    pub project: Option<ProjectId>,
    /// The name that a sandbox holds, if its column can be read.
    pub name: Option<Name>,
    /// A description of the defect.
    pub what: String,
    /// The content as stored.
    pub raw: Vec<u8>,
}

impl UnreadableRow {
    /// Its kind and key, such as `sandbox abc…`.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind, self.id)
    }

    /// The error of a look-up of this row.
    pub fn error(&self) -> StoreError {
        StoreError::Unreadable { id: self.title(), what: self.what.clone() }
    }

    /// Whether the content contains `id`. If it does not, the record may still need that id.
    pub fn mentions(&self, id: &str) -> bool {
        !id.is_empty() && self.raw.windows(id.len()).any(|part| part == id.as_bytes())
    }

    /// Whether it may be the record that has this id, or this name.
    pub fn may_be(&self, kind: RowKind, id: &str, name: &str) -> bool {
        self.kind == kind && (self.id == id || self.mentions(&format!("\"{name}\"")))
    }

    /// Whether it is the record of this sandbox, or may be because its key is damaged.
    pub fn may_be_sandbox(&self, id: &SandboxId) -> bool {
        self.kind == RowKind::Sandbox && (self.id == id.as_str() || self.id.parse::<SandboxId>().is_err())
    }
}

impl fmt::Debug for UnreadableRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadableRow")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_mentions_what_is_in_its_text_and_prints_none_of_it() {
        let row = UnreadableRow {
            kind: RowKind::Sandbox,
            id: "abcdefghijkmnpqrstuv".to_owned(),
            revision: Some(3),
            project: None,
            name: None,
            what: "the text is not a record of version 3".to_owned(),
            raw: b"{\"saved_state\":\"cccccccccccccccccccc\",\"secret\":\"s3cr3t\xff".to_vec(),
        };
        assert!(row.mentions("cccccccccccccccccccc") && !row.mentions("dddddddddddddddddddd") && !row.mentions(""));
        assert!(row.may_be_sandbox(&"abcdefghijkmnpqrstuv".parse().unwrap()));
        assert!(!row.may_be_sandbox(&"bbcdefghijkmnpqrstuv".parse().unwrap()));
        let damaged = UnreadableRow { id: "abc\u{fffd}".to_owned(), ..row.clone() };
        assert!(damaged.may_be_sandbox(&"bbcdefghijkmnpqrstuv".parse().unwrap()));
        assert!(!format!("{row:?}").contains("s3cr3t"));
    }
}
