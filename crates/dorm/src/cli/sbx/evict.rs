//! `dorm sbx evict`.

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::client::Client;

/// Which sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct EvictOptions {
    /// Its id or name
    id: String,
}

/// Evicts it; one that is not suspended is left alone.
pub(super) async fn run(client: &Client, options: EvictOptions, format: Format) -> Done {
    table::one(&client.command(&options.id, "evict").await?, format)
}
