//! Measures the service on very large stores and on an empty one: in real time, with SQLite, over
//! the fake engine, whose own share is small and so hides nothing.
//!
//! The stores take turns, so that other load of the host falls on each of them. The living
//! sandboxes are suspended on record only. Their sleep images are not on the disk: nothing that is
//! measured reads one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use dorm_engine_fake::FakeHost;
use dorm_lifecycle::{
    Cause, EventKind, Initiator, MountPath, OperationId, Origin, ProjectId, Restored, Sandbox, SandboxId, SandboxSpec,
    SavedStateId, SleepImage, SnapshotKind, State, Timestamp,
};
use dorm_ports::{Clock as _, SystemClock};
use dorm_service::{AttachmentSpec, CreateFrom, CreateSpec, Parts, Service, Settings};
use dorm_storage::Storage;
use dorm_store::{NewEvent, OperationKind, OperationRecord, OperationResult, SandboxFilter};
use dorm_store_sql::SqlStore;
use dorm_store_sql::bulk::{Bulk, fill};
use serde_json::{Value, json};

/// How often each operation is measured.
const ROUNDS: usize = 40;

/// The number of records in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Suspended sandboxes.
    pub living: u64,
    /// Terminated sandboxes, each with an operation.
    pub terminated: u64,
    /// Events.
    pub events: u64,
}

/// Measures on the stores `empty`, `living` and `full`, which it makes in `directory` and leaves
/// there, each with a `data` and an `images` directory. Returns a row for each operation with the
/// medians in milliseconds.
///
/// # Errors
/// If anything fails.
pub fn at_scale(counts: Counts, directory: &Path) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("start a runtime")?.block_on(async {
        let nothing = Counts { living: 0, terminated: 0, events: 0 };
        let living = Counts { living: counts.living, ..nothing };
        let mut stores = Vec::new();
        for (name, counts) in [("empty", nothing), ("living", living), ("full", counts)] {
            stores.push(Measured::make(&directory.join(name), counts).await?);
        }
        // The store that was filled last must not still be being written back during the
        // measurement.
        rustix::fs::sync();
        for _ in 0..ROUNDS {
            for store in &mut stores {
                round(&store.opened, &mut store.times).await?;
            }
        }
        let mut medians = Vec::new();
        let mut bytes = 0;
        for Measured { opened, times, bytes: held } in stores {
            close(opened).await?;
            medians.push(times.into_iter().map(|(name, times)| (name, median(times))).collect::<BTreeMap<_, _>>());
            bytes = held;
        }
        let [empty, living, full] = <[_; 3]>::try_from(medians).map_err(|_| anyhow::anyhow!("three stores"))?;
        let row = |(name, empty): (&&str, &f64)| {
            let (living, full) = (living.get(name)?, full.get(name)?);
            Some(json!({ "name": name, "empty_ms": empty, "living_ms": living, "full_ms": full }))
        };
        let rows: Vec<Value> = empty.iter().filter_map(row).collect();
        Ok(json!({ "store_bytes": bytes, "rows": rows }))
    })
}

/// A store with the service on it, and its measurements.
struct Measured {
    opened: Opened,
    times: Times,
    bytes: u64,
}

/// Milliseconds by operation.
type Times = BTreeMap<&'static str, Vec<f64>>;

impl Measured {
    async fn make(path: &Path, counts: Counts) -> Result<Self> {
        let root = path.join("root");
        std::fs::create_dir_all(&root).context("make an image")?;
        Storage::open(&path.join("data"), &path.join("images"))?.import(&root, Some("base"), |_| {}).await?;
        let host = FakeHost::new();
        close(open(path, &host).await?).await?;
        let began = Instant::now();
        let bytes = fill_store(&path.join("data/dormouse.db"), counts).await?;
        eprintln!("{}: {} MiB, filled in {:.0} s", path.display(), bytes >> 20, began.elapsed().as_secs_f64());
        Ok(Self { opened: open(path, &host).await?, times: Times::new(), bytes })
    }
}

struct Opened(Service, Arc<SqlStore>);

async fn open(path: &Path, host: &FakeHost) -> Result<Opened> {
    let store = Arc::new(SqlStore::open(&path.join("data/dormouse.db")).await?);
    let parts = Parts {
        volumes: dorm_service::Volumes::new(path.join("data/volumes"), dorm_service::Limiting::Never),
        store: store.clone(),
        engine: host.open(),
        storage: Storage::open(&path.join("data"), &path.join("images"))?,
        clock: Arc::new(SystemClock),
        settings: Settings::default(),
    };
    let (service, _) = Service::open(parts).await?;
    Ok(Opened(service, store))
}

async fn close(Opened(service, store): Opened) -> Result<()> {
    service.stop().await;
    store.close().await.context("close the store")
}

async fn round(Opened(service, _): &Opened, times: &mut Times) -> Result<()> {
    let mut took = |name, began| times.entry(name).or_default().push(millis(began));
    let began = Instant::now();
    let id = service.create(CreateSpec::new(CreateFrom::Image("base".to_owned()))).await?.sandbox.id;
    took("create", began);

    service.create_volume("bench".parse()?, 16 << 20, dorm_lifecycle::Writers::One).await?;
    let at: MountPath = "/mnt/bench".parse()?;
    let volume = AttachmentSpec::new("bench", at.clone());
    let began = Instant::now();
    service.attach(&id, volume).await?;
    took("lease a volume", began);
    service.detach(&id, at).await?;
    service.remove_volume("bench").await?;

    let began = Instant::now();
    service.list(&SandboxFilter { limit: 101, ..SandboxFilter::living() }).await?;
    took("list the living, a page of 100", began);
    let began = Instant::now();
    service.list(&SandboxFilter { limit: 1, ..SandboxFilter::default() }).await?;
    took("list all, a page of 1", began);

    let began = Instant::now();
    service.figures().await?;
    took("metrics", began);

    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await?;
    let began = Instant::now();
    service.delete_snapshot(&snapshot.id).await?;
    took("delete a snapshot", began);
    service.terminate(&id).await?;
    Ok(())
}

async fn fill_store(path: &Path, counts: Counts) -> Result<u64> {
    let now = SystemClock.now();
    let week_ago = now.shifted(-7 * 86_400_000);
    let image = SleepImage {
        saved_state: SavedStateId::from_random([3; 20]),
        generation: 1,
        taken: week_ago,
        bytes: 1 << 20,
        files: None,
    };
    let living = sandbox(1, week_ago, State::Suspended { image, background: None });
    let terminated = sandbox(2, week_ago, State::Terminated { cause: Cause::Requested, at: week_ago });
    let operation = OperationRecord {
        id: OperationId::from_random([4; 20]),
        kind: OperationKind::Terminate,
        project: ProjectId::local(),
        sandbox: Some(terminated.id.clone()),
        initiator: Initiator::User,
        caller: None,
        began: week_ago,
        deadline: week_ago,
        saved_state: None,
        fork: None,
        promote: None,
        ended: Some((week_ago, OperationResult::Done)),
    };
    let event = NewEvent {
        project: ProjectId::local(),
        sandbox: terminated.id.clone(),
        at: week_ago,
        kind: EventKind::Started,
        initiator: Initiator::User,
        caller: None,
        operation: Some(operation.id.clone()),
        generation: 1,
        detail: None,
        took: Some(Duration::from_millis(120)),
        bytes: None,
    };
    let bulk = Bulk {
        living: (counts.living, &living),
        terminated: (counts.terminated, &terminated, &operation),
        events: (counts.events, &event),
    };
    Ok(fill(path, &bulk).await?)
}

fn sandbox(number: u8, at: Timestamp, state: State) -> Sandbox {
    let digest = "0123456789abcdef".repeat(4).parse().unwrap_or_else(|_| unreachable!("64 hexadecimal digits"));
    let mut spec = SandboxSpec::new(digest, None);
    spec.suspendable = true;
    Sandbox {
        id: SandboxId::from_random([number; 20]),
        project: ProjectId::local(),
        spec,
        origin: Origin::Image,
        created: at,
        generation: 1,
        run: 1,
        last_active: at,
        timeouts_set: at,
        started: Some(at),
        woken: false,
        holds: Vec::new(),
        restored: Restored::Nothing,
        rewound: None,
        older: Vec::new(),
        unreachable: None,
        suspend_failures: None,
        pool: None,
        created_by: None,
        state,
    }
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1000.0
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
