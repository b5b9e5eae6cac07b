//! Forks of one sandbox: the time until all of them answer, and the memory that they take.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use dorm_testing::Daemon;
use futures_util::future::try_join_all;
use serde_json::json;

use super::guest::{answers, filled};
use super::millis;
use super::peer::Peer;
use super::rows::{Row, Unit};
use super::stage::{Groups, Stage, mib_of};

const MIB: u64 = 256;
const FEW: usize = 10;
const MANY: usize = 40;
/// How much time and memory ten forks may take, beside ten restores.
const TIME: f64 = 0.35;
const MEMORY: f64 = 0.1;

/// The rows of one number of forks.
struct Rows {
    time: Row,
    memory: Row,
    cache: Row,
}

impl Rows {
    fn of(count: usize, time: Row, memory: Row) -> Self {
        let cache = format!("memory of {count} forks of 256 MiB with the page cache of their image");
        Self {
            time,
            memory: memory.unit(Unit::Mib).plotted("forks", &format!("{count} forks")),
            cache: Row::shown(cache).unit(Unit::Mib),
        }
    }
}

/// Compares forks, all of which answer an exec, with restores of one image. Memory is that of the
/// control groups and the daemon's process, without file cache, which the kernel can drop.
pub(super) async fn fork(stage: &Stage, daemon: &Daemon) -> Result<Vec<Row>> {
    let name = "fork of 256 MiB into 10, all answer; restores at the same time";
    let memory = "memory of 10 forks of 256 MiB without page cache";
    let mut few = Rows::of(FEW, Row::new(name, TIME), Row::new(memory, MEMORY));
    let mut each = Row::shown("fork of 256 MiB into 10, all answer; restores one after another");
    let memory = "memory of 40 forks of 256 MiB without page cache";
    let mut many = Rows::of(MANY, Row::shown("fork of 256 MiB into 40, all answer"), Row::shown(memory));
    let mut silent = Row::at_most("forks of 256 MiB into 40 that fail", 0.0).unit(Unit::Count);
    let peer = stage.peer_in_group("fork")?;
    let id = filled(daemon, "forked", MIB).await?;
    peer.fill("forked", MIB)?;
    peer.checkpoint("forked")?;
    for round in 0..stage.rounds(5) {
        eprintln!("bench: fork into {FEW}, round {}", round + 1);
        forks(daemon, &id, FEW, &mut few).await?;
        restores(&peer, FEW, &mut few)?;
        each.ours.extend(few.time.ours.last());
        let children = names(FEW);
        let took = peer.restore_each("forked", &children);
        peer.delete_all(&children);
        each.peer.push(took?);
    }
    eprintln!("bench: fork into {MANY}");
    silent.ours.push(match forks(daemon, &id, MANY, &mut many).await {
        Ok(()) => 0.0,
        Err(error) => {
            eprintln!("bench: fork into {MANY}: {error:#}");
            1.0
        }
    });
    restores(&peer, MANY, &mut many)?;
    daemon.act(&id, "terminate").await?;
    Ok(vec![few.time, each, few.memory, few.cache, many.time, silent, many.memory, many.cache])
}

/// Forks once, until every child has answered an exec.
async fn forks(daemon: &Daemon, id: &str, count: usize, rows: &mut Rows) -> Result<()> {
    let groups = Groups::of(daemon)?;
    let before = groups.memory_mib()?;
    let began = Instant::now();
    let forked = daemon.post(&format!("/sandboxes/{id}/fork"), json!({ "count": count })).await?;
    let mut children = Vec::new();
    for child in forked["children"].as_array().context("children")? {
        children.push(child["sandbox"]["id"].as_str().with_context(|| format!("no child: {child}"))?.to_owned());
    }
    try_join_all(children.iter().map(|child| answers(daemon, child))).await?;
    let took = millis(began);
    let after = groups.memory_mib()?;
    for child in &children {
        daemon.act(child, "terminate").await?;
    }
    ensure!(children.len() == count, "{} children instead of {count}", children.len());
    rows.time.ours.push(took);
    rows.memory.ours.push(after.0 - before.0);
    rows.cache.ours.push(after.0 + after.1 - before.0 - before.1);
    Ok(())
}

/// Restores as many containers of the peer at the same time.
fn restores(peer: &Peer, count: usize, rows: &mut Rows) -> Result<()> {
    let names = names(count);
    let before = mib_of(peer.group()?.usage()?);
    let took = peer.restore_together("forked", &names);
    let after = mib_of(peer.group()?.usage()?);
    peer.delete_all(&names);
    rows.time.peer.push(took?);
    rows.memory.peer.push(after.0 - before.0);
    rows.cache.peer.push(after.0 + after.1 - before.0 - before.1);
    Ok(())
}

/// Returns names of containers. `runsc` takes one that begins another as ambiguous.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("forked-{number:02}")).collect()
}
