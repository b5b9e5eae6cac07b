//! The proof itself: the order of the operations, the steps at which the daemon is killed, and the
//! counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::damage::{self, Of};
use crate::full_disk::{self, Full, Saving};
use crate::operation::{self, Cast, Heard, Operation};
use crate::power::PowerDisk;
use crate::report::{Finding, Kind, Report, Times};
use crate::scenario::Scenario;
use crate::small_disk::SmallDisk;
use crate::steps::Step;
use crate::world::{Fault, Wake, WarmContainers, World};
use crate::{Outcome, Setting};

/// The proof stops after this many findings: more would add nothing.
const ENOUGH: usize = 10;
/// The most bytes in the path of the proof's directory: a socket's path in it has 107 bytes at
/// most.
const PATH_MOST: usize = 107 - "/d9999/disk/data/gvisor/try/runsc/runsc-h0123456789abcdef.sock".len();
/// An operation's preparation is over once no step has come for this long.
const CALM: Duration = Duration::from_millis(40);
/// An operation's background work is over once no step has come for this long; longer with each
/// try.
const QUIET: [Duration; 3] = [Duration::from_millis(150), Duration::from_secs(1), Duration::from_secs(5)];
/// How many more times the operation is then carried out for a step that did not come, before that
/// step counts as chance.
const MORE: usize = 2;

/// Runs the proof. `interrupted` stops it; in any case everything that it made is cleared away.
/// `tell` gets progress lines for people.
///
/// # Errors
/// If it cannot begin: no image, no directory, no daemon.
pub async fn prove(
    setting: &Setting,
    interrupted: impl Future<Output = ()>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Outcome> {
    let chosen = Chosen::of(setting)?;
    let place = Place::make(&setting.directory)?;
    let mut proof = Proof {
        setting,
        tell,
        place,
        world: None,
        worlds: 0,
        report: Report { seed: setting.seed, ..Report::default() },
        disk: None,
        tried: BTreeMap::new(),
        unmet: BTreeSet::new(),
        filled: BTreeMap::new(),
        random: fastrand::Rng::with_seed(setting.seed),
        begun: Instant::now(),
    };
    let ended = tokio::select! {
        ended = proof.run(&chosen) => Some(ended),
        () = interrupted => None,
    };
    let interrupted = ended.is_none();
    if interrupted {
        tell("broken off: clearing away");
    }
    let remains = proof.clear().await;
    let mut report = std::mem::take(&mut proof.report);
    report.seconds = proof.begun.elapsed().as_secs();
    report.whole &= !interrupted;
    let began = report.rows.iter().any(|row| row.cycles > 0);
    if !report.findings.is_empty() || !remains.is_empty() || matches!(&ended, Some(Err(_))) {
        report.log = proof.place.keep_log();
    }
    proof.place.remove(&remains)?;
    match ended {
        Some(Err(error)) if !began => Err(error),
        Some(Err(error)) => {
            report.whole = false;
            report.add(Finding {
                operation: "the proof itself".to_owned(),
                step: None,
                kind: Kind::WrongAnswer,
                what: format!("{error:#}"),
            });
            Ok(Outcome { report, interrupted, remains })
        }
        Some(Ok(())) | None => Ok(Outcome { report, interrupted, remains }),
    }
}

/// The selection of what is proved.
struct Chosen {
    operations: Vec<Operation>,
    savings: Vec<Saving>,
    damages: Vec<Of>,
    scenarios: Vec<Scenario>,
}

impl Chosen {
    fn of(setting: &Setting) -> Result<Self> {
        let only = &setting.only;
        let is_wanted = |name: &str| only.is_empty() || only.iter().any(|word| slug(word) == slug(name));
        if let Some(unknown) = only.iter().find(|word| !names().contains(&slug(word))) {
            bail!("there is no operation '{unknown}': there are {}", names().join(", "));
        }
        let chosen = Self {
            operations: Operation::ALL.iter().copied().filter(|operation| is_wanted(operation.name())).collect(),
            savings: Saving::ALL.into_iter().filter(|saving| is_wanted(saving.name())).collect(),
            damages: Of::ALL.into_iter().filter(|of| is_wanted(of.name())).collect(),
            scenarios: Scenario::ALL.into_iter().filter(|scenario| is_wanted(scenario.name())).collect(),
        };
        if !setting.power {
            return Ok(chosen);
        }
        // The power is cut at steps, so this proves only operations, which have steps.
        if chosen.operations.is_empty() {
            bail!("with --power there is nothing to prove of {}: choose other operations", only.join(", "));
        }
        Ok(Self { savings: Vec::new(), damages: Vec::new(), scenarios: Vec::new(), ..chosen })
    }
}

/// A name as one word, with dashes.
fn slug(name: &str) -> String {
    name.replace(", ", "-").replace(' ', "-")
}

/// The names of everything that can be proved on its own, for [`Setting::only`].
pub fn names() -> Vec<String> {
    let operations = Operation::ALL.iter().map(|operation| slug(operation.name()));
    let savings = Saving::ALL.into_iter().map(|saving| slug(saving.name()));
    let scenarios = Scenario::ALL.into_iter().map(|scenario| slug(scenario.name()));
    operations.chain(savings).chain(Of::ALL.into_iter().map(|of| slug(of.name()))).chain(scenarios).collect()
}

/// The proof's own directory.
pub(crate) struct Place {
    directory: PathBuf,
}

impl Place {
    pub(crate) fn make(parent: &Path) -> Result<Self> {
        let mut bytes = [0_u8; 4];
        getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("get random bytes: {error}"))?;
        let directory = parent.join(format!("dormouse-prove-{:08x}", u32::from_ne_bytes(bytes)));
        if directory.as_os_str().len() > PATH_MOST {
            bail!("{} is too long a path for runsc's sockets: choose a shorter --place", parent.display());
        }
        std::fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        std::fs::set_permissions(&directory, Permissions::from_mode(0o755))
            .with_context(|| format!("let guests pass through {}", directory.display()))?;
        Ok(Self { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Copies the daemons' log beside the directory, which is removed.
    pub(crate) fn keep_log(&self) -> Option<PathBuf> {
        let kept = self.directory.with_extension("log");
        std::fs::copy(self.log(), &kept).ok().map(|_| kept)
    }

    pub(crate) fn remove(&self, remains: &[String]) -> Result<()> {
        if !remains.is_empty() {
            return Ok(());
        }
        std::fs::remove_dir_all(&self.directory).with_context(|| format!("remove {}", self.directory.display()))
    }
}

struct Proof<'a> {
    setting: &'a Setting,
    tell: &'a (dyn Fn(&str) + Sync),
    place: Place,
    world: Option<(Cast, World)>,
    /// Dropped after the daemon that uses it.
    disk: Option<SmallDisk>,
    worlds: u32,
    report: Report,
    /// The steps of each operation, and how often the daemon was killed there.
    tried: BTreeMap<Operation, BTreeMap<Step, Times>>,
    /// Known steps that did not come in any of the cycles that waited for them.
    unmet: BTreeSet<(Operation, Step)>,
    /// Like `tried`, for steps at which the disk was filled.
    filled: BTreeMap<Saving, BTreeMap<Step, Times>>,
    random: fastrand::Rng,
    begun: Instant,
}

/// Whether there is time for more.
#[derive(PartialEq)]
enum Time {
    Left,
    Over,
}

impl Proof<'_> {
    async fn run(&mut self, chosen: &Chosen) -> Result<()> {
        loop {
            if self.pass(chosen).await? == Time::Over {
                break;
            }
            self.report.passes += 1;
            if self.setting.limit.is_none() || self.time() == Time::Over {
                break;
            }
        }
        self.name_chance();
        self.report.whole = self.report.passes > 0 && self.report.rows.iter().all(|row| row.untried.is_empty());
        self.leave().await
    }

    fn time(&self) -> Time {
        let over = self.setting.limit.is_some_and(|limit| self.begun.elapsed() >= limit);
        if over || self.report.findings.len() >= ENOUGH { Time::Over } else { Time::Left }
    }

    async fn pass(&mut self, chosen: &Chosen) -> Result<Time> {
        let mut order = chosen.operations.clone();
        self.random.shuffle(&mut order);
        order.sort_by_key(|operation| operation.cast() == Cast::Images);
        let count = order.len() + chosen.savings.len() + chosen.damages.len() + chosen.scenarios.len();
        let mut number = 0;
        let mut next = |name: &str| {
            number += 1;
            (self.tell)(&format!("{number} of {count}: {name}"));
        };
        for of in &chosen.damages {
            next(of.name());
            self.damage(*of).await?;
            if self.time() == Time::Over {
                return Ok(Time::Over);
            }
        }
        for scenario in &chosen.scenarios {
            next(scenario.name());
            self.scenario(*scenario).await?;
            if self.time() == Time::Over {
                return Ok(Time::Over);
            }
        }
        for operation in order {
            next(operation.name());
            if self.operation(operation).await? == Time::Over {
                return Ok(Time::Over);
            }
        }
        for saving in &chosen.savings {
            next(saving.name());
            if self.saving(*saving).await? == Time::Over {
                return Ok(Time::Over);
            }
        }
        Ok(Time::Left)
    }

    /// Damages an image in every way, as one operation.
    async fn damage(&mut self, of: Of) -> Result<()> {
        self.world_for(Cast::Sandboxes).await?;
        let Some((_, world)) = &mut self.world else { bail!("there is no daemon") };
        let ran = damage::run(world, of, &mut self.random).await;
        let (done, faults) = ran.unwrap_or_else(|error| (0, vec![(Kind::WrongAnswer, format!("{error:#}"))]));
        let row = self.report.row(of.name());
        row.cycles += done;
        row.disk_faults += done;
        self.found(of.name(), None, faults).await;
        Ok(())
    }

    /// Carries out one scenario on the host.
    async fn scenario(&mut self, scenario: Scenario) -> Result<()> {
        self.world_for(scenario.cast()).await?;
        let Some((_, world)) = &mut self.world else { bail!("there is no daemon") };
        let ran = scenario.run(world, &mut self.random).await;
        let (done, faults) = ran.unwrap_or_else(|error| (0, vec![(Kind::WrongAnswer, format!("{error:#}"))]));
        let row = self.report.row(scenario.name());
        row.cycles += done;
        row.disk_faults += done;
        self.found(scenario.name(), None, faults).await;
        Ok(())
    }

    /// Fills the disk before the operation, and at each of its steps.
    async fn saving(&mut self, saving: Saving) -> Result<Time> {
        if !self.filled.contains_key(&saving) {
            self.full(saving, Full::Never).await?;
        }
        for left in [0, 1 << 20] {
            self.full(saving, Full::Before(left)).await?;
        }
        let mut steps: Vec<Step> = self.filled.entry(saving).or_default().keys().cloned().collect();
        self.random.shuffle(&mut steps);
        for step in steps {
            if self.time() == Time::Over {
                return Ok(Time::Over);
            }
            self.full(saving, Full::At(step)).await?;
        }
        Ok(self.time())
    }

    async fn full(&mut self, saving: Saving, full: Full) -> Result<()> {
        self.world_for(Cast::SmallDisk).await?;
        let (Some((_, world)), Some(disk)) = (&mut self.world, &self.disk) else { bail!("there is no daemon") };
        let ran = full_disk::cycle(world, disk, saving, &full).await;
        let _ = disk.empty();
        let row = self.report.row(saving.name());
        row.cycles += 1;
        let mut at = None;
        let faults = match ran {
            Ok(ran) => {
                let filled = self.filled.entry(saving).or_default();
                match &full {
                    // A failing operation takes other steps: the disk is filled only at the steps
                    // of a success.
                    Full::Never => filled.extend(ran.seen.into_iter().map(|step| (step, Times::default()))),
                    Full::Before(_) => row.disk_faults += 1,
                    Full::At(step) => {
                        row.disk_faults += u64::from(ran.hit);
                        filled.entry(step.clone()).or_default().tried += u32::from(ran.hit);
                        at = Some(step.clone());
                    }
                }
                row.count(filled);
                ran.faults
            }
            Err(error) => vec![(Kind::WrongAnswer, format!("{full:?}: {error:#}"))],
        };
        self.found(saving.name(), at, faults).await;
        Ok(())
    }

    /// Watches the operation once, then kills the daemon at each of its steps.
    async fn operation(&mut self, operation: Operation) -> Result<Time> {
        if !self.tried.contains_key(&operation) {
            self.cycle(operation, None, QUIET[0]).await?;
            if self.setting.power {
                self.tried.entry(operation).or_default().entry(Step::answered()).or_default();
            }
        }
        let mut done = Vec::new();
        loop {
            // A kill may lead to new steps.
            let known = self.tried.entry(operation).or_default();
            let mut steps: Vec<Step> = known.keys().filter(|step| !done.contains(*step)).cloned().collect();
            if steps.is_empty() {
                break;
            }
            self.random.shuffle(&mut steps);
            for step in steps {
                let mut came = false;
                let seen = self.tried.get(&operation).and_then(|tried| tried.get(&step)).map_or(0, |times| times.seen);
                let more = if seen > 1 { MORE } else { 0 };
                for quiet in QUIET.into_iter().chain(std::iter::repeat_n(QUIET[1], more)) {
                    if self.time() == Time::Over {
                        return Ok(Time::Over);
                    }
                    came = self.cycle(operation, Some(step.clone()), quiet).await?;
                    if came {
                        break;
                    }
                }
                if !came {
                    self.unmet.insert((operation, step.clone()));
                }
                done.push(step);
            }
        }
        if let Some((Cast::Sandboxes, world)) = &mut self.world {
            let faults = world.standing(Wake::Everybody).await;
            self.found(operation.name(), None, faults).await;
        }
        Ok(self.time())
    }

    /// Handles steps that did not come in any of the cycles made for them. Such a step belongs to
    /// something else that ran at the same time, and must have been tried there, unless it came
    /// only once.
    fn name_chance(&mut self) {
        let known: BTreeSet<String> = self
            .tried
            .values()
            .flatten()
            .filter(|(_, times)| times.tried > 0)
            .map(|(step, _)| step.name().to_owned())
            .collect();
        for (operation, step) in std::mem::take(&mut self.unmet) {
            let Some(tried) = self.tried.get_mut(&operation) else { continue };
            let Some(Times { seen, tried: 0 }) = tried.get(&step).copied() else { continue };
            if seen == 1 || known.contains(step.name()) {
                tried.remove(&step);
                let row = self.report.row(operation.name());
                row.by_chance.push(step.to_string());
                row.count(tried);
            }
        }
    }

    /// Carries out the operation once and kills the daemon at `step`. Returns whether that step
    /// came.
    async fn cycle(&mut self, operation: Operation, step: Option<Step>, quiet: Duration) -> Result<bool> {
        self.world_for(operation.cast()).await?;
        let Some((_, world)) = &mut self.world else { bail!("there is no daemon") };
        let ran = cycle(world, operation, step.clone(), quiet).await;
        let row = self.report.row(operation.name());
        row.cycles += 1;
        let (hit, faults) = match ran {
            Ok(Ran { seen, hit, faults }) => {
                let tried = self.tried.entry(operation).or_default();
                for seen in seen {
                    tried.entry(seen).or_default().seen += 1;
                }
                if let Some(step) = step.as_ref().filter(|_| hit) {
                    tried.entry(step.clone()).or_default().tried += 1;
                    let blows = if self.setting.power { &mut row.power_cuts } else { &mut row.kills };
                    *blows += 1;
                }
                row.count(tried);
                (hit, faults)
            }
            Err(error) => (true, vec![(Kind::WrongAnswer, format!("{error:#}"))]),
        };
        self.found(operation.name(), step, faults).await;
        Ok(hit)
    }

    /// Records findings, and replaces the daemon so that later operations do not meet them.
    async fn found(&mut self, operation: &str, step: Option<Step>, faults: Vec<Fault>) {
        if faults.is_empty() {
            return;
        }
        for (kind, what) in faults {
            let at = step.as_ref().map(|step| format!(", at the step '{step}'")).unwrap_or_default();
            (self.tell)(&format!("FOUND in {operation}{at}: {what}"));
            let (operation, step) = (operation.to_owned(), step.as_ref().map(Step::to_string));
            self.report.add(Finding { operation, step, kind, what });
        }
        if let Some((_, mut world)) = self.world.take() {
            world.abandon().await;
        }
        self.disk = None;
    }

    async fn world_for(&mut self, cast: Cast) -> Result<()> {
        if self.world.as_ref().is_some_and(|(has, _)| *has == cast) {
            return Ok(());
        }
        self.leave().await?;
        self.worlds += 1;
        let directory = self.place.directory.join(format!("d{}", self.worlds));
        std::fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        let power = if self.setting.power { Some(Arc::new(PowerDisk::make(&directory)?)) } else { None };
        // Everything that a power cut must lose is on the disk.
        let own = power.as_ref().map_or(directory.as_path(), |disk| disk.path());
        let images = match cast {
            Cast::Sandboxes | Cast::SmallDisk => self.setting.images.clone(),
            Cast::Images => {
                operation::make_source(&directory)?;
                operation::images_directory(own)
            }
        };
        let data = match cast {
            Cast::Sandboxes | Cast::Images => own.join("data"),
            Cast::SmallDisk => self.disk.insert(SmallDisk::make(&directory)?).path().join("data"),
        };
        let world = World::start(self.setting, &directory, &data, &images, &self.place.log())?;
        let world = match power {
            Some(disk) => world.on(disk),
            None => world,
        };
        let (_, world) = self.world.insert((cast, world));
        if cast == Cast::Sandboxes {
            world.people().await?;
        }
        Ok(())
    }

    /// Ends the daemon and everything it has; nothing may be left over.
    async fn leave(&mut self) -> Result<()> {
        let Some((_, world)) = &mut self.world else { return Ok(()) };
        let faults = match world.end().await {
            Ok(faults) => faults,
            Err(error) => vec![(Kind::WrongAnswer, format!("{error:#}"))],
        };
        if !faults.is_empty() {
            world.abandon().await;
        }
        for (kind, what) in faults {
            (self.tell)(&format!("FOUND at the end: {what}"));
            self.report.add(Finding { operation: "end".to_owned(), step: None, kind, what });
        }
        self.world = None;
        self.disk = None;
        Ok(())
    }

    async fn clear(&mut self) -> Vec<String> {
        // Clearing away needs room.
        let _ = self.disk.as_ref().map(SmallDisk::empty);
        let remains = match self.world.take() {
            Some((_, mut world)) => world.abandon().await,
            None => Vec::new(),
        };
        self.disk = None;
        remains
    }
}

struct Ran {
    seen: Vec<Step>,
    hit: bool,
    faults: Vec<Fault>,
}

async fn cycle(world: &mut World, operation: Operation, step: Option<Step>, quiet: Duration) -> Result<Ran> {
    world.lost_power = false;
    let scene = operation::prepare(world, operation).await.context("what comes before it")?;
    let waits = step.is_some();
    let (answered, step): (Vec<_>, Vec<_>) = step.into_iter().partition(|step| *step == Step::answered());
    // Work after an answer, such as deleting an older image, must not count as the next
    // operation's.
    world.watcher.hit_or_quiet(CALM);
    world.watcher.begin(step.into_iter().next().map(|step| (step, world.blow())));
    let answer = operation::perform(world, operation, &scene).await;
    let is_struck = !answered.is_empty() && answer.is_ok();
    if is_struck {
        world.strike().context("end it as soon as it has answered")?;
    }
    if !waits && answer.is_ok() && operation != Operation::MakeWarmContainers {
        world.settle().await?;
    }
    if !is_struck {
        world.watcher.hit_or_quiet(quiet);
    }
    let (mut seen, hit) = world.watcher.end();
    let hit = hit || is_struck;
    seen.extend(answered);
    if hit && world.is_uncut() {
        bail!("the power could not be cut: the kernel must know how to shut down ext4");
    }
    let mut faults = Vec::new();
    let heard: Heard = match answer {
        Ok(answer) => Some(answer),
        Err(error) if !hit => {
            faults.push((Kind::WrongAnswer, format!("it did not work: {error:#}")));
            None
        }
        Err(_) => None,
    };
    if hit || operation == Operation::MakeWarmContainers {
        world.restart(WarmContainers::None).context("the daemon does not start again")?;
    }
    faults.extend(world.settle().await?);
    if faults.is_empty() {
        faults.extend(operation::judge(world, operation, scene, &heard).await.context("what comes after it")?);
        faults.extend(world.standing(Wake::Nobody).await);
    }
    Ok(Ran { seen, hit, faults })
}
