//! The rows of sandbox pools.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    Digest, Egress, FirstProgram, Name, PoolId, PoolMember, PortAccess, ProjectId, Resources, SnapshotId,
};
use serde::{Deserialize, Serialize};

use super::ports::PortAccessRow;
use super::sandbox::{EgressRow, PoolMemberRow, ResourcesRow};
use super::state::FirstProgramRow;
use crate::codec::word::{Millis, Text, present};
use crate::{PoolRecord, PoolSource, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct PoolRow {
    v: u64,
    id: Text<PoolId>,
    project: Text<ProjectId>,
    name: Text<Name>,
    source: SourceRow,
    #[serde(deserialize_with = "present")]
    program: Option<FirstProgramRow>,
    #[serde(deserialize_with = "present")]
    resources: Option<ResourcesRow>,
    #[serde(deserialize_with = "present")]
    egress: Option<EgressRow>,
    variables: BTreeMap<String, String>,
    #[serde(deserialize_with = "present")]
    port_access: Option<PortAccessRow>,
    labels: BTreeMap<String, String>,
    ready: u64,
    #[serde(deserialize_with = "present")]
    most: Option<u64>,
    created: Millis,
    removed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SourceRow {
    Image(Text<Digest>),
    Snapshot(Text<SnapshotId>),
}

impl From<&PoolRecord> for PoolRow {
    fn from(record: &PoolRecord) -> Self {
        let PoolRecord {
            id,
            project,
            name,
            source,
            program,
            resources,
            egress,
            variables,
            port_access,
            labels,
            ready,
            most,
            created,
            removed,
        } = record;
        Self {
            v: codec::POOL,
            id: Text(id.clone()),
            project: Text(project.clone()),
            name: Text(name.clone()),
            source: match source {
                PoolSource::Image(image) => SourceRow::Image(Text(image.clone())),
                PoolSource::Snapshot(snapshot) => SourceRow::Snapshot(Text(snapshot.clone())),
            },
            program: program.map(FirstProgramRow::from),
            resources: resources.as_ref().map(ResourcesRow::from),
            egress: egress.as_ref().map(EgressRow::from),
            variables: variables.clone(),
            port_access: port_access.map(PortAccessRow::from),
            labels: labels.clone(),
            ready: *ready,
            most: *most,
            created: Millis(*created),
            removed: *removed,
        }
    }
}

impl From<PoolRow> for PoolRecord {
    fn from(row: PoolRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            name: row.name.0,
            source: match row.source {
                SourceRow::Image(image) => PoolSource::Image(image.0),
                SourceRow::Snapshot(snapshot) => PoolSource::Snapshot(snapshot.0),
            },
            program: row.program.map(FirstProgram::from),
            resources: row.resources.map(Resources::from),
            egress: row.egress.map(Egress::from),
            variables: row.variables,
            port_access: row.port_access.map(PortAccess::from),
            labels: row.labels,
            ready: row.ready,
            most: row.most,
            created: row.created.0,
            removed: row.removed,
        }
    }
}

impl From<&PoolMember> for PoolMemberRow {
    fn from(member: &PoolMember) -> Self {
        let PoolMember { pool, is_claimed } = member;
        Self { pool: Text(pool.clone()), is_claimed: *is_claimed }
    }
}

impl From<PoolMemberRow> for PoolMember {
    fn from(row: PoolMemberRow) -> Self {
        Self { pool: row.pool.0, is_claimed: row.is_claimed }
    }
}
