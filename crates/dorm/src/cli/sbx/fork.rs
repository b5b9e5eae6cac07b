//! `dorm sbx fork`.

use std::collections::BTreeMap;

use dorm_api::wire;

use super::secrets;
use crate::cli::exit;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::cli::shown;
use crate::cli::values;
use crate::client::Client;

/// Of which sandbox, and into what.
#[derive(Debug, clap::Args)]
pub(crate) struct ForkOptions {
    /// Its id or name
    id: String,
    /// How many children to make
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1)]
    count: u32,
    /// Name the children NAME-1, NAME-2 and so on; they are ephemeral without
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A variable for every process of the children, over those of the source
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// A label of the children, over those of the source
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    /// A secret the children get: NAME for the source's own value, or NAME=@FILE for the content of a file. No other one follows
    #[arg(long, value_name = "NAME[=@FILE]", value_parser = secrets::named)]
    secret: Vec<secrets::Named>,
    /// Keep none when one cannot be made; without, the others stay
    #[arg(long)]
    all_or_none: bool,
    /// Attach the source's volumes to the children as they are, to be read, or not at all. One that takes a single writer,
    /// and to which the source writes, cannot be attached as it is [default: same]
    #[arg(long, value_enum, value_name = "HOW")]
    volumes: Option<Volumes>,
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

/// Forks it; it goes on.
pub(super) async fn run(client: &Client, options: ForkOptions, format: Format) -> Done {
    let ForkOptions { id, count, name, env, label, secret, all_or_none, volumes } = options;
    let volumes = volumes.map(Into::into).unwrap_or_default();
    let secrets = secrets::following(secret)?;
    let (env, labels) = (env.into_iter().collect::<BTreeMap<_, _>>(), label.into_iter().collect::<BTreeMap<_, _>>());
    let child = |number: u32| wire::ForkChild {
        name: name.as_ref().map(|name| format!("{name}-{number}")),
        env: env.clone(),
        labels: labels.clone(),
        secrets: secrets.clone(),
    };
    let children = (1..=count).map(child).collect();
    let names: Vec<_> = (1..=count).map(|number| child(number).name).collect();
    let progress = Progress::new(&format!("forking {id} into {count}"));
    let forked = client.fork(&id, &wire::ForkRequest { count: None, children, all_or_none, volumes }).await?;
    drop(progress);
    let failed = forked.children.iter().filter(|child| child.error.is_some()).count();
    if failed > 0 {
        output::talk(&format!("{failed} of {count} children could not be made"));
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

/// A child as it is, or why it is not there.
fn row(child: &wire::ForkedChild, name: Option<String>) -> Vec<String> {
    let (id, state) = match (&child.sandbox, &child.error) {
        (Some(sandbox), _) => (sandbox.id.clone(), shown::state(sandbox)),
        (None, Some(error)) => (shown::none(), format!("failed: {}", error.detail)),
        (None, None) => (shown::none(), shown::none()),
    };
    vec![id, name.unwrap_or_else(shown::none), state]
}
