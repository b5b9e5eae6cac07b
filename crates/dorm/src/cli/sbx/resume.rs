//! `dorm sbx resume`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::suspend::NoWait;
use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::values;

/// Options of `dorm sbx resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeOptions {
    /// The sandbox's id or name
    id: String,
    /// How long it may run from now on, instead of its own limit; if it already runs, its limit is
    /// only raised
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout: Option<f64>,
    /// Wait this long, in turn with others, if there is no room for it
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_wait: Option<f64>,
    #[command(flatten)]
    waiting: NoWait,
}

/// Resumes a sandbox. One that runs is not changed.
pub(super) async fn run(client: &Client, options: ResumeOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("resuming {}", options.id));
    let asked = wire::ResumeRequest {
        timeout_secs: options.timeout,
        max_wait_secs: options.max_wait,
        wait: options.waiting.wait(),
        if_busy: None,
    };
    let sandbox = client.resume(&options.id, &asked).await?;
    drop(progress);
    table::one(&sandbox, format)
}
