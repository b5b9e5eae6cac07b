//! One daemon of the proof with its sandboxes, and the way it is killed, restarted and waited for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use dorm_testing::{Daemon, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::Setting;
use crate::diary::Diary;
use crate::host::{Records, Traces, word};
use crate::layered_image::LayeredImage;
use crate::power::{PowerDisk, lose_power};
use crate::probe::{Loss, PATIENCE, Probe};
use crate::report::Kind;
use crate::steps::{Act, Watcher};

/// How long operations may take to finish, even on a busy machine.
const REST: Duration = Duration::from_secs(60);

/// The file with the number of seconds by which the daemon's clock is shifted.
const CLOCK: &str = "clock";

/// Something that is not as promised, without the operation during which it was found.
pub(crate) type Fault = (Kind, String);

/// The required stage of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Running,
    Parked,
    Evicted,
}

/// A daemon and its sandboxes.
pub(crate) struct World {
    pub(crate) daemon: Daemon,
    pub(crate) watcher: Watcher,
    pub(crate) traces: Traces,
    pub(crate) image: String,
    /// The directory of files that the daemon does not own.
    pub(crate) directory: PathBuf,
    /// The disk with its data, if the power can be cut.
    power: Option<Arc<PowerDisk>>,
    /// Whether the last daemon ended with a power cut.
    pub(crate) lost_power: bool,
    /// The sandbox of most operations.
    pub(crate) sleeper: Option<Probe>,
    /// The sandbox of operations that end one.
    pub(crate) doomed: Option<Probe>,
    /// A snapshot, and its expected content.
    pub(crate) origin: Option<(String, Probe)>,
    /// A filesystem snapshot, and its expected content.
    pub(crate) files_origin: Option<(String, Probe)>,
    /// A filesystem snapshot with the most layers that are not merged.
    pub(crate) deep: Option<String>,
    /// The file of a memory snapshot, and its expected content.
    pub(crate) exported: Option<(std::path::PathBuf, Probe)>,
    /// The acknowledged state of the volume of the operation.
    pub(crate) diary: Diary,
    /// The image in layers.
    pub(crate) layered: Option<LayeredImage>,
    /// Sandboxes that no operation touches: each must stay as it is.
    standing: Vec<(Stage, Probe)>,
    number: u64,
    runsc: Option<String>,
}

/// The number of warm containers that the daemon keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WarmContainers {
    /// None: then every step of creating one belongs to the operation that needs it.
    None,
    /// One of each kind.
    Ready,
}

impl World {
    /// Starts a daemon in `directory`, with its data in `data`.
    pub(crate) fn start(setting: &Setting, directory: &Path, data: &Path, images: &Path, log: &Path) -> Result<Self> {
        std::fs::create_dir_all(data).with_context(|| format!("make {}", data.display()))?;
        let data = data.canonicalize().with_context(|| format!("find {}", data.display()))?;
        let watcher = Watcher::listen(directory.join("steps"))?;
        let runsc = setting.runsc.as_ref().map(|path| path.display().to_string());
        let options = options(&watcher, &directory.join(CLOCK), WarmContainers::None, runsc.as_deref());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let daemon = Daemon::start(&setting.dorm, &data, images, log, &options)?;
        let prefix = (setting.prefix)(&data);
        Ok(Self {
            directory: directory.to_owned(),
            power: None,
            lost_power: false,
            daemon,
            watcher,
            traces: Traces::of(data, prefix),
            image: setting.image.clone(),
            sleeper: None,
            doomed: None,
            origin: None,
            files_origin: None,
            deep: None,
            exported: None,
            diary: Diary::default(),
            layered: None,
            standing: Vec::new(),
            number: 0,
            runsc,
        })
    }

    /// Keeps its data on `disk`, and cuts its power too when its daemon is killed at a step.
    pub(crate) fn on(mut self, disk: Arc<PowerDisk>) -> Self {
        self.power = Some(disk);
        self
    }

    /// The file with the number of seconds by which the daemon's clock is shifted.
    pub(crate) fn clock_file(&self) -> PathBuf {
        self.directory.join(CLOCK)
    }

    /// The action that ends its daemon at a step.
    pub(crate) fn blow(&self) -> Act {
        match self.power.clone() {
            None => Act::Kill,
            // If the cut fails, the daemon is killed with its power on, and the cycle reports it.
            Some(disk) => Act::KillAfter(Box::new(move || drop(disk.cut()))),
        }
    }

    /// Whether the power should be off, but is not.
    pub(crate) fn is_uncut(&self) -> bool {
        self.power.as_ref().is_some_and(|disk| !disk.is_off())
    }

    /// Ends its daemon now, in the same way as at a step.
    pub(crate) fn strike(&mut self) -> Result<()> {
        if let Some(disk) = &self.power {
            disk.cut()?;
        }
        self.daemon.kill()
    }

    /// Creates the sandboxes that no operation touches.
    pub(crate) async fn people(&mut self) -> Result<()> {
        for stage in [Stage::Running, Stage::Parked, Stage::Evicted] {
            let name = format!("standing-{stage:?}").to_lowercase();
            let mut probe = self.create(json!({ "name": name })).await?;
            self.bring(&mut probe, stage).await.map_err(said)?;
            self.standing.push((stage, probe));
        }
        Ok(())
    }

    /// A number that was not used before.
    pub(crate) fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A running sandbox with a probe in it.
    pub(crate) async fn create(&self, mut asked: Value) -> Result<Probe> {
        asked["image"] = json!(self.image);
        let id = self.daemon.create(asked).await?;
        Probe::begin(&self.daemon, &id).await
    }

    /// Brings a sandbox to `stage`, with something new to lose.
    pub(crate) async fn bring(&self, probe: &mut Probe, stage: Stage) -> Result<(), Loss> {
        let lost = |error: anyhow::Error| Loss::Sandbox(format!("{error:#}"));
        self.daemon.act(&probe.id, "resume").await.map_err(lost)?;
        if probe.has_lost_power() {
            probe.is_whole(&self.daemon).await?;
        }
        probe.note(&self.daemon).await.map_err(lost)?;
        if stage != Stage::Running {
            self.daemon.act(&probe.id, "suspend").await.map_err(lost)?;
            probe.has_slept();
        } else if self.power.is_some() {
            // It needs an image to fall back to, and something to lose.
            self.daemon.act(&probe.id, "suspend").await.map_err(lost)?;
            probe.has_slept();
            self.daemon.act(&probe.id, "resume").await.map_err(lost)?;
            probe.note(&self.daemon).await.map_err(lost)?;
        }
        if stage == Stage::Evicted {
            self.daemon.act(&probe.id, "evict").await.map_err(lost)?;
        }
        Ok(())
    }

    /// The sandbox of most operations, at `stage`.
    pub(crate) async fn sleeper(&mut self, stage: Stage) -> Result<Probe> {
        let mut probe = match self.sleeper.take() {
            Some(probe) => probe,
            None => self.create(json!({ "name": "sleeper" })).await?,
        };
        self.bring(&mut probe, stage).await.map_err(said)?;
        Ok(probe)
    }

    /// A snapshot, and its expected content.
    pub(crate) async fn origin(&mut self) -> Result<(String, Probe)> {
        if let Some(origin) = &self.origin {
            return Ok(origin.clone());
        }
        let probe = self.sleeper(Stage::Running).await?;
        let taken = self.daemon.checkpoint(&probe.id, "memory").await?;
        self.sleeper = Some(probe.clone());
        Ok(self.origin.insert((word(&taken, "id"), probe)).clone())
    }

    /// A filesystem snapshot, and its expected content.
    pub(crate) async fn files_origin(&mut self) -> Result<(String, Probe)> {
        if let Some(origin) = &self.files_origin {
            return Ok(origin.clone());
        }
        let probe = self.sleeper(Stage::Running).await?;
        let taken = self.daemon.checkpoint(&probe.id, "filesystem").await?;
        let files = probe.files();
        self.sleeper = Some(probe);
        Ok(self.files_origin.insert((word(&taken, "id"), files)).clone())
    }

    /// Kills the daemon if it still lives, and restarts it.
    pub(crate) fn restart(&mut self, containers: WarmContainers) -> Result<()> {
        self.daemon.kill()?;
        self.start_again(containers)
    }

    /// Restarts the dead daemon; after a power cut, on the data that the cut has left.
    pub(crate) fn start_again(&mut self, containers: WarmContainers) -> Result<()> {
        self.lost_power = false;
        if let Some(disk) = self.power.clone().filter(|disk| disk.is_off()) {
            lose_power(&mut self.traces, &disk)?;
            self.lost_power = true;
            // The host has not rebooted, but what it knew of the files' content ends here as well.
            match std::fs::remove_file(self.traces.data.join("verified.log")) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
            for probe in self.sleeper.iter_mut().chain(&mut self.doomed) {
                probe.lost_power();
            }
            let key = std::fs::read_to_string(self.traces.data.join("key"));
            let is_kept = key.as_ref().is_ok_and(|key| key.trim() == self.daemon.key());
            if !is_kept {
                let names = crate::host::names(&self.traces.data)?;
                let key = key.map(|key| format!("{} bytes", key.len()));
                bail!("the daemon's key is not the one it had given out after a power cut: {key:?}, beside {names:?}");
            }
        }
        let options = options(&self.watcher, &self.clock_file(), containers, self.runsc.as_deref());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        self.daemon.start_again_with(&options)
    }

    /// Returns the events of a sandbox.
    pub(crate) async fn events(&self, id: &str) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().and_then(|event| event["number"].as_u64()).unwrap_or_default();
            let page = self.daemon.get(&format!("/events?sandbox={id}&after={after}&limit=1000")).await?;
            let more = page["events"].as_array().cloned().unwrap_or_default();
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    pub(crate) async fn records(&self) -> Result<Records> {
        let states = "pending,running,snapshotting,suspending,suspended,resuming,terminating";
        let sandboxes = self.daemon.get(&format!("/sandboxes?limit=1000&state={states}")).await?;
        let snapshots = self.daemon.get("/snapshots?limit=1000").await?;
        let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
        Ok(Records { sandboxes: list(&sandboxes, "sandboxes"), snapshots: list(&snapshots, "snapshots") })
    }

    /// Waits until every operation is over and the host has exactly what the records say. Returns
    /// the differences if that takes too long.
    pub(crate) async fn settle(&mut self) -> Result<Vec<Fault>> {
        let end = Instant::now() + REST;
        loop {
            let records = self.records().await?;
            let unrest = records.unrest();
            let differences = if unrest.is_empty() { self.traces.differences(&records)? } else { Vec::new() };
            if unrest.is_empty() && differences.is_empty() {
                return Ok(Vec::new());
            }
            if Instant::now() > end {
                let half_alive = unrest.into_iter().map(|what| (Kind::SandboxLost, what));
                let left = differences.into_iter().map(|what| (Kind::LeftOver, what));
                return Ok(half_alive.chain(left).collect());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks that the untouched sandboxes are as they were left, and if `wake` says so, that they
    /// still have everything.
    pub(crate) async fn standing(&mut self, wake: Wake) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut standing = std::mem::take(&mut self.standing);
        for (stage, probe) in &mut standing {
            let outcome = match (*stage, wake) {
                (Stage::Running, Wake::Nobody) if self.lost_power => self.is_back(probe).await,
                (stage, Wake::Nobody) => self.is_still(probe, stage).await,
                (stage, Wake::Everybody) => self.is_still_whole(probe, stage).await,
            };
            faults.extend(outcome.err().map(fault));
        }
        self.standing = standing;
        faults
    }

    async fn is_still_whole(&self, probe: &mut Probe, stage: Stage) -> Result<(), Loss> {
        self.is_still(probe, stage).await?;
        let woken = self.daemon.act(&probe.id, "resume").await;
        woken.map_err(|error| Loss::Sandbox(format!("{error:#}")))?;
        probe.is_whole(&self.daemon).await?;
        self.bring(probe, stage).await
    }

    /// Checks that a sandbox that ran when the power was cut is at its image, then resumes it.
    async fn is_back(&self, probe: &mut Probe) -> Result<(), Loss> {
        let lost = |error: anyhow::Error| Loss::Sandbox(format!("{error:#}"));
        self.is_still(probe, Stage::Evicted).await?;
        self.daemon.act(&probe.id, "resume").await.map_err(lost)?;
        probe.lost_power();
        probe.is_whole(&self.daemon).await?;
        probe.note(&self.daemon).await.map_err(lost)
    }

    async fn is_still(&self, probe: &Probe, stage: Stage) -> Result<(), Loss> {
        let lost = |error: anyhow::Error| Loss::Sandbox(format!("{error:#}"));
        let view = self.daemon.describe(&probe.id).await.map_err(lost)?;
        let held = word(&view, "residence");
        // The daemon may evict a parked sandbox, but never brings one into memory on its own.
        let allowed: &[&str] = match stage {
            Stage::Running => &["running"],
            Stage::Parked => &["parked", "evicted"],
            Stage::Evicted => &["evicted"],
        };
        if allowed.contains(&held.as_str()) {
            return Ok(());
        }
        let what = format!("sandbox {} is {} and {held}, not {}", probe.id, view["state"], allowed.join(" or "));
        Err(Loss::Sandbox(what))
    }

    /// Ends everything in it and checks that nothing is left over. Then stops the daemon.
    pub(crate) async fn end(&mut self) -> Result<Vec<Fault>> {
        self.watcher.end();
        self.end_builds().await?;
        self.daemon.end_sandboxes().await?;
        // A snapshot that needs another is newer than it.
        for snapshot in self.records().await?.snapshots.into_iter().rev() {
            self.forget(&word(&snapshot, "id")).await?;
        }
        let faults = self.settle().await?;
        self.daemon.stop()?;
        // Some references are only removed at the next start, and there is none.
        self.daemon.release_images()?;
        self.traces.remove_groups();
        Ok(faults)
    }

    /// Waits for the end of all builds, which an interrupt leaves, and deletes all templates: both
    /// use snapshots.
    async fn end_builds(&self) -> Result<()> {
        until(PATIENCE, "the end of all builds", || async {
            let builds = self.daemon.get("/builds?limit=1000").await?;
            Ok(builds["builds"].as_array().into_iter().flatten().all(is_ended_build))
        })
        .await?;
        let templates = self.daemon.get("/templates?limit=1000").await?;
        for template in templates["templates"].as_array().into_iter().flatten() {
            self.daemon.ask(Method::DELETE, &format!("/templates/{}", word(template, "name")), None).await?;
        }
        Ok(())
    }

    /// Like [`Self::end`], from any state, after an error or an interrupt. Returns leftovers that
    /// could not be cleared away.
    pub(crate) async fn abandon(&mut self) -> Vec<String> {
        self.watcher.end();
        let ended = match self.restart(WarmContainers::None) {
            Ok(()) => tokio::time::timeout(PATIENCE, self.end()).await.unwrap_or_else(|_| Err(anyhow!("too slow"))),
            Err(error) => Err(error),
        };
        let reason = match ended {
            Ok(faults) if faults.is_empty() => return Vec::new(),
            Ok(_) => "it had left something behind".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        let _ = self.daemon.kill();
        let _ = self.daemon.release_images();
        self.traces.clear_by_force();
        self.traces.remains(reason)
    }

    /// Deletes a snapshot.
    pub(crate) async fn forget(&self, snapshot: &str) -> Result<()> {
        let answer = self.daemon.try_ask(Method::DELETE, &format!("/snapshots/{snapshot}"), None).await?;
        match answer.status {
            200..300 | 404 => Ok(()),
            status => bail!("delete snapshot {snapshot}: {status}: {}", answer.body),
        }
    }
}

/// Whether a build has come to its end.
pub(crate) fn is_ended_build(build: &Value) -> bool {
    !["queued", "running"].contains(&word(build, "state").as_str())
}

/// Whether sleeping sandboxes are resumed for the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    Nobody,
    Everybody,
}

fn options(watcher: &Watcher, clock: &Path, containers: WarmContainers, runsc: Option<&str>) -> Vec<String> {
    let containers = match containers {
        WarmContainers::None => "0",
        WarmContainers::Ready => "1",
    };
    // One of its disks is far smaller than the sum of the disks promised on it.
    let mut options =
        ["--warm-containers", containers, "--disk-overcommit", "1000", "--steps"].map(str::to_owned).to_vec();
    options.push(watcher.socket().display().to_string());
    options.extend(["--clock-shift".to_owned(), clock.display().to_string()]);
    if let Some(runsc) = runsc {
        options.extend(["--runsc".to_owned(), runsc.to_owned()]);
    }
    options
}

pub(crate) fn fault(loss: Loss) -> Fault {
    match loss {
        Loss::Sandbox(what) => (Kind::SandboxLost, what),
        Loss::Data(what) => (Kind::DataLost, what),
    }
}

pub(crate) fn said(loss: Loss) -> anyhow::Error {
    let (_, what) = fault(loss);
    anyhow!(what)
}
