//! `dorm sbx usage`.

use dorm_api_types as wire;
use dorm_client::Client;
use jiff::{SignedDuration, Timestamp};

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::exit;
use crate::values;

const TITLES: [&str; 9] =
    ["CPU TIME", "MEMORY", "DISK", "HOST PROCESSES", "DISK READ", "DISK WRITTEN", "SENT", "RECEIVED", "NETWORK LIMIT"];

const HISTORY: [&str; 8] = ["TIME", "CPU", "CPUS", "MEMORY", "OF", "DISK", "SENT", "RECEIVED"];

/// Options of `dorm sbx usage`.
#[derive(Debug, clap::Args)]
pub(crate) struct UsageOptions {
    /// The sandbox's id or name
    id: String,
    /// Print what it has used since this long ago, at most an hour, instead of what it uses now
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    since: Option<f64>,
}

/// Returns a number of bytes, and its limit per second.
fn used(bytes: u64, limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("{} (at most {}/s)", shown::size(bytes), shown::size(limit)),
        None => shown::size(bytes),
    }
}

/// Prints the current usage of a sandbox, or its history.
pub(super) async fn run(client: &Client, options: UsageOptions, format: Format) -> Done {
    if let Some(since) = options.since {
        let ago = SignedDuration::try_from_secs_f64(since).unwrap_or(SignedDuration::MAX);
        let since = Timestamp::now().checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH);
        let history = client.usage_history(&options.id, wire::Time(since)).await?;
        return show(&history, format);
    }
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

fn show(history: &wire::UsageHistory, format: Format) -> Done {
    if format == Format::Json {
        output::json(history)?;
        return Ok(exit::OK);
    }
    let row = |sample: &wire::UsageSample| {
        let wire::UsageSample { taken_at, cpus, resources, usage } = sample;
        let traffic =
            |part: fn(wire::NetworkUsage) -> u64| usage.network.map_or_else(shown::none, |all| shown::size(part(all)));
        vec![
            taken_at.0.strftime("%H:%M:%SZ").to_string(),
            cpus.map_or_else(shown::none, |cpus| format!("{cpus:.2}")),
            shown::cpus(resources.cpu_millis),
            shown::size(usage.memory_bytes),
            shown::size(resources.memory_bytes),
            usage.disk_bytes.map_or_else(shown::none, shown::size),
            traffic(|network| network.sent_bytes),
            traffic(|network| network.received_bytes),
        ]
    };
    output::table(&HISTORY, &history.samples.iter().map(row).collect::<Vec<_>>())?;
    Ok(exit::OK)
}
