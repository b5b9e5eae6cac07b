//! Templates: names under which sandboxes are created.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    BuildId, Digest, FirstProgram, ProjectId, Resources, SnapshotId, TemplateId, TemplateName, Timestamp,
};

/// A template. One record has all its tags, so that each change of them is atomic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateRecord {
    /// Its id.
    pub id: TemplateId,
    /// The project it belongs to.
    pub project: ProjectId,
    /// Its name, unique per project.
    pub name: TemplateName,
    /// Whether its owner has published it. Projects do not share templates: clients of E2B set it
    /// and read it.
    pub is_public: bool,
    /// The versions that tags stand for.
    pub tags: BTreeMap<String, TemplateVersion>,
    /// When it was created.
    pub created: Timestamp,
}

/// The image or snapshot that a tag stands for, with the settings of sandboxes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateVersion {
    /// The origin of its sandboxes.
    pub source: TemplateSource,
    /// Their resource limits; those of the snapshot, or the general defaults, without.
    pub resources: Option<Resources>,
    /// Environment variables of every process in them.
    pub variables: BTreeMap<String, String>,
    /// The program to start in each before it counts as created; without, the one that the snapshot
    /// carries, or none.
    pub program: Option<FirstProgram>,
    /// The build that made it.
    pub build: Option<BuildId>,
    /// When the tag began to stand for this.
    pub created: Timestamp,
}

/// The origin of the sandboxes of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TemplateSource {
    /// An image.
    Image(Digest),
    /// A snapshot.
    Snapshot(SnapshotId),
}
