//! The parts of a service, and its settings.

use std::sync::Arc;
use std::time::Duration;

use dorm_engine::Engine;
use dorm_lifecycle::{Limits, PortAccess};
use dorm_ports::{Clock, DataDisk, Destinations, HostFacts, Randomness, Registry, SystemRandomness, ThisHost};
use dorm_storage::Storage;
use dorm_store::Store;
use dorm_volume::Volumes;

use super::port_links::PortSecret;
use crate::parking::ParkLimits;
use crate::secrets_key::SecretsKey;

/// The parts of a service.
pub struct Parts {
    /// The store of records.
    pub store: Arc<dyn Store>,
    /// The engine that runs sandboxes.
    pub engine: Arc<dyn Engine>,
    /// The storage of images and saved states.
    pub storage: Storage,
    /// The files of volumes.
    pub volumes: Volumes,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The settings.
    pub settings: Settings,
}

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time limits of operations.
    pub limits: Limits,
    /// The limits on parked sandboxes.
    pub park: ParkLimits,
    /// The limits on the use of the host.
    pub budgets: Budgets,
    /// How long an agent may take to answer before its run counts as unreachable. Default 30 s.
    pub agent: Duration,
    /// How long a run may be unreachable before it is ended. Default: no limit.
    pub max_unreachable: Option<Duration>,
    /// How long traffic waits for a sandbox to wake; the wake itself continues. Default 60 s.
    pub wake: Duration,
    /// The source of facts about the host.
    pub host: Arc<dyn HostFacts>,
    /// The source of identifiers and entropy. Default: the system.
    pub randomness: Arc<dyn Randomness>,
    /// How long old records are kept.
    pub retention: Retention,
    /// The addresses that webhooks may be sent to. Default: public ones.
    pub webhooks: Destinations,
    /// The registry to pull missing images from. Default: none.
    pub registry: Option<Arc<dyn Registry>>,
    /// The disk of the data directory, which is watched. Default: none is watched.
    pub data_disk: Option<Arc<dyn DataDisk>>,
    /// The rate at which everything on the disk is read in the background, at most once a day.
    /// Default: it is not read.
    pub scrub_bytes_per_second: Option<u64>,
    /// The default for who may reach the ports of a sandbox. Default: everyone who knows its id.
    pub port_access: PortAccess,
    /// The secret that tokens of private ports are derived from. Default: a new one at each start.
    pub port_secret: Option<PortSecret>,
    /// The key that encrypts recorded secrets. Default: none.
    pub secrets_key: Option<SecretsKey>,
    /// The roots that sandboxes with header rules trust besides their project's authority if their
    /// image has none, in PEM. Default: none.
    pub roots: Option<Arc<str>>,
    /// How many builds are carried out at once. One project has at most all but one of them.
    /// Default 4.
    pub builds_at_once: usize,
    /// The interval between two samples of what running sandboxes use. Default: none are taken.
    pub usage_every: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            park: ParkLimits { memory_bytes: 4 << 30, count: 64 },
            budgets: Budgets::default(),
            agent: Duration::from_secs(30),
            max_unreachable: None,
            wake: Duration::from_secs(60),
            host: Arc::new(ThisHost),
            randomness: Arc::new(SystemRandomness),
            retention: Retention::default(),
            webhooks: Destinations::default(),
            registry: None,
            data_disk: None,
            scrub_bytes_per_second: None,
            port_access: PortAccess::default(),
            port_secret: None,
            secrets_key: None,
            roots: None,
            builds_at_once: 4,
            usage_every: None,
        }
    }
}

/// Limits on the use of the host. Each one is optional.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budgets {
    /// The largest sum of the memory limits of all running sandboxes, in bytes. `None` for no
    /// limit.
    pub memory_bytes: Option<u64>,
    /// Host memory that must stay available, in bytes. Default 0.
    pub memory_reserve_bytes: u64,
    /// The largest sum of the CPU limits of all running sandboxes, in thousandths of a CPU. `None`
    /// for no limit.
    pub cpu_millis: Option<u64>,
    /// The largest number of sandboxes that are not terminated. `None` for no limit.
    pub sandboxes: Option<u64>,
    /// The largest total size of sleep images and snapshots, in bytes. `None` for no limit.
    pub disk_bytes: Option<u64>,
    /// Space on the disk that must stay free, in bytes. Default 0.
    pub disk_reserve_bytes: u64,
    /// The largest sum of the disks of all running sandboxes and of all volumes, in bytes. `None`
    /// for no limit.
    pub disks_bytes: Option<u64>,
    /// Sandboxes are paused when fewer bytes are free on the disk; they continue at twice as many.
    /// Default 0.
    pub disk_floor_bytes: u64,
}

/// How long records are kept. `None` means forever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Terminated sandboxes and ended operations, counted from their end. A sandbox is kept while
    /// there is a record of a snapshot or another sandbox that was made from it.
    pub terminated: Option<Duration>,
    /// Events. Those that a webhook has not received are kept three times as long.
    pub events: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        let month = Some(Duration::from_secs(30 * 86_400));
        Self { terminated: month, events: month }
    }
}
