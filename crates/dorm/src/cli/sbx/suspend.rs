//! `dorm sbx suspend`.

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::client::Client;

/// Options of `dorm sbx suspend`.
#[derive(Debug, clap::Args)]
pub(crate) struct SuspendOptions {
    /// The sandbox's id or name
    id: String,
    /// Release its memory at once; it is then resumed from disk
    #[arg(long)]
    evict: bool,
}

/// Suspends a sandbox. On success its memory, processes and files are on disk and verified.
pub(super) async fn run(client: &Client, options: SuspendOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("suspending {}", options.id));
    let mut sandbox = client.command(&options.id, "suspend").await?;
    if options.evict {
        sandbox = client.command(&options.id, "evict").await?;
    }
    drop(progress);
    table::one(&sandbox, format)
}
