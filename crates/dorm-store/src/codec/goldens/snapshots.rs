//! Golden snapshots.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    FirstProgram, InheritedSettings, PortAccess, PortRule, PortRules, ProjectId, Resources, SandboxId, SavedStateId,
    SnapshotId, SnapshotKind,
};

use super::{at, egress_rules};
use crate::{Code, FailureRecord, Maker, Removal, SnapshotRecord, SnapshotStatus};

/// Snapshots with what version 1 did not know.
pub(super) fn named_snapshots() -> Vec<(String, SnapshotRecord)> {
    let base = snapshots().remove(1).1;
    let named = SnapshotRecord { name: Some("my-snap:v2".parse().unwrap()), ..base.clone() };
    let inherited = InheritedSettings {
        egress: egress_rules(),
        port_access: PortAccess::Private,
        port_host: Some("localhost:{port}".parse().unwrap()),
        port_rules: PortRules([(8080, PortRule { access: Some(PortAccess::Public), host: None })].into()),
        program: FirstProgram::OfImage,
    };
    let closed = Some(InheritedSettings::closed());
    vec![
        ("snapshot-with-a-name".to_owned(), named),
        ("snapshot-with-settings".to_owned(), SnapshotRecord { inherited: Some(inherited), ..base.clone() }),
        ("snapshot-of-a-closed-source".to_owned(), SnapshotRecord { inherited: closed, ..base }),
    ]
}

pub(super) fn kept_snapshots() -> Vec<(String, SnapshotRecord)> {
    let base = snapshots().remove(1).1;
    let labels = [("team".to_owned(), "Bücher".to_owned())].into();
    let removal = Removal::At(at(1_790_000_900_000));
    let layer = Some(SavedStateId::from_random([13; 20]));
    let policy = SnapshotRecord { made_by: Maker::Policy, ..base.clone() };
    let import = SnapshotRecord { made_by: Maker::Import, ..base.clone() };
    let files = SnapshotRecord { kind: SnapshotKind::Filesystem, layer, ..base.clone() };
    let shares = SnapshotRecord { shares_data: true, ..base.clone() };
    let passing = SnapshotRecord { removal: Removal::WhenFree, ..base.clone() };
    vec![
        ("snapshot-that-expires".to_owned(), SnapshotRecord { labels, removal, ..base }),
        ("snapshot-that-passes".to_owned(), passing),
        ("snapshot-that-shares-data".to_owned(), shares),
        ("snapshot-of-files".to_owned(), files),
        ("snapshot-of-a-policy".to_owned(), policy),
        ("snapshot-that-was-imported".to_owned(), import),
    ]
}

pub(super) fn snapshots() -> Vec<(String, SnapshotRecord)> {
    let statuses = [
        SnapshotStatus::InProgress,
        SnapshotStatus::Completed,
        SnapshotStatus::Failed(FailureRecord::new(Code::Gone, "the source ended")),
        SnapshotStatus::Deleting,
    ];
    let record = |status: SnapshotStatus| SnapshotRecord {
        id: SnapshotId::from_random([4; 20]),
        project: ProjectId::local(),
        name: None,
        source: SandboxId::from_random([1; 20]),
        generation: 5,
        parent: (status == SnapshotStatus::Completed).then(|| SnapshotId::from_random([5; 20])),
        kind: SnapshotKind::Memory,
        saved_state: SavedStateId::from_random([3; 20]),
        image: "0123456789abcdef".repeat(4).parse().unwrap(),
        layer: None,
        resources: Resources::default(),
        inherited: None,
        created: at(1_790_000_000_000),
        bytes: 73_400_320,
        shares_data: false,
        labels: BTreeMap::new(),
        removal: Removal::Asked,
        made_by: Maker::Request,
        status,
    };
    statuses.map(|status| (format!("snapshot-{}", status.as_str()), record(status))).to_vec()
}
