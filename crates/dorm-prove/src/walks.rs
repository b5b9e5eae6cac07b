//! Random walks: many actions in any order, each from a seed, compared with a model of every file
//! and of what memory holds.
//!
//! ```text
//! seed ─► actions (action) ─► asked of a daemon (perform) ─► the same in the model (cast, tree)
//!                                   └─► every file in one command (listing), the counter ─► equal?
//! ```
//!
//! All walks share one daemon, and each leaves it empty. The daemon is not killed here; that is
//! what the proof does.

mod action;
mod cast;
mod listing;
mod perform;
mod tree;
mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde::Serialize;
use serde_json::json;

use crate::Setting;
use crate::session::session;
use crate::world::World;
use action::Kind;
use tree::Tree;
use walk::Walk;

/// The walks stop after this many stumbles: more would add nothing.
const ENOUGH: usize = 5;
/// Progress is reported after this many walks.
const TOLD: u64 = 10;

/// The counts and findings of random walks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Walked {
    /// The seed of the first walk; each further walk has the next number.
    pub seed: u64,
    /// The number of walks that were begun.
    pub walks: u64,
    /// The number of walks that were asked for.
    pub wanted: u64,
    /// Their duration in seconds.
    pub seconds: u64,
    /// The actions, and how often each was done.
    pub actions: Vec<WalkedAction>,
    /// How often everything in a sandbox was compared.
    pub checks: u64,
    /// The walks that found something.
    pub stumbles: Vec<Stumble>,
    /// Whether they were interrupted.
    pub interrupted: bool,
    /// Leftovers that could not be cleared away afterwards.
    pub remains: Vec<String>,
    /// The file with the daemon's output; only if there are stumbles.
    pub log: Option<PathBuf>,
}

impl Walked {
    /// Whether all walks were completed and nothing was found.
    pub fn holds(&self) -> bool {
        self.walks == self.wanted && self.stumbles.is_empty() && self.remains.is_empty() && !self.interrupted
    }
}

/// How often an action was done.
#[derive(Clone, Debug, Serialize)]
pub struct WalkedAction {
    /// The name of the action.
    pub action: String,
    /// The count.
    pub times: u64,
}

/// A walk that found something.
#[derive(Clone, Debug, Serialize)]
pub struct Stumble {
    /// Its seed, which repeats it.
    pub seed: u64,
    /// The difference that was found, for people.
    pub what: String,
    /// Every action until then.
    pub steps: Vec<String>,
}

/// Runs `count` walks. `interrupted` stops them; in any case everything that they made is cleared
/// away. `tell` gets progress lines for people.
///
/// # Errors
/// If it cannot begin: no image, no directory, no daemon.
pub async fn walk(
    setting: &Setting,
    count: u64,
    interrupted: impl Future<Output = ()>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Walked> {
    let begun = Instant::now();
    let mut walked = Walked { seed: setting.seed, wanted: count, ..Walked::default() };
    let mut times = BTreeMap::new();
    let walking = async |world: &mut World| walks(world, &mut walked, &mut times, tell).await;
    let ended = session(setting, interrupted, tell, walking).await?;
    let log = ended.close(!walked.stumbles.is_empty())?;
    if let Some(error) = ended.found {
        return Err(error);
    }
    let actions = times.into_iter().map(|(kind, times)| WalkedAction { action: kind.name().to_owned(), times });
    Ok(Walked {
        seconds: begun.elapsed().as_secs(),
        actions: actions.collect(),
        interrupted: ended.interrupted,
        remains: ended.remains,
        log,
        ..walked
    })
}

async fn walks(
    world: &mut World,
    walked: &mut Walked,
    times: &mut BTreeMap<Kind, u64>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let ground = ground(world).await.context("look at the files of the image")?;
    for number in 0..walked.wanted {
        let seed = walked.seed.wrapping_add(number);
        walked.walks += 1;
        let mut walk = Walk::new(world, &ground, seed);
        let ended = walk.run().await;
        let (steps, done) = (std::mem::take(&mut walk.steps), std::mem::take(&mut walk.done));
        walked.checks += walk.checks;
        for kind in done {
            *times.entry(kind).or_default() += 1;
        }
        if let Err(error) = ended {
            let what = format!("{error:#}");
            tell(&format!("walk {seed} FOUND: {what}"));
            walked.stumbles.push(Stumble { seed, what, steps });
            if walked.stumbles.len() >= ENOUGH {
                return Ok(());
            }
            clear(world).await.context("clear away after a walk that found something")?;
        }
        if (number + 1) % TOLD == 0 {
            tell(&format!("{} of {} walks, {} comparisons", number + 1, walked.wanted, walked.checks));
        }
    }
    Ok(())
}

/// Removes everything that a walk has left.
async fn clear(world: &mut World) -> Result<()> {
    world.daemon.end_sandboxes().await?;
    for snapshot in world.records().await?.snapshots.iter().rev() {
        world.forget(&crate::host::word(snapshot, "id")).await?;
    }
    match world.settle().await?.first() {
        None => Ok(()),
        Some((_, what)) => bail!("{what}"),
    }
}

/// The files of a sandbox that was just made from the image.
async fn ground(world: &mut World) -> Result<Tree> {
    let daemon = &world.daemon;
    let id = daemon.create(json!({ "image": world.image })).await?;
    let mut tree = Tree::default();
    for (path, found) in listing::found(daemon, &id).await? {
        if found.is_directory() {
            tree.add_directory(&path, found.mode(), found.owner);
        } else if found.is_link() {
            tree.add_link(&path, &found.target);
        } else {
            let answer = daemon.request(Method::GET, &format!("/sandboxes/{id}/files?path={path}")).send().await?;
            let content = answer.error_for_status()?.bytes().await?.to_vec();
            tree.add_file(&path, content, (found.mode(), found.owner, found.modified));
        }
    }
    daemon.act(&id, "terminate").await?;
    Ok(tree)
}
