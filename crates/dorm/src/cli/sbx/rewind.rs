//! `dorm sbx rewind`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::table;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::exit;
use crate::values;

/// Options of `dorm sbx rewind`.
#[derive(Debug, clap::Args)]
pub(crate) struct RewindOptions {
    /// The sandbox's id or name
    id: String,
    /// The snapshot to rewind to
    #[arg(long, value_name = "SNAPSHOT")]
    to: String,
    #[command(flatten)]
    keep: KeepOptions,
}

/// Options for the state that a rewind or promotion replaces.
#[derive(Debug, clap::Args)]
pub(super) struct KeepOptions {
    /// How long to keep the current state as a snapshot: a time such as 12h, forever, or none
    #[arg(long, value_name = "TIME", value_parser = kept, default_value = "7d")]
    keep: Kept,
}

/// How long a snapshot is kept.
#[derive(Clone, Copy, Debug)]
enum Kept {
    For(f64),
    Other(wire::Keep),
}

fn kept(text: &str) -> Result<Kept, String> {
    match text {
        "forever" => Ok(Kept::Other(wire::Keep::Forever)),
        "none" => Ok(Kept::Other(wire::Keep::None)),
        _ => match values::duration(text) {
            Ok(seconds) => Ok(Kept::For(seconds)),
            Err(wrong) => Err(format!("{wrong}, nor 'forever' or 'none'")),
        },
    }
}

impl KeepOptions {
    pub(super) fn asked(&self) -> (Option<f64>, Option<wire::Keep>) {
        match self.keep {
            Kept::For(seconds) => (Some(seconds), None),
            Kept::Other(keep) => (None, Some(keep)),
        }
    }

    /// Prints what happened to the replaced state.
    pub(super) fn tell(future: Option<&str>) {
        match future {
            Some(future) => output::talk(&format!("the previous state is snapshot {future}")),
            None => output::talk("the previous state is not kept"),
        }
    }
}

/// Rewinds a sandbox and prints it.
pub(super) async fn run(client: &Client, options: RewindOptions, format: Format) -> Done {
    let RewindOptions { id, to, keep } = options;
    let (keep_secs, keep) = keep.asked();
    let progress = Progress::new(&format!("rewinding {id} to {to}"));
    let done = client.rewind(&id, &wire::RewindRequest { to, keep_secs, keep }).await?;
    drop(progress);
    if format == Format::Json {
        output::json(&done)?;
        return Ok(exit::OK);
    }
    KeepOptions::tell(done.future.as_deref());
    table::one(&done.sandbox, format)
}
