//! `dorm sbx evict`.

use dorm_client::Client;

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;

/// Options of `dorm sbx evict`.
#[derive(Debug, clap::Args)]
pub(crate) struct EvictOptions {
    /// The sandbox's id or name
    id: String,
}

/// Evicts a suspended sandbox. One that is not suspended is not changed.
pub(super) async fn run(client: &Client, options: EvictOptions, format: Format) -> Done {
    table::one(&client.evict(&options.id).await?, format)
}
