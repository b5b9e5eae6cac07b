//! `dorm sbx ls`.

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::{quarantine, values};
use crate::client::Client;

/// Every state but the last one.
const LIVING: [&str; 7] = ["pending", "running", "snapshotting", "suspending", "suspended", "resuming", "terminating"];

/// Which sandboxes to list.
#[derive(Debug, clap::Args)]
pub(crate) struct LsOptions {
    /// Only those in this state; several with commas between
    #[arg(long, value_delimiter = ',')]
    state: Vec<String>,
    /// Only those with this label
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    /// Those that are terminated, too
    #[arg(short, long, conflicts_with = "state")]
    all: bool,
    /// At most so many, in the order of ids. By default all
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

/// Lists them, the oldest first.
pub(super) async fn run(client: &Client, options: LsOptions, format: Format) -> Done {
    let states = match (options.all, options.state.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => LIVING.map(str::to_owned).to_vec(),
        (false, false) => options.state,
    };
    let most = options.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut sandboxes = client.sandboxes(&states, &options.label, most).await?;
    sandboxes.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    let done = table::many(&sandboxes, format)?;
    quarantine::tell(client, "sandbox").await;
    Ok(done)
}
