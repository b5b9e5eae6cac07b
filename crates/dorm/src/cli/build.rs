//! `dorm image build`: builds an image from steps.
//!
//! Each step that changes files runs in a sandbox of its own. The resulting files are kept as a
//! filesystem snapshot under a hash of all inputs of the step. The next build continues after the
//! last step whose hash is unchanged.

mod carry;
mod context;
mod options;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use dorm_api_types as wire;
use dorm_build::{BuildError, Kept, Keys, Placed, Plan, Settings, Step, from_dockerfile};
use serde::Serialize;

use self::carry::{From, carry_out};
use self::context::{Context, Files};
pub(crate) use self::options::BuildOptions;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::progress::Progress;
use super::signals::{Signals, ended_by};
use super::{pull, shown};
use crate::client::Client;
use crate::exit;

/// The label of the snapshots and sandboxes of steps; its value is the hash of the step.
const LABEL: &str = "dorm.build";

/// A finished build.
#[derive(Serialize)]
struct Built {
    image: wire::Image,
    steps: Vec<BuiltStep>,
    seconds: f64,
}

/// The result of one step.
#[derive(Serialize)]
struct BuiltStep {
    step: String,
    line: Option<usize>,
    key: Option<String>,
    /// Whether its files were kept from an earlier build.
    cached: bool,
    snapshot: Option<String>,
    seconds: f64,
}

/// A step, the settings when it starts, and the key under which its files are kept.
struct Stage {
    placed: Placed,
    before: Settings,
    files: Option<Files>,
    key: Option<String>,
}

/// Builds an image and prints it.
pub(crate) async fn run(client: &Client, options: BuildOptions, format: Format) -> Done {
    let mut signals = Signals::new()?;
    let built = tokio::select! {
        built = build(client, options) => built?,
        number = signals.next() => {
            output::talk(
                "interrupted: the sandbox of the current step is terminated at its time limit; finished steps are kept",
            );
            return Ok(ended_by(number));
        }
    };
    match format {
        Format::Json => output::json(&built)?,
        Format::Table => {
            let cached = built.steps.iter().filter(|step| step.cached).count();
            let kept = built.steps.iter().filter(|step| step.key.is_some()).count();
            output::talk(&format!("built in {}; {cached} of {kept} steps were cached", shown::length(built.seconds)));
            super::image::print(&[built.image], format)?;
        }
    }
    Ok(exit::OK)
}

async fn build(client: &Client, mut options: BuildOptions) -> Result<Built, Problem> {
    let began = Instant::now();
    let context = Context::open(&options.context)?;
    let (base, mut plan) = plan(client, &mut options).await?;
    if let Some(line) = &options.cmd {
        let step = Step::Entrypoint(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]);
        plan.steps.push(Placed { line: None, step, arguments: BTreeMap::new() });
    }
    let config = base.config.clone();
    let (stages, settings, keys) = stages(&context, &base, plan)?;
    let found = if options.no_cache { HashMap::new() } else { kept(client).await? };
    // Each key includes the previous one: if a key is found, the earlier ones are not needed.
    let known = |stage: &Stage| stage.key.as_ref().and_then(|key| found.get(key));
    let begin = stages.iter().rposition(|stage| known(stage).is_some());
    let mut from = begin.and_then(|at| known(&stages[at])).cloned().unwrap_or(From::Image(base.digest));
    let mut steps = Vec::new();
    for (at, stage) in stages.iter().enumerate() {
        let title = shown_step(&stage.placed.step);
        let cached = begin.is_some_and(|begin| at <= begin);
        let note = if cached && stage.key.is_some() { " (cached)" } else { "" };
        output::talk(&format!("[{}/{}] {title}{note}", at + 1, stages.len()));
        let started = Instant::now();
        let mut snapshot = known(stage).filter(|_| cached).and_then(From::snapshot);
        if let Some(key) = stage.key.as_ref().filter(|_| !cached) {
            let place = match stage.placed.line {
                Some(line) => format!("line {line}: {title}"),
                None => format!("step {}: {title}", at + 1),
            };
            let done =
                carry_out(client, &options, &from, (stage, key)).await.map_err(|problem| problem.during(&place))?;
            snapshot = done.snapshot();
            from = done;
        }
        steps.push(BuiltStep {
            step: title,
            line: stage.placed.line,
            key: stage.key.clone(),
            cached: cached && stage.key.is_some(),
            snapshot,
            seconds: started.elapsed().as_secs_f64(),
        });
    }
    let config = finished(config, settings, &options);
    let text = serde_json::to_string(&config).map_err(|error| Problem::failed(error.to_string(), ""))?;
    let key = keys.finish(&text).to_string();
    let (image, snapshot) = match from {
        From::Image(image) => (Some(image), None),
        From::Snapshot { id, .. } => (None, Some(id)),
    };
    let build = (!options.no_cache).then_some(key);
    let asked = wire::ComposeImage { image, snapshot, config, tag: options.tag.clone(), build };
    let progress = Progress::new("creating the image");
    let image = pull::follow(client.compose_image(&asked).await?, &progress).await?;
    drop(progress);
    Ok(Built { image, steps, seconds: began.elapsed().as_secs_f64() })
}

/// Returns the base image and the steps.
async fn plan(client: &Client, options: &mut BuildOptions) -> Result<(wire::Image, Plan), Problem> {
    if let Some(from) = options.from.clone() {
        let base = find(client, &from).await?;
        let steps = std::mem::take(&mut options.steps.0);
        return Ok((base, Plan { from, steps }));
    }
    let path = options.file.clone().unwrap_or_else(|| options.context.join("Dockerfile"));
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("there is no {}", path.display());
            return Err(Problem::not_found(message, "give its path with --file, or use --from IMAGE with steps"));
        }
        other => other.map_err(|error| Problem::host(format!("read {}", path.display()), &error))?,
    };
    let arguments: BTreeMap<_, _> = options.build_arg.iter().cloned().collect();
    let wrong = |error: BuildError| Problem::usage(format!("{}: {error}", path.display()), "");
    // The settings of the base image are known only after its name is.
    let first = from_dockerfile(&text, &arguments, &Kept::default()).map_err(wrong)?;
    let base = find(client, &first.from).await?;
    let plan = from_dockerfile(&text, &arguments, &brought(&base.config)).map_err(wrong)?;
    Ok((base, plan))
}

async fn find(client: &Client, reference: &str) -> Result<wire::Image, Problem> {
    let asked = wire::PullImage {
        reference: reference.to_owned(),
        architecture: None,
        tag: None,
        insecure: false,
        pull: wire::Pull::Missing,
    };
    pull::pull(client, &asked).await
}

/// Returns the settings of an image.
fn brought(config: &wire::ImageConfig) -> Kept {
    let words = |words: &Vec<String>| Some(words.clone()).filter(|words| !words.is_empty());
    let pair = |line: &String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Kept {
        env: config.env.iter().filter_map(pair).collect(),
        workdir: config.directory.clone(),
        user: config.user.clone(),
        entrypoint: words(&config.entrypoint),
        cmd: words(&config.command),
    }
}

/// Returns the configuration of the new image: that of the base image, as the steps changed it.
fn finished(base: wire::ImageConfig, settings: Settings, options: &BuildOptions) -> wire::ImageConfig {
    let Settings(Kept { env, workdir, user, entrypoint, cmd }) = settings;
    wire::ImageConfig {
        entrypoint: entrypoint.unwrap_or_default(),
        command: cmd.unwrap_or_default(),
        env: env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
        directory: workdir,
        user,
        ready: options.ready_cmd.clone().or(base.ready),
        ..wire::ImageConfig { ports: base.ports, architecture: base.architecture, ..Default::default() }
    }
}

/// Returns everything that is known before a step runs.
fn stages(context: &Context, base: &wire::Image, plan: Plan) -> Result<(Vec<Stage>, Settings, Keys), Problem> {
    let mut settings = Settings(brought(&base.config));
    let mut keys = Keys::begin(&base.digest);
    let mut stages = Vec::new();
    for (at, placed) in plan.steps.into_iter().enumerate() {
        let place = placed.line.map_or_else(|| format!("step {}", at + 1), |line| format!("line {line}"));
        let files = match &placed.step {
            Step::Copy(copy) => Some(context.collect(&copy.from).map_err(|problem| problem.during(&place))?),
            _ => None,
        };
        let key = keys.next(&placed, &settings, files.as_ref().map(|files| &files.hash[..]));
        let before = settings.clone();
        settings.apply(&placed.step).map_err(|error| Problem::usage(format!("{place}: {error}"), ""))?;
        stages.push(Stage { placed, before, files, key: key.map(|key| key.to_string()) });
    }
    Ok((stages, settings, keys))
}

/// Returns the snapshots of steps that can be used, by key.
async fn kept(client: &Client) -> Result<HashMap<String, From>, Problem> {
    let snapshots = client.snapshots(None).await?.into_iter();
    let usable = snapshots.filter(|snapshot| {
        snapshot.status == wire::SnapshotStatus::Completed
            && snapshot.kind == wire::SnapshotKind::Filesystem
            && !snapshot.goes_when_free
    });
    Ok(usable.filter_map(|snapshot| Some((snapshot.labels.get(LABEL)?.clone(), snapshot.into()))).collect())
}

/// Returns a step as one line.
fn shown_step(step: &Step) -> String {
    let text = match step {
        Step::Run(dorm_build::Command::Shell(line)) => format!("RUN {line}"),
        Step::Run(dorm_build::Command::Argv(argv)) => format!("RUN {argv:?}"),
        Step::Copy(copy) => format!("COPY {} {}", copy.from.join(" "), copy.to),
        Step::Env(name, value) => format!("ENV {name}={value}"),
        Step::Workdir(path) => format!("WORKDIR {path}"),
        Step::User(user) => format!("USER {user}"),
        Step::Entrypoint(argv) => format!("ENTRYPOINT {argv:?}"),
        Step::Cmd(argv) => format!("CMD {argv:?}"),
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
