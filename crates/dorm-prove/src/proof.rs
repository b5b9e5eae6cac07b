//! The proof itself: which operation is carried out when, at which step the daemon dies, and what is counted.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::operation::{self, Cast, Heard, Operation};
use crate::random::Random;
use crate::report::{Finding, Kind, Report};
use crate::steps::{Act, Step};
use crate::world::{Fault, Hulls, Wake, World};
use crate::{Outcome, Setting};

/// With so many findings nothing more is to be learnt.
const ENOUGH: usize = 10;
/// How long no step may come until an operation's background work is over too; more with each try.
const QUIET: [Duration; 3] = [Duration::from_millis(150), Duration::from_secs(1), Duration::from_secs(5)];

/// Proves. `interrupted` breaks it off; either way everything that it made is cleared away. `tell` is given lines for
/// people while it works.
///
/// # Errors
/// When it cannot begin: no image, no directory, no daemon.
pub async fn prove(
    setting: &Setting,
    interrupted: impl Future<Output = ()>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Outcome> {
    let chosen = chosen(&setting.only)?;
    let place = Place::make(&setting.directory)?;
    let mut proof = Proof {
        setting,
        tell,
        place,
        world: None,
        worlds: 0,
        report: Report { seed: setting.seed, ..Report::default() },
        tried: BTreeMap::new(),
        random: Random::from_seed(setting.seed),
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

fn chosen(only: &[String]) -> Result<Vec<Operation>> {
    let find = |name: &String| {
        let known = Operation::ALL.iter().find(|operation| operation.name() == name.replace('-', " "));
        known.copied().with_context(|| format!("there is no operation '{name}': there are {}", names()))
    };
    if only.is_empty() { Ok(Operation::ALL.to_vec()) } else { only.iter().map(find).collect() }
}

fn names() -> String {
    let names: Vec<String> = Operation::ALL.iter().map(|operation| operation.name().replace(' ', "-")).collect();
    names.join(", ")
}

/// The proof's own directory.
struct Place {
    directory: PathBuf,
}

impl Place {
    fn make(parent: &Path) -> Result<Self> {
        let mut bytes = [0_u8; 4];
        getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("get random bytes: {error}"))?;
        let directory = parent.join(format!("dormouse-prove-{:08x}", u32::from_ne_bytes(bytes)));
        std::fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        std::fs::set_permissions(&directory, Permissions::from_mode(0o755))
            .with_context(|| format!("let guests pass through {}", directory.display()))?;
        Ok(Self { directory })
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Keeps what the daemons said beside the directory, which goes.
    fn keep_log(&self) -> Option<PathBuf> {
        let kept = self.directory.with_extension("log");
        std::fs::copy(self.log(), &kept).ok().map(|_| kept)
    }

    fn remove(&self, remains: &[String]) -> Result<()> {
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
    worlds: u32,
    report: Report,
    /// The steps of each operation, and how often the daemon was killed there.
    tried: BTreeMap<Operation, BTreeMap<Step, u32>>,
    random: Random,
    begun: Instant,
}

/// Whether there is time for more.
#[derive(PartialEq)]
enum Time {
    Left,
    Over,
}

impl Proof<'_> {
    async fn run(&mut self, chosen: &[Operation]) -> Result<()> {
        loop {
            if self.pass(chosen).await? == Time::Over {
                break;
            }
            self.report.passes += 1;
            if self.setting.limit.is_none() || self.time() == Time::Over {
                break;
            }
        }
        self.report.whole = chosen.iter().all(|operation| {
            self.tried.get(operation).is_some_and(|steps| !steps.is_empty() && steps.values().all(|times| *times > 0))
        });
        self.leave().await
    }

    fn time(&self) -> Time {
        let over = self.setting.limit.is_some_and(|limit| self.begun.elapsed() >= limit);
        if over || self.report.findings.len() >= ENOUGH { Time::Over } else { Time::Left }
    }

    async fn pass(&mut self, chosen: &[Operation]) -> Result<Time> {
        let mut order = chosen.to_vec();
        self.random.shuffle(&mut order);
        order.sort_by_key(|operation| operation.cast() == Cast::Images);
        for (number, operation) in order.iter().enumerate() {
            (self.tell)(&format!("{} of {}: {}", number + 1, order.len(), operation.name()));
            if self.operation(*operation).await? == Time::Over {
                return Ok(Time::Over);
            }
        }
        Ok(Time::Left)
    }

    /// Watches the operation once, then kills the daemon at each of its steps.
    async fn operation(&mut self, operation: Operation) -> Result<Time> {
        if !self.tried.contains_key(&operation) {
            self.cycle(operation, None, QUIET[0]).await?;
        }
        let mut done = Vec::new();
        loop {
            // A kill may lead to steps that were not seen before.
            let known = self.tried.entry(operation).or_default();
            let mut steps: Vec<Step> = known.keys().filter(|step| !done.contains(*step)).cloned().collect();
            if steps.is_empty() {
                break;
            }
            self.random.shuffle(&mut steps);
            for step in steps {
                for quiet in QUIET {
                    if self.time() == Time::Over {
                        return Ok(Time::Over);
                    }
                    if self.cycle(operation, Some(step.clone()), quiet).await? {
                        break;
                    }
                }
                done.push(step);
            }
        }
        if let Some((Cast::Sandboxes, world)) = &mut self.world {
            let faults = world.standing(Wake::Everybody).await;
            self.found(operation, None, faults).await;
        }
        Ok(self.time())
    }

    /// Carries out the operation once, with the daemon killed at `step`. Answers whether that step came.
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
                    tried.entry(seen).or_default();
                }
                if let Some(step) = step.as_ref().filter(|_| hit) {
                    *tried.entry(step.clone()).or_default() += 1;
                    row.kills += 1;
                }
                row.steps = tried.len();
                row.tried = tried.values().filter(|times| **times > 0).count();
                (hit, faults)
            }
            Err(error) => (true, vec![(Kind::WrongAnswer, format!("{error:#}"))]),
        };
        self.found(operation, step, faults).await;
        Ok(hit)
    }

    /// Notes what was found; what comes after begins with a daemon that has nothing of it.
    async fn found(&mut self, operation: Operation, step: Option<Step>, faults: Vec<Fault>) {
        if faults.is_empty() {
            return;
        }
        for (kind, what) in faults {
            let at = step.as_ref().map(|step| format!(", killed at '{step}'")).unwrap_or_default();
            (self.tell)(&format!("FOUND in {}{at}: {what}", operation.name()));
            let (operation, step) = (operation.name().to_owned(), step.as_ref().map(Step::to_string));
            self.report.add(Finding { operation, step, kind, what });
        }
        if let Some((_, mut world)) = self.world.take() {
            world.abandon().await;
        }
    }

    async fn world_for(&mut self, cast: Cast) -> Result<()> {
        if self.world.as_ref().is_some_and(|(has, _)| *has == cast) {
            return Ok(());
        }
        self.leave().await?;
        self.worlds += 1;
        let directory = self.place.directory.join(format!("daemon-{}", self.worlds));
        std::fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        let images = match cast {
            Cast::Sandboxes => self.setting.images.clone(),
            Cast::Images => {
                operation::make_source(&directory)?;
                operation::images_directory(&directory)
            }
        };
        let world = World::start(self.setting, &directory, &directory.join("data"), &images, &self.place.log())?;
        let (_, world) = self.world.insert((cast, world));
        if cast == Cast::Sandboxes {
            world.people().await?;
        }
        Ok(())
    }

    /// Ends the daemon with all that it has; nothing may stay.
    async fn leave(&mut self) -> Result<()> {
        let Some((cast, world)) = &mut self.world else { return Ok(()) };
        let operation = "end";
        let faults = match world.end().await {
            Ok(faults) => faults,
            Err(error) => vec![(Kind::WrongAnswer, format!("{error:#}"))],
        };
        let _ = cast;
        if !faults.is_empty() {
            world.abandon().await;
        }
        for (kind, what) in faults {
            (self.tell)(&format!("FOUND at the end: {what}"));
            self.report.add(Finding { operation: operation.to_owned(), step: None, kind, what });
        }
        self.world = None;
        Ok(())
    }

    async fn clear(&mut self) -> Vec<String> {
        match self.world.take() {
            Some((_, mut world)) => world.abandon().await,
            None => Vec::new(),
        }
    }
}

struct Ran {
    seen: Vec<Step>,
    hit: bool,
    faults: Vec<Fault>,
}

async fn cycle(world: &mut World, operation: Operation, step: Option<Step>, quiet: Duration) -> Result<Ran> {
    let scene = operation::prepare(world, operation).await.context("what comes before it")?;
    let waits = step.is_some();
    world.watcher.begin(step.map(|step| (step, Act::Kill)));
    let answer = operation::perform(world, operation, &scene).await;
    if !waits && answer.is_ok() && operation != Operation::MakeHulls {
        world.settle().await?;
    }
    world.watcher.hit_or_quiet(quiet);
    let (seen, hit) = world.watcher.end();
    let mut faults = Vec::new();
    let heard: Heard = match answer {
        Ok(answer) => Some(answer),
        Err(error) if !hit => {
            faults.push((Kind::WrongAnswer, format!("it did not work: {error:#}")));
            None
        }
        Err(_) => None,
    };
    if hit || operation == Operation::MakeHulls {
        world.restart(Hulls::None).context("the daemon does not start again")?;
    }
    faults.extend(world.settle().await?);
    if faults.is_empty() {
        faults.extend(operation::judge(world, operation, scene, &heard).await.context("what comes after it")?);
        faults.extend(world.standing(Wake::Nobody).await);
    }
    Ok(Ran { seen, hit, faults })
}
