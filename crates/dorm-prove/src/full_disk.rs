//! A disk that becomes full before or during a suspend or a snapshot: the sandbox keeps running,
//! the caller learns that there is no room, and nothing half-made stays.

use anyhow::{Context as _, Result, anyhow};
use dorm_testing::until;
use reqwest::Method;
use serde_json::{Value, json};

use crate::host::word;
use crate::probe::PATIENCE;
use crate::report::Kind;
use crate::small_disk::SmallDisk;
use crate::steps::{Act, Step};
use crate::world::{Fault, Stage, World, fault};

/// An operation that is carried out with a full disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Saving {
    Suspend,
    Checkpoint,
    Files,
}

impl Saving {
    pub(crate) const ALL: [Self; 3] = [Self::Suspend, Self::Checkpoint, Self::Files];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Suspend => "suspend, disk full",
            Self::Checkpoint => "checkpoint, disk full",
            Self::Files => "checkpoint files, disk full",
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Checkpoint | Self::Files => "checkpoint",
        }
    }

    fn asked(self) -> Value {
        match self {
            Self::Suspend => json!({}),
            Self::Checkpoint => json!({ "kind": "memory" }),
            Self::Files => json!({ "kind": "filesystem" }),
        }
    }
}

/// When the disk becomes full.
#[derive(Clone, Debug)]
pub(crate) enum Full {
    /// Never: to learn the steps of the operation.
    Never,
    /// Before the operation begins, with this many bytes left.
    Before(u64),
    /// When this step is reached.
    At(Step),
}

/// The result of one cycle.
pub(crate) struct Ran {
    pub(crate) seen: Vec<Step>,
    pub(crate) hit: bool,
    pub(crate) faults: Vec<Fault>,
}

/// Carries out `saving` once, with the disk full as `full` says.
pub(crate) async fn cycle(world: &mut World, disk: &SmallDisk, saving: Saving, full: &Full) -> Result<Ran> {
    let mut probe = world.sleeper(Stage::Running).await?;
    let before = world.records().await?.snapshots.len();
    let filler = disk.filler();
    match full {
        Full::Never => world.watcher.begin(None),
        Full::Before(left) => {
            filler.fill(*left)?;
            world.watcher.begin(None);
        }
        Full::At(step) => {
            let fill = move || drop(filler.fill(0));
            world.watcher.begin(Some((step.clone(), Act::Meanwhile(Box::new(fill)))));
        }
    }
    let path = format!("/sandboxes/{}/{}", probe.id, saving.verb());
    let answer = world.daemon.try_ask(Method::POST, &path, Some(saving.asked()));
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    let answer = answer.unwrap_or_else(|_| Err(anyhow!("it takes more than {} s", PATIENCE.as_secs())));
    let quiet = std::time::Duration::from_millis(150);
    world.watcher.hit_or_quiet(quiet);
    let (seen, hit) = world.watcher.end();
    let mut faults = Vec::new();
    // The daemon must be able to continue with the disk as it is.
    match answer {
        Ok(answer) if answer.status < 400 => {
            if let Full::Before(0) = full {
                faults.push((Kind::WrongAnswer, format!("it was done without any room: {}", answer.body)));
            }
        }
        Ok(answer) => refused(world, &probe.id, &answer.body, &mut faults).await?,
        Err(error) => faults.push((Kind::WrongAnswer, format!("no answer on a full disk: {error:#}"))),
    }
    disk.empty()?;
    faults.extend(world.settle().await?);
    continues(world, &probe.id).await?;
    world.daemon.act(&probe.id, "resume").await.context("resume with room again")?;
    faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
    if faults.is_empty() {
        world.sleeper = Some(probe);
        for snapshot in world.records().await?.snapshots.iter().skip(before) {
            world.forget(&word(snapshot, "id")).await?;
        }
    }
    Ok(Ran { seen, hit, faults })
}

/// Waits until a sandbox that was paused for the full disk continues, now that there is room.
async fn continues(world: &World, id: &str) -> Result<()> {
    let continues = || async { Ok(world.daemon.describe(id).await?["paused_for_disk"] != true) };
    until(PATIENCE, "the sandbox continues with room on the disk", continues).await
}

/// Checks that a refusal says that room is missing, and that the sandbox runs.
async fn refused(world: &World, id: &str, body: &Value, faults: &mut Vec<Fault>) -> Result<()> {
    let text = body.to_string().to_lowercase();
    if !["no room", "no_room", "enough room", "full", "no space"].iter().any(|word| text.contains(word)) {
        faults.push((Kind::WrongAnswer, format!("the reason does not say that the disk is full: {body}")));
    }
    let view = world.daemon.describe(id).await?;
    if view["state"] != "running" {
        let what = format!("sandbox {id} is {} after it could not be saved: {}", view["state"], view["cause"]);
        faults.push((Kind::SandboxLost, what));
    }
    Ok(())
}
