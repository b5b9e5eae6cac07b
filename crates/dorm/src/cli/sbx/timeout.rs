//! `dorm sbx timeout`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::values;

/// Options of `dorm sbx timeout`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("limits").required(true).multiple(true).args(["timeout", "idle_timeout", "timeout_after_wake", "max_run", "none"])))]
pub(crate) struct TimeoutOptions {
    /// The sandbox's id or name
    id: String,
    /// How long it may run from now on; if not given, this limit is removed
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout: Option<f64>,
    /// How long it may be idle; if not given, this limit is removed
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    idle_timeout: Option<f64>,
    /// How long it may run after a call has woken it; if not given, as long as --timeout says
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout_after_wake: Option<f64>,
    /// How long it may run without a break, from the start of its run; if not given, this limit is
    /// removed
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_run: Option<f64>,
    /// Remove all limits
    #[arg(long, conflicts_with_all = ["timeout", "idle_timeout", "timeout_after_wake", "max_run"])]
    none: bool,
}

/// Replaces all limits.
pub(super) async fn run(client: &Client, options: TimeoutOptions, format: Format) -> Done {
    let limits = wire::SetTimeouts {
        timeout_secs: options.timeout,
        idle_timeout_secs: options.idle_timeout,
        timeout_after_wake_secs: options.timeout_after_wake,
        max_run_secs: options.max_run,
    };
    table::one(&client.set_timeouts(&options.id, &limits).await?, format)
}
