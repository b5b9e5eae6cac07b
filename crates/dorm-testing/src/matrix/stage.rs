//! The setting of a check: a daemon with room for little, and helpers for checks.

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{Daemon, until};

/// The future of a check.
pub type Future<'a> = Pin<Box<dyn std::future::Future<Output = Result<()>> + Send + 'a>>;

/// The limit for the sum of the memory limits of a stage's sandboxes, in MiB.
pub const BUDGET_MIB: u64 = 1024;
/// The memory of a sandbox that leaves room for three others.
const SMALL: u64 = BUDGET_MIB << 18;
/// The memory of a sandbox that leaves no room.
const LARGE: u64 = BUDGET_MIB << 20;

/// How long anything may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const NOTE: &str = "/root/note";
const TOKEN: &str = "witness";

/// A daemon of an engine, with [`BUDGET_MIB`] for sandboxes and no reserve, and an image `base`.
pub trait Stage: Sync {
    /// The daemon.
    fn daemon(&self) -> &Daemon;

    /// The command of a program that answers each line of its input with its last argument, a
    /// space, and a number that rises by one from 1, kept in memory only. The last argument is left
    /// out here.
    fn counting(&self) -> Vec<String>;

    /// Ends the run of a sandbox, which is the only one that runs, as a crash of its engine would.
    ///
    /// # Errors
    /// If it has no run.
    fn crash(&self, sandbox: &str) -> Result<()>;

    /// Clears everything away, and fails if anything is left over.
    fn close(self) -> impl std::future::Future<Output = ()> + Send
    where
        Self: Sized;
}

/// A process that counts in memory, in a sandbox.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    pub(super) process: u64,
    count: u64,
    /// The offset of its next answer in its output.
    at: usize,
}

impl Witness {
    /// Lets it count one further in that sandbox, and checks that it continues where it was.
    pub(super) async fn counts(&mut self, daemon: &Daemon, id: &str) -> Result<()> {
        let path = format!("/sandboxes/{id}/processes/{}", self.process);
        let said = daemon.request(Method::POST, &format!("{path}/stdin")).body("more\n").send().await?;
        ensure!(said.status().is_success(), "the witness in {id} takes no input: {}", said.text().await?);
        let wanted = format!("{TOKEN} {}\n", self.count + 1);
        let has_answered = || async {
            let said = output(daemon, &path).await?;
            ensure!(said.len() >= self.at, "the witness in {id} has said less than before: '{said}'");
            let (_, rest) = said.split_at(self.at);
            if !rest.is_empty() && !wanted.starts_with(rest) {
                bail!("the witness in {id} says '{}' instead of '{}'", rest.trim(), wanted.trim());
            }
            Ok(rest == wanted)
        };
        until(PATIENCE, "the witness answers", has_answered).await?;
        (self.count, self.at) = (self.count + 1, self.at + wanted.len());
        Ok(())
    }
}

async fn output(daemon: &Daemon, path: &str) -> Result<String> {
    let events = daemon.request(Method::GET, &format!("{path}/output?follow=false")).send().await?.text().await?;
    let mut said = String::new();
    for event in events.split("\n\n").filter(|event| event.contains("event: stdout")) {
        let data = event.lines().find_map(|line| line.strip_prefix("data:")).context("an event without data")?;
        let data: Value = serde_json::from_str(data.trim()).context("read an event")?;
        said.push_str(data["data"].as_str().unwrap_or_default());
    }
    Ok(said)
}

/// Helpers of checks for sandboxes.
impl dyn Stage + '_ {
    /// A request for a sandbox that leaves room for three others.
    pub(super) fn small(&self) -> Value {
        json!({ "image": "base", "suspendable": true, "resources": { "memory_bytes": SMALL } })
    }

    /// A request for a sandbox that leaves no room.
    pub(super) fn large(&self) -> Value {
        json!({ "image": "base", "suspendable": true, "resources": { "memory_bytes": LARGE } })
    }

    pub(super) async fn create(&self, asked: Value) -> Result<String> {
        self.daemon().create(asked).await
    }

    /// A small sandbox with a witness that has counted once, and a note.
    pub(super) async fn begin(&self) -> Result<(String, Witness)> {
        let id = self.create(self.small()).await?;
        let mut witness = self.witness(&id).await?;
        witness.counts(self.daemon(), &id).await?;
        self.note(&id, "first").await?;
        Ok((id, witness))
    }

    pub(super) async fn witness(&self, id: &str) -> Result<Witness> {
        let mut argv = self.counting();
        argv.push(TOKEN.to_owned());
        let asked = json!({ "argv": argv, "stdin": "pipe" });
        let started = self.daemon().post(&format!("/sandboxes/{id}/processes"), asked).await?;
        Ok(Witness { process: started["process"].as_u64().context("a handle")?, count: 0, at: 0 })
    }

    pub(super) async fn note(&self, id: &str, text: &str) -> Result<()> {
        self.daemon().write(id, NOTE, text.as_bytes().to_vec()).await
    }

    /// Checks the text of the note.
    pub(super) async fn has_note(&self, id: &str, text: &str) -> Result<()> {
        let (code, said) = self.daemon().exec(id, &["cat", NOTE]).await?;
        ensure!((code, &said[..]) == (0, text), "the note of {id} is '{said}' ({code}) instead of '{text}'");
        Ok(())
    }

    pub(super) async fn has_no_note(&self, id: &str) -> Result<()> {
        let (code, said) = self.daemon().exec(id, &["cat", NOTE]).await?;
        ensure!(code != 0, "there is a note in {id}: '{said}'");
        Ok(())
    }

    /// The handles of the running processes.
    pub(super) async fn processes(&self, id: &str) -> Result<Vec<u64>> {
        let list = self.daemon().get(&format!("/sandboxes/{id}/processes")).await?;
        let living = list["processes"].as_array().into_iter().flatten().filter(|process| process["exit"].is_null());
        Ok(living.filter_map(|process| process["process"].as_u64()).collect())
    }

    pub(super) async fn act(&self, id: &str, verb: &str) -> Result<Value> {
        self.daemon().act(id, verb).await
    }

    pub(super) async fn is(&self, id: &str, state: &str) -> Result<Value> {
        let view = self.daemon().describe(id).await?;
        ensure!(view["state"] == state, "sandbox {id} is {}, not {state}: {}", view["state"], view["cause"]);
        Ok(view)
    }

    /// Suspends and evicts the sandbox.
    pub(super) async fn sleep(&self, id: &str) -> Result<()> {
        self.act(id, "suspend").await?;
        self.act(id, "evict").await?;
        Ok(())
    }

    /// Takes a snapshot and returns its id.
    pub(super) async fn snapshot(&self, id: &str, kind: &str) -> Result<String> {
        let taken = self.daemon().checkpoint(id, kind).await?;
        Ok(taken["id"].as_str().context("an id")?.to_owned())
    }

    /// Creates a sandbox from a snapshot.
    pub(super) async fn from(&self, snapshot: &str) -> Result<String> {
        self.create(json!({ "snapshot": snapshot, "suspendable": true })).await
    }

    /// Checks that a request is refused for lack of memory, with figures.
    pub(super) async fn has_no_room(&self, path: &str, asked: Value) -> Result<()> {
        let answer = self.daemon().try_ask(Method::POST, path, Some(asked)).await?;
        let is_named = answer.body["code"] == "no_room" && answer.body.to_string().contains("of memory");
        ensure!(answer.status == 507 && is_named, "{path}: {} {}", answer.status, answer.body);
        Ok(())
    }

    /// Checks that all room is free.
    pub(super) async fn has_all_room(&self) -> Result<()> {
        let id = self.create(self.large()).await?;
        self.act(&id, "terminate").await?;
        Ok(())
    }

    /// The number of saved states on the disk.
    pub(super) async fn saved_states(&self) -> Result<usize> {
        let all = self.daemon().get("/gc").await?;
        let all = all["items"].as_array().into_iter().flatten();
        Ok(all.filter(|item| item["kind"] != "image").count())
    }

    /// Waits until this many saved states are on the disk.
    pub(super) async fn has_saved_states(&self, count: usize) -> Result<()> {
        until(PATIENCE, "only what is needed is on the disk", || async { Ok(self.saved_states().await? == count) })
            .await
    }

    pub(super) async fn becomes(&self, id: &str, state: &str) -> Result<Value> {
        let daemon = self.daemon();
        until(PATIENCE, state, || async { Ok(daemon.describe(id).await?["state"] == state) }).await?;
        daemon.describe(id).await
    }
}
