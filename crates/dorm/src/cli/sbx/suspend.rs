//! `dorm sbx suspend`.

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::client::Client;

/// Which sandbox, and how deep it sleeps.
#[derive(Debug, clap::Args)]
pub(crate) struct SuspendOptions {
    /// Its id or name
    id: String,
    /// Give back its memory at once; it is resumed from disk then
    #[arg(long)]
    evict: bool,
}

/// Suspends it. When this ends well, its memory, processes and files are on disk, checked.
pub(super) async fn run(client: &Client, options: SuspendOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("suspending {}", options.id));
    let mut sandbox = client.command(&options.id, "suspend").await?;
    if options.evict {
        sandbox = client.command(&options.id, "evict").await?;
    }
    drop(progress);
    table::one(&sandbox, format)
}
