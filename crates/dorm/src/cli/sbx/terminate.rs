//! `dorm sbx terminate`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::suspend::NoWait;
use super::table;
use crate::cli::output::Format;
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::exit;

/// Options of `dorm sbx terminate`.
#[derive(Debug, clap::Args)]
pub(crate) struct TerminateOptions {
    /// The sandboxes' ids or names
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    waiting: NoWait,
}

/// Terminates all sandboxes given, and prints those that were terminated. A failure does not stop
/// the others; the first one decides the exit code.
pub(super) async fn run(client: &Client, options: TerminateOptions, format: Format) -> Done {
    let mut ended = Vec::new();
    let mut code = None;
    let asked = wire::CommandRequest { wait: options.waiting.wait(), if_busy: None };
    for id in &options.ids {
        let progress = Progress::new(&format!("terminating {id}"));
        let done = client.terminate(id, asked).await.map_err(Problem::from);
        drop(progress);
        match done {
            Ok(sandbox) => ended.push(sandbox),
            Err(problem) => {
                problem.tell();
                code.get_or_insert(problem.exit_code());
            }
        }
    }
    if !ended.is_empty() || format == Format::Json {
        table::many(&ended, format)?;
    }
    Ok(code.unwrap_or(exit::OK))
}
