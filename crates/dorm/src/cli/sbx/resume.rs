//! `dorm sbx resume`.

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::client::Client;

/// Options of `dorm sbx resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeOptions {
    /// The sandbox's id or name
    id: String,
}

/// Resumes a sandbox. One that runs is not changed.
pub(super) async fn run(client: &Client, options: ResumeOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("resuming {}", options.id));
    let sandbox = client.command(&options.id, "resume").await?;
    drop(progress);
    table::one(&sandbox, format)
}
