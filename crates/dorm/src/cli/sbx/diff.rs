//! `dorm sbx diff`.

use dorm_api_types as wire;
use dorm_client::Client;

use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::shown;
use crate::exit;

/// Options of `dorm sbx diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffOptions {
    /// A snapshot, or a sandbox in its current state: an id, or the name of a sandbox that is not
    /// terminated
    from: String,
    /// The snapshot or sandbox to compare with
    to: String,
    /// Compare in the order given. By default the comparison goes from the older side to the newer
    /// one, so a file made since is `added`
    #[arg(long)]
    in_order: bool,
}

/// Runs `dorm sbx diff`.
pub(super) async fn run(client: &Client, options: DiffOptions, format: Format) -> Done {
    let DiffOptions { from, to, in_order } = options;
    let order = if in_order { wire::DiffOrder::Given } else { wire::DiffOrder::Time };
    let progress = Progress::new(&format!("comparing {from} with {to}"));
    let diff = client.diff(&from, &to, order).await;
    drop(progress);
    let diff = diff?;
    match format {
        Format::Json => output::json(&diff)?,
        Format::Table => table(&diff)?,
    }
    Ok(exit::OK)
}

/// Returns a path that fits on one line: control characters are replaced.
fn plain(path: &str) -> String {
    path.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

fn table(diff: &wire::Diff) -> Result<(), Problem> {
    let wire::Diff { from, to, changes } = diff;
    if changes.is_empty() {
        output::talk(&format!("no files differ between {from} and {to}"));
    } else {
        output::talk(&format!("changes from {from} to {to}:"));
    }
    let size = |bytes: Option<u64>| bytes.map_or_else(shown::none, shown::size);
    let row = |entry: &wire::DiffEntry| {
        vec![
            shown::word(&entry.change),
            plain(&entry.path.to_string()),
            size(entry.before_bytes),
            size(entry.after_bytes),
        ]
    };
    output::table(&["CHANGE", "PATH", "BEFORE", "AFTER"], &changes.iter().map(row).collect::<Vec<_>>())
}
