//! Sandbox pools.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    Digest, Egress, FirstProgram, Name, PoolId, PortAccess, ProjectId, Resources, SnapshotId, Timestamp,
};

/// The origin of the members of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolSource {
    /// An image.
    Image(Digest),
    /// A snapshot.
    Snapshot(SnapshotId),
}

/// A pool of sandboxes that are made in advance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolRecord {
    /// Its id.
    pub id: PoolId,
    /// The project it belongs to.
    pub project: ProjectId,
    /// Its name, unique per project.
    pub name: Name,
    /// The origin of its members.
    pub source: PoolSource,
    /// The program to start in each member before it counts as made; without, the one that the
    /// snapshot carries, or none.
    pub program: Option<FirstProgram>,
    /// Their resource limits; those of the snapshot, or the general defaults, without.
    pub resources: Option<Resources>,
    /// Where they may connect to; as the snapshot says, or the general default, without.
    pub egress: Option<Egress>,
    /// Environment variables of every process in them.
    pub variables: BTreeMap<String, String>,
    /// Who may reach their ports; as the snapshot says, or as set for the daemon, without.
    pub port_access: Option<PortAccess>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// How many wait to be claimed.
    pub ready: u64,
    /// How many may exist, waiting and claimed; none for any number.
    pub most: Option<u64>,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is removed: its record goes when the members that wait are terminated.
    pub removed: bool,
}
