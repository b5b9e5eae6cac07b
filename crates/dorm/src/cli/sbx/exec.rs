//! `dorm sbx exec`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::checkpoint::CheckpointType;
use super::command::{self, CommandOptions};
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::values;

/// Options of `dorm sbx exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecOptions {
    /// The sandbox's id or name
    id: String,
    /// An environment variable for the command
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// Take a snapshot first [default TYPE: filesystem]; if that fails, the command is not run
    #[arg(
        long,
        value_enum,
        value_name = "TYPE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "filesystem",
        conflicts_with_all = ["tty", "interactive"]
    )]
    checkpoint: Option<CheckpointType>,
    /// How long the command may run, such as 5m; then it and its process group are killed
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout: Option<f64>,
    /// Resume the sandbox first if it is suspended, whatever wakes it otherwise
    #[arg(long)]
    wake: bool,
    #[command(flatten)]
    command: CommandOptions,
}

/// Runs the command and returns its exit code.
pub(super) async fn run(client: &Client, options: ExecOptions, format: Format) -> Done {
    let ExecOptions { id, env, checkpoint, timeout, wake, command } = options;
    let command = command.within(timeout);
    let waking = client.waking();
    let client = if wake { &waking } else { client };
    if format == Format::Json && command.fits_a_document() {
        let asked = wire::ExecRequest { checkpoint: checkpoint.map(Into::into), ..command.exec(env) };
        return command::run_whole(client, &id, &asked).await;
    }
    match checkpoint {
        Some(kind) => command::run_after_checkpoint(client, &id, command.exec(env), kind.into()).await,
        None => command::run(client, &id, command, env).await,
    }
}
