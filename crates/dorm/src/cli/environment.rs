//! The verbs of `dorm env` about environments that exist.

use clap::Subcommand;
use dorm_api_types as wire;
use dorm_client::Client;

use super::ensure::InitOptions;
use super::output::{self, Format};
use super::problem::Done;
use super::shown;
use crate::exit;
use crate::values;

/// The commands for environments.
#[derive(Debug, Subcommand)]
pub(crate) enum EnvVerb {
    /// Write a first environment.toml from the lock files, Dockerfile or devcontainer.json of a
    /// project
    Init(InitOptions),
    /// List environments
    Ls,
    /// Show an environment, with the steps of its setup
    Describe {
        /// ID or key of the environment
        environment: String,
    },
    /// Print the log of the latest setup
    Logs {
        /// ID or key of the environment
        environment: String,
        /// Continue until the setup has ended
        #[arg(short, long)]
        follow: bool,
    },
    /// Cancel a setup in progress
    Cancel {
        /// ID or key of the environment
        environment: String,
    },
    /// Release a lease; after the last one, do what `lifecycle` of the definition says: take a
    /// snapshot, terminate the sandbox
    Release {
        /// ID or key of the environment
        environment: String,
        /// ID of the lease
        #[arg(long, value_name = "ID")]
        lease: Option<String>,
        /// Take no snapshot, because the work has failed
        #[arg(long)]
        failed: bool,
    },
    /// Renew a lease
    Renew {
        /// ID or key of the environment
        environment: String,
        /// ID of the lease
        #[arg(long, value_name = "ID")]
        lease: String,
        /// How long it lasts from now, such as 10m
        #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
        time: f64,
    },
    /// Remove environments, with their sandboxes and snapshots
    Rm {
        /// The IDs or keys of the environments
        #[arg(required = true, value_name = "ENVIRONMENT")]
        environments: Vec<String>,
    },
}

const TITLES: [&str; 5] = ["ENVIRONMENT", "KEY", "STATE", "SANDBOX", "SNAPSHOT"];

/// Runs a verb.
pub(super) async fn run(client: &Client, verb: EnvVerb, format: Format) -> Done {
    match verb {
        // It needs no daemon.
        EnvVerb::Init(options) => return super::ensure::init(options),
        EnvVerb::Ls => {
            let all = client.environments().await?;
            match format {
                Format::Json => output::json(&all)?,
                Format::Table => output::table(&TITLES, &all.iter().map(row).collect::<Vec<_>>())?,
            }
        }
        EnvVerb::Describe { environment } => show(&client.environment(&environment).await?, format)?,
        EnvVerb::Logs { environment, follow } => logs(client, &environment, follow, format).await?,
        EnvVerb::Cancel { environment } => show(&client.cancel_environment(&environment).await?, format)?,
        EnvVerb::Release { environment, lease, failed } => {
            let outcome = if failed { wire::RunOutcome::Failed } else { wire::RunOutcome::Completed };
            let asked = wire::ReleaseEnvironment { lease, outcome: Some(outcome) };
            show(&client.release_environment(&environment, &asked).await?, format)?;
        }
        EnvVerb::Renew { environment, lease, time } => {
            let asked = wire::RenewLease { lease_secs: time };
            let lease = client.renew_environment_lease(&environment, &lease, &asked).await?;
            match format {
                Format::Json => output::json(&lease)?,
                Format::Table => output::write(format!("{}\n", lease.expires_at).as_bytes())?,
            }
        }
        EnvVerb::Rm { environments } => {
            for environment in environments {
                client.remove_environment(&environment).await?;
            }
        }
    }
    Ok(exit::OK)
}

fn key(environment: &wire::Environment) -> String {
    match (&environment.key, &environment.thread) {
        (Some(key), _) => output::harmless(key),
        (None, Some(thread)) => output::harmless(&format!("{}/{}", thread.definition, thread.thread)),
        (None, None) => "-".to_owned(),
    }
}

const fn state(state: wire::EnvironmentState) -> &'static str {
    match state {
        wire::EnvironmentState::Idle => "idle",
        wire::EnvironmentState::Working => "working",
        wire::EnvironmentState::Ready => "ready",
        wire::EnvironmentState::Ending => "ending",
    }
}

fn row(environment: &wire::Environment) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        environment.id.clone(),
        key(environment),
        state(environment.state).to_owned(),
        or_none(&environment.sandbox),
        or_none(&environment.snapshot),
    ]
}

fn show(environment: &wire::Environment, format: Format) -> Result<(), super::problem::Problem> {
    if format == Format::Json {
        return output::json(environment);
    }
    let mut fields = vec![
        ("environment", environment.id.clone()),
        ("key", key(environment)),
        ("state", state(environment.state).to_owned()),
    ];
    fields.extend(environment.sandbox.clone().map(|sandbox| ("sandbox", sandbox)));
    fields.extend(environment.snapshot.clone().map(|snapshot| ("snapshot", snapshot)));
    fields.extend(environment.commit.clone().map(|commit| ("commit", commit)));
    fields.push(("created", shown::moment(environment.created_at)));
    fields.extend(environment.leases.iter().map(|lease| ("lease", format!("{} until {}", lease.id, lease.expires_at))));
    let attempt = environment.attempt.as_ref();
    let failure = attempt.and_then(|attempt| attempt.failure.as_ref());
    fields.extend(failure.map(|failure| ("failure", output::harmless(&failure.reason))));
    let kept = failure.and_then(|failure| failure.kept.clone());
    fields.extend(kept.map(|kept| ("kept for inspection", kept)));
    output::fields(&fields)?;
    let steps = attempt.map(|attempt| attempt.steps.as_slice()).unwrap_or_default();
    if steps.is_empty() {
        return Ok(());
    }
    let row = |step: &wire::SetupStepView| {
        let state = match step.state {
            wire::SetupState::Waiting => "waiting",
            wire::SetupState::Running => "running",
            wire::SetupState::Done => "done",
            wire::SetupState::Failed => "failed",
        };
        let code = step.exit_code.map_or_else(String::new, |code| code.to_string());
        vec![output::harmless(&step.title), state.to_owned(), code]
    };
    output::table(&["STEP", "STATE", "EXIT"], &steps.iter().map(row).collect::<Vec<_>>())
}

async fn logs(client: &Client, name: &str, follow: bool, format: Format) -> Result<(), super::problem::Problem> {
    let mut offset = 0;
    loop {
        let log = client.environment_log(name, offset).await?;
        for line in &log.lines {
            match format {
                Format::Json => output::json_line(line)?,
                Format::Table => output::write(format!("{}\n", output::harmless(&line.text)).as_bytes())?,
            }
        }
        offset = log.next_offset;
        let is_over = log.lines.is_empty() && (!log.in_progress || !follow);
        if is_over {
            return Ok(());
        }
    }
}
