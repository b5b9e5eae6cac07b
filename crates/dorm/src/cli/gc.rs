//! `dorm gc`: what is on the disk and which runs have no record, why, and deleting what is to be deleted.

use dorm_api::wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use super::{exit, shown};

/// How.
#[derive(Debug, clap::Args)]
pub(crate) struct GcOptions {
    #[command(flatten)]
    connection: Connection,
    /// Only say what would be deleted, and why everything else is kept
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// End the runs that no record names, too. They are left alone otherwise, since the database may be an old one
    #[arg(long)]
    runs: bool,
}

const TITLES: [&str; 5] = ["KIND", "ID", "SIZE", "FATE", "WHY"];

/// Does it.
pub(crate) async fn run(options: GcOptions) -> Done {
    let client = options.connection.client()?;
    let artefacts = if options.dry_run { client.artefacts().await? } else { client.collect(options.runs).await? };
    match options.connection.output {
        Format::Json => output::json(&artefacts)?,
        Format::Table => output::table(&TITLES, &artefacts.iter().map(row).collect::<Vec<_>>())?,
    }
    if !options.dry_run {
        let bytes = artefacts.iter().map(|artefact| artefact.bytes).sum();
        output::talk(&format!("{} things deleted, {}", artefacts.len(), shown::size(bytes)));
    }
    Ok(exit::OK)
}

fn row(artefact: &wire::Artefact) -> Vec<String> {
    let wire::Artefact { kind, id, bytes, fate, why } = artefact;
    // The digest of an image is shown as everywhere else.
    let id = if kind == "image" { shown::digest(id) } else { id.clone() };
    vec![kind.clone(), id, shown::size(*bytes), fate.clone(), why.join("; ")]
}
