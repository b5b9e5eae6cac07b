//! Performs an action of a walk through the daemon's API and in the model, and compares the
//! results.

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::action::{Action, Keep};
use super::cast::{Body, Counter, Shot};
use super::walk::{Over, Walk};
use crate::host::word;
use crate::world::Stage;

/// The memory of each sandbox.
const MEMORY_BYTES: u64 = 128 << 20;
/// The number of changes to files at once.
const CHANGES: std::ops::RangeInclusive<u32> = 1..=8;

impl Walk<'_> {
    pub(super) async fn perform(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Create { named } => self.create(named).await,
            Action::Restore { shot, named } => self.restore(shot, named).await,
            Action::Work { body } => self.work(body).await,
            Action::Suspend { body } => self.suspend(body).await,
            Action::Resume { body } => {
                self.world.daemon.act(&self.bodies[body].id, "resume").await?;
                self.bodies[body].stage = Stage::Running;
                self.check(body).await
            }
            Action::Evict { body } => {
                self.world.daemon.act(&self.bodies[body].id, "evict").await?;
                self.bodies[body].stage = Stage::Evicted;
                Ok(())
            }
            Action::Checkpoint { body, kind } => self.checkpoint(body, kind).await,
            Action::Clone { body, named } => self.clone_of(body, named).await,
            Action::Fork { body, count } => self.fork(body, count).await,
            Action::Rewind { body, shot, keep } => self.rewind(body, shot, keep).await,
            Action::Promote { body, keep } => self.promote(body, keep).await,
            Action::Remove { shot } => self.remove(shot).await,
            Action::Terminate { body } => {
                self.world.daemon.act(&self.bodies[body].id, "terminate").await?;
                let body = self.bodies.remove(body);
                self.over.push(Over::Sandbox(body.id));
                Ok(())
            }
            Action::Collect => self.collect().await,
            Action::AskTheDead => self.ask_the_dead().await,
        }
    }

    fn next(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    /// The request for a new sandbox.
    fn asked(&self, number: u32, named: bool) -> Value {
        if named { json!({ "name": format!("walk-{number}") }) } else { json!({}) }
    }

    async fn create(&mut self, named: bool) -> Result<()> {
        let number = self.next();
        let mut asked = self.asked(number, named);
        asked["image"] = json!(self.world.image);
        asked["resources"] = json!({ "memory_bytes": MEMORY_BYTES });
        let view = self.world.daemon.post("/sandboxes", asked).await?;
        let id = began_with(&view, "none")?;
        let counter = Counter::begin(&self.world.daemon, &id).await?;
        let tree = self.ground.clone();
        self.bodies.push(Body {
            number,
            suspendable: view["suspendable"] == true,
            source: None,
            stage: Stage::Running,
            stands_on: None,
            tree,
            counter,
            id,
        });
        let body = self.bodies.len() - 1;
        self.check(body).await?;
        self.work(body).await
    }

    pub(super) async fn restore(&mut self, shot: usize, named: bool) -> Result<()> {
        let number = self.next();
        let mut asked = self.asked(number, named);
        asked["snapshot"] = json!(self.shots[shot].id);
        let view = self.world.daemon.post("/sandboxes", asked).await?;
        let shot = self.shots[shot].clone();
        let counter = match &shot.counter {
            Some(counter) => {
                began_with(&view, "memory")?;
                counter.clone()
            }
            None => Counter::begin(&self.world.daemon, &began_with(&view, "filesystem")?).await?,
        };
        self.bodies.push(Body {
            number,
            id: word(&view, "id"),
            source: Some(shot.source.clone()),
            suspendable: view["suspendable"] == true,
            stage: Stage::Running,
            stands_on: shot.ground(),
            tree: shot.begun(),
            counter,
        });
        self.check(self.bodies.len() - 1).await
    }

    async fn work(&mut self, body: usize) -> Result<()> {
        let mut script = "set -e\numask 022\n".to_owned();
        for _ in 0..self.random.u32(CHANGES) {
            self.bodies[body].tree.change(&mut self.random, &mut script);
        }
        let (daemon, body) = (&self.world.daemon, &mut self.bodies[body]);
        let (code, said) = daemon.exec(&body.id, &["/bin/sh", "-c", &script]).await?;
        // The commands help to understand a failure.
        self.steps.extend(script.lines().skip(2).map(|line| format!("    {line}")));
        if code != 0 {
            bail!("changing files of s{} ended with {code}: {said}", body.number);
        }
        body.is_whole(daemon).await
    }

    /// A sandbox that must not be suspended is refused, and keeps running.
    async fn suspend(&mut self, body: usize) -> Result<()> {
        let asked = &self.bodies[body];
        let path = format!("/sandboxes/{}/suspend", asked.id);
        let answer = self.world.daemon.try_ask(Method::POST, &path, Some(json!({}))).await?;
        match (answer.status, asked.suspendable) {
            (200, true) => {
                self.bodies[body].stage = Stage::Parked;
                Ok(())
            }
            (409, false) => self.check(body).await,
            (status, suspendable) => {
                bail!("suspend s{} (suspendable: {suspendable}): {status}: {}", asked.number, answer.body)
            }
        }
    }

    async fn check_running(&mut self, body: usize) -> Result<()> {
        if self.bodies[body].stage == Stage::Running { self.check(body).await } else { Ok(()) }
    }

    async fn checkpoint(&mut self, body: usize, kind: &str) -> Result<()> {
        let view = self.world.daemon.checkpoint(&self.bodies[body].id, kind).await?;
        self.keep(body, word(&view, "id"), kind == "memory");
        self.check_running(body).await
    }

    /// Notes a snapshot with the sandbox's present content.
    fn keep(&mut self, body: usize, id: String, with_memory: bool) {
        let number = self.next();
        let body = &self.bodies[body];
        self.shots.push(Shot {
            number,
            id,
            source: body.id.clone(),
            stands_on: body.stands_on.clone(),
            tree: body.tree.clone(),
            counter: with_memory.then(|| body.counter.clone()),
        });
    }

    /// Notes a sandbox that continues from the present content of another.
    fn follow(&mut self, body: usize, number: u32, view: &Value) -> Result<()> {
        let of = self.bodies[body].clone();
        let (id, suspendable) = (began_with(view, "memory")?, view["suspendable"] == true);
        self.bodies.push(Body { number, suspendable, source: Some(of.id.clone()), stage: Stage::Running, id, ..of });
        Ok(())
    }

    async fn clone_of(&mut self, body: usize, named: bool) -> Result<()> {
        let number = self.next();
        let path = format!("/sandboxes/{}/clone", self.bodies[body].id);
        let made = self.world.daemon.post(&path, self.asked(number, named)).await?;
        let snapshot = made["sandbox"]["snapshot"].as_str().context("the snapshot of a clone")?.to_owned();
        self.keep(body, snapshot, true);
        self.follow(body, number, &made["sandbox"])?;
        self.check(self.bodies.len() - 1).await?;
        self.check_running(body).await
    }

    async fn fork(&mut self, body: usize, count: usize) -> Result<()> {
        let first = self.bodies.len();
        let numbers: Vec<u32> = (0..count).map(|_| self.next()).collect();
        let children: Vec<Value> = numbers.iter().map(|number| self.asked(*number, true)).collect();
        let path = format!("/sandboxes/{}/fork", self.bodies[body].id);
        let made =
            self.world.daemon.post(&path, json!({ "children": children, "on_partial_failure": "roll_back" })).await?;
        for (place, number) in numbers.into_iter().enumerate() {
            self.follow(body, number, &made["children"][place]["sandbox"])?;
        }
        for child in first..self.bodies.len() {
            self.check(child).await?;
        }
        self.check_running(body).await
    }

    async fn rewind(&mut self, body: usize, shot: usize, keep: Keep) -> Result<()> {
        let mut asked = kept(keep);
        asked["to"] = json!(self.shots[shot].id);
        let path = format!("/sandboxes/{}/rewind", self.bodies[body].id);
        let done = self.world.daemon.post(&path, asked).await?;
        let shot = self.shots[shot].clone();
        self.abandon(body, &done, keep)?;
        let counter = match &shot.counter {
            Some(counter) => {
                began_with(&done["sandbox"], "memory")?;
                counter.clone()
            }
            None => Counter::begin(&self.world.daemon, &began_with(&done["sandbox"], "filesystem")?).await?,
        };
        let back = &mut self.bodies[body];
        back.stage = Stage::Running;
        back.stands_on = shot.ground();
        back.tree = shot.begun();
        back.counter = counter;
        self.check(body).await
    }

    /// Notes the snapshot of the abandoned state, if that was to be kept.
    fn abandon(&mut self, body: usize, done: &Value, keep: Keep) -> Result<()> {
        match (done["future"].as_str(), keep) {
            (Some(future), Keep::ForAWeek | Keep::Forever) => self.keep(body, future.to_owned(), true),
            (None, Keep::Not) => {}
            (future, keep) => bail!("the future was to be kept {keep:?}, and is {future:?}"),
        }
        Ok(())
    }

    async fn promote(&mut self, body: usize, keep: Keep) -> Result<()> {
        let parent = self.parent(body).context("a living parent")?;
        let path = format!("/sandboxes/{}/promote", self.bodies[body].id);
        let done = self.world.daemon.post(&path, kept(keep)).await?;
        if word(&done["sandbox"], "id") != self.bodies[parent].id {
            bail!("promoting s{} changed {}", self.bodies[body].number, done["sandbox"]["id"]);
        }
        self.abandon(parent, &done, keep)?;
        let child = self.bodies[body].clone();
        let changed = &mut self.bodies[parent];
        changed.stage = Stage::Running;
        changed.stands_on = child.stands_on;
        changed.tree = child.tree;
        changed.counter = child.counter;
        self.check(parent).await?;
        self.bodies.remove(body);
        self.over.push(Over::Sandbox(child.id));
        Ok(())
    }

    async fn remove(&mut self, shot: usize) -> Result<()> {
        let (holders, id) = (self.holders(shot), self.shots[shot].id.clone());
        let view = self.world.daemon.get(&format!("/snapshots/{id}")).await?;
        let told = view["held_by"].as_array().into_iter().flatten();
        let mut told: Vec<String> = told.filter_map(|holder| holder.as_str().map(str::to_owned)).collect();
        told.sort();
        if told != holders {
            bail!("{} is said to be held by {told:?} instead of {holders:?}", self.shots[shot].name());
        }
        if holders.is_empty() {
            self.delete(&id).await?;
            self.shots.remove(shot);
            self.over.push(Over::Snapshot(id));
            return Ok(());
        }
        let answer = self.world.daemon.try_ask(Method::DELETE, &format!("/snapshots/{id}"), None).await?;
        let said = answer.body.to_string();
        if answer.status != 409 || !holders.iter().all(|holder| said.contains(holder)) {
            bail!("deleting {}, held by {holders:?}, was answered {}: {said}", self.shots[shot].name(), answer.status);
        }
        let held = Some(id);
        let standing = self.bodies.iter().position(|body| body.stands_on == held && body.stage == Stage::Running);
        if let Some(body) = standing { self.check(body).await } else { Ok(()) }
    }

    /// Deletes a snapshot that is not in use.
    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        self.world.daemon.ask(Method::DELETE, &format!("/snapshots/{id}"), None).await.map(drop)
    }

    /// Collecting must not free anything that is needed: the later listing is compared as after
    /// each action.
    async fn collect(&mut self) -> Result<()> {
        let freed = self.world.daemon.post("/gc", json!({})).await?;
        let needed = self.shots.iter().map(|shot| &shot.id).chain(self.bodies.iter().map(|body| &body.id));
        for id in needed {
            if freed.to_string().contains(id.as_str()) {
                bail!("collecting freed something of {id}: {freed}");
            }
        }
        let Some(body) = self.bodies.iter().position(|body| body.stage == Stage::Running) else { return Ok(()) };
        self.check(body).await
    }

    /// Requests to something that is over are refused, and it stays over.
    async fn ask_the_dead(&mut self) -> Result<()> {
        let over = self.over[self.random.usize(0..self.over.len())].clone();
        let (path, asked) = match &over {
            Over::Snapshot(id) => ("/sandboxes".to_owned(), json!({ "snapshot": id })),
            Over::Sandbox(id) => {
                let verb = ["resume", "suspend", "checkpoint", "fork", "clone", "promote"][self.random.usize(0..6)];
                let asked = if verb == "fork" { json!({ "count": 1 }) } else { json!({}) };
                (format!("/sandboxes/{id}/{verb}"), asked)
            }
        };
        self.steps.push(format!("    {path}"));
        let answer = self.world.daemon.try_ask(Method::POST, &path, Some(asked)).await?;
        match answer.status {
            404 | 409 | 410 => Ok(()),
            status => bail!("{path} of {over:?} was answered {status}: {}", answer.body),
        }
    }
}

/// The id of a running sandbox; fails unless its view says that it began with `restored`.
fn began_with(view: &Value, restored: &str) -> Result<String> {
    if view["state"] != "running" || view["restored"] != restored {
        bail!("it is to run and to have begun with {restored}: {view}");
    }
    Ok(word(view, "id"))
}

fn kept(keep: Keep) -> Value {
    match keep {
        Keep::ForAWeek => json!({}),
        Keep::Forever => json!({ "keep": "forever" }),
        Keep::Not => json!({ "keep": "none" }),
    }
}
