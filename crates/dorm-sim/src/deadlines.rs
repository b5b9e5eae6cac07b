//! Measures how late deadlines are acted on when there are many: the only part of this crate that
//! needs real time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dorm_engine_fake::FakeHost;
use dorm_lifecycle::{EventKind, Resources, Timeouts, Timestamp};
use dorm_ports::SystemClock;
use dorm_service::{CreateFrom, CreateSpec, Parts, Service, Settings};
use dorm_storage::Storage;
use dorm_store::EventFilter;
use dorm_store_sql::SqlStore;

/// The time over which the deadlines are spread, in seconds.
const MINUTE: f64 = 60.0;
/// The time limit for all of them, in seconds, once every sandbox exists.
const PATIENCE: u64 = 300;

/// Creates `count` sandboxes, every other one named, with deadlines spread over a minute. Returns
/// how late the latest deadline was acted on, in milliseconds.
///
/// # Errors
/// If a deadline is not acted on at all, or the host refuses something.
pub fn latest(count: u32) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("start a runtime")?.block_on(run(count))
}

async fn run(count: u32) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory")?;
    let path = directory.path();
    let root = path.join("root");
    std::fs::create_dir_all(&root).context("make an image")?;
    let storage = Storage::open(&path.join("data"), &path.join("images"))?;
    storage.import(&root, Some("base"), |_| {}).await?;
    let parts = Parts {
        volumes: dorm_service::Volumes::new("/nowhere", dorm_service::Limiting::Never),
        store: Arc::new(SqlStore::open(&path.join("data/dormouse.db")).await?),
        engine: FakeHost::new().open(),
        storage,
        clock: Arc::new(SystemClock),
        settings: Settings::default(),
    };
    let (service, _) = Service::open(parts).await?;
    create(&service, count).await?;
    let late = watch(&service, count).await;
    service.stop().await;
    late
}

async fn create(service: &Service, count: u32) -> Result<()> {
    let began = Instant::now();
    for number in 0..count {
        // The first deadline comes when the last sandbox exists, or soon after.
        let total = 30.0 + MINUTE / f64::from(count) * f64::from(number) - began.elapsed().as_secs_f64();
        let asked = CreateSpec {
            name: (number % 2 == 0).then(|| format!("s{number}").parse()).transpose()?,
            timeouts: Timeouts { total: Some(Duration::from_secs_f64(total.max(1.0))), ..Timeouts::default() },
            resources: Some(Resources { memory_bytes: 64 << 20, ..Resources::default() }),
            ..CreateSpec::new(CreateFrom::Image("base".to_owned()))
        };
        service.create(asked).await?;
    }
    Ok(())
}

async fn watch(service: &Service, count: u32) -> Result<f64> {
    let mut news = service.news();
    let (mut after, mut over, mut latest) = (0, 0, 0f64);
    let mut due: BTreeMap<_, Timestamp> = BTreeMap::new();
    let end = tokio::time::Instant::now() + Duration::from_secs(PATIENCE);
    while over < count {
        news.mark_unchanged();
        let page = service.events(&EventFilter { after, limit: 1000, ..EventFilter::default() }).await?;
        for record in &page {
            let event = &record.event;
            match event.kind {
                EventKind::Started => {
                    let total = service.describe(&event.sandbox).await?.sandbox.spec.timeouts.total;
                    due.insert(event.sandbox.clone(), event.at.after(total.context("a limit")?));
                }
                EventKind::DeadlinePassed => {
                    let due = due.get(&event.sandbox).context("no start")?;
                    latest = latest.max(event.at.since(*due).as_secs_f64() * 1000.0);
                }
                EventKind::Suspended | EventKind::Terminated => over += 1,
                _ => {}
            }
        }
        match page.last() {
            Some(last) => after = last.number,
            None => {
                let changed = tokio::time::timeout_at(end, news.changed()).await;
                ensure!(changed.is_ok(), "{over} of {count} deadlines were acted on");
            }
        }
    }
    Ok(latest)
}
