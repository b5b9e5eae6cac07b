//! `dorm sbx ls`.

use dorm_client::{Client, SandboxFilter};

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::quarantine;
use crate::values::{self, Order, SortBy};

/// Every state except `terminated`.
const LIVING: [&str; 7] = ["pending", "running", "snapshotting", "suspending", "suspended", "resuming", "terminating"];

/// Options of `dorm sbx ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct LsOptions {
    /// List only sandboxes in this state; separate several with commas
    #[arg(long, value_delimiter = ',')]
    state: Vec<String>,
    /// List only sandboxes with this label
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    /// Include terminated sandboxes
    #[arg(short, long, conflicts_with = "state")]
    all: bool,
    /// The order of the list: when they were created, or when they last began to run
    #[arg(long, value_enum, value_name = "MOMENT", default_value = "created")]
    sort: SortBy,
    /// List the earliest first, or the latest
    #[arg(long, value_enum, value_name = "DIRECTION", default_value = "asc")]
    order: Order,
    /// List at most this many, the first in this order. By default all
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

/// Lists sandboxes.
pub(super) async fn run(client: &Client, options: LsOptions, format: Format) -> Done {
    let states = match (options.all, options.state.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => LIVING.map(str::to_owned).to_vec(),
        (false, false) => options.state,
    };
    let filter = SandboxFilter {
        states,
        name: None,
        labels: options.label,
        sort: options.sort.into(),
        order: options.order.into(),
        most: options.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
    };
    let sandboxes = client.sandboxes(&filter).await?;
    let done = table::many(&sandboxes, format)?;
    quarantine::tell(client, "sandbox").await;
    Ok(done)
}
