//! `dorm image build` and `dorm build`: builds that the daemon carries out.
//!
//! The context is uploaded once; then the log is followed until the build has ended. The build does
//! not depend on this process.

pub(super) mod context;
mod options;
mod verbs;

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_api_types as wire;
use dorm_build::{BuildError, Copy, Kept, Placed, Step, from_dockerfile};
use dorm_client::{Client, ClientError};
use serde::Serialize;

use self::context::Context;
pub(crate) use self::options::BuildOptions;
pub(crate) use self::verbs::{BuildVerbs, run as run_verb};
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::progress::Progress;
use super::shown;
use super::signals::{Signals, ended_by};
use crate::exit;

/// How often a connection to the daemon is tried again while a build is followed, and how long
/// after the last attempt.
const ATTEMPTS: usize = 60;
const AGAIN: Duration = Duration::from_secs(1);

/// A finished build.
#[derive(Serialize)]
struct Built {
    image: Option<wire::Image>,
    steps: Vec<BuiltStep>,
    seconds: f64,
    build: wire::Build,
}

/// The result of one step.
#[derive(Serialize)]
struct BuiltStep {
    step: String,
    line: Option<u64>,
    key: Option<String>,
    /// Whether its files were kept from an earlier build.
    cached: bool,
    snapshot: Option<String>,
    seconds: f64,
}

/// Requests a build, follows it and prints its result.
pub(crate) async fn run(client: &Client, options: BuildOptions, format: Format) -> Done {
    let is_detached = options.detach;
    let build = request(client, options).await?;
    if is_detached {
        match format {
            Format::Json => output::json(&build)?,
            Format::Table => output::write(format!("{}\n", build.id).as_bytes())?,
        }
        return Ok(exit::OK);
    }
    attach(client, &build.id, 0, format).await
}

/// Uploads the context, unless the daemon has it, and requests the build.
async fn request(client: &Client, mut options: BuildOptions) -> Result<wire::Build, Problem> {
    let (mut asked, copies) = asked(&mut options)?;
    if !copies {
        // A wrong path is an error even if no step copies anything.
        let host = |error| Problem::host(format!("read the context {}", options.context.display()), &error);
        std::fs::metadata(&options.context).map_err(host)?;
        return Ok(client.create_build(&asked).await?);
    }
    let progress = Progress::new("reading the context");
    let context = Context::open(&options.context)?;
    asked.context = Some(context.hash.clone());
    // The daemon may remove a context between two requests.
    for is_last in [false, true] {
        if !client.has_context(&context.hash).await? {
            progress.say("uploading the context".to_owned());
            client.upload_context(&context.hash, context.archive()).await?;
        }
        match client.create_build(&asked).await {
            Err(error) if error.is_not_found() && !is_last => {}
            other => return Ok(other?),
        }
    }
    Err(Problem::failed("the context was removed before the build was requested", "try again"))
}

/// Returns the request, and whether a step copies files.
fn asked(options: &mut BuildOptions) -> Result<(wire::CreateBuild, bool), Problem> {
    let mut asked = wire::CreateBuild {
        tag: options.tag.clone(),
        start_command: options.cmd.clone(),
        ready_command: options.ready_cmd.clone(),
        force: options.no_cache,
        step_timeout_secs: Some(options.step_timeout),
        resources: Some(wire::ResourcesRequest {
            cpu_millis: options.cpus,
            memory_bytes: options.memory,
            disk_bytes: options.disk,
            processes: None,
        }),
        egress: options.egress.clone(),
        template: options.template.as_deref().map(template),
        ..wire::CreateBuild::default()
    };
    if let Some(from) = options.from.take() {
        asked.from = Some(from);
        let steps = std::mem::take(&mut options.steps.0);
        let copies = steps.iter().any(|placed| matches!(placed.step, Step::Copy(_)));
        asked.steps = steps.into_iter().map(step).collect();
        return Ok((asked, copies));
    }
    let path = options.file.clone().unwrap_or_else(|| options.context.join("Dockerfile"));
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && options.context.is_dir() => {
            let message = format!("there is no {}", path.display());
            return Err(Problem::not_found(message, "give its path with --file, or use --from IMAGE with steps"));
        }
        other => other.map_err(|error| Problem::host(format!("read {}", path.display()), &error))?,
    };
    let arguments: BTreeMap<_, _> = options.build_arg.iter().cloned().collect();
    let wrong = |error: BuildError| Problem::usage(format!("{}: {error}", path.display()), "");
    let plan = from_dockerfile(&text, &arguments, &Kept::default()).map_err(wrong)?;
    let copies = plan.steps.iter().any(|placed| matches!(placed.step, Step::Copy(_)));
    (asked.dockerfile, asked.arguments) = (Some(text), arguments);
    Ok((asked, copies))
}

/// Returns the template that `NAME` or `NAME:TAG` stands for.
pub(super) fn template(text: &str) -> wire::BuildTemplate {
    let (name, tag) = text.split_once(':').map_or((text, None), |(name, tag)| (name, Some(tag.to_owned())));
    wire::BuildTemplate { name: name.to_owned(), tags: tag.into_iter().collect(), ..wire::BuildTemplate::default() }
}

fn step(placed: Placed) -> wire::BuildStepRequest {
    let mut step = wire::BuildStepRequest::default();
    match placed.step {
        Step::Run(dorm_build::Command::Shell(line)) => step.run = Some(line),
        Step::Run(dorm_build::Command::Login(line)) => step.run_login = Some(line),
        Step::Run(dorm_build::Command::Argv(argv)) => step.argv = Some(argv),
        Step::Copy(Copy { from, to, owner, mode }) => {
            let mode = mode.map(|mode| format!("{mode:04o}"));
            step.copy = Some(wire::BuildCopy { from, to, owner, mode });
        }
        Step::Env(name, value) => step.env = Some([(name, value)].into()),
        Step::Workdir(path) => step.workdir = Some(path),
        Step::User(user) => step.user = Some(user),
        // No option gives these.
        Step::Entrypoint(argv) | Step::Cmd(argv) => step.argv = Some(argv),
    }
    step
}

/// Follows a build to its end, and prints its result. A signal ends this process, not the build.
pub(super) async fn attach(client: &Client, id: &str, offset: u64, format: Format) -> Done {
    let mut signals = Signals::new()?;
    let build = tokio::select! {
        build = follow(client, id, offset) => build?,
        number = signals.next() => {
            output::talk(&format!(
                "the build continues: follow it with `dorm build attach {id}`, or end it with `dorm build cancel {id}`",
            ));
            return Ok(ended_by(number));
        }
    };
    ended(client, build, format).await
}

/// Follows the log of a build, also across restarts of the daemon.
async fn follow(client: &Client, id: &str, mut offset: u64) -> Result<wire::Build, Problem> {
    let mut attempts = 0;
    loop {
        let before = offset;
        match follow_once(client, id, &mut offset).await {
            Ok(build) => return Ok(build),
            Err(error) if error.is_refusal() => return Err(error.into()),
            Err(error) => {
                attempts = if offset > before { 0 } else { attempts + 1 };
                if attempts > ATTEMPTS {
                    return Err(error.into());
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn follow_once(client: &Client, id: &str, offset: &mut u64) -> Result<wire::Build, ClientError> {
    let mut stream = client.follow_build(id, *offset).await?;
    while let Some(event) = stream.next().await? {
        match event.kind.as_str() {
            "line" => {
                let line: wire::BuildLogLine = stream.parse(&event)?;
                *offset = line.offset + 1;
                output::talk(&output::harmless(&line.text));
            }
            "end" => return stream.parse(&event),
            _ => {}
        }
    }
    Err(stream.ended())
}

/// Prints the result of a build that has ended.
async fn ended(client: &Client, build: wire::Build, format: Format) -> Done {
    match build.state {
        wire::BuildState::Succeeded => {}
        wire::BuildState::Cancelled => {
            return Err(Problem::failed(format!("build {} was cancelled", build.id), ""));
        }
        wire::BuildState::Failed
        | wire::BuildState::Reserved
        | wire::BuildState::Queued
        | wire::BuildState::Running => return Err(failed(&build)),
    }
    let image = match &build.image {
        Some(image) => Some(client.image(image).await?),
        None => None,
    };
    let seconds = |began: Option<wire::Time>, ended: Option<wire::Time>| match (began, ended) {
        (Some(began), Some(ended)) => (ended.0 - began.0).total(jiff::Unit::Second).unwrap_or_default(),
        _ => 0.0,
    };
    let steps = build.steps.iter().map(|step| BuiltStep {
        step: step.title.clone(),
        line: step.line,
        key: step.key.clone(),
        cached: step.state == wire::BuildStepState::Cached,
        snapshot: step.snapshot.clone(),
        seconds: seconds(step.began_at, step.ended_at),
    });
    let built = Built { steps: steps.collect(), image, seconds: seconds(build.began_at, build.ended_at), build };
    match format {
        Format::Json => output::json(&built)?,
        Format::Table => {
            let cached = built.steps.iter().filter(|step| step.cached).count();
            let kept = built.steps.iter().filter(|step| step.key.is_some()).count();
            output::talk(&format!("built in {}; {cached} of {kept} steps were cached", shown::length(built.seconds)));
            super::image::print(&built.image.into_iter().collect::<Vec<_>>(), format)?;
        }
    }
    Ok(exit::OK)
}

/// Returns the problem with a build that has failed.
fn failed(build: &wire::Build) -> Problem {
    let Some(failure) = &build.failure else {
        return Problem::failed(format!("build {} has not ended", build.id), "");
    };
    let at = failure.step.and_then(|step| usize::try_from(step).ok());
    let step = at.and_then(|at| Some((at, build.steps.get(at)?)));
    let place = match step {
        Some((_, wire::BuildStep { line: Some(line), title, .. })) => format!("line {line}: {title}: "),
        Some((at, step)) => format!("step {}: {}: ", at + 1, step.title),
        None => String::new(),
    };
    let message = format!("{place}{}", failure.reason);
    match failure.code.as_str() {
        "invalid_argument" => Problem::usage(message, ""),
        "not_found" => Problem::not_found(message, ""),
        _ if failure.exit_code.is_some() => {
            let next = "see its output above; earlier steps are kept, so the next build continues here";
            Problem::failed(message, next)
        }
        _ => Problem::failed(message, ""),
    }
}
