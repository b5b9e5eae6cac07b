//! `dorm sbx fork`.

use std::collections::BTreeMap;

use dorm_api::wire;

use super::table;
use crate::cli::exit;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
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
    /// Keep none when one cannot be made; without, the others stay
    #[arg(long)]
    all_or_none: bool,
}

/// Forks it; it goes on.
pub(super) async fn run(client: &Client, options: ForkOptions, format: Format) -> Done {
    let ForkOptions { id, count, name, env, label, all_or_none } = options;
    let (env, labels) = (env.into_iter().collect::<BTreeMap<_, _>>(), label.into_iter().collect::<BTreeMap<_, _>>());
    let child = |number: u32| wire::ForkChild {
        name: name.as_ref().map(|name| format!("{name}-{number}")),
        env: env.clone(),
        labels: labels.clone(),
    };
    let children = (1..=count).map(child).collect();
    let progress = Progress::new(&format!("forking {id} into {count}"));
    let forked = client.fork(&id, &wire::ForkRequest { count: None, children, all_or_none }).await?;
    drop(progress);
    let failures = forked.children.iter().filter_map(|child| child.error.as_ref());
    let mut code = exit::OK;
    for error in failures {
        output::talk(&format!("a child could not be made: {}", error.message));
        code = exit::FAILED;
    }
    match format {
        Format::Json => output::json(&forked)?,
        Format::Table => {
            let made: Vec<_> = forked.children.into_iter().filter_map(|child| child.sandbox).collect();
            table::many(&made, format)?;
        }
    }
    Ok(code)
}
