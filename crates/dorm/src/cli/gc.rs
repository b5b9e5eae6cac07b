//! `dorm gc`: what is on the disk and which runs have no record, why, and deleting what is to be deleted; and whether what is
//! on the disk still is what was written.

use dorm_api::wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use super::{exit, shown};
use crate::client::{Client, ClientError};

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
    /// Delete nothing: read every image, layer, sleep image and snapshot to its last byte, and say what is damaged. The exit
    /// code is 1 when something is, or could not be read
    #[arg(long, conflicts_with_all = ["dry_run", "runs"])]
    verify: bool,
}

const VERIFIED: [&str; 5] = ["KIND", "ID", "SIZE", "VERDICT", "DAMAGED"];

const TITLES: [&str; 5] = ["KIND", "ID", "SIZE", "FATE", "WHY"];

/// Does it.
pub(crate) async fn run(options: GcOptions) -> Done {
    let client = options.connection.client()?;
    if options.verify {
        return verify(&client, options.connection.output).await;
    }
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

/// One thing after the other: each is read at the disk's full speed.
async fn verify(client: &Client, format: Format) -> Done {
    let mut all = Vec::new();
    for stored in client.stored().await? {
        match client.verify(&stored).await {
            Ok(verified) => all.push(verified),
            // One thing that cannot be read keeps nothing else from being read.
            Err(error @ ClientError::Refused { .. }) => {
                output::talk(&format!("{} {}: {error}", stored.kind, stored.id));
                let wire::Stored { kind, id } = stored;
                all.push(wire::Verified { kind, id, verdict: "unread".to_owned(), bytes: 0, files: Vec::new() });
            }
            Err(error) => return Err(error.into()),
        }
    }
    match format {
        Format::Json => output::json(&all)?,
        Format::Table => output::table(&VERIFIED, &all.iter().map(verified).collect::<Vec<_>>())?,
    }
    let count = |verdict: &str| all.iter().filter(|one| one.verdict == verdict).count();
    let (damaged, unread) = (count("damaged"), count("unread"));
    let bytes = all.iter().map(|one| one.bytes).sum();
    output::talk(&format!(
        "{} things read, {}: {damaged} damaged, {unread} could not be read",
        all.len(),
        shown::size(bytes)
    ));
    if damaged > 0 {
        output::talk("import or pull damaged images again, which mends them; go back to an older snapshot of the rest");
    }
    Ok(if damaged + unread > 0 { exit::FAILED } else { exit::OK })
}

fn verified(one: &wire::Verified) -> Vec<String> {
    let wire::Verified { kind, id, verdict, bytes, files } = one;
    let id = if kind == "capture" { id.clone() } else { shown::digest(id) };
    let files: Vec<_> = files.iter().map(|damaged| format!("{} {}", damaged.file, damaged.what)).collect();
    vec![kind.replace('_', " "), id, shown::size(*bytes), verdict.clone(), files.join("; ")]
}

fn row(artefact: &wire::Artefact) -> Vec<String> {
    let wire::Artefact { kind, id, bytes, fate, why } = artefact;
    // The digest of an image is shown as everywhere else.
    let id = if kind == "image" { shown::digest(id) } else { id.clone() };
    vec![kind.clone(), id, shown::size(*bytes), fate.clone(), why.join("; ")]
}
