//! A sandbox of a soak, and the sandboxes that come from it.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use super::model::AREAS;
use super::{Soakings, lock};
use crate::host::word;
use crate::world::World;

const PROGRAM: &str = include_str!("guest.py");
const PATH: &str = "/root/soak.py";
const MEMORY_BYTES: u64 = 512 << 20;
/// How long each process of a guest may take to do something.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a sandbox is parked until its run has released its memory, which it does after one
/// second.
const LONG: Duration = Duration::from_millis(1500);

/// Where the memory of a sandbox is while it is suspended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// On disk only.
    Evicted,
    /// In memory.
    Parked,
    /// In its image, which its parked run maps.
    ParkedLong,
}

/// A guest and its last checked state.
#[derive(Clone)]
struct Guest {
    id: String,
    seed: u64,
    steps: Vec<u64>,
    forks: u64,
    compiled: u64,
    /// How often its memory was saved since it began.
    generations: u64,
}

pub(super) struct Line<'a> {
    world: &'a World,
    done: &'a Mutex<Soakings>,
    random: fastrand::Rng,
    seed: u64,
    number: u64,
    /// The number of sandboxes so far.
    sandboxes: Cell<u64>,
}

impl<'a> Line<'a> {
    pub(super) fn new(world: &'a World, done: &'a Mutex<Soakings>, (seed, number): (u64, u64)) -> Self {
        let seed = seed.wrapping_mul(31).wrapping_add(number) >> 8;
        Self { world, done, random: fastrand::Rng::with_seed(seed), seed, number, sandboxes: Cell::new(0) }
    }

    /// Soaks one sandbox after the other until `end`.
    pub(super) async fn run(mut self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            let mut guest = self.begin().await?;
            // Memory that has been saved often, and a new sandbox now and then.
            for _ in 0..self.random.u32(5..30) {
                let number = self.random.u8(..10);
                let id = guest.id.clone();
                let next = match number {
                    0..4 => self.sleep(guest).await,
                    4..6 => self.chain(guest).await,
                    6..8 => self.family(guest).await,
                    8 => self.restore(guest).await,
                    _ => self.rewind(guest).await,
                };
                guest = next.with_context(|| format!("line {}, action {number} on sandbox {id}", self.number))?;
                if Instant::now() > end {
                    break;
                }
            }
            self.act(&guest, "terminate").await?;
        }
        Ok(())
    }

    fn count(&self, change: impl FnOnce(&mut Soakings)) {
        change(&mut lock(self.done));
    }

    /// A new name: only sandboxes with a name can be suspended.
    fn name(&self) -> String {
        self.sandboxes.set(self.sandboxes.get() + 1);
        format!("soak-{}-{}", self.number, self.sandboxes.get())
    }

    /// Asks for an operation until the host is fast enough for its limit of time. A fork or a
    /// creation that took too long has made nothing.
    async fn ask(&self, path: &str, body: Value) -> Result<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.world.daemon.try_ask(Method::POST, path, Some(body.clone())).await?;
            match answer.status {
                200..300 => return Ok(answer.body),
                504 if Instant::now() < end => self.count(|done| done.timed_out += 1),
                status => bail!("{path}: {status}: {}", answer.body),
            }
        }
    }

    async fn act(&self, guest: &Guest, verb: &str) -> Result<()> {
        self.ask(&format!("/sandboxes/{}/{verb}", guest.id), json!({})).await.map(drop)
    }

    async fn create(&self, spec: Value) -> Result<String> {
        Ok(word(&self.ask("/sandboxes", spec).await?, "id"))
    }

    async fn begin(&mut self) -> Result<Guest> {
        let (daemon, image) = (&self.world.daemon, &self.world.image);
        let resources = json!({ "memory_bytes": MEMORY_BYTES });
        let id = self.create(json!({ "image": image, "name": self.name(), "resources": resources })).await?;
        self.seed += 16;
        daemon.write(&id, PATH, PROGRAM.into()).await?;
        let script = format!("setsid python3 {PATH} run {} </dev/null >/root/soak.log 2>&1 &", self.seed);
        let (code, said) = daemon.exec(&id, &["sh", "-c", &script]).await?;
        ensure!(code == 0, "start the guest: {code}: {said}");
        let steps = vec![0; AREAS.len()];
        let guest = Guest { id, seed: self.seed, steps, forks: 0, compiled: 0, generations: 0 };
        self.check(guest).await
    }

    /// Compares a guest with the model until each of its processes has done something since.
    async fn check(&self, mut guest: Guest) -> Result<Guest> {
        let end = Instant::now() + PATIENCE;
        loop {
            let (code, said) = self.world.daemon.exec(&guest.id, &["python3", PATH, "ask"]).await?;
            ensure!(code == 0, "ask the guest {}: {code}: {said}", guest.id);
            let answer: Value = serde_json::from_str(&said).with_context(|| format!("read the answer {said}"))?;
            let steps = self.compare(&guest, &answer)?;
            self.count(|done| {
                done.checks += 1;
                done.generations = done.generations.max(guest.generations);
            });
            let number = |field: &str| answer[field].as_u64().unwrap_or_default();
            let (forks, compiled) = (number("forks"), number("compiled"));
            let moves = steps.iter().zip(&guest.steps).all(|(new, old)| new > old);
            if moves && forks > guest.forks && compiled > guest.compiled {
                return Ok(Guest { steps, forks, compiled, ..guest });
            }
            let was = (guest.steps.clone(), guest.forks, guest.compiled);
            ensure!(Instant::now() < end, "a process of {} stands still: {answer}, before: {was:?}", guest.id);
            // Areas that have moved must not move back.
            guest.steps = steps.iter().zip(&guest.steps).map(|(new, old)| *new.max(old)).collect();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn compare(&self, guest: &Guest, answer: &Value) -> Result<Vec<u64>> {
        let errors = word(answer, "errors");
        ensure!(errors.is_empty(), "{} found: {errors}", guest.id);
        let mut all = Vec::new();
        for (place, area) in AREAS.iter().enumerate() {
            let held = &answer["areas"][place];
            let steps = held["steps"].as_u64().context("the number of steps")?;
            let least = guest.steps.get(place).copied().unwrap_or_default();
            ensure!(steps >= least, "{} of {} is at step {steps}, and was at {least}", area.name, guest.id);
            let expected = area.digest(guest.seed.wrapping_add(place as u64), steps);
            if word(held, "digest") != expected {
                bail!("{} of {} differs from the model at step {steps} of seed {}", area.name, guest.id, guest.seed);
            }
            all.push(steps);
        }
        Ok(all)
    }

    /// Suspends and resumes.
    async fn slept(&mut self, mut guest: Guest, sleep: Sleep) -> Result<Guest> {
        self.act(&guest, "suspend").await?;
        guest.generations += 1;
        match sleep {
            Sleep::Evicted => self.act(&guest, "evict").await?,
            Sleep::Parked => {}
            Sleep::ParkedLong => tokio::time::sleep(LONG).await,
        }
        self.act(&guest, "resume").await?;
        self.count(|done| {
            done.suspends += 1;
            done.from_disk += u64::from(sleep == Sleep::Evicted);
            done.parked_long += u64::from(sleep == Sleep::ParkedLong);
        });
        self.check(guest).await
    }

    async fn sleep(&mut self, guest: Guest) -> Result<Guest> {
        let sleep = [Sleep::Evicted, Sleep::Parked, Sleep::ParkedLong][self.random.usize(..3)];
        self.slept(guest, sleep).await
    }

    /// Three images, each of which refers to the one before where the disk has no reflinks.
    async fn chain(&mut self, mut guest: Guest) -> Result<Guest> {
        for _ in 0..3 {
            let sleep = if self.random.bool() { Sleep::Evicted } else { Sleep::ParkedLong };
            guest = self.slept(guest, sleep).await?;
        }
        Ok(guest)
    }

    async fn forked(&self, guest: &Guest, count: usize) -> Result<Vec<Guest>> {
        let names: Vec<Value> = (0..count).map(|_| json!({ "name": self.name() })).collect();
        let path = format!("/sandboxes/{}/fork", guest.id);
        let made = self.ask(&path, json!({ "children": names, "on_partial_failure": "roll_back" })).await?;
        let mut children = Vec::new();
        for child in made["children"].as_array().into_iter().flatten() {
            let id = word(&child["sandbox"], "id");
            children.push(self.check(Guest { id, generations: guest.generations + 1, ..guest.clone() }).await?);
        }
        ensure!(children.len() == count, "{} of {count} forks of {}", children.len(), guest.id);
        self.count(|done| done.forks += count as u64);
        Ok(children)
    }

    /// Children, and a grandchild of a child that has slept, which takes the place of all.
    async fn family(&mut self, guest: Guest) -> Result<Guest> {
        let count = self.random.usize(1..=3);
        let mut children = self.forked(&guest, count).await?;
        let guest = self.check(guest).await?;
        let child = children.pop().context("a child")?;
        let child = self.slept(child, Sleep::Evicted).await?;
        let grandchild = self.forked(&child, 1).await?.pop().context("a grandchild")?;
        let heir = self.slept(grandchild, Sleep::Evicted).await?;
        for over in [guest, child].iter().chain(&children) {
            self.act(over, "terminate").await?;
        }
        self.check(heir).await
    }

    async fn snapshot(&self, guest: &mut Guest) -> Result<String> {
        guest.generations += 1;
        Ok(word(&self.world.daemon.checkpoint(&guest.id, "memory").await?, "id"))
    }

    async fn restored(&self, guest: &Guest, snapshot: &str) -> Result<Guest> {
        let id = self.create(json!({ "snapshot": snapshot, "name": self.name() })).await?;
        self.count(|done| done.restores += 1);
        self.check(Guest { id, ..guest.clone() }).await
    }

    /// A sandbox from a snapshot of another, which ends first or lives on.
    async fn restore(&mut self, mut guest: Guest) -> Result<Guest> {
        let snapshot = self.snapshot(&mut guest).await?;
        let (over, heir) = if self.random.bool() {
            self.act(&guest, "terminate").await?;
            (None, self.restored(&guest, &snapshot).await?)
        } else {
            (Some(self.restored(&guest, &snapshot).await?), self.check(guest).await?)
        };
        if let Some(over) = over {
            self.act(&over, "terminate").await?;
        }
        let heir = self.slept(heir, Sleep::Evicted).await?;
        self.world.forget(&snapshot).await?;
        self.check(heir).await
    }

    /// A rewind, whose future is restored as another sandbox.
    async fn rewind(&mut self, mut guest: Guest) -> Result<Guest> {
        let past = guest.clone();
        let snapshot = self.snapshot(&mut guest).await?;
        let future = self.check(guest).await?;
        let path = format!("/sandboxes/{}/rewind", future.id);
        let done = self.world.daemon.post(&path, json!({ "to": snapshot })).await?;
        let kept = word(&done, "future");
        let guest = self.check(Guest { generations: past.generations + 2, ..past }).await?;
        let other = self.restored(&future, &kept).await?;
        self.count(|done| done.rewinds += 1);
        self.act(&other, "terminate").await?;
        let guest = self.slept(guest, Sleep::Evicted).await?;
        for over in [kept, snapshot] {
            self.world.forget(&over).await?;
        }
        Ok(guest)
    }
}
