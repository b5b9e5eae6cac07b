//! The rows of snapshots.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    Digest, InheritedSettings, PortHost, PortRules, ProjectId, SandboxId, SavedStateId, SnapshotId, SnapshotName,
};
use serde::{Deserialize, Serialize};

use super::operation::FailureRow;
use super::ports::{PortAccessRow, PortRuleRow};
use super::sandbox::{EgressRow, ResourcesRow};
use super::state::FirstProgramRow;
use crate::codec::word::{Millis, Text, present};
use crate::{Maker, Removal, SnapshotRecord, SnapshotStatus, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct SnapshotRow {
    v: u64,
    id: Text<SnapshotId>,
    project: Text<ProjectId>,
    #[serde(deserialize_with = "present")]
    name: Option<Text<SnapshotName>>,
    source: Text<SandboxId>,
    generation: u64,
    #[serde(deserialize_with = "present")]
    parent: Option<Text<SnapshotId>>,
    kind: KindRow,
    saved_state: Text<SavedStateId>,
    image: Text<Digest>,
    #[serde(deserialize_with = "present")]
    layer: Option<Text<SavedStateId>>,
    resources: ResourcesRow,
    #[serde(deserialize_with = "present")]
    inherited: Option<InheritedRow>,
    created: Millis,
    bytes: u64,
    shares_data: bool,
    labels: BTreeMap<String, String>,
    removal: RemovalRow,
    made_by: MakerRow,
    status: StatusRow,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InheritedRow {
    egress: EgressRow,
    port_access: PortAccessRow,
    #[serde(deserialize_with = "present")]
    port_host: Option<Text<PortHost>>,
    port_rules: BTreeMap<u16, PortRuleRow>,
    program: FirstProgramRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KindRow {
    Filesystem,
    Memory,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RemovalRow {
    Asked,
    At(Millis),
    WhenFree,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MakerRow {
    Request,
    Policy,
    Import,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StatusRow {
    InProgress,
    Completed,
    Failed(FailureRow),
    Deleting,
}

impl From<&SnapshotRecord> for SnapshotRow {
    fn from(record: &SnapshotRecord) -> Self {
        let SnapshotRecord {
            id,
            project,
            name,
            source,
            generation,
            parent,
            kind,
            saved_state,
            image,
            layer,
            resources,
            inherited,
            created,
            bytes,
            shares_data,
            labels,
            removal,
            made_by,
            status,
        } = record;
        Self {
            v: codec::SNAPSHOT,
            id: Text(id.clone()),
            project: Text(project.clone()),
            name: name.clone().map(Text),
            source: Text(source.clone()),
            generation: *generation,
            parent: parent.clone().map(Text),
            kind: (*kind).into(),
            saved_state: Text(saved_state.clone()),
            image: Text(image.clone()),
            layer: layer.clone().map(Text),
            resources: resources.into(),
            inherited: inherited.as_ref().map(InheritedRow::from),
            created: Millis(*created),
            bytes: *bytes,
            shares_data: *shares_data,
            labels: labels.clone(),
            removal: match removal {
                Removal::Asked => RemovalRow::Asked,
                Removal::At(at) => RemovalRow::At(Millis(*at)),
                Removal::WhenFree => RemovalRow::WhenFree,
            },
            made_by: match made_by {
                Maker::Request => MakerRow::Request,
                Maker::Policy => MakerRow::Policy,
                Maker::Import => MakerRow::Import,
            },
            status: match status {
                SnapshotStatus::InProgress => StatusRow::InProgress,
                SnapshotStatus::Completed => StatusRow::Completed,
                SnapshotStatus::Failed(failure) => StatusRow::Failed(failure.into()),
                SnapshotStatus::Deleting => StatusRow::Deleting,
            },
        }
    }
}

impl From<SnapshotRow> for SnapshotRecord {
    fn from(row: SnapshotRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            name: row.name.map(|name| name.0),
            source: row.source.0,
            generation: row.generation,
            parent: row.parent.map(|parent| parent.0),
            kind: row.kind.into(),
            saved_state: row.saved_state.0,
            image: row.image.0,
            layer: row.layer.map(|layer| layer.0),
            resources: row.resources.into(),
            inherited: row.inherited.map(InheritedSettings::from),
            created: row.created.0,
            bytes: row.bytes,
            shares_data: row.shares_data,
            labels: row.labels,
            removal: match row.removal {
                RemovalRow::Asked => Removal::Asked,
                RemovalRow::At(at) => Removal::At(at.0),
                RemovalRow::WhenFree => Removal::WhenFree,
            },
            made_by: match row.made_by {
                MakerRow::Request => Maker::Request,
                MakerRow::Policy => Maker::Policy,
                MakerRow::Import => Maker::Import,
            },
            status: match row.status {
                StatusRow::InProgress => SnapshotStatus::InProgress,
                StatusRow::Completed => SnapshotStatus::Completed,
                StatusRow::Failed(failure) => SnapshotStatus::Failed(failure.into()),
                StatusRow::Deleting => SnapshotStatus::Deleting,
            },
        }
    }
}

impl From<&InheritedSettings> for InheritedRow {
    fn from(settings: &InheritedSettings) -> Self {
        let InheritedSettings { egress, port_access, port_host, port_rules, program } = settings;
        Self {
            egress: egress.into(),
            port_access: (*port_access).into(),
            port_host: port_host.clone().map(Text),
            port_rules: port_rules.0.iter().map(|(port, rule)| (*port, PortRuleRow::from(rule))).collect(),
            program: (*program).into(),
        }
    }
}

impl From<InheritedRow> for InheritedSettings {
    fn from(row: InheritedRow) -> Self {
        Self {
            egress: row.egress.into(),
            port_access: row.port_access.into(),
            port_host: row.port_host.map(|host| host.0),
            port_rules: PortRules(row.port_rules.into_iter().map(|(port, rule)| (port, rule.into())).collect()),
            program: row.program.into(),
        }
    }
}
