//! `dorm sbx run`: a sandbox for one command. It is terminated when the command ends, also if the
//! command fails or dorm receives a signal to end.

use std::pin::pin;

use dorm_api_types as wire;
use dorm_client::Client;

use super::command::{self, CommandOptions};
use super::create::NewSandbox;
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::pull;
use crate::cli::signals::{Signals, ended_by};

/// Options of `dorm sbx run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    sandbox: NewSandbox,
    #[command(flatten)]
    command: CommandOptions,
}

/// Runs a command in a new sandbox and returns its exit code.
pub(super) async fn run(client: &Client, options: RunOptions, format: Format) -> Done {
    let mut asked = options.sandbox.request(None)?;
    pull::before(client, &mut asked).await?;
    let (sandbox, signal) = create(client, &asked).await?;
    let ran = if let Some(number) = signal {
        Ok(ended_by(number))
    } else if format == Format::Json && options.command.fits_a_document() {
        command::run_whole(client, &sandbox.id, &options.command.exec(Vec::new())).await
    } else {
        command::run(client, &sandbox.id, options.command, Vec::new()).await
    };
    let ended = client.terminate(&sandbox.id, wire::CommandRequest::default()).await.map_err(Problem::from);
    match (ran, ended) {
        (ran, Ok(_)) => ran,
        (Ok(code), Err(problem)) => {
            output::talk(&format!("the command ended with code {code}"));
            Err(problem.during(&format!("cannot terminate sandbox {}", sandbox.id)))
        }
        (Err(first), Err(second)) => {
            second.during(&format!("cannot terminate sandbox {}", sandbox.id)).tell();
            Err(first)
        }
    }
}

/// Creates the sandbox. Also returns a signal to end that arrived meanwhile: the caller must still
/// terminate the sandbox.
async fn create(client: &Client, asked: &wire::CreateSandbox) -> Result<(wire::Sandbox, Option<i32>), Problem> {
    let _progress = Progress::new("creating a sandbox");
    let mut signals = Signals::new()?;
    let mut signal = None;
    let mut creating = pin!(client.create(asked));
    loop {
        tokio::select! {
            created = &mut creating => return Ok((created?, signal)),
            number = signals.next() => signal = Some(number),
        }
    }
}
