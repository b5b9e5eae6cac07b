//! `dorm sbx restart`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::table;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::exit;

/// Options of `dorm sbx restart`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestartOptions {
    /// The terminated sandbox's id
    id: String,
    /// A different name for the new sandbox
    #[arg(long)]
    name: Option<String>,
}

/// Creates a sandbox from the newest snapshot of a terminated one, under a new id.
pub(super) async fn run(client: &Client, options: RestartOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("restarting {}", options.id));
    let made = client.restart(&options.id, &wire::RestartRequest { name: options.name }).await?;
    drop(progress);
    if format == Format::Json {
        output::json(&made)?;
        return Ok(exit::OK);
    }
    output::talk(&format!("created from snapshot {}", made.snapshot));
    table::one(&made.sandbox, format)
}
