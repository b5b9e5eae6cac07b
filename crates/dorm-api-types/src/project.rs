//! Projects.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Time;

/// Limits on what a project may have. A limit that is left out or null does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProjectBudgets {
    /// Largest number of sandboxes that are not terminated.
    pub sandboxes: Option<u64>,
    /// Largest number of sandboxes that run at a time.
    pub running: Option<u64>,
    /// Largest sum of the CPU limits of running sandboxes, in thousandths of a CPU.
    pub cpu_millis: Option<u64>,
    /// Largest sum of the memory limits of running sandboxes.
    pub memory_bytes: Option<u64>,
    /// Largest total size of sleep images, snapshots, volumes, images with a tag of the project,
    /// and build contexts.
    pub disk_bytes: Option<u64>,
}

/// Creates a project.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    /// Name: 1 to 63 lower-case letters, digits and hyphens. It is never used again for another
    /// project.
    pub name: String,
    /// Limits. Default: none.
    #[serde(default)]
    pub budgets: ProjectBudgets,
}

/// Use of the budgets of a project.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProjectUse {
    /// Number of sandboxes that are not terminated.
    pub sandboxes: u64,
    /// Number of sandboxes that run or are about to.
    pub running: u64,
    /// Sum of their CPU limits, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// Sum of their memory limits.
    pub memory_bytes: u64,
    /// Total size of sleep images, snapshots, volumes, images with a tag of the project, and build
    /// contexts.
    pub disk_bytes: u64,
}

/// A project.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Project {
    /// Name.
    pub name: String,
    /// Limits.
    pub budgets: ProjectBudgets,
    /// Use of these limits.
    pub used: ProjectUse,
    /// When the project was created. Null for `local`, which always exists.
    pub created_at: Option<Time>,
}

/// A page of projects, ordered by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectList {
    /// The projects.
    pub projects: Vec<Project>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}
