//! Other faults of a daemon's host, besides kills, power cuts, full disks and damaged images.
//!
//! Each scenario is carried out as a whole and returns how often it did something, and its faults.

mod clock;
mod directory;
mod images;
mod layers;
mod locked;
mod slow_disk;

use anyhow::Result;

use crate::operation::Cast;
use crate::world::{Fault, World};

/// A fault of the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Scenario {
    /// Another process holds the write lock of the database.
    DatabaseLocked,
    /// Files of a layer are not what was written.
    LayerDamaged,
    /// The wall clock is set.
    ClockSet,
    /// The database is removed, and the data directory is copied.
    DirectoryCopied,
    /// The data directory is moved to another path and later to its old one.
    DirectoryMoved,
    /// A disk is very slow.
    SlowDisk,
    /// Files of an image are not what was imported.
    ImageDamaged,
}

impl Scenario {
    pub(crate) const ALL: [Self; 7] = [
        Self::DatabaseLocked,
        Self::LayerDamaged,
        Self::ClockSet,
        Self::DirectoryCopied,
        Self::DirectoryMoved,
        Self::SlowDisk,
        Self::ImageDamaged,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DatabaseLocked => "suspend, database locked",
            Self::LayerDamaged => "create, layer damaged",
            Self::ClockSet => "clock set",
            Self::DirectoryCopied => "directory lost and copied",
            Self::DirectoryMoved => "directory moved",
            Self::SlowDisk => "suspend, slow disk",
            Self::ImageDamaged => "create, image damaged",
        }
    }

    /// The kind of daemon that it needs.
    pub(crate) const fn cast(self) -> Cast {
        match self {
            Self::DatabaseLocked
            | Self::LayerDamaged
            | Self::ClockSet
            | Self::DirectoryCopied
            | Self::DirectoryMoved
            | Self::SlowDisk => Cast::Sandboxes,
            Self::ImageDamaged => Cast::Images,
        }
    }

    /// Carries it out; returns how often something was done, and the faults found.
    pub(crate) async fn run(self, world: &mut World, random: &mut fastrand::Rng) -> Result<(u64, Vec<Fault>)> {
        match self {
            Self::DatabaseLocked => locked::run(world).await,
            Self::LayerDamaged => layers::run(world, random).await,
            Self::ClockSet => clock::run(world).await,
            Self::DirectoryCopied => directory::run(world).await,
            Self::DirectoryMoved => directory::moved(world).await,
            Self::SlowDisk => slow_disk::run(world).await,
            Self::ImageDamaged => images::run(world, random).await,
        }
    }
}
