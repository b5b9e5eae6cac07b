//! One walk: actions from one seed in a daemon that has nothing else, each compared with the model.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::action::Kind;
use super::cast::{Body, Shot};
use super::tree::Tree;
use crate::dialogue::PATIENCE;
use crate::world::{Stage, World};

/// How many actions a walk has.
const ACTIONS: std::ops::RangeInclusive<u32> = 12..=20;

pub(super) struct Walk<'a> {
    pub(super) world: &'a mut World,
    pub(super) random: fastrand::Rng,
    /// The files of a sandbox that was just made from the image.
    pub(super) ground: &'a Tree,
    pub(super) bodies: Vec<Body>,
    pub(super) shots: Vec<Shot>,
    /// Sandboxes and snapshots that are over.
    pub(super) over: Vec<Over>,
    /// The last number that was given.
    pub(super) number: u32,
    /// The actions so far, in the walk's own names.
    pub(super) steps: Vec<String>,
    pub(super) done: Vec<Kind>,
    pub(super) checks: u64,
}

/// A sandbox or snapshot that is over.
#[derive(Clone, Debug)]
pub(super) enum Over {
    Sandbox(String),
    Snapshot(String),
}

impl<'a> Walk<'a> {
    pub(super) fn new(world: &'a mut World, ground: &'a Tree, seed: u64) -> Self {
        Self {
            world,
            random: fastrand::Rng::with_seed(seed),
            ground,
            bodies: Vec::new(),
            shots: Vec::new(),
            over: Vec::new(),
            number: 0,
            steps: Vec::new(),
            done: Vec::new(),
            checks: 0,
        }
    }

    /// Walks to the end, and removes everything.
    pub(super) async fn run(&mut self) -> Result<()> {
        for _ in 0..self.random.u32(ACTIONS) {
            let action = self.choose();
            let kind = self.kind(action);
            self.steps.push(self.describe(action));
            self.perform(action).await?;
            self.done.push(kind);
            self.is_as_listed().await?;
        }
        self.end().await?;
        self.done.push(Kind::End);
        Ok(())
    }

    /// The sandbox from which another was made, if it lives.
    pub(super) fn parent(&self, body: usize) -> Option<usize> {
        let source = self.bodies[body].source.as_ref()?;
        self.bodies.iter().position(|other| other.id == *source)
    }

    /// The sandboxes and snapshots that need a snapshot, in the daemon's form.
    pub(super) fn holders(&self, shot: usize) -> Vec<String> {
        let id = Some(&self.shots[shot].id);
        let bodies = self.bodies.iter().filter(|body| body.stands_on.as_ref() == id);
        let shots = self.shots.iter().filter(|other| other.stands_on.as_ref() == id);
        let bodies = bodies.map(|body| format!("sandbox {}", body.id));
        let mut holders: Vec<String> = bodies.chain(shots.map(|shot| format!("snapshot {}", shot.id))).collect();
        holders.sort();
        holders
    }

    /// Checks that a running sandbox has all its expected content.
    pub(super) async fn check(&mut self, body: usize) -> Result<()> {
        self.checks += 1;
        self.bodies[body].is_whole(&self.world.daemon).await
    }

    /// Waits until the daemon lists exactly the sandboxes and snapshots of the model. Temporary
    /// ones are removed a moment later.
    async fn is_as_listed(&self) -> Result<()> {
        let mut wanted: Vec<String> = self.shots.iter().map(|shot| format!("snapshot {} completed", shot.id)).collect();
        for body in &self.bodies {
            // The daemon may evict a parked sandbox on its own.
            let stage = if body.stage == Stage::Running { "running" } else { "suspended" };
            wanted.push(format!("sandbox {} {stage}", body.id));
        }
        wanted.sort();
        let end = Instant::now() + PATIENCE;
        loop {
            let records = self.world.records().await?;
            let text = |what: &str, value: &serde_json::Value, field: &str| {
                format!("{what} {} {}", crate::host::word(value, "id"), crate::host::word(value, field))
            };
            let sandboxes = records.sandboxes.iter().map(|sandbox| text("sandbox", sandbox, "state"));
            let snapshots = records.snapshots.iter().map(|snapshot| text("snapshot", snapshot, "status"));
            let mut listed: Vec<String> = sandboxes.chain(snapshots).collect();
            listed.sort();
            if listed == wanted {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the daemon lists {} instead of {}", listed.join(", "), wanted.join(", "));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Compares every sandbox a last time, and one of the snapshots, and ends all.
    async fn end(&mut self) -> Result<()> {
        self.steps.push("end".to_owned());
        for body in 0..self.bodies.len() {
            if self.bodies[body].stage != Stage::Running {
                self.world.daemon.act(&self.bodies[body].id, "resume").await?;
                self.bodies[body].stage = Stage::Running;
            }
            self.check(body).await.context("at the end")?;
        }
        if !self.shots.is_empty() {
            let shot = self.random.usize(0..self.shots.len());
            self.steps.push(format!("create from {}", self.shots[shot].name()));
            self.restore(shot, false).await.context("at the end")?;
        }
        for body in std::mem::take(&mut self.bodies) {
            self.world.daemon.act(&body.id, "terminate").await?;
        }
        // Snapshots that need others are younger than those.
        while let Some(shot) = self.shots.pop() {
            self.delete(&shot.id).await.context("at the end")?;
        }
        let faults = self.world.settle().await?;
        if !faults.is_empty() {
            let faults: Vec<String> = faults.into_iter().map(|(_, what)| what).collect();
            bail!("something is left of it: {}", faults.join("; "));
        }
        self.is_as_listed().await
    }
}
