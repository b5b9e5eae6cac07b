//! Damaged files of an image: each use of the image is refused by name before any code of the guest
//! runs, and the image works again as soon as its file is restored.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::json;

use crate::host::{names, word};
use crate::probe::Probe;
use crate::report::Kind;
use crate::world::{Fault, Stage, World, fault};

/// The step after which a guest's code may have run.
const GUEST: &str = "gvisor: guest begun";

/// A kind of damage to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    Cut,
    Emptied,
    Flipped,
    Removed,
}

impl Damage {
    pub(crate) const ALL: [Self; 4] = [Self::Cut, Self::Emptied, Self::Flipped, Self::Removed];

    /// The damaged content of a file; `None` when the file is removed.
    pub(crate) fn of(self, mut content: Vec<u8>, random: &mut fastrand::Rng) -> Option<Vec<u8>> {
        match self {
            Self::Cut => content.truncate(content.len() / 2),
            Self::Emptied => content.clear(),
            Self::Flipped => {
                let at = random.usize(..content.len().max(1));
                if let Some(byte) = content.get_mut(at) {
                    *byte ^= 1 << random.u32(..8);
                }
            }
            Self::Removed => return None,
        }
        Some(content)
    }
}

/// The saved state whose files are damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    SleepImage,
    Snapshot,
}

impl Of {
    pub(crate) const ALL: [Self; 2] = [Self::SleepImage, Self::Snapshot];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SleepImage => "resume, image damaged",
            Self::Snapshot => "create, snapshot damaged",
        }
    }
}

/// A file that is set aside while another is in its place.
struct Damaged {
    path: PathBuf,
    aside: PathBuf,
}

impl Damaged {
    fn make(path: &Path, aside: &Path, damage: Damage, random: &mut fastrand::Rng) -> Result<Self> {
        let content = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        // Other saved states may share the file: it is replaced, not changed.
        fs::rename(path, aside).with_context(|| format!("set {} aside", path.display()))?;
        let damaged = Self { path: path.to_owned(), aside: aside.to_owned() };
        if let Some(content) = damage.of(content, random) {
            fs::write(path, content).with_context(|| format!("damage {}", path.display()))?;
        }
        Ok(damaged)
    }

    fn mend(&self) -> Result<()> {
        fs::rename(&self.aside, &self.path).with_context(|| format!("put {} back", self.path.display()))
    }
}

/// Damages every file of an image in every way; returns the number of damages and the faults found.
pub(crate) async fn run(world: &mut World, of: Of, random: &mut fastrand::Rng) -> Result<(u64, Vec<Fault>)> {
    for (snapshot, _) in world.origin.take().into_iter().chain(world.files_origin.take()) {
        world.forget(&snapshot).await?;
    }
    let mut faults = Vec::new();
    let (mut probe, snapshot) = match of {
        Of::SleepImage => (world.sleeper(Stage::Evicted).await?, None),
        Of::Snapshot => {
            let (snapshot, probe) = world.origin().await?;
            // The source's own image would look the same.
            let sleeper = world.sleeper.take().context("the source of the snapshot")?;
            world.daemon.act(&sleeper.id, "terminate").await?;
            faults.extend(world.settle().await?);
            (probe, Some(snapshot))
        }
    };
    let saved_state = saved_state_of(world, &probe)?;
    let aside = world.traces.data.join("aside");
    let mut done = 0;
    for name in names(&saved_state)? {
        for damage in Damage::ALL {
            let damaged = Damaged::make(&saved_state.join(&name), &aside, damage, random)?;
            let tried = refused(world, &probe, snapshot.as_deref(), &saved_state, &mut faults).await;
            damaged.mend()?;
            tried.with_context(|| format!("{name} {damage:?}"))?;
            done += 1;
        }
    }
    match snapshot {
        None => {
            world.daemon.act(&probe.id, "resume").await.context("resume from the image that was put right")?;
            faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
            world.sleeper = Some(probe).filter(|_| faults.is_empty());
        }
        Some(snapshot) => {
            let id = world.daemon.create(json!({ "snapshot": snapshot })).await;
            let id = id.context("start from the snapshot that was put right")?;
            faults.extend(probe.of(&id).is_whole(&world.daemon).await.err().map(fault));
            world.daemon.act(&id, "terminate").await?;
        }
    }
    faults.extend(world.settle().await?);
    Ok((done, faults))
}

fn saved_state_of(world: &World, probe: &Probe) -> Result<PathBuf> {
    let mut found = world.traces.manifests()?;
    found.retain(|(_, manifest)| manifest.as_ref().is_some_and(|text| word(&text["body"], "sandbox") == probe.id));
    match found.as_slice() {
        [(path, _)] => Ok(path.clone()),
        several => bail!("sandbox {} has {} images, not one", probe.id, several.len()),
    }
}

async fn refused(
    world: &World,
    probe: &Probe,
    snapshot: Option<&str>,
    saved_state: &Path,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    world.watcher.begin(None);
    let (path, body) = match snapshot {
        None => (format!("/sandboxes/{}/resume", probe.id), json!({})),
        Some(snapshot) => ("/sandboxes".to_owned(), json!({ "snapshot": snapshot })),
    };
    let answer = world.daemon.try_ask(Method::POST, &path, Some(body)).await?;
    let ran = world.watcher.times(GUEST);
    world.watcher.end();
    let said = answer.body.to_string();
    let id = saved_state.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if answer.status < 400 {
        faults.push((Kind::DataLost, format!("a damaged image was used: {said}")));
    } else if !said.contains(&id) {
        faults.push((Kind::WrongAnswer, format!("the refusal does not name saved state {id}: {said}")));
    }
    if ran > 0 {
        faults.push((Kind::DataLost, "code of the guest ran from a damaged image".to_owned()));
    }
    if snapshot.is_none() {
        let view = world.daemon.describe(&probe.id).await?;
        if view["state"] != "suspended" {
            faults.push((Kind::SandboxLost, format!("sandbox {} is {}, not suspended", probe.id, view["state"])));
        }
    }
    Ok(())
}
