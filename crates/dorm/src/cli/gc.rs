//! `dorm gc`: lists what is on the disk and which runs have no record, and why; deletes what is
//! obsolete; and verifies that the data on the disk is what was written.

use dorm_api_types as wire;
use dorm_client::{Client, ClientError};

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use super::shown;
use crate::exit;

/// Options of `dorm gc`.
#[derive(Debug, clap::Args)]
pub(crate) struct GcOptions {
    #[command(flatten)]
    connection: Connection,
    /// Only show what would be deleted, and why everything else is kept
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Also end runs without a record. By default they are left alone, since the database may be an
    /// old one
    #[arg(long)]
    runs: bool,
    /// Delete nothing: read every image, layer, sleep image and snapshot completely and show what
    /// is damaged. The exit code is 1 if anything is damaged or could not be read
    #[arg(long, conflicts_with_all = ["dry_run", "runs"])]
    verify: bool,
}

const VERIFIED: [&str; 5] = ["KIND", "ID", "SIZE", "VERDICT", "DAMAGED"];

const TITLES: [&str; 5] = ["KIND", "ID", "SIZE", "ACTION", "WHY"];

/// Runs `dorm gc`.
pub(crate) async fn run(options: GcOptions) -> Done {
    let client = options.connection.client()?;
    if options.verify {
        return verify(&client, options.connection.output).await;
    }
    let items = if options.dry_run { client.items().await? } else { client.collect(options.runs).await? };
    match options.connection.output {
        Format::Json => output::json(&items)?,
        Format::Table => output::table(&TITLES, &items.iter().map(row).collect::<Vec<_>>())?,
    }
    if !options.dry_run {
        let bytes = items.iter().map(|item| item.bytes).sum();
        output::talk(&format!("deleted {} items, {}", items.len(), shown::size(bytes)));
    }
    Ok(exit::OK)
}

/// Verifies one item after the other, since each is read at the disk's full speed.
async fn verify(client: &Client, format: Format) -> Done {
    let mut all = Vec::new();
    for stored in client.stored().await? {
        match client.verify(&stored).await {
            Ok(verified) => all.push(verified),
            // An item that cannot be read does not keep the others from being verified.
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
        "verified {} items, {}: {damaged} damaged, {unread} could not be read",
        all.len(),
        shown::size(bytes)
    ));
    if damaged > 0 {
        output::talk("import or pull damaged images again to repair them; use older snapshots for the rest");
    }
    Ok(if damaged + unread > 0 { exit::FAILED } else { exit::OK })
}

fn verified(one: &wire::Verified) -> Vec<String> {
    let wire::Verified { kind, id, verdict, bytes, files } = one;
    let id = if kind == "saved_state" { id.clone() } else { shown::digest(id) };
    let files: Vec<_> = files.iter().map(|damaged| format!("{} {}", damaged.file, damaged.what)).collect();
    vec![kind.replace('_', " "), id, shown::size(*bytes), verdict.clone(), files.join("; ")]
}

fn row(item: &wire::CollectorItem) -> Vec<String> {
    let wire::CollectorItem { kind, id, bytes, verdict, why } = item;
    // The digest of an image is shortened as everywhere else.
    let id = if kind == "image" { shown::digest(id) } else { id.clone() };
    vec![kind.clone(), id, shown::size(*bytes), verdict.clone(), why.join("; ")]
}
