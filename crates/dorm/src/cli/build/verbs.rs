//! `dorm build`: the builds of the daemon.

use clap::Subcommand;
use dorm_api_types as wire;
use jiff::Timestamp;

use super::attach;
use crate::cli::connection::Connection;
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::shown;
use crate::exit;

/// Options of `dorm build`.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildVerbs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: BuildVerb,
}

#[derive(Debug, Subcommand)]
enum BuildVerb {
    /// List builds, the oldest first
    Ls,
    /// Show a build with its steps
    Describe {
        /// ID of the build
        build: String,
    },
    /// Print the log of a build as it is now
    Logs {
        /// ID of the build
        build: String,
        /// Begin with the line at this offset
        #[arg(long, value_name = "OFFSET", default_value_t = 0)]
        offset: u64,
    },
    /// Follow a build to its end and print its result; a signal ends this command, not the build
    Attach {
        /// ID of the build
        build: String,
        /// Begin with the line of its log at this offset
        #[arg(long, value_name = "OFFSET", default_value_t = 0)]
        offset: u64,
    },
    /// Cancel builds and wait until nothing of them is left
    Cancel {
        /// IDs of the builds
        #[arg(required = true, value_name = "BUILD")]
        builds: Vec<String>,
    },
}

const TITLES: [&str; 5] = ["BUILD", "STATE", "TAG", "STEP", "AGE"];

/// Runs `dorm build`.
pub(crate) async fn run(options: BuildVerbs) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        BuildVerb::Ls => {
            let builds = client.builds().await?;
            match format {
                Format::Json => output::json(&builds)?,
                Format::Table => output::table(&TITLES, &builds.iter().map(row).collect::<Vec<_>>())?,
            }
        }
        BuildVerb::Describe { build } => describe(&client.build(&build).await?, format)?,
        BuildVerb::Logs { build, mut offset } => loop {
            let log = client.build_log(&build, offset).await?;
            for line in &log.lines {
                match format {
                    Format::Json => output::json_line(line)?,
                    Format::Table => output::write(format!("{}\n", output::harmless(&line.text)).as_bytes())?,
                }
            }
            if log.lines.is_empty() {
                break;
            }
            offset = log.next_offset;
        },
        BuildVerb::Attach { build, offset } => return attach(&client, &build, offset, format).await,
        BuildVerb::Cancel { builds } => {
            for id in builds {
                let mut build = client.cancel_build(&id).await?;
                while matches!(
                    build.state,
                    wire::BuildState::Reserved | wire::BuildState::Queued | wire::BuildState::Running
                ) {
                    build = client.await_build(&id).await?;
                }
                output::talk(&format!("build {id}: {}", shown::word(&build.state)));
            }
        }
    }
    Ok(exit::OK)
}

fn row(build: &wire::Build) -> Vec<String> {
    let template = build.template.as_ref().map(|name| format!("template {name}"));
    let tag = build.tag.clone().or(template).unwrap_or_else(shown::none);
    let step = build.step.and_then(|at| build.steps.get(usize::try_from(at).ok()?));
    let step = step.map_or_else(shown::none, |step| output::harmless(&step.title));
    let age = shown::age(build.created_at, Timestamp::now());
    vec![build.id.clone(), shown::word(&build.state), tag, step, age]
}

fn describe(build: &wire::Build, format: Format) -> Result<(), Problem> {
    if format == Format::Json {
        return output::json(build);
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_else(shown::none);
    let moment = |time: Option<wire::Time>| time.map_or_else(shown::none, shown::moment);
    let failure = build.failure.as_ref().map(|failure| output::harmless(&failure.reason));
    let mut rows = vec![
        ("build", build.id.clone()),
        ("project", build.project.clone()),
        ("state", shown::word(&build.state)),
        ("failure", failure.unwrap_or_else(shown::none)),
        ("tag", text(&build.tag)),
        ("template", text(&build.template)),
        ("base", text(&build.base)),
        ("image", text(&build.image)),
        ("snapshot", text(&build.snapshot)),
        ("caller", shown::caller(build.caller.as_ref())),
        ("created", shown::moment(build.created_at)),
        ("began", moment(build.began_at)),
        ("ended", moment(build.ended_at)),
    ];
    for step in &build.steps {
        rows.push(("step", format!("{} {}", shown::word(&step.state), output::harmless(&step.title))));
    }
    output::fields(&rows)
}
