//! `dorm sbx top`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use dorm_api_types as wire;
use dorm_client::{Client, ClientError, SandboxFilter};
use serde::Serialize;

use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::shown;
use crate::exit;
use crate::values;

/// Every state in which a sandbox uses resources.
const RUNNING: [&str; 4] = ["running", "snapshotting", "suspending", "resuming"];
const TITLES: [&str; 10] =
    ["SANDBOX", "NAME", "CPU", "CPUS", "CPU TIME", "MEMORY", "OF", "DISK", "OF", "HOST PROCESSES"];
/// Clears a terminal.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

/// Options of `dorm sbx top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopOptions {
    /// How often to refresh on a terminal
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "2s")]
    every: f64,
    /// Print once and exit, as without a terminal
    #[arg(long)]
    once: bool,
}

/// A sandbox and what it uses.
#[derive(Serialize)]
struct Row {
    id: String,
    name: Option<String>,
    resources: wire::Resources,
    usage: wire::Usage,
}

/// Prints what sandboxes use; on a terminal, again and again until interrupted.
pub(super) async fn run(client: &Client, options: TopOptions, format: Format) -> Done {
    let once = options.once || format == Format::Json || !std::io::stdout().is_terminal();
    let mut ticks = tokio::time::interval(Duration::try_from_secs_f64(options.every).unwrap_or(Duration::MAX));
    let mut before = Sample::default();
    loop {
        ticks.tick().await;
        let rows = rows(client).await?;
        let now = Sample::of(&rows);
        if format == Format::Json {
            output::json(&rows)?;
            return Ok(exit::OK);
        }
        if !once {
            output::write(CLEAR)?;
        }
        show(&rows, &now, &before)?;
        if once {
            return Ok(exit::OK);
        }
        before = now;
    }
}

async fn rows(client: &Client) -> Result<Vec<Row>, Problem> {
    let running = SandboxFilter { states: RUNNING.map(str::to_owned).to_vec(), ..SandboxFilter::default() };
    let sandboxes = client.sandboxes(&running).await?;
    let mut rows = Vec::new();
    for sandbox in sandboxes {
        let usage = match client.usage(&sandbox.id).await {
            Ok(usage) => usage,
            // It was suspended or terminated meanwhile.
            Err(ClientError::Refused { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        rows.push(Row { id: sandbox.id, name: sandbox.name, resources: sandbox.resources, usage });
    }
    Ok(rows)
}

/// The CPU time of each sandbox at one moment.
#[derive(Default)]
struct Sample {
    at: Option<Instant>,
    cpu_secs: BTreeMap<String, f64>,
}

impl Sample {
    fn of(rows: &[Row]) -> Self {
        let cpu_secs = rows.iter().map(|row| (row.id.clone(), row.usage.cpu_secs)).collect();
        Self { at: Some(Instant::now()), cpu_secs }
    }

    /// Returns how many CPUs a sandbox has used since `before`. Its CPU time restarts with every
    /// run.
    fn since(&self, before: &Self, id: &str) -> Option<f64> {
        let elapsed = self.at?.checked_duration_since(before.at?)?.as_secs_f64();
        let used = self.cpu_secs.get(id)? - before.cpu_secs.get(id)?;
        (elapsed > 0.0 && used >= 0.0).then(|| used / elapsed)
    }
}

fn show(rows: &[Row], now: &Sample, before: &Sample) -> Result<(), Problem> {
    let row = |row: &Row| {
        vec![
            row.id.clone(),
            row.name.clone().unwrap_or_else(shown::none),
            now.since(before, &row.id).map_or_else(shown::none, |cpus| format!("{cpus:.2}")),
            shown::cpus(row.resources.cpu_millis),
            format!("{:.3}s", row.usage.cpu_secs),
            shown::size(row.usage.memory_bytes),
            shown::size(row.resources.memory_bytes),
            row.usage.disk_bytes.map_or_else(shown::none, shown::size),
            shown::size(row.resources.disk_bytes),
            row.usage.processes.to_string(),
        ]
    };
    output::table(&TITLES, &rows.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_told_from_two_moments_of_one_run() {
        let at = Instant::now();
        let sample = |after: u64, secs: f64| Sample {
            at: Some(at + Duration::from_secs(after)),
            cpu_secs: BTreeMap::from([("a".to_owned(), secs)]),
        };
        assert_eq!(sample(2, 3.0).since(&sample(0, 2.0), "a"), Some(0.5));
        assert_eq!(sample(2, 1.0).since(&sample(0, 2.0), "a"), None, "another run");
        assert_eq!(sample(2, 1.0).since(&Sample::default(), "a"), None);
        assert_eq!(sample(2, 1.0).since(&sample(0, 2.0), "b"), None);
    }
}
