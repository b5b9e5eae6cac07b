//! `dorm sbx ps`.

use dorm_api_types as wire;
use dorm_client::Client;
use jiff::Timestamp;

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::exit;

const TITLES: [&str; 6] = ["PROCESS", "PID", "LABEL", "STATUS", "AGE", "COMMAND"];

/// The longest command line in a table, in characters.
const COMMAND_MAX: usize = 60;

/// Options of `dorm sbx ps`.
#[derive(Debug, clap::Args)]
pub(crate) struct PsOptions {
    /// The sandbox's id or name
    id: String,
    /// List only processes with this label
    #[arg(long)]
    label: Option<String>,
    /// Include processes that have ended
    #[arg(short, long)]
    all: bool,
}

/// Lists the processes that were started through the API, the oldest first.
pub(super) async fn run(client: &Client, options: PsOptions, format: Format) -> Done {
    let mut processes = client.processes(&options.id, options.label.as_deref()).await?;
    processes.retain(|process| options.all || process.exit.is_none());
    match format {
        Format::Json => output::json(&processes)?,
        Format::Table => {
            let now = Timestamp::now();
            let rows: Vec<_> = processes.iter().map(|process| row(process, now)).collect();
            output::table(&TITLES, &rows)?;
        }
    }
    Ok(exit::OK)
}

fn row(process: &wire::Process, now: Timestamp) -> Vec<String> {
    let words: Vec<_> = process.argv.iter().map(|word| word.to_string()).collect();
    let line = output::harmless(&words.join(" "));
    let command = match line.char_indices().nth(COMMAND_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    };
    vec![
        process.process.to_string(),
        process.pid.to_string(),
        process.label.as_deref().map_or_else(shown::none, output::harmless),
        status(process.exit),
        shown::age(process.started_at, now),
        command,
    ]
}

fn status(exit: Option<wire::ExitStatus>) -> String {
    match exit {
        None => "running".to_owned(),
        Some(wire::ExitStatus { exit_code: Some(code), .. }) => format!("exited with {code}"),
        Some(wire::ExitStatus { signal, .. }) => format!("ended by signal {}", signal.unwrap_or_default()),
    }
}
