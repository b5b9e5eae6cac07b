//! `dorm sbx fork`.

use std::collections::BTreeMap;

use dorm_api_types as wire;
use dorm_client::Client;

use super::create::OnTimeout;
use super::secrets;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::cli::shown;
use crate::exit;
use crate::values;

/// Options of `dorm sbx fork`.
#[derive(Debug, clap::Args)]
pub(crate) struct ForkOptions {
    /// The sandbox's id or name
    id: String,
    /// How many children to create
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1)]
    count: u32,
    /// Name the children NAME-1, NAME-2 and so on
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// An environment variable for every process of the children; overrides the source's variable
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// A label for the children; overrides the source's label
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    #[command(flatten)]
    limits: Limits,
    /// A secret for the children: NAME for the source's value, or NAME=@FILE for the content of a
    /// file. They get no other secrets
    #[arg(long, value_name = "NAME[=@FILE]", value_parser = secrets::named)]
    secret: Vec<secrets::Named>,
    /// If one child cannot be created: keep the others, or roll back, which leaves none
    #[arg(long, value_enum, value_name = "ACTION", default_value = "keep")]
    on_partial_failure: OnPartialFailure,
    /// How to attach the source's volumes to the children: with the same access, read-only, or not
    /// at all. A volume that allows one writer and that the source can write to cannot be attached
    /// with the same access [default: same]
    #[arg(long, value_enum, value_name = "HOW")]
    volumes: Option<Volumes>,
}

/// Limits that differ from those of the source.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Limits {
    /// How long it may run [default: as its source]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(super) timeout: Option<f64>,
    /// How long it may be idle [default: as its source]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(super) idle_timeout: Option<f64>,
    /// How long it may run without a break [default: as its source]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(super) max_run: Option<f64>,
    /// Suspend or terminate it when a time limit expires [default: as its source]
    #[arg(long, value_enum, value_name = "ACTION")]
    pub(super) on_timeout: Option<OnTimeout>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnPartialFailure {
    Keep,
    RollBack,
}

impl From<OnPartialFailure> for wire::OnPartialFailure {
    fn from(action: OnPartialFailure) -> Self {
        match action {
            OnPartialFailure::Keep => Self::Keep,
            OnPartialFailure::RollBack => Self::RollBack,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Volumes {
    Same,
    ReadOnly,
    None,
}

impl From<Volumes> for wire::FollowingVolumes {
    fn from(how: Volumes) -> Self {
        match how {
            Volumes::Same => Self::Same,
            Volumes::ReadOnly => Self::ReadOnly,
            Volumes::None => Self::None,
        }
    }
}

/// Forks a sandbox, which continues, and prints the children.
pub(super) async fn run(client: &Client, options: ForkOptions, format: Format) -> Done {
    let ForkOptions { id, count, name, env, label, limits, secret, on_partial_failure, volumes } = options;
    let on_partial_failure = on_partial_failure.into();
    let volumes = volumes.map(Into::into).unwrap_or_default();
    let secrets = secrets::following(secret)?;
    let (env, labels) = (env.into_iter().collect::<BTreeMap<_, _>>(), label.into_iter().collect::<BTreeMap<_, _>>());
    let child = |number: u32| wire::ForkChild {
        name: name.as_ref().map(|name| format!("{name}-{number}")),
        env: env.clone(),
        labels: labels.clone(),
        secrets: secrets.clone(),
        timeout_secs: limits.timeout,
        idle_timeout_secs: limits.idle_timeout,
        max_run_secs: limits.max_run,
        on_timeout: limits.on_timeout.map(Into::into),
    };
    let children = (1..=count).map(child).collect();
    let names: Vec<_> = (1..=count).map(|number| child(number).name).collect();
    let progress = Progress::new(&format!("forking {id} into {count}"));
    let forked = client.fork(&id, &wire::ForkRequest { count: None, children, on_partial_failure, volumes }).await?;
    drop(progress);
    let failed = forked.children.iter().filter(|child| child.error.is_some()).count();
    if failed > 0 {
        output::talk(&format!("{failed} of {count} children could not be created"));
    }
    let code = if failed > 0 { exit::FAILED } else { exit::OK };
    match format {
        Format::Json => output::json(&forked)?,
        Format::Table => {
            let rows: Vec<_> = forked.children.iter().zip(names).map(|(child, name)| row(child, name)).collect();
            output::table(&["CHILD", "NAME", "STATE"], &rows)?;
        }
    }
    Ok(code)
}

/// Returns the row of a child, or of the error with which it failed.
fn row(child: &wire::ForkedChild, name: Option<String>) -> Vec<String> {
    let (id, state) = match (&child.sandbox, &child.error) {
        (Some(sandbox), _) => (sandbox.id.clone(), shown::state(sandbox)),
        (None, Some(error)) => (shown::none(), format!("failed: {}", error.detail)),
        (None, None) => (shown::none(), shown::none()),
    };
    vec![id, name.unwrap_or_else(shown::none), state]
}
