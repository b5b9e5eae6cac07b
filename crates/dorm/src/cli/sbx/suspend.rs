//! `dorm sbx suspend`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::progress::Progress;

/// Options of `dorm sbx suspend`.
#[derive(Debug, clap::Args)]
pub(crate) struct SuspendOptions {
    /// The sandbox's id or name
    id: String,
    /// The part of it to keep: its memory, so that it continues where it stopped, or its files
    /// only, from which it boots
    #[arg(long, value_enum, value_name = "PART", default_value = "memory")]
    keep: Keep,
    /// Release its memory at once; it is then resumed from disk
    #[arg(long, conflicts_with = "no_wait")]
    evict: bool,
    #[command(flatten)]
    waiting: NoWait,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Keep {
    Memory,
    Files,
}

/// Whether a command is waited for.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct NoWait {
    /// Return as soon as the operation is recorded; `dorm operation wait` waits for its end
    #[arg(long)]
    no_wait: bool,
}

impl NoWait {
    /// Returns what a request says about it.
    pub(super) fn wait(self) -> Option<bool> {
        self.no_wait.then_some(false)
    }
}

/// Suspends a sandbox. On success what is kept of it is on disk and verified.
pub(super) async fn run(client: &Client, options: SuspendOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("suspending {}", options.id));
    let keep = match options.keep {
        Keep::Memory => None,
        Keep::Files => Some(wire::Kept::Files),
    };
    let asked = wire::SuspendRequest { keep, wait: options.waiting.wait(), if_busy: None };
    let mut sandbox = client.suspend(&options.id, asked).await?;
    if options.evict {
        sandbox = client.evict(&options.id).await?;
    }
    drop(progress);
    table::one(&sandbox, format)
}
