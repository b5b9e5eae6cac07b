//! `dorm sbx rewind`.

use dorm_api::wire;

use super::table;
use crate::cli::exit;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::cli::values;
use crate::client::Client;

/// Which sandbox, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct RewindOptions {
    /// Its id or name
    id: String,
    /// The snapshot to go back to
    #[arg(long, value_name = "SNAPSHOT")]
    to: String,
    #[command(flatten)]
    keep: KeepOptions,
}

/// What becomes of the present.
#[derive(Debug, clap::Args)]
pub(super) struct KeepOptions {
    /// How long what it was until now is kept: a time such as 12h, forever, or none
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

    /// Says what has become of the present.
    pub(super) fn tell(future: Option<&str>) {
        match future {
            Some(future) => output::talk(&format!("what it was until now is snapshot {future}")),
            None => output::talk("what it was until now is not kept"),
        }
    }
}

/// Takes it back.
pub(super) async fn run(client: &Client, options: RewindOptions, format: Format) -> Done {
    let RewindOptions { id, to, keep } = options;
    let (keep_secs, keep) = keep.asked();
    let progress = Progress::new(&format!("taking {id} back to {to}"));
    let done = client.rewind(&id, &wire::RewindRequest { to, keep_secs, keep }).await?;
    drop(progress);
    if format == Format::Json {
        output::json(&done)?;
        return Ok(exit::OK);
    }
    KeepOptions::tell(done.future.as_deref());
    table::one(&done.sandbox, format)
}
