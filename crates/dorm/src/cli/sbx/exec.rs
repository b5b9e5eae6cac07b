//! `dorm sbx exec`.

use super::command::{self, CommandOptions};
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::values;
use crate::client::Client;

/// Where, and what.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecOptions {
    /// The sandbox's id or name
    id: String,
    /// A variable for it
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    #[command(flatten)]
    command: CommandOptions,
}

/// Runs it; the exit code is its own.
pub(super) async fn run(client: &Client, options: ExecOptions, format: Format) -> Done {
    if format == Format::Json && options.command.fits_a_document() {
        return command::run_whole(client, &options.id, &options.command.exec(options.env)).await;
    }
    command::run(client, &options.id, options.command, options.env).await
}
