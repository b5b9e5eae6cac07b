//! `dorm sbx usage`.

use dorm_api_types as wire;

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::client::Client;
use crate::exit;

const TITLES: [&str; 9] =
    ["CPU TIME", "MEMORY", "DISK", "HOST PROCESSES", "DISK READ", "DISK WRITTEN", "SENT", "RECEIVED", "NETWORK LIMIT"];

/// Options of `dorm sbx usage`.
#[derive(Debug, clap::Args)]
pub(crate) struct UsageOptions {
    /// The sandbox's id or name
    id: String,
}

/// Returns a number of bytes, and its limit per second.
fn used(bytes: u64, limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("{} (at most {}/s)", shown::size(bytes), shown::size(limit)),
        None => shown::size(bytes),
    }
}

/// Prints the current usage of a sandbox.
pub(super) async fn run(client: &Client, options: UsageOptions, format: Format) -> Done {
    let usage = client.usage(&options.id).await?;
    match format {
        Format::Json => output::json(&usage)?,
        Format::Table => {
            let traffic = |part: fn(wire::NetworkUsage) -> u64| {
                usage.network.map_or_else(shown::none, |all| shown::size(part(all)))
            };
            let rate = |bytes| format!("{}/s", shown::size(bytes));
            let row = vec![
                format!("{:.3}s", usage.cpu_secs),
                shown::size(usage.memory_bytes),
                usage.disk_bytes.map_or_else(shown::none, shown::size),
                usage.processes.to_string(),
                usage.disk_io.map_or_else(shown::none, |io| used(io.read_bytes, io.read_limit)),
                usage.disk_io.map_or_else(shown::none, |io| used(io.written_bytes, io.write_limit)),
                traffic(|network| network.sent_bytes),
                traffic(|network| network.received_bytes),
                usage.network.and_then(|network| network.limit_bytes_per_second).map_or_else(shown::none, rate),
            ];
            output::table(&TITLES, &[row])?;
        }
    }
    Ok(exit::OK)
}
