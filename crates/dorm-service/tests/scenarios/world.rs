//! The world of a scenario: everything that outlives a daemon, and one daemon at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dorm_agent_client::{Agent, GuestPath, GuestString, Offsets, Output, ProcessSpec, Stdin};
use dorm_engine_fake::FakeHost;
use dorm_lifecycle::{EventKind, Limits, SandboxId, State, StateName, Timestamp, check};
use dorm_ports::TokioClock;
use dorm_service::{
    CreateFrom, CreateSpec, ParkLimits, Parts, RecoveryReport, SandboxView, Service, ServiceError, Settings, Use,
};
use dorm_steps::{Steps, Stopped};
use dorm_storage::Storage;
use dorm_store::memory::MemoryStore;
use dorm_store::{EventFilter, SandboxFilter, SteppedStore, Store};
use futures_util::StreamExt as _;
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub(crate) struct World {
    pub(crate) host: FakeHost,
    pub(crate) store: MemoryStore,
    pub(crate) directory: TempDir,
    pub(crate) clock: TokioClock,
    pub(crate) settings: Settings,
}

/// The life of a daemon. Once it has ended, its tasks change neither records nor files.
#[derive(Debug, Default)]
pub(crate) struct Life {
    is_over: AtomicBool,
}

impl Steps for Life {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        if self.alive() { Ok(()) } else { Err(Stopped { step, full: false }) }
    }

    fn alive(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        std::fs::create_dir_all(source.join("etc")).unwrap();
        std::fs::write(source.join("etc/hello"), "hello").unwrap();
        let world = Self {
            host: FakeHost::new(),
            store: MemoryStore::new(),
            clock: TokioClock::starting_at(Timestamp::from_millis(1_000_000_000)),
            settings: Settings::default(),
            directory,
        };
        world.storage().import(&source, Some("base"), |_| {}).await.unwrap();
        world
    }

    pub(crate) fn storage(&self) -> Storage {
        let path = self.directory.path();
        Storage::open(&path.join("data"), &path.join("images")).unwrap()
    }

    pub(crate) fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    pub(crate) fn park(mut self, park: ParkLimits) -> Self {
        self.settings.park = park;
        self
    }

    /// Starts a daemon.
    pub(crate) async fn daemon(&self) -> Service {
        self.daemon_and_report().await.0
    }

    pub(crate) async fn daemon_and_report(&self) -> (Service, RecoveryReport) {
        Service::open(self.parts()).await.unwrap()
    }

    /// Returns a daemon that [`World::kill`] can end.
    pub(crate) async fn mortal(&self) -> (Service, Arc<Life>) {
        let (life, path) = (Arc::new(Life::default()), self.directory.path());
        let parts = Parts {
            store: Arc::new(SteppedStore::new(Arc::new(self.store.clone()), life.clone())),
            storage: Storage::open_with(&path.join("data"), &path.join("images"), life.clone()).unwrap(),
            ..self.parts()
        };
        (Service::open(parts).await.unwrap().0, life)
    }

    /// Ends a daemon as the death of its process does.
    pub(crate) fn kill(&self, life: &Life) {
        life.is_over.store(true, Ordering::SeqCst);
        self.host.open();
    }

    pub(crate) fn volumes(&self) -> dorm_service::Volumes {
        dorm_service::Volumes::new(self.directory.path().join("data/volumes"), dorm_service::Limiting::Never)
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts {
            volumes: self.volumes(),
            store: Arc::new(self.store.clone()),
            engine: self.host.open(),
            storage: self.storage(),
            clock: Arc::new(self.clock.clone()),
            settings: self.settings.clone(),
        }
    }

    /// Checks the conditions that hold whenever no operation is in progress: the invariants of each
    /// record, a run for each running sandbox and no other, the egress of each run, a sleep image
    /// for each suspended sandbox, and no saved state without a record.
    pub(crate) async fn is_sound(&self) {
        eventually("what rewinds have left is saved", || async {
            let all = self.store.sandboxes(&SandboxFilter::default()).await.unwrap();
            all.iter().all(|record| record.sandbox.state.held().is_none())
        })
        .await;
        let mut needed = Vec::new();
        let mut allowed = Vec::new();
        for record in self.store.sandboxes(&SandboxFilter::default()).await.unwrap() {
            check(&record.sandbox).unwrap();
            match &record.sandbox.state {
                State::Running { .. } => {
                    let runs = self.host.runs();
                    assert!(runs.iter().any(|(run, _)| *run == record.sandbox.run_id()), "{:?}", record.sandbox);
                    allowed.push(record.sandbox.run_id());
                }
                State::Suspended { .. } => allowed.push(record.sandbox.run_id()),
                State::Terminated { .. } => {}
                other => panic!("not a quiet moment: {other:?}"),
            }
            if let Some(egress) = self.host.egress(&record.sandbox.run_id()) {
                assert_eq!(egress, record.sandbox.spec.egress, "{:?}", record.sandbox);
            }
            needed.extend(record.sandbox.saved_states().cloned());
        }
        eventually("every run belongs to a sandbox", || async {
            self.host.runs().iter().all(|(run, _)| allowed.contains(run))
        })
        .await;
        for snapshot in self.store.snapshots(None).await.unwrap() {
            if snapshot.status == dorm_store::SnapshotStatus::Completed {
                needed.push(snapshot.saved_state);
            }
        }
        needed.sort();
        eventually("saved states are exactly those on record", || {
            let storage = self.storage();
            let needed = needed.clone();
            async move {
                let mut there = storage.saved_states().await.unwrap();
                there.sort();
                there == needed && storage.drafts().await.unwrap().is_empty()
            }
        })
        .await;
        assert!(self.store.open_operations().await.unwrap().is_empty());
    }

    pub(crate) async fn events(&self, id: &SandboxId) -> Vec<EventKind> {
        let filter = EventFilter { sandbox: Some(id.clone()), ..EventFilter::default() };
        self.store.events(&filter).await.unwrap().into_iter().map(|record| record.event.kind).collect()
    }
}

pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    for _ in 0..6000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came true: {what}");
}

pub(crate) fn base() -> CreateSpec {
    CreateSpec::new(CreateFrom::Image("base".into()))
}

pub(crate) fn named(name: &str) -> CreateSpec {
    CreateSpec { name: Some(name.parse().unwrap()), ..base() }
}

pub(crate) async fn create(service: &Service, asked: CreateSpec) -> SandboxId {
    service.create(asked).await.unwrap().sandbox.id
}

/// Creates a sandbox with a program that has counted to one.
pub(crate) async fn counting(service: &Service) -> (SandboxId, Counter) {
    let id = create(service, named("web")).await;
    let mut counter = Counter::start(service, &id, "x").await;
    assert_eq!(counter.ask(service, &id).await.unwrap(), "x 1");
    (id, counter)
}

/// Starts a suspend in a task of its own.
pub(crate) fn suspending(service: &Service, id: &SandboxId) -> JoinHandle<Result<SandboxView, ServiceError>> {
    let (service, id) = (service.clone(), id.clone());
    tokio::spawn(async move { service.suspend(&id).await })
}

pub(crate) fn state(view: &SandboxView) -> StateName {
    view.sandbox.state.name()
}

/// A program in a sandbox that answers each line with a token and a number that is only in memory.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    process: u64,
    heard: u64,
}

impl Counter {
    pub(crate) async fn start(service: &Service, id: &SandboxId, token: &str) -> Self {
        let (agent, _in_use) = service.agent(id, Use::Exec).await.unwrap();
        let words = ["counter", token].map(|word| GuestString::new(word).unwrap()).to_vec();
        let spec = ProcessSpec { stdin: Stdin::Pipe, ..ProcessSpec::new(words) };
        let started = agent.start(&spec).await.unwrap();
        Self { process: started.process, heard: 0 }
    }

    /// Returns the same program as it was after `answers` answers, each as long as `last`.
    pub(crate) fn heard_until(self, last: &str, answers: u64) -> Self {
        Self { heard: last.len() as u64 * answers, ..self }
    }

    /// Sends one line, and returns the answer.
    pub(crate) async fn ask(&mut self, service: &Service, id: &SandboxId) -> Result<String, ServiceError> {
        let (agent, _in_use) = service.agent(id, Use::Exec).await?;
        agent.write_stdin(self.process, Bytes::from_static(b"\n")).await?;
        let mut output = agent.output(self.process, Offsets { stdout: self.heard, stderr: 0 }).await?;
        let mut line = Vec::new();
        while let Some(item) = output.next().await {
            if let Output::Stdout { bytes, .. } = item? {
                line.extend_from_slice(&bytes);
                if line.ends_with(b"\n") {
                    break;
                }
            }
        }
        self.heard += line.len() as u64;
        Ok(String::from_utf8(line).unwrap().trim().to_owned())
    }
}

pub(crate) async fn write(agent: &Agent, path: &str, content: &'static str) {
    let body = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(content.as_bytes()))]);
    agent.write_file(&GuestPath::new(path).unwrap(), dorm_agent_client::WriteOptions::default(), body).await.unwrap();
}

pub(crate) async fn read(agent: &Agent, path: &str) -> String {
    let (_, mut body) = agent.read_file(&GuestPath::new(path).unwrap(), 0, None).await.unwrap();
    let mut content = Vec::new();
    while let Some(part) = body.next().await {
        content.extend_from_slice(&part.unwrap());
    }
    String::from_utf8(content).unwrap()
}
