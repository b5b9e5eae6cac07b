//! Everything that outlives a daemon, and everything that belongs to one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dorm_engine::SteppedEngine;
use dorm_engine_fake::FakeHost;
use dorm_lifecycle::{Limits, Timestamp};
use dorm_ports::{HostFacts, Randomness, TokioClock};
use dorm_service::{Limiting, ParkLimits, Parts, RecoveryReport, Service, ServiceError, Settings, Volumes};
use dorm_steps::AnySteps;
use dorm_storage::Storage;
use dorm_store::memory::MemoryStore;
use dorm_store::{SteppedStore, Store};
use tokio::runtime::Handle;

use crate::disk::Disk;
use crate::engine::WatchedEngine;
use crate::model::{Misfortune, Model};
use crate::random::Random;
use crate::sqlite::WaitingStore;
use crate::steps::Life;
use crate::store::WatchedStore;
use crate::trace::Trace;

/// The store of a simulation run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StoreKind {
    /// In memory.
    #[default]
    Memory,
    /// SQLite, opened anew by each daemon.
    Sqlite,
}

/// The use of memory by guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guests {
    /// They use little.
    #[default]
    Modest,
    /// Sometimes a guest takes all the memory it can get; callers fork sandboxes.
    MemoryPressure,
}

enum Records {
    Memory(MemoryStore),
    Sqlite(PathBuf, Handle),
}

/// Everything that outlives a daemon.
pub(crate) struct World {
    pub(crate) host: FakeHost,
    pub(crate) model: Arc<Model>,
    pub(crate) clock: TokioClock,
    pub(crate) trace: Trace,
    pub(crate) disk: Arc<Mutex<Disk>>,
    pub(crate) guests: Guests,
    /// Whether callers request builds. Such a world has images of its own.
    pub(crate) is_building: bool,
    /// Whether callers ask for environments.
    pub(crate) is_ensuring: bool,
    data: PathBuf,
    images: PathBuf,
    records: Records,
    settings: Settings,
    slow: u64,
}

/// A running daemon with its recovery report.
pub(crate) struct Daemon {
    pub(crate) service: Service,
    pub(crate) life: Arc<Life>,
    pub(crate) report: RecoveryReport,
}

#[derive(Debug)]
struct Seeded(Mutex<Random>);

impl Randomness for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }
}

/// A host without facts that could differ in a replay.
#[derive(Debug)]
struct AnyHost;

impl HostFacts for AnyHost {
    fn available_memory(&self) -> Option<u64> {
        None
    }
}

impl World {
    pub(crate) fn new(
        place: (&Path, &Path),
        store: (StoreKind, &Handle),
        random: &mut Random,
        misfortune: Misfortune,
        trace: Trace,
    ) -> Result<Self> {
        let (data, images) = place;
        let saved_states = data.join("saved_states");
        std::fs::create_dir_all(&saved_states).with_context(|| format!("make {}", saved_states.display()))?;
        let mut disk = Disk::new(saved_states.clone());
        disk.learn(&saved_states).with_context(|| format!("look at {}", saved_states.display()))?;
        let clock = TokioClock::starting_at(Timestamp::from_millis(1_800_000_000_000));
        let host = FakeHost::new();
        let model = Arc::new(Model::new(trace.clone(), saved_states, misfortune, host.clone()));
        let limit = Duration::from_secs(20);
        let settings = Settings {
            limits: Limits {
                start: limit,
                ready: limit,
                suspend: limit,
                resume: limit,
                snapshot: limit,
                attach: limit,
                egress: limit,
                terminate: limit,
                bytes_per_second: u64::MAX,
            },
            park: ParkLimits {
                count: usize::try_from(random.below(4)).unwrap_or_default(),
                memory_bytes: (10 << 20) + random.below(64 << 20),
            },
            host: Arc::new(AnyHost),
            randomness: Arc::new(Seeded(Mutex::new(random.fork()))),
            ..Settings::default()
        };
        let records = match store {
            (StoreKind::Memory, _) => Records::Memory(MemoryStore::new()),
            (StoreKind::Sqlite, helper) => Records::Sqlite(data.join("dormouse.db"), helper.clone()),
        };
        let slow = if random.chance(30) { random.below(60) } else { 0 };
        Ok(Self {
            host,
            model,
            clock,
            trace,
            disk: Arc::new(Mutex::new(disk)),
            guests: Guests::default(),
            is_building: false,
            is_ensuring: false,
            data: data.to_owned(),
            images: images.to_owned(),
            records,
            settings,
            slow,
        })
    }

    /// A new life without planned faults.
    pub(crate) fn life(&self) -> Arc<Life> {
        Life::new(Arc::clone(&self.disk), self.host.clone(), self.trace.clone())
    }

    /// The store without any wrapper.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(match &self.records {
            Records::Memory(store) => Arc::new(store.clone()),
            Records::Sqlite(path, helper) => Arc::new(WaitingStore::open(path, helper).context("open the store")?),
        })
    }

    /// The storage, for checks.
    pub(crate) fn storage(&self, life: &Arc<Life>) -> Result<Storage> {
        let steps: AnySteps = life.clone();
        Storage::open_with(&self.data, &self.images, steps).context("open the storage")
    }

    pub(crate) fn saved_states(&self) -> PathBuf {
        self.data.join("saved_states")
    }

    /// Starts a daemon in `life`. Returns `None` if it dies meanwhile.
    pub(crate) async fn open(
        &self,
        life: Arc<Life>,
        random: &mut Random,
    ) -> Result<Option<Result<Daemon, ServiceError>>> {
        let steps: AnySteps = life.clone();
        let store = WatchedStore {
            inner: self.store()?,
            model: Arc::clone(&self.model),
            life: Arc::clone(&life),
            random: Mutex::new(random.fork()),
            slow: self.slow,
            hidden: Mutex::default(),
        };
        let engine = WatchedEngine::open(&self.host, &life, &self.trace, &self.model);
        let parts = Parts {
            volumes: Volumes::with_steps(self.data.join("volumes"), Limiting::Never, steps.clone()),
            store: Arc::new(SteppedStore::new(Arc::new(store), steps.clone())),
            engine: Arc::new(SteppedEngine::new(Arc::new(engine), steps)),
            storage: self.storage(&life)?,
            clock: Arc::new(self.clock.clone()),
            settings: self.settings.clone(),
        };
        let opened = tokio::time::timeout(Duration::from_secs(3600), Service::open(parts));
        tokio::select! {
            biased;
            () = life.ended() => Ok(None),
            opened = opened => match opened {
                Ok(Ok((service, report))) => Ok(Some(Ok(Daemon { service, life, report }))),
                Ok(Err(error)) => Ok(Some(Err(error))),
                Err(_) => bail!("a daemon that starts does not come to an end"),
            },
        }
    }

    /// The amount by which the wall clock is set: a little, a lot, by a year, or to the correct
    /// time.
    pub(crate) fn choose_clock(&self, random: &mut Random) -> i64 {
        const YEAR: i64 = 365 * 86_400_000;
        let most = match random.below(6) {
            0..2 => 10_000,
            2..4 => 100_000_000,
            4 => return if random.chance(70) { YEAR } else { -YEAR },
            _ => return -self.clock.is_set_by(),
        };
        let by = i64::try_from(random.below(most)).unwrap_or_default();
        if random.chance(50) { by } else { -by }
    }

    /// Fails the power: every run is lost, and so is everything in the saved states that was not
    /// durable.
    pub(crate) fn lose_power(&self, random: &mut Random) -> Result<()> {
        self.host.reboot();
        self.clock.reboot();
        self.model.power_failed();
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        disk.lose_power(random, &self.trace).context("lose power")
    }
}
