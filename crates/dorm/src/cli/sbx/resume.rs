//! `dorm sbx resume`.

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::client::Client;

/// Which sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeOptions {
    /// Its id or name
    id: String,
}

/// Resumes it; one that runs is left alone.
pub(super) async fn run(client: &Client, options: ResumeOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("resuming {}", options.id));
    let sandbox = client.command(&options.id, "resume").await?;
    drop(progress);
    table::one(&sandbox, format)
}
