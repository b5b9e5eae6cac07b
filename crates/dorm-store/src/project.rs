//! Projects: sandboxes, snapshots, volumes and keys that belong together and see nothing of others.

use std::collections::BTreeMap;
use std::fmt;

use dorm_lifecycle::{ProjectId, SecretName, Timestamp};

/// Limits on what a project may have. Each one is optional.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProjectBudgets {
    /// The largest number of sandboxes that are not terminated.
    pub sandboxes: Option<u64>,
    /// The largest number of sandboxes that run at a time.
    pub running: Option<u64>,
    /// The largest sum of the CPU limits of its running sandboxes, in thousandths of a CPU.
    pub cpu_millis: Option<u64>,
    /// The largest sum of the memory limits of its running sandboxes, in bytes.
    pub memory_bytes: Option<u64>,
    /// The largest total size of its sleep images, snapshots, volumes, images and build contexts,
    /// in bytes.
    pub disk_bytes: Option<u64>,
}

/// A project. It stays on record after its removal, because its name is not used again: its history
/// must not become that of another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectRecord {
    /// Its id, which is its name.
    pub id: ProjectId,
    /// Its limits.
    pub budgets: ProjectBudgets,
    /// When it was created.
    pub created: Timestamp,
    /// When it was removed, if it was.
    pub removed: Option<Timestamp>,
    /// Its secrets.
    pub secrets: BTreeMap<SecretName, SecretRecord>,
}

/// A secret of a project.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRecord {
    /// Its value, encrypted.
    pub sealed: String,
    /// When it was created.
    pub created: Timestamp,
    /// When its value was set last.
    pub changed: Timestamp,
}

impl fmt::Debug for SecretRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sealed: _, created, changed } = self;
        f.debug_struct("SecretRecord").field("created", created).field("changed", changed).finish_non_exhaustive()
    }
}
