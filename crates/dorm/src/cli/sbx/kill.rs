//! `dorm sbx kill`.

use dorm_api_types as wire;
use dorm_client::Client;

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::exit;

/// Options of `dorm sbx kill`.
#[derive(Debug, clap::Args)]
pub(crate) struct KillOptions {
    /// The sandbox's id or name
    id: String,
    /// The process's handle, the first column of `dorm sbx ps`
    process: u64,
}

/// Kills a process with all its descendants.
pub(super) async fn run(client: &Client, options: KillOptions, format: Format) -> Done {
    let killed: wire::Killed = client.kill(&options.id, options.process).await?;
    match format {
        Format::Json => output::json(&killed)?,
        Format::Table => output::talk(&format!("processes killed: {}", killed.killed)),
    }
    Ok(exit::OK)
}
