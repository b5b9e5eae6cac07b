//! The sandboxes and snapshots of a walk, and the expected content of each.

use anyhow::{Context as _, Result, bail};
use dorm_testing::Daemon;

use super::listing;
use super::tree::Tree;
use crate::dialogue::Dialogue;
use crate::world::Stage;

/// Needs only `sh`, `od` and `tr` in the image.
const PROGRAM: &str = r#"
secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
count=0
while read -r word; do
    count=$((count + 1))
    echo "$$ $secret $count"
done
"#;

/// A counter that only memory holds.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    dialogue: Dialogue,
    /// Process id and secret.
    held: String,
    count: u64,
}

impl Counter {
    /// Starts a counter in the running sandbox `id`, which just began without memory: no other one
    /// runs there.
    pub(super) async fn begin(daemon: &Daemon, id: &str) -> Result<Self> {
        let there = daemon.get(&format!("/sandboxes/{id}/processes")).await?;
        if there["processes"].as_array().is_none_or(|there| !there.is_empty()) {
            bail!("sandbox {id} began without memory, and has processes: {there}");
        }
        let mut dialogue = Dialogue::begin(daemon, id, PROGRAM).await?;
        let line = dialogue.say(daemon, id, "begin").await?;
        let (held, count) = line.rsplit_once(' ').context("a count")?;
        Ok(Self { held: held.to_owned(), count: count.parse().context("a count")?, dialogue })
    }

    /// Counts, and fails if the counter does not continue where it was.
    pub(super) async fn count(&mut self, daemon: &Daemon, id: &str) -> Result<()> {
        let line = self.dialogue.say(daemon, id, "count").await;
        let line = line.with_context(|| format!("the counter of sandbox {id} does not answer"))?;
        self.count += 1;
        let wanted = format!("{} {}", self.held, self.count);
        match line == wanted {
            true => Ok(()),
            false => bail!("the counter of sandbox {id} says '{line}' instead of '{wanted}'"),
        }
    }
}

/// A living sandbox.
#[derive(Clone, Debug)]
pub(super) struct Body {
    /// Its number in the walk.
    pub(super) number: u32,
    pub(super) id: String,
    /// The sandbox it was made from.
    pub(super) source: Option<String>,
    pub(super) suspendable: bool,
    pub(super) stage: Stage,
    /// The filesystem snapshot whose files are below its own.
    pub(super) stands_on: Option<String>,
    pub(super) tree: Tree,
    pub(super) counter: Counter,
}

impl Body {
    /// Checks that it runs and has every file and the counter as expected. This counts one further.
    pub(super) async fn is_whole(&mut self, daemon: &Daemon) -> Result<()> {
        let found = listing::listing(&listing::found(daemon, &self.id).await?);
        let differences = listing::differences(&found, &self.tree.expected());
        if !differences.is_empty() {
            bail!("s{} ({}): {}", self.number, self.id, differences.join("; "));
        }
        self.counter.count(daemon, &self.id).await.with_context(|| format!("s{}", self.number))
    }
}

/// A snapshot.
#[derive(Clone, Debug)]
pub(super) struct Shot {
    pub(super) number: u32,
    pub(super) id: String,
    /// The sandbox that it is a snapshot of.
    pub(super) source: String,
    pub(super) stands_on: Option<String>,
    pub(super) tree: Tree,
    /// `None` in a filesystem snapshot.
    pub(super) counter: Option<Counter>,
}

impl Shot {
    /// Its name in the walk.
    pub(super) fn name(&self) -> String {
        format!("{}{}", if self.counter.is_some() { 'm' } else { 'f' }, self.number)
    }

    /// The filesystem snapshot below a sandbox that begins with this one.
    pub(super) fn ground(&self) -> Option<String> {
        if self.counter.is_some() { self.stands_on.clone() } else { Some(self.id.clone()) }
    }

    /// The files of a sandbox that begins with this snapshot.
    pub(super) fn begun(&self) -> Tree {
        if self.counter.is_some() { self.tree.clone() } else { self.tree.booted() }
    }
}
