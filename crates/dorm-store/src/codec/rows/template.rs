//! The rows of templates.

use std::collections::BTreeMap;

use dorm_lifecycle::{BuildId, Digest, FirstProgram, ProjectId, Resources, SnapshotId, TemplateId, TemplateName};
use serde::{Deserialize, Serialize};

use super::sandbox::ResourcesRow;
use super::state::FirstProgramRow;
use crate::codec::word::{Millis, Text, present};
use crate::{TemplateRecord, TemplateSource, TemplateVersion, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct TemplateRow {
    v: u64,
    id: Text<TemplateId>,
    project: Text<ProjectId>,
    name: Text<TemplateName>,
    is_public: bool,
    tags: BTreeMap<String, VersionRow>,
    created: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionRow {
    source: SourceRow,
    #[serde(deserialize_with = "present")]
    resources: Option<ResourcesRow>,
    variables: BTreeMap<String, String>,
    #[serde(deserialize_with = "present")]
    program: Option<FirstProgramRow>,
    #[serde(deserialize_with = "present")]
    build: Option<Text<BuildId>>,
    created: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SourceRow {
    Image(Text<Digest>),
    Snapshot(Text<SnapshotId>),
}

impl From<&TemplateRecord> for TemplateRow {
    fn from(record: &TemplateRecord) -> Self {
        let TemplateRecord { id, project, name, is_public, tags, created } = record;
        Self {
            v: codec::TEMPLATE,
            id: Text(id.clone()),
            project: Text(project.clone()),
            name: Text(name.clone()),
            is_public: *is_public,
            tags: tags.iter().map(|(tag, version)| (tag.clone(), version.into())).collect(),
            created: Millis(*created),
        }
    }
}

impl From<TemplateRow> for TemplateRecord {
    fn from(row: TemplateRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            name: row.name.0,
            is_public: row.is_public,
            tags: row.tags.into_iter().map(|(tag, version)| (tag, version.into())).collect(),
            created: row.created.0,
        }
    }
}

impl From<&TemplateVersion> for VersionRow {
    fn from(version: &TemplateVersion) -> Self {
        let TemplateVersion { source, resources, variables, program, build, created } = version;
        Self {
            source: match source {
                TemplateSource::Image(image) => SourceRow::Image(Text(image.clone())),
                TemplateSource::Snapshot(snapshot) => SourceRow::Snapshot(Text(snapshot.clone())),
            },
            resources: resources.as_ref().map(ResourcesRow::from),
            variables: variables.clone(),
            program: program.map(FirstProgramRow::from),
            build: build.clone().map(Text),
            created: Millis(*created),
        }
    }
}

impl From<VersionRow> for TemplateVersion {
    fn from(row: VersionRow) -> Self {
        Self {
            source: match row.source {
                SourceRow::Image(image) => TemplateSource::Image(image.0),
                SourceRow::Snapshot(snapshot) => TemplateSource::Snapshot(snapshot.0),
            },
            resources: row.resources.map(Resources::from),
            variables: row.variables,
            program: row.program.map(FirstProgram::from),
            build: row.build.map(|build| build.0),
            created: row.created.0,
        }
    }
}
