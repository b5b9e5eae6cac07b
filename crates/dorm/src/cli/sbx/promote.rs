//! `dorm sbx promote`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::rewind::KeepOptions;
use super::table;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::exit;

/// Options of `dorm sbx promote`.
#[derive(Debug, clap::Args)]
pub(crate) struct PromoteOptions {
    /// The child's id or name
    child: String,
    #[command(flatten)]
    keep: KeepOptions,
}

/// Replaces the sandbox that a child was created from with that child.
pub(super) async fn run(client: &Client, options: PromoteOptions, format: Format) -> Done {
    let (keep_secs, keep) = options.keep.asked();
    let progress = Progress::new(&format!("promoting {}", options.child));
    let done = client.promote(&options.child, &wire::PromoteRequest { keep_secs, keep }).await?;
    drop(progress);
    if format == Format::Json {
        output::json(&done)?;
        return Ok(exit::OK);
    }
    KeepOptions::tell(done.future.as_deref());
    table::one(&done.sandbox, format)
}
